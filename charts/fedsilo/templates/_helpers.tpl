{{- define "fedsilo.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: fedsilo
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

{{- /* Reference of an image. Takes the chart's context and the image's values. */ -}}
{{- define "fedsilo.image" -}}
{{- $tag := .image.tag | default .context.Chart.AppVersion -}}
{{- .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ $tag }}{{ end -}}
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
