{{- define "quotabell.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "quotabell.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "quotabell.labels" -}}
{{ include "quotabell.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- /* Where the secrets are mounted. */ -}}
{{- define "quotabell.secrets" -}}/run/secrets/quotabell{{- end -}}

{{- /*
A value in TOML. Helm reads every number as a float, and `toToml` would write the limit 5000 as 5000.0, which quotabell
refuses. A table becomes an inline table, a string a JSON string, whose escapes TOML knows too.
*/ -}}
{{- define "quotabell.tomlValue" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $pairs = append $pairs (printf "%s = %s" (include "quotabell.tomlKey" $key) (include "quotabell.tomlValue" $value)) -}}
{{- end -}}
{{- end -}}
{ {{ join ", " $pairs }} }
{{- else if kindIs "slice" . -}}
{{- $values := list -}}
{{- range . -}}{{- $values = append $values (include "quotabell.tomlValue" .) -}}{{- end -}}
[{{ join ", " $values }}]
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- toRawJson . -}}
{{- end -}}
{{- end -}}

{{- define "quotabell.tomlKey" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toRawJson . }}{{ end -}}
{{- end -}}

{{- /* The configuration file: keys without a section first, then the sections. */ -}}
{{- define "quotabell.configuration" -}}
{{- if .Values.configText -}}
{{ .Values.configText | trim }}
{{- else -}}
{{- $lines := list -}}
{{- range $key, $value := .Values.config -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) -}}
{{- $lines = append $lines (printf "%s = %s" (include "quotabell.tomlKey" $key) (include "quotabell.tomlValue" $value)) -}}
{{- end -}}
{{- end -}}
{{- range $section, $settings := .Values.config -}}
{{- if kindIs "map" $settings -}}
{{- $lines = append $lines (printf "\n[%s]" (include "quotabell.tomlKey" $section)) -}}
{{- range $key, $value := $settings -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $lines = append $lines (printf "%s = %s" (include "quotabell.tomlKey" $key) (include "quotabell.tomlValue" $value)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ join "\n" $lines | trim }}
{{- end -}}
{{- end -}}

{{- /* Refuses values that contradict each other, which the schema can't see. */ -}}
{{- define "quotabell.check" -}}
{{- $config := .Values.config -}}
{{- if and .Values.configText $config -}}
{{- fail "config and configText are both set: set one of them" -}}
{{- end -}}
{{- $instead := dict "http.listen" "service.port" "http.tokens" "http.tokens beside config" "shutdown.drain" "shutdown.drainSeconds" -}}
{{- range $setting, $value := $instead -}}
{{- $parts := splitList "." $setting -}}
{{- if hasKey (get $config (index $parts 0) | default dict) (index $parts 1) -}}
{{- fail (printf "config.%s would have no effect: use %s" $setting $value) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.console.enabled (hasKey ($config.console | default dict) "listen") -}}
{{- fail "config.console.listen would have no effect: use console.enabled" -}}
{{- end -}}
{{- if and .Values.console.publicUrl (not .Values.console.enabled) -}}
{{- fail "console.publicUrl needs console.enabled" -}}
{{- end -}}
{{- $url := dig "redis" "url" "" $config -}}
{{- if and .Values.redis.existingSecret $url -}}
{{- fail "config.redis.url would have no effect: set redis.existingSecret to \"\", or leave the URL to the secret" -}}
{{- end -}}
{{- if not (or .Values.redis.existingSecret $url .Values.configText) -}}
{{- fail "no Redis is named: set redis.existingSecret, or config.redis.url for a Redis without a password" -}}
{{- end -}}
{{- if and .Values.smtp.existingSecret (dig "email" "smtp_url" "" $config) -}}
{{- fail "config.email.smtp_url would have no effect: set smtp.existingSecret to \"\", or leave the URL to the secret" -}}
{{- end -}}
{{- if .Values.keda.enabled -}}
{{- if gt (int .Values.keda.minReplicas) (int .Values.keda.maxReplicas) -}}
{{- fail "keda.minReplicas is above keda.maxReplicas" -}}
{{- end -}}
{{- $partitions := int (dig "stream" "partitions" 1 $config) -}}
{{- if and (not .Values.configText) (gt (int .Values.keda.maxReplicas) $partitions) -}}
{{- fail (printf "keda.maxReplicas is %d, and config.stream.partitions %d: one daemon reads a partition, so more daemons would stand by" (int .Values.keda.maxReplicas) $partitions) -}}
{{- end -}}
{{- end -}}
{{- end -}}
