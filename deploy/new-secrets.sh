#!/bin/sh
# Prints the secrets that docker-compose.yaml needs, made up anew, and makes NATS' certificates in deploy/tls:
#
#   sh deploy/new-secrets.sh > .env
set -eu
umask 077
sh "$(dirname "$0")/new-certificates.sh"
for role in WATCHER WORKER EDGE PATCHER ADMIT OPERATOR UI; do
    echo "NATS_${role}_PASSWORD=$(LC_ALL=C tr -dc A-Za-z0-9 < /dev/urandom | head -c 32)"
done
echo "DNS_KEY_SECRET=$(head -c 32 /dev/urandom | base64)"
