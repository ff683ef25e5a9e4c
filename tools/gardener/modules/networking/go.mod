// Stand-ins of Gardener's vpn-server, vpn-client and apiserver-proxy, whose modules cannot be had.
module windowbox/gardener/networking

go 1.26
