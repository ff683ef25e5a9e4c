package tunnel

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// The common name of the client's certificate.
	client = "vpn-shoot-client"
	// How often OpenVPN writes its status.
	interval = 15 * time.Second
	secrets  = "/srv/secrets/vpn-server"
)

// Serve routes the networks of the Shoot into the tunnel, and becomes OpenVPN's server.
func Serve() error {
	networks, err := Networks()
	if err != nil {
		return err
	}
	if err := firewall(serverRules(networks)); err != nil {
		return err
	}
	var routes, inside strings.Builder
	for _, one := range networks {
		fmt.Fprintf(&routes, "route %s %s\n", one.Mapped.Addr(), mask(one.Mapped))
		fmt.Fprintf(&inside, "iroute %s %s\n", one.Mapped.Addr(), mask(one.Mapped))
	}
	clients := filepath.Join(os.TempDir(), "clients")
	if err := os.MkdirAll(clients, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(clients, client), []byte(inside.String()), 0o644); err != nil {
		return err
	}
	return run(common + fmt.Sprintf(`proto tcp4-server
port 1194
server %s
topology subnet
key-direction 0
ca %[2]s/ca.crt
cert %[2]s/tls.crt
key %[2]s/tls.key
dh none
keepalive 10 60
client-config-dir %[3]s
ccd-exclusive
status %[4]s %.0[5]f
status-version 2
`, transfer, secrets, clients, status(), interval.Seconds()) + routes.String())
}

// serverRules translate for Envoy alone, hide the seed's addresses, which the Shoot may use, too, and let
// nothing in that comes from the Shoot.
func serverRules(networks []Network) string {
	into := translation(networks, func(one Network) string { return fmt.Sprintf("%s : %s", one.Shoot, one.Mapped) })
	return fmt.Sprintf(`
	chain envoy {
		type nat hook output priority -100
		meta skgid %d %s
	}
	chain seed {
		type nat hook postrouting priority srcnat
		oifname "%[3]s" masquerade
	}
	chain shoot {
		type filter hook input priority filter
		iifname "%[3]s" ct state established,related accept
		iifname "%[3]s" drop
	}
	chain through {
		type filter hook forward priority filter
		iifname "%[3]s" drop
	}
`, envoyGroup, into, device)
}

// Alive tells whether OpenVPN wrote its status in time.
func Alive() error {
	file, err := os.Open(status())
	if err != nil {
		return err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		// TIME,2026-11-28 22:13:23,1796000003
		if fields := strings.Split(lines.Text(), ","); fields[0] == "TIME" && len(fields) > 2 {
			written, err := strconv.ParseInt(fields[2], 10, 64)
			if err != nil {
				return err
			}
			if age := time.Since(time.Unix(written, 0)); age > interval+2*time.Second {
				return fmt.Errorf("the status of OpenVPN is %s old", age.Round(time.Second))
			}
			return nil
		}
	}
	return fmt.Errorf("%s: no time in it", status())
}

func status() string {
	if path := os.Getenv("OPENVPN_STATUS_PATH"); path != "" {
		return path
	}
	return "/srv/status/openvpn.status"
}
