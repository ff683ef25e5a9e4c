// ext-authz-server is a stand-in of Gardener's program of this name: Envoy asks it whether a request may pass.
// Users and hashes of their passwords are in /secrets, in a file for each first label of a host.
package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	kind "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
)

const users = "/secrets"

func main() {
	log.SetFlags(0)
	certificate, err := tls.LoadX509KeyPair("/tls/tls.crt", "/tls/tls.key")
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", ":10000")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	auth.RegisterAuthorizationServer(server, authorization{})
	log.Fatal(server.Serve(listener))
}

type authorization struct {
	auth.UnimplementedAuthorizationServer
}

func (authorization) Check(_ context.Context, request *auth.CheckRequest) (*auth.CheckResponse, error) {
	http := request.GetAttributes().GetRequest().GetHttp()
	if allowed(http.GetHost(), http.GetHeaders()["authorization"]) {
		return &auth.CheckResponse{Status: &status.Status{Code: int32(codes.OK)}}, nil
	}
	challenge := &core.HeaderValueOption{
		Header: &core.HeaderValue{Key: "WWW-Authenticate", Value: `Basic realm="Authentication Required"`},
	}
	return &auth.CheckResponse{
		Status: &status.Status{Code: int32(codes.Unauthenticated)},
		HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: &auth.DeniedHttpResponse{
			Status:  &kind.HttpStatus{Code: kind.StatusCode_Unauthorized},
			Headers: []*core.HeaderValueOption{challenge},
		}},
	}, nil
}

func allowed(host, header string) bool {
	// A host is not trusted: its first label has neither a slash nor a dot.
	label, _, _ := strings.Cut(host, ".")
	encoded, basic := strings.CutPrefix(header, "Basic ")
	given, err := base64.StdEncoding.DecodeString(encoded)
	if !basic || err != nil || label == "" || strings.ContainsAny(label, `/\`) {
		return false
	}
	user, password, _ := strings.Cut(string(given), ":")
	known, err := os.ReadFile(filepath.Join(users, label))
	if err != nil {
		return false
	}
	for _, line := range strings.Fields(string(known)) {
		name, hash, _ := strings.Cut(line, ":")
		if name == user && bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil {
			return true
		}
	}
	return false
}
