package tunnel

import (
	"fmt"
	"os"
)

const clientSecrets = "/srv/secrets/vpn-client"

// Connect becomes OpenVPN's client, which reaches its server through the seed's ingress gateway.
func Connect() error {
	networks, err := Networks()
	if err != nil {
		return err
	}
	if err := firewall(clientRules(networks)); err != nil {
		return err
	}
	return run(common + fmt.Sprintf(`client
proto tcp4-client
nobind
remote %[1]s 1194
http-proxy %[1]s %[2]s
http-proxy-option CUSTOM-HEADER %[3]s %[4]s
connect-retry 1 5
key-direction 1
ca %[5]s/ca.crt
cert %[5]s/tls.crt
key %[5]s/tls.key
remote-cert-tls server
auth-nocache
`, os.Getenv("ENDPOINT"), os.Getenv("OPENVPN_PORT"), os.Getenv("REVERSED_VPN_HEADER_KEY"),
		os.Getenv("REVERSED_VPN_HEADER"), clientSecrets))
}

// clientRules translate back, and let the seed's packets appear as those of this Pod.
func clientRules(networks []Network) string {
	back := translation(networks, func(one Network) string { return fmt.Sprintf("%s : %s", one.Mapped, one.Shoot) })
	return fmt.Sprintf(`
	chain seed {
		type nat hook prerouting priority dstnat
		iifname "%s" %s
	}
	chain shoot {
		type nat hook postrouting priority srcnat
		oifname != "%[1]s" masquerade
	}
`, device, back)
}
