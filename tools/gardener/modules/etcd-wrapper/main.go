// A stand-in for Gardener's etcd-wrapper, whose module cannot be had: the container "etcd" of the Pods that etcd-druid
// makes. It lets etcd-backup-restore, the other container of the Pod, check or restore the data, fetches etcd's
// configuration from it, and runs etcd. It takes the arguments of the original, and behaves as it does towards
// etcd-druid and etcd-backup-restore.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

const (
	// The signal that ended etcd, on the volume of its data. Without it, the next start checks all data.
	exitCodeFile = "/var/etcd/data/exit_code"

	pause           = time.Second
	configAttempts  = 5
	requestTimeout  = 90 * time.Second // /config waits 38 seconds for a cluster that does not run yet
	headerTimeout   = 10 * time.Second
	readinessLimit  = 5 * time.Second
	shutdownTimeout = 5 * time.Second
)

type options struct {
	backupRestore, backupRestoreCA    string
	backupRestoreTLS                  bool
	serverName, clientCert, clientKey string
	clientPort, wrapperPort           int
	readyTimeout                      time.Duration
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		go noteSignal(cancel)
		err = run(ctx, cancel, o)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func parse(arguments []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("start-etcd", flag.ContinueOnError)
	flags.StringVar(&o.backupRestore, "backup-restore-host-port", ":8080", "where etcd-backup-restore listens")
	flags.BoolVar(&o.backupRestoreTLS, "backup-restore-tls-enabled", false, "whether it speaks TLS")
	flags.StringVar(&o.backupRestoreCA, "backup-restore-ca-cert-bundle-path", "", "the CA of its certificate")
	flags.StringVar(&o.serverName, "etcd-server-name", "", "a name of etcd's certificate, and of this Pod")
	flags.StringVar(&o.clientCert, "etcd-client-cert-path", "", "the certificate of the client that asks whether etcd is ready")
	flags.StringVar(&o.clientKey, "etcd-client-key-path", "", "its key")
	flags.IntVar(&o.clientPort, "etcd-client-port", 2379, "where etcd serves its clients")
	flags.IntVar(&o.wrapperPort, "etcd-wrapper-port", 9095, "where /readyz and /stop are served")
	flags.DurationVar(&o.readyTimeout, "etcd-ready-timeout", 0, "how long etcd may take to start; 0 for ever")
	if len(arguments) == 0 || arguments[0] != "start-etcd" {
		return o, errors.New("the only command is start-etcd")
	}
	return o, flags.Parse(arguments[1:])
}

// noteSignal ends etcd at SIGTERM and SIGINT, and notes that it was asked to end: its data needs no full check.
func noteSignal(cancel context.CancelFunc) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	received := <-signals
	if err := os.WriteFile(exitCodeFile, []byte(received.String()), 0o600); err != nil {
		log.Printf("the signal could not be noted: %v", err)
	}
	cancel()
}

func run(ctx context.Context, stop context.CancelFunc, o options) error {
	config, err := prepare(ctx, o)
	if err != nil {
		return err
	}
	syscall.Umask(0o077) // files of etcd are its own
	client, err := etcdClient(config, o)
	if err != nil {
		return err
	}
	defer client.Close()
	failed := make(chan error, 1)
	server := serve(config, o, client, stop, failed)
	defer func() {
		grace, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		server.Shutdown(grace) // lets the answer to /stop out
	}()

	etcd, err := start(ctx, config, o)
	if err != nil {
		return err
	}
	defer etcd.Close()
	if err := os.Remove(exitCodeFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Printf("the noted signal could not be removed: %v", err)
	}
	select {
	case <-ctx.Done():
		log.Print("asked to end")
		return nil
	case <-etcd.Server.StopNotify():
		return errors.New("etcd ended by itself")
	case err := <-etcd.Err():
		return err
	case err := <-failed:
		return err
	}
}

// prepare lets etcd-backup-restore check the data, and restore it if need be, and returns etcd's configuration.
func prepare(ctx context.Context, o options) (*embed.Config, error) {
	tlsConfig, err := clientTLS(o.backupRestoreTLS, o.backupRestoreCA, "", "", "")
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig}, Timeout: requestTimeout}
	address := scheme(o.backupRestoreTLS) + o.backupRestore
	// "New" asks for a start. "Failed" is said once, "New" follows it.
	for status := ""; status != "Successful"; {
		if status, err = get(ctx, client, address+"/initialization/status"); err != nil {
			log.Printf("the status of the initialization is unknown: %v", err)
		}
		if status == "New" {
			mode := validationMode()
			log.Printf("asking for an initialization, mode %s", mode)
			if _, err := get(ctx, client, address+"/initialization/start?mode="+mode); err != nil {
				log.Printf("the initialization was not started: %v", err)
			}
		}
		if status != "Successful" && !sleep(ctx) {
			return nil, ctx.Err()
		}
	}
	for attempt := 1; ; attempt++ {
		text, err := get(ctx, client, address+"/config")
		if err == nil {
			return parseConfig(text)
		}
		if attempt == configAttempts || !sleep(ctx) {
			return nil, fmt.Errorf("etcd's configuration cannot be had: %w", err)
		}
	}
}

// validationMode is "sanity" after a requested end, and otherwise "full".
func validationMode() string {
	noted, _ := os.ReadFile(exitCodeFile)
	switch strings.TrimSpace(string(noted)) {
	case syscall.SIGTERM.String(), syscall.SIGINT.String():
		return "sanity"
	}
	return "full"
}

func get(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(body), err
}

// parseConfig reads it by way of a file: etcd has no other reader.
func parseConfig(text string) (*embed.Config, error) {
	file, err := os.CreateTemp("", "etcd-*.yaml")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString(text); err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	return embed.ConfigFromFile(file.Name())
}

// start returns etcd when it serves its clients.
func start(ctx context.Context, config *embed.Config, o options) (*embed.Etcd, error) {
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	var expired <-chan time.Time
	if o.readyTimeout > 0 {
		expired = time.After(o.readyTimeout)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case <-etcd.Server.StopNotify():
		err = errors.New("etcd ended while it started")
	case <-expired:
		err = fmt.Errorf("etcd is not ready after %s", o.readyTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	etcd.Close()
	return nil, err
}

// serve answers the kubelet's readiness probe, and etcd-backup-restore, which restarts etcd by /stop.
func serve(
	config *embed.Config, o options, client *clientv3.Client, stop context.CancelFunc, failed chan<- error,
) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(response http.ResponseWriter, request *http.Request) {
		ctx, cancel := context.WithTimeout(request.Context(), readinessLimit)
		defer cancel()
		// A linearizable read needs a leader, and thus a quorum.
		if _, err := client.Get(ctx, "foo"); err != nil {
			http.Error(response, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { stop() })
	server := &http.Server{
		Addr: fmt.Sprintf(":%d", o.wrapperPort), Handler: mux, ReadHeaderTimeout: headerTimeout,
	}
	go func() {
		tlsInfo := config.ClientTLSInfo
		var err error
		if tlsInfo.Empty() {
			err = server.ListenAndServe()
		} else {
			err = server.ListenAndServeTLS(tlsInfo.CertFile, tlsInfo.KeyFile)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}()
	return server
}

func etcdClient(config *embed.Config, o options) (*clientv3.Client, error) {
	secure := !config.ClientTLSInfo.Empty()
	tlsConfig, err := clientTLS(secure, config.ClientTLSInfo.TrustedCAFile, o.clientCert, o.clientKey, o.serverName)
	if err != nil {
		return nil, err
	}
	endpoint := scheme(secure) + net.JoinHostPort(o.serverName, fmt.Sprint(o.clientPort))
	return clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: tlsConfig})
}

// clientTLS is nil without TLS.
func clientTLS(secure bool, ca, certificate, key, serverName string) (*tls.Config, error) {
	if !secure {
		return nil, nil
	}
	bundle, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: serverName}
	if !config.RootCAs.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("%s contains no certificate", ca)
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func scheme(secure bool) string {
	if secure {
		return "https://"
	}
	return "http://"
}

// sleep is false if the program is to end.
func sleep(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}
