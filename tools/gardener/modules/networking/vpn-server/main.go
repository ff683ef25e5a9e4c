// vpn-server is a stand-in of Gardener's program of this name: the seed's end of the tunnel to a Shoot's nodes.
package main

import (
	"log"
	"os"

	"windowbox/gardener/networking/tunnel"
)

func main() {
	log.SetFlags(0)
	var err error
	switch command := append(os.Args, "serve")[1]; command {
	case "setup":
		tunnel.Forward()
	case "serve":
		err = tunnel.Serve()
	// The first clients may come when the server is Ready only: the Service names it.
	case "readiness", "liveness":
		err = tunnel.Alive()
	default:
		log.Fatalf("%s: this stand-in does not know it", command)
	}
	if err != nil {
		log.Fatal(err)
	}
}
