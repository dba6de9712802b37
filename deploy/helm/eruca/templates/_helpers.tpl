{{/* What all templates share. A component is a service: namesrv, broker, controller, txnChecker … */}}

{{- define "eruca.name" -}}
{{- if contains "eruca" .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-eruca" (.Release.Name | trunc 34 | trimSuffix "-") }}{{- end -}}
{{- end }}

{{- define "eruca.components" -}}
namesrv: {service: namesrv, port: 9876, role: name-server, prefix: ERUCA_NAMESRV}
controller: {service: controller, port: 9878, role: controller, prefix: ERUCA_CONTROLLER}
broker: {service: broker, port: 10911, role: broker, prefix: ERUCA_BROKER}
txnChecker: {service: txn-checker, port: 10921, role: transaction-checker, prefix: ERUCA_TXN_CHECKER}
query: {service: query, port: 10931, role: query-service, prefix: ERUCA_QUERY}
console: {service: console, port: 10941, role: console, prefix: ERUCA_CONSOLE}
{{- end }}

{{/* Who must reach whom. Every service reports to brokers what somebody did, for the audit. */}}
{{- define "eruca.reaches" -}}
namesrv: [broker]
controller: [broker, namesrv]
broker: [broker, controller, namesrv]
txnChecker: [broker, namesrv]
query: [broker, namesrv]
console: [broker, controller, namesrv, query, txnChecker]
{{- end }}

{{- define "eruca.selector" -}}
app.kubernetes.io/name: eruca
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component.service }}
{{- end }}

{{- define "eruca.labels" -}}
{{ include "eruca.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "eruca.scheme" -}}{{ ternary "https" "http" .Values.tls.enabled }}{{- end }}

{{- define "eruca.domain" -}}{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}{{- end }}

{{/* URLs of all pods of a component: dict root, key */}}
{{- define "eruca.urls" -}}
{{- $component := get (include "eruca.components" .root | fromYaml) .key -}}
{{- $service := printf "%s-%s" (include "eruca.name" .root) $component.service -}}
{{- $urls := list -}}
{{- range $i := until (int (get .root.Values .key).replicas) -}}
{{- $host := printf "%s-%d.%s.%s" $service $i $service (include "eruca.domain" $.root) -}}
{{- $urls = append $urls (printf "%s://%s:%d" (include "eruca.scheme" $.root) $host (int $component.port)) -}}
{{- end -}}
{{- join ";" $urls -}}
{{- end }}

{{/* Names of all pods of a component: dict root, key */}}
{{- define "eruca.pods" -}}
{{- $component := get (include "eruca.components" .root | fromYaml) .key -}}
{{- $names := list -}}
{{- range $i := until (int (get .root.Values .key).replicas) -}}
{{- $names = append $names (printf "%s-%s-%d" (include "eruca.name" $.root) $component.service $i) -}}
{{- end -}}
{{- join ";" $names -}}
{{- end }}

{{/* True if a component keeps files: dict root, key */}}
{{- define "eruca.keepsFiles" -}}
{{- if has .key (list "broker" "namesrv") -}}true
{{- else if and (has .key (list "txnChecker" "query")) (not .root.Values.database.secret) -}}true
{{- else if and (eq .key "controller") (eq .root.Values.controller.store "postgres") (not .root.Values.database.secret) -}}true
{{- end -}}
{{- end }}

{{/* Environment of every service: dict root, component, key */}}
{{- define "eruca.environment" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- if .root.Values.auth.open }}
- {name: ERUCA_AUTH, value: open}
{{- else }}
- {name: ERUCA_AUTH_FILE, value: /etc/eruca/rules/rules.toml}
- {name: ERUCA_API_KEY_FILE, value: /etc/eruca/key/api.key}
{{- end }}
{{- if .root.Values.tls.enabled }}
- {name: ERUCA_TLS_CA_FILE, value: /etc/eruca/tls/ca.crt}
- {name: {{ .component.prefix }}_TLS_CERT_FILE, value: /etc/eruca/tls/tls.crt}
- {name: {{ .component.prefix }}_TLS_KEY_FILE, value: /etc/eruca/tls/tls.key}
{{- end }}
{{- if and .root.Values.database.secret (has .key (list "controller" "txnChecker" "query")) }}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .root.Values.database.secret }}, key: {{ .root.Values.database.key }}}}
{{- end }}
{{- end }}

{{/* The pods of a component: dict root, component, key, labels (more of them), environment (text) */}}
{{- define "eruca.podTemplate" -}}
{{- $values := get .root.Values .key }}
{{- $scheme := include "eruca.scheme" .root | upper }}
metadata:
  labels:
    {{- include "eruca.selector" . | nindent 4 }}
    {{- with .labels }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  serviceAccountName: {{ include "eruca.name" .root }}-{{ .component.service }}
  enableServiceLinks: false # or a Service named eruca-query would set ERUCA_QUERY_PORT
  automountServiceAccountToken: {{ and (eq .key "controller") (eq .root.Values.controller.store "kubernetes") }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- if ne $values.antiAffinity "none" }}
  {{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (merge (include "eruca.selector" . | fromYaml) (.labels | default dict))) }}
  affinity:
    podAntiAffinity:
      {{- if eq $values.antiAffinity "required" }}
      requiredDuringSchedulingIgnoredDuringExecution: {{- toYaml (list $term) | nindent 8 }}
      {{- else }}
      preferredDuringSchedulingIgnoredDuringExecution: {{- toYaml (list (dict "weight" 100 "podAffinityTerm" $term)) | nindent 8 }}
      {{- end }}
  {{- end }}
  containers:
    - name: {{ .component.service }}
      image: {{ printf "%s%s:%s" .root.Values.image.prefix .component.service (.root.Values.image.tag | default .root.Chart.AppVersion) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      ports:
        - {name: http, containerPort: {{ .component.port }}}
      env:
        {{- include "eruca.environment" . | nindent 8 }}
        {{- .environment | trim | nindent 8 }}
        {{- range $name, $value := $values.settings }}
        - {name: {{ $name }}, value: {{ $value | quote }}}
        {{- end }}
      # A start may read a large log's end; afterwards the process has to answer.
      startupProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 300
      livenessProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: http, scheme: {{ $scheme }}}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      {{- if has .key (list "console" "query" "txnChecker" "namesrv") }}
      # Requests by the Service's address end before the process begins to refuse them. Brokers and
      # controllers are found by name servers: a master hands over at SIGTERM.
      lifecycle: {preStop: {sleep: {seconds: 5}}}
      {{- end }}
      resources: {{- toYaml $values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: data, mountPath: /var/lib/eruca}
        {{- if not .root.Values.auth.open }}
        - {name: rules, mountPath: /etc/eruca/rules, readOnly: true}
        - {name: key, mountPath: /etc/eruca/key, readOnly: true}
        {{- end }}
        {{- if .root.Values.tls.enabled }}
        - {name: tls, mountPath: /etc/eruca/tls, readOnly: true}
        {{- end }}
  volumes:
    - {name: tmp, emptyDir: {}}
    {{- if not (include "eruca.keepsFiles" .) }}
    - {name: data, emptyDir: {}}
    {{- end }}
    {{- if not .root.Values.auth.open }}
    - {name: rules, configMap: {name: {{ include "eruca.name" .root }}-rules}}
    - name: key
      secret:
        secretName: {{ required "auth.keysSecret: name the Secret with the services' keys" .root.Values.auth.keysSecret }}
        defaultMode: 0440
        items: [{key: {{ .component.role }}.key, path: api.key}]
    {{- end }}
    {{- if .root.Values.tls.enabled }}
    - {name: tls, secret: {secretName: {{ include "eruca.name" .root }}-{{ .component.service }}-tls, defaultMode: 0440}}
    {{- end }}
{{- end }}

{{/* The volumes of a component that keeps files: dict root, component, key */}}
{{- define "eruca.claims" -}}
{{- if include "eruca.keepsFiles" . }}
{{- $storage := (get .root.Values .key).storage }}
volumeClaimTemplates:
  - metadata:
      name: data
      labels: {{- include "eruca.selector" . | nindent 8 }}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with $storage.className }}
      storageClassName: {{ . }}
      {{- end }}
      resources: {requests: {storage: {{ $storage.size }}}}
persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}
{{- end }}
{{- end }}
