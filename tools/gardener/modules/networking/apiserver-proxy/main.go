// apiserver-proxy is a stand-in of Gardener's program of this name: it gives a node the address at which its Envoy
// serves the Shoot's API server to Pods.
package main

import (
	"context"
	"flag"
	"log"
	"net/netip"
	"os/exec"
	"os/signal"
	"syscall"
)

// The original makes an interface of its own, of a type that not every kernel has.
const device = "lo"

func main() {
	log.SetFlags(0)
	address := flag.String("ip-address", "", "the address of the API server")
	daemon := flag.Bool("daemon", true, "run until a signal comes")
	flag.String("interface", device, "ignored: the address is on "+device)
	flag.Parse()

	ip, err := netip.ParseAddr(*address)
	if err != nil {
		log.Fatal(err)
	}
	prefix := netip.PrefixFrom(ip, ip.BitLen()).String()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if output, err := exec.CommandContext(ctx, "ip", "addr", "replace", prefix, "dev", device).CombinedOutput(); err != nil {
		log.Fatalf("ip addr replace %s: %v: %s", prefix, err, output)
	}
	if *daemon {
		// The address stays: the next Pod of this DaemonSet uses it, too.
		<-ctx.Done()
	}
}
