#!/bin/sh
# Starts BIND with one zone that takes signed updates. A zone that is there already is kept.
# From the environment: DNS_ZONE, DNS_KEY_NAME, DNS_KEY_SECRET (base64; the algorithm is hmac-sha256), DNS_PORT.
# Anybody may run it: only root, who gives its rights up, needs the user bind.
set -eu
umask 027
folder=/var/lib/bind
mkdir -p "$folder" /run/windowbox

cat > /run/windowbox/named.conf <<CONF
key "$DNS_KEY_NAME" { algorithm hmac-sha256; secret "$DNS_KEY_SECRET"; };
controls { };
options {
    directory "$folder";
    pid-file none;
    session-keyfile none;
    listen-on port ${DNS_PORT:-53} { any; };
    listen-on-v6 { none; };
    recursion no;
    dnssec-validation no;
    notify no;
};
zone "$DNS_ZONE" {
    type primary;
    file "$DNS_ZONE.zone";
    allow-update { key "$DNS_KEY_NAME"; };
    allow-transfer { key "$DNS_KEY_NAME"; };
};
CONF

# A journal belongs to the zone file it was begun with: over a fresh file it would be refused.
if [ ! -e "$folder/$DNS_ZONE.zone" ] && [ ! -e "$folder/$DNS_ZONE.zone.jnl" ]; then
    cat > "$folder/$DNS_ZONE.zone" <<ZONE
\$ORIGIN $DNS_ZONE.
\$TTL 30
@ SOA ns admin ( 1 30 30 30 1 )
@ NS ns
ns A 127.0.0.1
ZONE
fi

if [ "$(id -u)" = 0 ]; then
    # Root's own rights to other people's files are given up early: named reads these as root and as bind.
    chown -R root:bind "$folder" /run/windowbox
    chmod -R g+rwX "$folder"
    set -- -u bind
fi
exec named -g -4 -n 2 "$@" -c /run/windowbox/named.conf
