{{/* nats-server.conf */}}
{{- define "windowbox.natsConfiguration" -}}
{{- $name := include "windowbox.nats" . -}}
server_name: $POD_NAME
listen: 0.0.0.0:4222
# For probes and monitoring. It tells every subject and asks for no password: the NetworkPolicy keeps others away.
http: 0.0.0.0:8222
# An object in Kubernetes may have 1.5 MiB, and travels with its headers.
max_payload: 8MB
# Nobody is let in without TLS.
tls {
  cert_file: /etc/nats-tls/tls.crt
  key_file: /etc/nats-tls/tls.key
}
jetstream {
  store_dir: /data
  max_file_store: {{ include "windowbox.streamStore" . }}
  # How often what was acknowledged is written to disk. What is lost is read anew from the clusters.
  sync_interval: {{ .Values.nats.syncInterval | quote }}
}
{{- if gt (int .Values.nats.replicas) 1 }}
cluster {
  name: {{ $name }}
  listen: 0.0.0.0:6222
  # Clients know all servers by name, and certificates name no addresses.
  no_advertise: true
  routes: [
    {{- range $number := until (int .Values.nats.replicas) }}
    tls://{{ $name }}-{{ $number }}.{{ $name }}-servers:6222
    {{- end }}
  ]
  tls {
    cert_file: /etc/nats-tls/tls.crt
    key_file: /etc/nats-tls/tls.key
    ca_file: /etc/nats-tls/ca.crt
    verify: true
  }
}
{{- end }}
include roles.conf
{{- end }}

{{/* Bytes that a quantity like 16Gi means */}}
{{- define "windowbox.bytes" -}}
{{- $factors := dict "" 1 "K" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- mul (regexFind "^[0-9]+" .) (get $factors (regexFind "[KMGT]?i?$" .)) }}
{{- end }}

{{/* Bytes of the volume that streams may take. What consumers and the servers' own logs need is not counted. */}}
{{- define "windowbox.streamStore" -}}
{{- $bus := .Files.Get "files/bus.yaml" | fromYaml }}
{{- $settings := mergeOverwrite (include "windowbox.common" . | fromYaml) (deepCopy (ternary .Values.run.settings .Values.watch.settings .Values.run.enabled)) }}
{{- $streams := add (mul (dig "objects" "size" $bus.objects $settings | int64) 1048576) (int64 $bus.others) }}
{{- $store := div (mul (include "windowbox.bytes" .Values.nats.storage.size) 3) 4 }}
{{- if gt $streams $store }}
{{- $least := div (add (mul $streams 4) 3221225471) 3221225472 }}
{{- fail (printf "nats.storage.size: streams may take three quarters of it, and these want %d MiB: make it %dGi, or settings.objects.size smaller" (div $streams 1048576) $least) }}
{{- end }}
{{- $store }}
{{- end }}
