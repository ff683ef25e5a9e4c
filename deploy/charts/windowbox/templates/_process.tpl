{{/* The settings of a process: of (dict "root" $ "values" … "command" "watch") */}}
{{- define "windowbox.settings" -}}
{{- $root := .root }}
{{- $settings := mergeOverwrite (include "windowbox.common" $root | fromYaml) (deepCopy (.values.settings | default dict)) }}
{{- $made := dict }}
{{- if $root.Values.edge.enabled }}
  {{- $_ := set $made "loadbalancer" (dict "edge" "separate") }}
{{- end }}
{{- if $root.Values.admit.enabled }}
  {{- $webhooks := dict "namespace" $root.Release.Namespace "service_port" 443 "address" (printf "0.0.0.0:%s" (include "windowbox.webhookPort" $root)) }}
  {{- if and $root.Values.gardener (dig "selfHostedShootCluster" false $root.Values.gardener) }}{{ $_ := set $webhooks "self_hosted" true }}{{ end }}
  {{- if and $root.Values.gardener (dig "runtimeCluster" "enabled" false $root.Values.gardener) }}{{ $_ := set $webhooks "runtime" true }}{{ end }}
  {{- $_ := set $made "webhooks" $webhooks }}
  {{- $_ := set $made "controlplane" (dict "webhooks" true) }}
{{- end }}
{{- if $root.Values.imageVectorOverwrite }}
  {{- $_ := set $made "images" (dict "overwrite" "/etc/windowbox/images/images_overwrite.yaml") }}
{{- end }}
{{- with dig "version" "" ($root.Values.gardener | default dict) }}
  {{- $_ := set $made "garden" (dict "version" .) }}
{{- end }}
{{- if has .command (list "work" "run") }}
  {{- if $root.Values.gardener }}{{ $_ := set $made "heartbeat" (dict "namespace" $root.Release.Namespace) }}{{ end }}
{{- else }}
  {{- /* Keys of zones are for workers alone. */}}
  {{- $_ := unset $settings "dns" }}
{{- end }}
{{- if eq .command "edge" }}
  {{- $_ := set $made "loadbalancer" (dict "edge" "separate" "folder" "/var/lib/windowbox/edge") }}
  {{- if include "windowbox.launches" $root }}{{ $_ := set $made.loadbalancer "attachment" "launcher" }}{{ end }}
{{- end }}
{{- if eq .command "ui" }}
  {{- $_ := set $made "ui" (dict "address" (printf "0.0.0.0:%d" (int $root.Values.ui.port))) }}
{{- end }}
{{- if eq .command "grant" }}
  {{- $accounts := dict }}
  {{- range $command, $role := dict "watch" "watcher" "work" "worker" "patch" "patcher" }}
    {{- $_ := set $accounts $role (printf "%s/%s" $root.Release.Namespace (include "windowbox.account" (dict "root" $root "command" $command))) }}
  {{- end }}
  {{- $_ := set $made "grant" (dict "name" ($root.Values.rbac.name | default "windowbox") "service_accounts" $accounts) }}
{{- end }}
{{- range $path := list "webhooks.address" "webhooks.namespace" "webhooks.service_port" "loadbalancer.edge" "loadbalancer.folder" "loadbalancer.attachment" "heartbeat.namespace" "images.overwrite" "grant.name" "grant.service_accounts" "ui.address" }}
  {{- $section := splitList "." $path | first }}
  {{- $key := splitList "." $path | last }}
  {{- $given := dig $section $key nil $settings }}
  {{- $own := dig $section $key nil $made }}
  {{- if and (not (kindIs "invalid" $given)) (not (kindIs "invalid" $own)) (ne (toJson $given) (toJson $own)) }}
    {{- if eq $path "loadbalancer.attachment" }}
      {{- fail (printf "settings.loadbalancer.attachment: %s is not that of an Envoy with a Pod of its own; leave it out, or set edge.hostPath: \"\", which keeps Envoy in the edge's Pod" $given) }}
    {{- end }}
    {{- fail (printf "settings.%s: Services, ports, volumes and bindings of the chart depend on %s; leave it out" $path (toJson $own)) }}
  {{- end }}
{{- end }}
{{- /* Else what the settings say wins over what the chart makes. */}}
{{- mergeOverwrite $made $settings | toYaml }}
{{- end }}

{{/*
A role of windowbox: its settings, Deployment, disruption budget and VerticalPodAutoscaler.
Of (dict "root" $ "values" … "command" "work" "component" "work-all" "args" (list …) "role" "worker")
*/}}
{{- define "windowbox.process" -}}
{{- $root := .root }}
{{- $name := printf "%s-%s" (include "windowbox.fullname" $root) .component }}
{{- $labels := dict "root" $root "component" .component }}
{{- $settings := include "windowbox.settings" . }}
{{- $everywhere := and (eq .command "edge") (include "windowbox.spread" $root) }}
{{- $scaled := and .values.autoscaling (ne .values.autoscaling.type "none") }}
apiVersion: v1
kind: Secret
metadata:
  name: {{ $name }}-settings
  namespace: {{ $root.Release.Namespace }}
  labels: {{ include "windowbox.labels" $labels | nindent 4 }}
stringData:
  settings.yaml: {{ $settings | quote }}
---
apiVersion: apps/v1
kind: {{ ternary "DaemonSet" "Deployment" (not (empty $everywhere)) }}
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "windowbox.labels" $labels | nindent 4 }}
    {{- if $root.Values.gardener }}
    high-availability-config.resources.gardener.cloud/type: {{ ternary "server" "controller" (eq .command "admit") }}
    {{- end }}
    {{- if not (has .command (list "work" "run")) }}{{ include "windowbox.outside" $root | nindent 4 }}{{ end }}
  {{- $alone := or $root.Values.run.enabled (and (eq .command "edge") (include "windowbox.launches" $root)) }}
  {{- if and $root.Values.gardener $alone (not $everywhere) }}
  {{- /* Else Gardener makes two of them. */}}
  annotations: {high-availability-config.resources.gardener.cloud/replicas: {{ .values.replicas | quote }}}
  {{- end }}
spec:
  {{- if not (or $scaled $everywhere) }}
  replicas: {{ .values.replicas }}
  {{- end }}
  revisionHistoryLimit: 2
  {{ ternary "updateStrategy" "strategy" (not (empty $everywhere)) }}:
    {{- if $everywhere }}
    type: RollingUpdate
    {{- else if eq .command "edge" }}
    type: Recreate
    {{- else }}
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
    {{- end }}
  selector:
    matchLabels: {{ include "windowbox.selector" $labels | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "windowbox.labels" $labels | nindent 8 }}
        {{- if $root.Values.gardener }}
        networking.gardener.cloud/to-dns: allowed
        networking.gardener.cloud/to-runtime-apiserver: allowed
        networking.gardener.cloud/to-kind-network: allowed
        networking.resources.gardener.cloud/to-all-shoots-kube-apiserver-tcp-443: allowed
        networking.resources.gardener.cloud/to-garden-virtual-garden-kube-apiserver-tcp-443: allowed
        networking.resources.gardener.cloud/to-all-istio-ingresses-istio-ingressgateway-tcp-9443: allowed
        {{- end }}
        {{- with .values.podLabels }}{{ toYaml . | nindent 8 }}{{ end }}
      annotations:
        checksum/settings: {{ $settings | sha256sum }}
        {{- if $root.Values.imageVectorOverwrite }}
        checksum/images: {{ $root.Values.imageVectorOverwrite | toYaml | sha256sum }}
        {{- end }}
        {{- if and $root.Values.monitoring.annotations (ne .command "grant") }}
        prometheus.io/scrape: "true"
        prometheus.io/port: {{ include "windowbox.metricsPortOf" $ | quote }}
        prometheus.io/name: {{ $name }}
        {{- end }}
        {{- with .values.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec:
      serviceAccountName: {{ include "windowbox.account" (dict "root" $root "command" .command) }}
      {{- /* The edge reaches no API server. */}}
      automountServiceAccountToken: {{ ne .command "edge" }}
      {{- include "windowbox.pullSecrets" $root | nindent 6 }}
      terminationGracePeriodSeconds: 30
      {{- with $root.Values.hostAliases }}
      hostAliases: {{ toYaml . | nindent 8 }}
      {{- end }}
      {{- if and (eq .command "edge") .values.hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      securityContext:
        {{- $pod := ternary (dict "runAsNonRoot" false "runAsUser" 0 "runAsGroup" 0 "fsGroup" 0) dict (eq .command "edge") }}
        {{- include "windowbox.podSecurityContext" (mergeOverwrite $pod (deepCopy .values.podSecurityContext)) | nindent 8 }}
      {{- $placed := .values }}
      {{- if $everywhere }}
      {{- $placed = mergeOverwrite (deepCopy .values) (dict "topologySpread" "") }}
      {{- else if and (eq .command "edge") (include "windowbox.launches" $root) }}
      {{- /* On the node of its Envoy. */}}
      {{- $beside := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "windowbox.selector" (dict "root" $root "component" "envoy") | fromYaml)) }}
      {{- $required := append (dig "podAffinity" "requiredDuringSchedulingIgnoredDuringExecution" list .values.affinity) $beside }}
      {{- $placed = mergeOverwrite (deepCopy .values) (dict "affinity" (dict "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" $required))) }}
      {{- end }}
      {{- include "windowbox.placement" (dict "root" $root "values" $placed "component" .component) | nindent 6 }}
      containers:
        - name: windowbox
          image: {{ include "windowbox.image" (dict "root" $root "image" $root.Values.image) }}
          {{- with $root.Values.image.pullPolicy }}
          imagePullPolicy: {{ . }}
          {{- end }}
          args:
            {{- range prepend .args .command }}
            - {{ . | quote }}
            {{- end }}
            - --settings=/etc/windowbox/settings/settings.yaml
          env:
            {{- if ne .command "grant" }}
            {{- include "windowbox.busEnv" . | nindent 12 }}
            - name: WINDOWBOX_METRICS
              value: 0.0.0.0:{{ include "windowbox.metricsPortOf" $ }}
            {{- end }}
            {{- if $everywhere }}
            - name: WINDOWBOX_LOADBALANCER__HOST
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
            {{- end }}
            {{- if and $root.Values.bind.enabled (has .command (list "work" "run")) }}
            - name: DNS_KEY_SECRET
              valueFrom:
                secretKeyRef: {name: {{ include "windowbox.bindKey" $root }}, key: secret}
            - name: WINDOWBOX_DNS__ZONES
              value: >-
                [{"name": {{ $root.Values.bind.zone | quote }}, "servers": ["{{ include "windowbox.bind" $root }}:{{ $root.Values.bind.service.port }}"],
                "key": {"name": "windowbox", "secret": "$(DNS_KEY_SECRET)"}}]
            {{- end }}
            {{- with .values.extraEnv }}{{ toYaml . | nindent 12 }}{{ end }}
          {{- if ne .command "grant" }}
          ports:
            - {name: metrics, containerPort: {{ include "windowbox.metricsPortOf" $ }}}
            {{- if eq .command "ui" }}
            - {name: page, containerPort: {{ $root.Values.ui.port }}}
            {{- end }}
            {{- if eq .command "admit" }}
            - {name: webhook-server, containerPort: {{ include "windowbox.webhookPort" $root }}}
            {{- end }}
          {{- if eq .command "admit" }}
          {{- /* Proxies send requests to a Pod until they learn that it ends. */}}
          lifecycle: {preStop: {sleep: {seconds: 5}}}
          {{- else if $everywhere }}
          {{- /* An edge sees at its end whether its Envoy ends, too, as on a node that is shut down. */}}
          lifecycle: {preStop: {sleep: {seconds: 3}}}
          {{- end }}
          {{- /* The Pod's status keeps the last lines of a process that has failed, although its log is gone. */}}
          terminationMessagePolicy: FallbackToLogsOnError
          startupProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 2
            timeoutSeconds: 5
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 5
            timeoutSeconds: 5
          {{- end }}
          resources: {{ toYaml .values.resources | nindent 12 }}
          securityContext:
            {{- /* Envoy's addresses and routes are the node's: the one exception. */}}
            {{- $added := concat (list "NET_ADMIN" "NET_BIND_SERVICE") (ternary (list "NET_RAW") list (not (empty $everywhere))) }}
            {{- $own := ternary (dict "capabilities" (dict "drop" (list "ALL") "add" $added)) dict (eq .command "edge") }}
            {{- include "windowbox.securityContext" (mergeOverwrite $own (deepCopy .values.securityContext)) | nindent 12 }}
          volumeMounts:
            - {name: settings, mountPath: /etc/windowbox/settings, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            {{- if and (ne .command "grant") (include "windowbox.natsCa" $root) }}
            - {name: nats-ca, mountPath: /etc/windowbox/nats, readOnly: true}
            {{- end }}
            {{- if $root.Values.imageVectorOverwrite }}
            - {name: images, mountPath: /etc/windowbox/images, readOnly: true}
            {{- end }}
            {{- if eq .command "edge" }}
            - {name: edge, mountPath: /var/lib/windowbox/edge}
            {{- end }}
            {{- with .values.extraVolumeMounts }}{{ toYaml . | nindent 12 }}{{ end }}
      volumes:
        - name: settings
          secret: {secretName: {{ $name }}-settings}
        - name: tmp
          emptyDir: {}
        {{- if and (ne .command "grant") (include "windowbox.natsCa" $root) }}
        - name: nats-ca
          secret:
            secretName: {{ include "windowbox.natsCa" $root }}
            items: [{key: ca.crt, path: ca.crt}]
        {{- end }}
        {{- if $root.Values.imageVectorOverwrite }}
        - name: images
          configMap: {name: {{ include "windowbox.fullname" $root }}-images}
        {{- end }}
        {{- if eq .command "edge" }}
        - name: edge
          {{- if .values.hostPath }}
          hostPath: {path: {{ .values.hostPath }}, type: DirectoryOrCreate}
          {{- else }}
          emptyDir: {}
          {{- end }}
        {{- end }}
        {{- with .values.extraVolumes }}{{ toYaml . | nindent 8 }}{{ end }}
{{- if and $root.Values.podDisruptionBudget.enabled (not $everywhere) (or $scaled (gt (int .values.replicas) 1)) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{ include "windowbox.labels" $labels | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{ include "windowbox.selector" $labels | nindent 6 }}
{{- end }}
{{- /* Who replaces a Pod with an Envoy cuts all connections. */}}
{{- if and $root.Values.vpa.enabled (or (ne .command "edge") (include "windowbox.launches" $root)) }}
---
{{ include "windowbox.vpa" (dict "root" $root "name" $name "labels" $labels "kind" (ternary "DaemonSet" "Deployment" (not (empty $everywhere))) "byCpu" (eq "hpa" (dig "autoscaling" "type" "none" .values))) }}
{{- end }}
{{- end }}

{{/* How a process reaches the bus */}}
{{- define "windowbox.busEnv" -}}
- name: WINDOWBOX_NATS__URL
  value: {{ include "windowbox.natsUrl" .root | quote }}
- name: WINDOWBOX_NATS__USER
  value: {{ .role }}
- name: WINDOWBOX_NATS__PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ include "windowbox.natsPasswords" .root }}, key: {{ include "windowbox.natsPassword" .role }}}
- name: WINDOWBOX_NATS__REPLICAS
  value: {{ .root.Values.nats.replicas | quote }}
{{- if include "windowbox.natsCa" .root }}
- name: WINDOWBOX_NATS__CA
  value: /etc/windowbox/nats/ca.crt
{{- end }}
{{- end }}
