{{/* The name of all objects, or its beginning. 57 leaves room for -redis and -admin in a Service's 63. */}}
{{- define "warmroute.name" -}}
{{- $own := ternary .Release.Name (printf "%s-warmroute" .Release.Name) (contains "warmroute" .Release.Name) -}}
{{- .Values.fullnameOverride | default $own | trunc 57 | trimSuffix "-" -}}
{{- end }}

{{- define "warmroute.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "warmroute.name" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{- define "warmroute.selector" -}}
app.kubernetes.io/name: warmroute
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "warmroute.redis.selector" -}}
app.kubernetes.io/name: warmroute-redis
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels that select nothing. */}}
{{- define "warmroute.origin" -}}
app.kubernetes.io/part-of: warmroute
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "warmroute.labels" -}}
{{ include "warmroute.selector" . }}
{{ include "warmroute.origin" . }}
{{- end }}

{{- define "warmroute.engines.labels" -}}
{{- toYaml (.Values.engines.podLabels | default (dict "app.kubernetes.io/name" "vllm")) -}}
{{- end }}

{{/* Prometheus as a peer of a policy. */}}
{{- define "warmroute.prometheus.peer" -}}
namespaceSelector:
  matchLabels:
    kubernetes.io/metadata.name: {{ .Values.networkPolicy.prometheus.namespace }}
podSelector:
  matchLabels:
    {{- toYaml (.Values.networkPolicy.prometheus.podLabels | default (dict "app.kubernetes.io/name" "prometheus")) | nindent 4 }}
{{- end }}

{{/* The settings in force, as JSON: what the values say, where the engines are, the Valkey of this release. */}}
{{- define "warmroute.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- if not (or (hasKey $settings "discover") (hasKey $settings "replica")) -}}
{{- $namespace := .Values.engines.namespace | default "." -}}
{{- $_ := set $settings "discover" (list (printf "kubernetes:%s/%s:%v" $namespace .Values.engines.service .Values.engines.port)) -}}
{{- end -}}
{{- if and .Values.redis.enabled (not (hasKey $settings "redis")) -}}
{{- $_ := set $settings "redis" (printf "redis://%s-redis:6379/0" (include "warmroute.name" .)) -}}
{{- end -}}
{{- toJson $settings -}}
{{- end }}

{{/* What the sources ask the API server for, as JSON: the namespaces in which endpointslices, or pods, are listed. */}}
{{- define "warmroute.rights" -}}
{{- $slices := list -}}
{{- $pods := list -}}
{{- range (fromJson (include "warmroute.settings" .)).discover -}}
{{- $namespace := . | trimPrefix "kubernetes-pods:" | trimPrefix "kubernetes:" | regexFind "^[^/?]*" | replace "." $.Release.Namespace -}}
{{- if hasPrefix "kubernetes:" . -}}{{- $slices = append $slices $namespace -}}{{- end -}}
{{- if hasPrefix "kubernetes-pods:" . -}}{{- $pods = append $pods $namespace -}}{{- end -}}
{{- end -}}
{{- $rights := dict -}}
{{- if $slices -}}{{- $_ := set $rights "endpointslices" (uniq $slices) -}}{{- end -}}
{{- if $pods -}}{{- $_ := set $rights "pods" (uniq $pods) -}}{{- end -}}
{{- toJson $rights -}}
{{- end }}
