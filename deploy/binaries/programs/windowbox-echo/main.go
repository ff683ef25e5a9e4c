// A server that tells who answered whom, and then repeats what it hears, over TCP and UDP.
//
//	echo --tcp 8080,8081 --udp 8080 --http 8090
//
// TCP: one line `pod=… node=… peer=…` as soon as somebody connects, then everything that was sent.
// UDP: the same line, followed by the datagram. HTTP: 200 for /healthz.
// Names come from POD_NAME and NODE_NAME; ports also from TCP_PORTS, UDP_PORTS and HTTP_PORT.
package main

import (
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
)

const version = "1.0.0"

func main() {
	asked := flag.Bool("version", false, "say the version")
	tcp := flag.String("tcp", os.Getenv("TCP_PORTS"), "ports, separated by commas")
	udp := flag.String("udp", os.Getenv("UDP_PORTS"), "ports, separated by commas")
	health := flag.String("http", os.Getenv("HTTP_PORT"), "port of /healthz")
	flag.Parse()
	if *asked {
		fmt.Println("windowbox-echo", version)
		return
	}
	for _, port := range ports(*tcp) {
		listener, err := net.Listen("tcp", ":"+port)
		check(err)
		go serveTCP(listener)
	}
	for _, port := range ports(*udp) {
		socket, err := net.ListenPacket("udp", ":"+port)
		check(err)
		go serveUDP(socket)
	}
	if *health != "" {
		listener, err := net.Listen("tcp", ":"+*health)
		check(err)
		go func() { check(http.Serve(listener, http.HandlerFunc(healthz))) }()
	}
	// The first process of a container ignores signals that it has not asked for.
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}

func serveTCP(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		check(err)
		go func() {
			defer connection.Close()
			if _, err := io.WriteString(connection, greeting(connection.RemoteAddr())); err == nil {
				io.Copy(connection, connection)
			}
		}()
	}
}

func serveUDP(socket net.PacketConn) {
	buffer := make([]byte, 65536)
	for {
		length, peer, err := socket.ReadFrom(buffer)
		if err != nil {
			continue // an ICMP message about an earlier answer
		}
		answer := append([]byte(greeting(peer)), buffer[:length]...)
		socket.WriteTo(answer, peer)
	}
}

func healthz(writer http.ResponseWriter, request *http.Request) {
	if request.URL.Path != "/healthz" {
		http.NotFound(writer, request)
		return
	}
	io.WriteString(writer, "ok\n")
}

func greeting(peer net.Addr) string {
	return fmt.Sprintf("pod=%s node=%s peer=%s\n", os.Getenv("POD_NAME"), os.Getenv("NODE_NAME"), peer)
}

func ports(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
