{{/*
The name servers of settings.dns.zones: `addresses`, each with its `cidr` and `port`, and the `ports` of those that are
names. The ranges of these have to be given.
*/}}
{{- define "windowbox.nameServers" -}}
{{- $zones := dig "dns" "zones" list (include "windowbox.common" . | fromYaml) }}
{{- range ternary (list .Values.run) .Values.work .Values.run.enabled }}
{{- $zones = concat $zones (dig "settings" "dns" "zones" list .) }}
{{- end }}
{{- $addresses := list }}
{{- $ports := list }}
{{- range $zones }}
{{- range .servers }}
{{- $port := regexFind "[0-9]+$" . | int }}
{{- if regexMatch "^[0-9.]+(:[0-9]+)?$" . }}
{{- $port = ternary $port 53 (contains ":" .) }}
{{- $addresses = append $addresses (dict "cidr" (printf "%s/32" (splitList ":" . | first)) "port" $port) }}
{{- else if hasPrefix "[" . }}
{{- $port = ternary $port 53 (contains "]:" .) }}
{{- $addresses = append $addresses (dict "cidr" (printf "%s/128" (regexFind "[^][]+" .)) "port" $port) }}
{{- else if gt (len (splitList ":" .)) 2 }}
{{- $addresses = append $addresses (dict "cidr" (printf "%s/128" .) "port" 53) }}
{{- else if $.Values.networkPolicies.nameServers }}
{{- $ports = append $ports (ternary $port 53 (contains ":" .)) }}
{{- else }}
{{- fail (printf "networkPolicies.nameServers: give the ranges of %s, a name server of settings.dns.zones; workers would not reach it" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- dict "addresses" (uniq $addresses) "ports" ($ports | uniq) | toYaml }}
{{- end }}
