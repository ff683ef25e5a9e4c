{{/*
A VerticalPodAutoscaler of a Deployment, or of another kind, whose container is called windowbox.
Of (dict "root" $ "name" "windowbox-watch" "labels" (dict …) "byCpu" false), with byCpu where an HPA scales by CPU
*/}}
{{- define "windowbox.vpa" -}}
{{- $name := .name }}
{{- $byCpu := .byCpu }}
{{- range .root.Values.extraObjects }}
  {{- if and (eq .kind "VerticalPodAutoscaler") (eq $name (dig "spec" "targetRef" "name" "" .)) }}
    {{- fail (printf "extraObjects: %s %s is for %s, which vpa.enabled gives one already: two would undo each other's steps" .kind .metadata.name $name) }}
  {{- end }}
  {{- if and (has .kind (list "HorizontalPodAutoscaler" "ScaledObject")) (eq $name (dig "spec" "scaleTargetRef" "name" "" .)) }}
    {{- $byCpu = true }}
    {{- range $metric := concat (dig "spec" "metrics" list .) (dig "spec" "triggers" list .) }}
      {{- if has "memory" (list (dig "type" "" .) (dig "resource" "name" "" .) (dig "containerResource" "name" "" .)) }}
        {{- fail (printf "extraObjects: %s scales by memory, whose request vpa.enabled changes: take one of them out" $name) }}
      {{- end }}
    {{- end }}
  {{- end }}
{{- end }}
{{- $policy := dict "containerName" "windowbox" "controlledValues" "RequestsOnly" }}
{{- if $byCpu }}{{ $_ := set $policy "controlledResources" (list "memory") }}{{ end }}
{{- range $bound := list "minAllowed" "maxAllowed" }}
  {{- range $resource, $amount := get $.root.Values.vpa.resourcePolicy $bound }}
    {{- if $amount }}{{ $_ := set $policy $bound (merge (dict $resource $amount) (get $policy $bound | default dict)) }}{{ end }}
  {{- end }}
{{- end }}
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata:
  name: {{ $name }}-vpa
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "windowbox.labels" .labels | nindent 4 }}
spec:
  targetRef: {apiVersion: apps/v1, kind: {{ .kind | default "Deployment" }}, name: {{ $name }}}
  updatePolicy: {{ toYaml .root.Values.vpa.updatePolicy | nindent 4 }}
  resourcePolicy:
    containerPolicies:
      - {{ toYaml $policy | nindent 8 | trim }}
      - containerName: "*"
        mode: "Off"
{{- end }}
