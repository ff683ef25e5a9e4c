// vpn-client is a stand-in of Gardener's program of this name: the end of the tunnel in a Shoot.
package main

import (
	"log"
	"os"

	"windowbox/gardener/networking/tunnel"
)

func main() {
	log.SetFlags(0)
	switch command := append(os.Args, "connect")[1]; command {
	case "setup":
		tunnel.Forward()
	case "connect":
		if err := tunnel.Connect(); err != nil {
			log.Fatal(err)
		}
	default:
		log.Fatalf("%s: this stand-in does not know it", command)
	}
}
