{{- define "fedsilo-silo.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end }}

{{- define "fedsilo-silo.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: fedsilo
{{- end }}

{{- /* The fields of a mapping that say something: null means that there is none. */ -}}
{{- define "fedsilo-silo.given" -}}
{{- range $field, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{ $field }}: {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Of everything of `helm test`, which is gone when it has succeeded. */ -}}
{{- define "fedsilo-silo.test" -}}
labels:
  {{- include "fedsilo-silo.labels" .context | nindent 2 }}
  app.kubernetes.io/name: {{ .name }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- /* The pod of a test but for its account. Takes the chart's context, the script and its arguments. */ -}}
{{- define "fedsilo-silo.test.pod" -}}
restartPolicy: Never
enableServiceLinks: false
{{- with .context.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: test
    image: {{ with .context.Values }}{{ .testImage | default .agent.guardImage | default (printf "fedsilo-guard:%s" $.context.Chart.AppVersion) }}{{ end }}
    command: [python, -c]
    args:
      - {{ .context.Files.Get .script | toJson }}
      {{- range .arguments }}
      - {{ . | quote }}
      {{- end }}
    resources:
      requests: {cpu: 10m, memory: 32Mi}
      limits: {cpu: 500m, memory: 128Mi}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
{{- end }}

{{- /* A peer of a NetworkPolicy: pods of the namespaces that may ask for metrics. */ -}}
{{- define "fedsilo-silo.metrics.from" -}}
namespaceSelector:
  matchLabels:
    {{- range splitList "," .Values.metrics.from }}
    {{- $pair := splitn "=" 2 . }}
    {{ $pair._0 }}: {{ $pair._1 | quote }}
    {{- end }}
{{- end }}
