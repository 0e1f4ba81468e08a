{{- define "fedsilo.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: fedsilo
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Of the operator's pods; a Deployment's selector never changes, so nothing of a release is in it. */ -}}
{{- define "fedsilo.operator" -}}
app.kubernetes.io/name: fedsilo-operator
{{- end }}

{{- /* Of the gateway's pods; by the second label aggregators admit them. */ -}}
{{- define "fedsilo.gateway" -}}
app.kubernetes.io/name: fedsilo-gateway
app.kubernetes.io/component: gateway
{{- end }}

{{- /* Reference of one of `images`. Takes the chart's context and the image's name there. */ -}}
{{- define "fedsilo.image" -}}
{{- $image := index .context.Values.images .name -}}
{{- $registry := (.context.Values.global | default dict).registry | default "" -}}
{{- if not (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $image.repository) -}}
{{- if not $registry -}}
{{- fail (printf "images.%s.repository: %s names no registry, so that each node would take one of its own; set global.registry, or write one before the name, such as registry.example/%s" .name $image.repository $image.repository) -}}
{{- end -}}
{{- $registry }}/
{{- end -}}
{{- $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .context.Chart.AppVersion }}{{ end -}}
{{- end }}

{{- /* Labels and annotations of pods. Takes the chart's context, the values of these pods and the name of the template with
       the labels by which they are selected. */ -}}
{{- define "fedsilo.pod.metadata" -}}
labels:
  {{- include .selector .context | nindent 2 }}
  {{- with merge dict (.pods.podLabels | default dict) (.context.Values.commonLabels | default dict) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .pods.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Name of a PriorityClass. Takes the chart's context, the value that names one, and the release's own class. */ -}}
{{- define "fedsilo.priority" -}}
{{- .named | default (ternary .own "" .context.Values.priorityClasses.create) -}}
{{- end }}

{{- /* By which pods may run on nodes. Takes the chart's context and the values of these pods. */ -}}
{{- define "fedsilo.pod.nodes" -}}
{{- with include "fedsilo.priority" (dict "context" .context "named" .pods.priorityClassName "own" "fedsilo-control-plane") }}
priorityClassName: {{ . }}
{{- end }}
{{- with .pods.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pods.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Which of these nodes. Takes what the labels take. Without an affinity of theirs, pods prefer different nodes. */ -}}
{{- define "fedsilo.pod.spread" -}}
affinity:
  {{- with .pods.affinity }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include .selector .context | nindent 14 }}
  {{- end }}
{{- with .pods.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Refuses keys that are not for a user. Takes the path of a value, and its labels or annotations. */ -}}
{{- define "fedsilo.foreign" -}}
{{- range $key, $_ := .entries }}
{{- if regexMatch "^(app\\.kubernetes\\.io|helm\\.sh|fedsilo\\.io|meta\\.helm\\.sh)/" $key }}
{{- fail (printf "%s: %s is set by the release itself; use a key of your own" $.path $key) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Not empty when the dashboard is served to the network. */ -}}
{{- define "fedsilo.dashboard" -}}
{{- if and .Values.dashboard.enabled .Values.dashboard.tlsSecret }}true{{ end -}}
{{- end }}

{{- define "fedsilo.crd.metadata" -}}
labels:
  {{- include "fedsilo.labels" . | nindent 2 }}
{{- if .Values.crds.keep }}
annotations:
  helm.sh/resource-policy: keep
{{- end }}
{{- end }}

{{- define "fedsilo.subject" -}}
kind: ServiceAccount
name: fedsilo-operator
namespace: {{ .Release.Namespace }}
{{- end }}

{{- /* Of the pods and everything else of `helm test`, which is gone when it has succeeded. */ -}}
{{- define "fedsilo.test" -}}
labels:
  {{- include "fedsilo.labels" .context | nindent 2 }}
  app.kubernetes.io/name: fedsilo-test
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- /* A peer of a NetworkPolicy: pods of the namespaces that may ask for metrics. */ -}}
{{- define "fedsilo.metrics.from" -}}
namespaceSelector:
  matchLabels:
    {{- range splitList "," .Values.metrics.from }}
    {{- $pair := splitn "=" 2 . }}
    {{ $pair._0 }}: {{ $pair._1 | quote }}
    {{- end }}
{{- end }}
