{{- define "fedsilo-silo.name" -}}
{{ .Values.name | default (.Values.silo | splitList "/" | last) | default .Release.Name }}
{{- end }}

{{- define "fedsilo-silo.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: fedsilo
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The fields of a mapping that say something: null means that there is none. */ -}}
{{- define "fedsilo-silo.given" -}}
{{- range $field, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{ $field }}: {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Of everything of a hook, which is gone when it has succeeded. Takes the chart's context, a name and a weight; the
       event, if it is not `test`, and another reason to be gone, if there is one. */ -}}
{{- define "fedsilo-silo.hook" -}}
labels:
  {{- include "fedsilo-silo.labels" .context | nindent 2 }}
  app.kubernetes.io/name: {{ .name }}
annotations:
  helm.sh/hook: {{ .event | default "test" }}
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded{{ with .gone }},{{ . }}{{ end }}
{{- end }}

{{- /* Image of guards, and of tests where nothing else is said. */ -}}
{{- define "fedsilo-silo.guard" -}}
{{- with .Values.agent.guardImage }}{{ . }}{{ else }}{{ include "fedsilo-silo.image" (dict "context" . "name" "guard") }}{{ end -}}
{{- end }}

{{- /* By which a pod may run where trainers and guards may. */ -}}
{{- define "fedsilo-silo.agent.nodes" -}}
{{- $template := .Values.agent.podTemplate | default dict }}
{{- $selector := merge dict (.Values.agent.nodeSelector | default dict) ($template.nodeSelector | default dict) }}
{{- $tolerations := concat (.Values.agent.tolerations | default list) ($template.tolerations | default list) }}
{{- include "fedsilo-silo.pod.nodes" (dict "priorityClassName" $template.priorityClassName "nodeSelector" $selector "tolerations" $tolerations) }}
{{- end }}

{{- /* The pod of a script but for its account. Takes the chart's context, the script, its arguments, and image and nodes, which
       are those of tests unless others are named. */ -}}
{{- define "fedsilo-silo.hook.pod" -}}
restartPolicy: Never
enableServiceLinks: false
{{- with .context.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- $nodes := .nodes | default (include "fedsilo-silo.agent.nodes" .context) }}
{{- with $nodes | trim }}
{{- . | nindent 0 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- if ne .context.Values.platform "openshift" }}
  runAsUser: 65532
  runAsGroup: 65532
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: script
    image: {{ if .image }}{{ .image }}{{ else if .context.Values.testImage }}{{ .context.Values.testImage }}{{ else }}{{ include "fedsilo-silo.guard" .context }}{{ end }}
    {{- with .context.Values.images.pullPolicy }}
    imagePullPolicy: {{ . }}
    {{- end }}
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

{{- /* Not empty when an invitation is given: the release is an institution's own cluster. */ -}}
{{- define "fedsilo-silo.invited" -}}
{{- if or .Values.hub .Values.silo .Values.token .Values.checksum }}true{{ end -}}
{{- end }}

{{- /* Not empty when the release itself brings the definition of its Silo, which the API server does not serve yet. */ -}}
{{- define "fedsilo-silo.defining" -}}
{{- if and (include "fedsilo-silo.invited" .) .Values.crds.install .Release.IsInstall -}}
{{- if not (.Capabilities.APIVersions.Has "fedsilo.io/v1alpha1/Silo") }}true{{ end -}}
{{- end -}}
{{- end }}

{{- /* The invitation but for its checksum, as JSON with sorted names and nothing between tokens. */ -}}
{{- define "fedsilo-silo.invitation" -}}
{{- $fields := pick .Values "apiVersion" "kind" "hub" "silo" "token" "expires" -}}
{{- toRawJson $fields -}}
{{- end }}

{{- /* Of the connector's pods. */ -}}
{{- define "fedsilo-silo.connector" -}}
app.kubernetes.io/name: fedsilo-connector
app.kubernetes.io/component: connector
{{- end }}

{{- /* Reference of one of `images`. Takes the chart's context and the image's name there. */ -}}
{{- define "fedsilo-silo.image" -}}
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
{{- define "fedsilo-silo.pod.metadata" -}}
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

{{- /* By which pods may run on nodes. Takes the values of these pods. */ -}}
{{- define "fedsilo-silo.pod.nodes" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Which of these nodes. Takes what the labels take. Without an affinity of theirs, pods prefer different nodes. */ -}}
{{- define "fedsilo-silo.pod.spread" -}}
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
{{- define "fedsilo-silo.foreign" -}}
{{- range $key, $_ := .entries }}
{{- if regexMatch "^(app\\.kubernetes\\.io|helm\\.sh|fedsilo\\.io|meta\\.helm\\.sh)/" $key }}
{{- fail (printf "%s: %s is set by the release itself; use a key of your own" $.path $key) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Name of the Secret with HTTPS_PROXY and NO_PROXY; empty where no proxy is used. */ -}}
{{- define "fedsilo-silo.proxy.secret" -}}
{{- if .Values.proxy.url }}{{ .Values.proxy.secret | default "fedsilo-proxy" }}{{ end -}}
{{- end }}

{{- /* Port of an address; 443 or 80 where it has none. */ -}}
{{- define "fedsilo-silo.port" -}}
{{- $parts := urlParse . -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $parts.host) -}}
{{- $port | default (ternary "443" "80" (eq $parts.scheme "https")) -}}
{{- end }}

{{- define "fedsilo-silo.crd.metadata" -}}
labels:
  {{- include "fedsilo-silo.labels" . | nindent 2 }}
annotations:
  helm.sh/resource-policy: keep
{{- end }}

{{- /* What a silo controller may write in this namespace. */ -}}
{{- define "fedsilo-silo.rules" -}}
- apiGroups: [fedsilo.io]
  resources: [siloagents]
  verbs: [create, patch, delete]
- apiGroups: [fedsilo.io]
  resources: [siloagents/status, silos/status]
  verbs: [get, patch]
- apiGroups: [fedsilo.io]
  resources: [siloagents/finalizers]
  verbs: [update]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create, patch, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, patch, delete]
{{- if not (include "fedsilo-silo.invited" .) }}
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, patch, delete]
{{- end }}
- apiGroups: [""]
  resources: [events]
  verbs: [list, create, patch]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [fedsilo-signing-key]
  verbs: [get{{ if .Values.signingKey.create }}, patch{{ end }}]
{{- if .Values.signingKey.create }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- end }}
{{- end }}
