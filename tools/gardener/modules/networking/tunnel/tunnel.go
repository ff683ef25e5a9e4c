// Package tunnel runs OpenVPN between the seed and the nodes of a Shoot, as both ends of Gardener's VPN do.
package tunnel

import (
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	device = "tun0"
	// Of the seed's reserved range, so that neither the seed nor the Shoot has it.
	transfer = "241.0.0.0 255.255.255.0"
	// The group of the Envoy through which the API server reaches the Shoot.
	envoyGroup = 31415
	common     = `dev ` + device + `
tls-auth /srv/secrets/tlsauth/vpn.tlsauth
auth SHA256
data-ciphers AES-256-GCM
persist-key
verb 3
`
	// Packets of the tunnel are smaller than those of the networks around it.
	clamp = `
	chain sizes {
		type filter hook postrouting priority mangle
		tcp flags & (syn|rst) == syn tcp option maxseg size set rt mtu
	}
`
)

// Forward lets the Pod pass packets on. Only a privileged container may allow that.
func Forward() {
	if err := supported(); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		log.Fatal(err)
	}
}

func supported() error {
	if os.Getenv("IS_HA") == "true" {
		return errors.New("this stand-in knows no highly available VPN: let the Shoot have no high availability")
	}
	return nil
}

// firewall sets the rules of a table, whether it exists or not.
func firewall(rules string) error {
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader("table ip vpn\ndelete table ip vpn\ntable ip vpn {" + rules + clamp + "}\n")
	if output, err := nft.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, output)
	}
	return nil
}

// translation is a rule of nftables that replaces networks in destinations.
func translation(networks []Network, pair func(Network) string) string {
	pairs := make([]string, len(networks))
	for i, one := range networks {
		pairs[i] = pair(one)
	}
	return "dnat ip prefix to ip daddr map { " + strings.Join(pairs, ", ") + " }"
}

// run becomes OpenVPN.
func run(configuration string) error {
	file := filepath.Join(os.TempDir(), "openvpn.conf")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		return err
	}
	path, err := exec.LookPath("openvpn")
	if err != nil {
		return err
	}
	return syscall.Exec(path, []string{path, "--config", file}, os.Environ())
}
