{{/* The name of the Service, which webhook configurations have, and of the rights: as Gardener's own. */}}
{{- define "admission.name" -}}gardener-extension-admission-local{{- end }}

{{- define "admission.labels" -}}
{{ include "windowbox.labels" (dict "root" . "component" "admission") }}
{{- end }}

{{- define "admission.selector" -}}
{{ include "windowbox.selector" (dict "root" . "component" "admission") }}
{{- end }}

{{/* The settings of the process. What the Service and the rights depend on is refused among the values. */}}
{{- define "admission.settings" -}}
{{- $made := dict "address" (printf "0.0.0.0:%d" (int .Values.port)) "namespace" .Release.Namespace "service_port" 443 "garden_lease" (include "admission.name" .) }}
{{- range $key, $own := $made }}
  {{- $given := dig "webhooks" $key nil $.Values.settings }}
  {{- if and (not (kindIs "invalid" $given)) (ne (toJson $given) (toJson $own)) }}
    {{- fail (printf "settings.webhooks.%s: the chart's Service and rights depend on %s; leave it out" $key (toJson $own)) }}
  {{- end }}
{{- end }}
{{- $garden := dig "virtualCluster" dict .Values.gardener }}
{{- if $garden.enabled }}
  {{- /* Its API server is in this cluster, where it knows the Service by name. */}}
  {{- $_ := set $made "mode" "url-service" }}
{{- end }}
{{- with $garden.namespace }}{{ $_ := set $made "owner_namespace" . }}{{ end }}
{{- mergeOverwrite (dict "webhooks" $made) (deepCopy .Values.settings) | toYaml }}
{{- end }}
