{{/* Names */}}
{{- define "windowbox.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}{{ end }}{{ end }}
{{- end }}

{{- define "windowbox.rights" -}}
system:{{ .Values.rbac.name | default "windowbox" }}
{{- end }}

{{/* Settings of all roles; of this seed, if there are some for it */}}
{{- define "windowbox.common" -}}
{{- $seed := dig "seed" "name" "" (.Values.gardener | default dict) }}
{{- mergeOverwrite (deepCopy .Values.settings) (deepCopy (get .Values.seeds $seed | default dict)) | toYaml }}
{{- end }}

{{/* Labels that never change: of (dict "root" $ "component" "watch") */}}
{{- define "windowbox.selector" -}}
app.kubernetes.io/name: {{ .name | default "windowbox" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "windowbox.labels" -}}
{{ include "windowbox.selector" . }}
app.kubernetes.io/part-of: windowbox
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* Of what does not go to the garden: gardenlet gives it no kubeconfig, which would change with each rotation. */}}
{{- define "windowbox.outside" -}}
{{- if .Values.gardener }}
extensions.gardener.cloud/inject-garden-kubeconfig: "false"
{{- end }}
{{- end }}

{{/* An image: of (dict "root" $ "image" .Values.nats.image) */}}
{{- define "windowbox.image" -}}
{{- $registry := .root.Values.global.imageRegistry | default .image.registry }}
{{- with $registry }}{{ . | trimSuffix "/" }}/{{ end }}{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "windowbox.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets | uniq }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The restricted context of Pods and containers; what is given is laid over it. */}}
{{- define "windowbox.podSecurityContext" -}}
{{- $restricted := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- mergeOverwrite $restricted (. | default dict | deepCopy) | toYaml }}
{{- end }}

{{- define "windowbox.securityContext" -}}
{{- $restricted := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
{{- mergeOverwrite $restricted (. | default dict | deepCopy) | toYaml }}
{{- end }}

{{/* Where Pods run: of (dict "root" $ "values" … "component" … "name" … "nodes" 3), on so many nodes at least */}}
{{- define "windowbox.placement" -}}
{{- $gardener := .root.Values.gardener | default dict }}
{{- /* Seeds and self-hosted Shoots have this class for extensions; gardener-operator names that of a garden. */}}
{{- $class := "" }}
{{- if or $gardener.seed $gardener.shoot }}{{ $class = "gardener-system-900" }}{{ end }}
{{- with .values.priorityClassName | default (dig "runtimeCluster" "priorityClassName" $class $gardener) }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if .values.topologySpread }}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    # Nodes without a zone take Pods, too.
    whenUnsatisfiable: {{ ternary "ScheduleAnyway" $.values.topologySpread (contains "zone" .) }}
    {{- if and $.nodes (contains "hostname" .) (eq $.values.topologySpread "DoNotSchedule") }}
    minDomains: {{ $.nodes }}
    {{- end }}
    labelSelector:
      matchLabels: {{ include "windowbox.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The bus */}}
{{- define "windowbox.nats" -}}{{ include "windowbox.fullname" . }}-nats{{- end }}
{{- define "windowbox.natsPasswords" -}}{{ .Values.nats.existingSecret | default (printf "%s-bus" (include "windowbox.fullname" .)) }}{{- end }}
{{- /* The key of a user's password. The runner has that of the worker, in whose place it is. */}}
{{- define "windowbox.natsPassword" -}}{{ ternary "worker" . (eq . "runner") }}{{- end }}
{{- define "windowbox.natsTls" -}}{{ .Values.nats.tlsSecret | default (printf "%s-tls" (include "windowbox.nats" .)) }}{{- end }}
{{- define "windowbox.natsCa" -}}
{{- if .Values.nats.enabled }}{{ include "windowbox.natsTls" . }}{{ else }}{{ .Values.nats.caSecret | default .Values.nats.tlsSecret }}{{ end }}
{{- end }}
{{- define "windowbox.natsUrl" -}}
{{- if .Values.nats.enabled }}
{{- $urls := list }}
{{- range $number := until (int .Values.nats.replicas) }}
{{- $urls = append $urls (printf "tls://%s-%d.%s-servers:4222" (include "windowbox.nats" $) $number (include "windowbox.nats" $)) }}
{{- end }}
{{- join "," $urls }}
{{- else }}{{ required "nats.url: name the servers of your NATS, or let nats.enabled be true" .Values.nats.url }}{{ end }}
{{- end }}

{{/* The ports of your own NATS' servers */}}
{{- define "windowbox.natsPorts" -}}
{{- $ports := list }}
{{- range splitList "," .Values.nats.url }}
{{- $ports = append $ports (regexFind ":[0-9]+/?$" (trim .) | trimAll ":/" | default "4222" | int) }}
{{- end }}
{{- uniq $ports | toJson }}
{{- end }}

{{/* The name server */}}
{{- define "windowbox.bind" -}}{{ include "windowbox.fullname" . }}-bind{{- end }}
{{- define "windowbox.bindKey" -}}{{ .Values.bind.existingSecret | default (printf "%s-key" (include "windowbox.bind" .)) }}{{- end }}

{{/* The name of what a role runs as */}}
{{- define "windowbox.account" -}}
{{- $command := ternary "run" .command (and .root.Values.run.enabled (has .command (list "watch" "work" "patch"))) }}
{{- include "windowbox.fullname" .root }}-{{ $command }}
{{- end }}

{{/* How rights on Secrets are granted: "everywhere" by helm, "process" by `windowbox grant`; empty: not at all */}}
{{- define "windowbox.grants" -}}
{{- $settings := mergeOverwrite (include "windowbox.common" . | fromYaml) (deepCopy .Values.grant.settings) }}
{{- if .Values.grant.enabled }}{{ ternary "everywhere" "process" (has "*" (dig "grant" "namespaces" list $settings)) }}{{ end }}
{{- end }}

{{/* Whether Envoy has a Pod of its own */}}
{{- define "windowbox.launches" -}}
{{- if and .Values.edge.enabled .Values.edge.hostNetwork .Values.edge.hostPath }}true{{ end }}
{{- end }}

{{/* Whether each node has an edge */}}
{{- define "windowbox.spread" -}}
{{- if and .Values.edge.enabled .Values.edge.spread }}true{{ end }}
{{- end }}

{{/* Of a process: the edge has one of its own, since its Pod has its node's network. */}}
{{- define "windowbox.metricsPortOf" -}}
{{- if eq .command "edge" }}{{ .root.Values.edge.metricsPort }}{{ else }}{{ include "windowbox.metricsPort" .root }}{{ end }}
{{- end }}

{{- define "windowbox.metricsPort" -}}
{{- if .Values.usablePorts }}{{ first .Values.usablePorts }}{{ else }}9090{{ end }}
{{- end }}

{{- define "windowbox.webhookPort" -}}
{{- if gt (len .Values.usablePorts) 1 }}{{ index .Values.usablePorts 1 }}{{ else }}{{ .Values.admit.port }}{{ end }}
{{- end }}

{{/* A rule of a NetworkPolicy: names are asked for */}}
{{- define "windowbox.dnsEgress" }}
    - to: {{ toYaml .Values.networkPolicies.dns | nindent 8 }}
      ports:
        - {protocol: UDP, port: 53}
        - {protocol: TCP, port: 53}
        - {protocol: UDP, port: 8053}
        - {protocol: TCP, port: 8053}
{{- end }}
