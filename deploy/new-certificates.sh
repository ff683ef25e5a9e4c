#!/bin/sh
# Makes the certificates of docker-compose.yaml's NATS anew, with an authority whose key is not kept:
#
#   sh deploy/new-certificates.sh && docker compose restart nats
#
# Processes need no restart: they read ca.crt whenever they connect.
set -eu
umask 077
folder=${NATS_TLS:-$(dirname "$0")/tls}
hosts=DNS:nats,DNS:localhost,IP:127.0.0.1,IP:::1

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
cat > "$new/openssl.cnf" <<END
[req]
distinguished_name = name
prompt = no
[name]
CN = windowbox-nats
[authority]
basicConstraints = critical, CA:true, pathlen:0
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = $hosts
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
END
quiet_openssl() { openssl "$@" 2> "$new/said" || { cat "$new/said" >&2; exit 1; }; }
quiet_openssl ecparam -name prime256v1 -genkey -noout -out "$new/ca.key"
quiet_openssl req -x509 -new -sha256 -days 3650 -config "$new/openssl.cnf" -extensions authority \
    -key "$new/ca.key" -out "$new/ca.crt"
quiet_openssl ecparam -name prime256v1 -genkey -noout -out "$new/nats.key"
quiet_openssl req -new -sha256 -config "$new/openssl.cnf" -subj /CN=nats -key "$new/nats.key" -out "$new/nats.csr"
quiet_openssl x509 -req -sha256 -days 3650 -in "$new/nats.csr" -CA "$new/ca.crt" -CAkey "$new/ca.key" -CAcreateserial \
    -extfile "$new/openssl.cnf" -extensions server -out "$new/nats.crt"

mkdir -p "$folder/ca" "$folder/nats"
mv "$new/nats.crt" "$new/nats.key" "$folder/nats/"
mv "$new/ca.crt" "$folder/ca/"
# Whoever the processes run as has to read the authority's certificate.
chmod 755 "$folder" "$folder/ca"
chmod 644 "$folder/ca/ca.crt"
