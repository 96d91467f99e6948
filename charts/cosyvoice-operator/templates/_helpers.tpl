{{- /*
The operator's objects carry one name: the release's, or cosyvoice-operator where the release is called so too.
Only one operator can work in a cluster, since it watches all namespaces.
*/ -}}
{{- define "cosyvoice-operator.name" -}}
{{- if contains "cosyvoice-operator" .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-cosyvoice-operator" .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "cosyvoice-operator.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "cosyvoice-operator.name" .) }}
{{- end -}}

{{- define "cosyvoice-operator.selector" -}}
app.kubernetes.io/name: cosyvoice-operator
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* managed-by is Helm: the operator's own name stands on the children that it watches, and on nothing else. */ -}}
{{- define "cosyvoice-operator.labels" -}}
{{ include "cosyvoice-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "cosyvoice-operator.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
