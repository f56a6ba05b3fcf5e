{{- define "tollgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "tollgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tollgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tollgate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "tollgate.selectorLabels" . }}
app.kubernetes.io/component: proxy
{{- with .Chart.AppVersion }}
app.kubernetes.io/version: {{ . | quote }}
{{- end }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "tollgate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tollgate.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.image" -}}
{{- if not .Values.image.repository -}}
{{- fail "there is no image: build it by the Dockerfile of the repository, push it, and set image.repository" -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* Longer than what drains: WebSockets say goodbye, and charges that wait for Redis are written. */ -}}
{{- define "tollgate.neededGrace" -}}
{{- add (int .Values.drain.preStopSleepSeconds) (int .Values.drain.delaySeconds) (int .Values.drain.seconds) 10 -}}
{{- end -}}

{{- define "tollgate.grace" -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- include "tollgate.neededGrace" . -}}
{{- else -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{- /* The most proxies at once: each has its share of a limit while it decides without Redis. */ -}}
{{- define "tollgate.instances" -}}
{{- $most := int .Values.replicaCount -}}
{{- if .Values.autoscaling.enabled -}}{{- $most = int .Values.autoscaling.maxReplicas -}}{{- end -}}
{{- $surge := .Values.strategy.maxSurge -}}
{{- if kindIs "string" $surge -}}
{{- add $most (max 1 (ceil (mulf $most (divf (trimSuffix "%" $surge | float64) 100.0)) | int)) -}}
{{- else -}}
{{- add $most (int $surge) -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.decides" -}}
{{- if or .Values.decisions.grpc.enabled .Values.decisions.http.enabled .Values.decisions.redis.enabled -}}true{{- end -}}
{{- end -}}

{{- /* The names by which a Service is asked: a listener takes no others with a dot. */ -}}
{{- define "tollgate.dnsNames" -}}
- {{ .name }}
- {{ .name }}.{{ .namespace }}
- {{ .name }}.{{ .namespace }}.svc
- {{ .name }}.{{ .namespace }}.svc.cluster.local
{{- end -}}

{{- /* Which ports clients come to. */ -}}
{{- define "tollgate.serves" -}}
{{- if or .Values.http.enabled .Values.tls.enabled -}}true{{- end -}}
{{- end -}}

{{- /* The settings that the chart writes, with those of `settings` on top. */ -}}
{{- define "tollgate.settings" -}}
{{- $v := .Values -}}
{{- $listeners := list -}}
{{- if $v.tls.enabled -}}
{{- $certificate := dict "certificate_file" "/etc/tollgate/tls/tls.crt" "key_file" "/etc/tollgate/tls/tls.key" -}}
{{- $listener := dict "address" (printf "%s:%d" $v.listen (int $v.tls.port)) "tls" (dict "certificates" (list $certificate) "min_version" $v.tls.minVersion) -}}
{{- if $v.tls.hsts -}}{{- $_ := set $listener "hsts" $v.tls.hsts -}}{{- end -}}
{{- $listeners = append $listeners $listener -}}
{{- end -}}
{{- if $v.http.enabled -}}
{{- $listener := dict "address" (printf "%s:%d" $v.listen (int $v.http.port)) -}}
{{- if $v.http.redirect -}}{{- $_ := set $listener "redirect" (dict "port" (int $v.service.httpsPort) "status" 308) -}}{{- end -}}
{{- $listeners = append $listeners $listener -}}
{{- end -}}
{{- /* Tollgate wants a listener, also where programs only ask: one that nobody reaches. */ -}}
{{- if not $listeners -}}
{{- $listeners = list (dict "address" (printf "127.0.0.1:%d" (int $v.http.port))) -}}
{{- end -}}
{{- $admin := dict "address" (printf "%s:%d" (ternary $v.listen "127.0.0.1" $v.admin.exposed) (int $v.admin.port)) "metrics" (printf "%s:%d" $v.listen (int $v.metrics.port)) -}}
{{- if $v.admin.exposed -}}
{{- $_ := set $admin "auth" (dict "read_token_file" (printf "/etc/tollgate/secrets/admin/%s" $v.admin.tokens.readKey) "write_token_file" (printf "/etc/tollgate/secrets/admin/%s" $v.admin.tokens.writeKey)) -}}
{{- $_ := set $admin "hosts" (concat (include "tollgate.dnsNames" (dict "name" (printf "%s-admin" (include "tollgate.fullname" .)) "namespace" .Release.Namespace) | fromYamlArray) $v.admin.hosts) -}}
{{- else if $v.admin.hosts -}}
{{- $_ := set $admin "hosts" $v.admin.hosts -}}
{{- end -}}
{{- if $v.admin.ready -}}{{- $_ := set $admin "ready" $v.admin.ready -}}{{- end -}}
{{- $store := dict -}}
{{- if eq $v.store.type "memory" -}}
{{- $_ := set $store "memory" (deepCopy $v.store.memory.settings) -}}
{{- else if eq $v.store.type "redis" -}}
{{- $redis := deepCopy $v.store.redis -}}
{{- if $v.store.redisPassword.secretName -}}{{- $_ := set $redis "password_file" (printf "/etc/tollgate/secrets/redis-password/%s" $v.store.redisPassword.key) -}}{{- end -}}
{{- if $v.store.redisCa.secretName -}}
{{- $tls := default dict (get $redis "tls") -}}
{{- $_ := set $redis "tls" (merge (dict "ca_file" (printf "/etc/tollgate/secrets/redis-ca/%s" $v.store.redisCa.key)) $tls) -}}
{{- end -}}
{{- $_ := set $store "redis" $redis -}}
{{- $_ := set $store "instances" (include "tollgate.instances" . | int) -}}
{{- else -}}
{{- $_ := set $store "disk" (merge (dict "path" "/var/lib/tollgate/counters") (deepCopy $v.store.disk.settings)) -}}
{{- end -}}
{{- if $v.store.keySecret.secretName -}}{{- $_ := set $store "key_secret_file" (printf "/etc/tollgate/secrets/key-secret/%s" $v.store.keySecret.key) -}}{{- end -}}
{{- $store = mustMergeOverwrite $store (deepCopy $v.store.options) -}}
{{- $decisions := list -}}
{{- with $v.decisions.grpc -}}{{- if .enabled -}}
{{- $decisions = append $decisions (dict "address" (printf "%s:%d" $v.listen (int .port)) "protocol" "grpc" "askers" .askers "hosts" (include "tollgate.dnsNames" (dict "name" (printf "%s-decisions" (include "tollgate.fullname" $)) "namespace" $.Release.Namespace) | fromYamlArray)) -}}
{{- end -}}{{- end -}}
{{- with $v.decisions.http -}}{{- if .enabled -}}
{{- $listener := dict "address" (printf "%s:%d" $v.listen (int .port)) "protocol" "http" "hosts" (include "tollgate.dnsNames" (dict "name" (printf "%s-decisions" (include "tollgate.fullname" $)) "namespace" $.Release.Namespace) | fromYamlArray) -}}
{{- if .askers -}}{{- $_ := set $listener "askers" .askers -}}{{- end -}}
{{- if .tokenSecret.secretName -}}{{- $_ := set $listener "token_file" (printf "/etc/tollgate/secrets/decisions-token/%s" .tokenSecret.key) -}}{{- end -}}
{{- $decisions = append $decisions $listener -}}
{{- end -}}{{- end -}}
{{- with $v.decisions.redis -}}{{- if .enabled -}}
{{- $decisions = append $decisions (dict "address" (printf "%s:%d" $v.listen (int .port)) "protocol" "redis" "password_file" (printf "/etc/tollgate/secrets/decisions-password/%s" .passwordSecret.key)) -}}
{{- end -}}{{- end -}}
{{- $settings := dict "version" 1 "listeners" $listeners "policies" "/etc/tollgate/policies" "store" $store "admin" $admin "access_log" $v.accessLog "log" $v.log "drain" (printf "%ds" (int $v.drain.seconds)) "drain_delay" (printf "%ds" (int $v.drain.delaySeconds)) -}}
{{- if $v.workers -}}{{- $_ := set $settings "workers" (int $v.workers) -}}{{- end -}}
{{- if $v.trustedProxies -}}{{- $_ := set $settings "trusted_proxies" $v.trustedProxies -}}{{- end -}}
{{- if $decisions -}}{{- $_ := set $settings "decisions" $decisions -}}{{- end -}}
{{- toYaml (mustMergeOverwrite $settings (deepCopy $v.settings)) -}}
{{- end -}}

{{- /* What cannot be meant. */ -}}
{{- define "tollgate.validate" -}}
{{- $v := .Values -}}
{{- $many := or $v.autoscaling.enabled (gt (int $v.replicaCount) 1) -}}
{{- if and $many (eq $v.store.type "memory") (not $v.store.memory.perReplica) (not $v.existingSettings.name) -}}
{{- fail "several replicas with counters in the process count each for itself: a limit of 100 holds once for each. Set store.type to redis, replicaCount to 1, or store.memory.perReplica to true if that is meant" -}}
{{- end -}}
{{- if and $many (eq $v.store.type "disk") -}}
{{- fail "store.type disk is for one proxy: set replicaCount to 1 and autoscaling.enabled to false, or store.type to redis" -}}
{{- end -}}
{{- if and (eq $v.store.type "redis") (not $v.existingSettings.name) -}}
{{- if not (or $v.store.redis.url $v.store.redis.cluster $v.store.redis.service $v.store.redis.shards (hasKey $v.settings "store")) -}}
{{- fail "store.type redis needs store.redis.url, .cluster, .service with .sentinels, or .shards" -}}
{{- end -}}
{{- if regexMatch "rediss?://[^/@\"]*:[^/@\"]+@" (toJson $v.store.redis) -}}
{{- fail "store.redis has a URL with a password, which a ConfigMap would show: put it into a Secret and name that in store.redisPassword, with store.redis.username" -}}
{{- end -}}
{{- end -}}
{{- if and (not $v.policies) (not $v.existingPolicies) -}}
{{- fail "there is no policy: set policies, or existingPolicies" -}}
{{- end -}}
{{- if and $v.policies $v.existingPolicies -}}
{{- fail "policies and existingPolicies are both set: write one of them" -}}
{{- end -}}
{{- if and $v.settings $v.existingSettings.name -}}
{{- fail "settings and existingSettings are both set: write one of them" -}}
{{- end -}}
{{- if not (or (include "tollgate.serves" .) (include "tollgate.decides" .)) -}}
{{- fail "nobody could ask: set http.enabled or tls.enabled, or enable one of decisions" -}}
{{- end -}}
{{- if and $v.tls.enabled (not $v.tls.secretName) -}}
{{- fail "tls.enabled needs tls.secretName, a Secret of type kubernetes.io/tls" -}}
{{- end -}}
{{- if and $v.http.redirect (not $v.tls.enabled) -}}
{{- fail "http.redirect needs tls.enabled" -}}
{{- end -}}
{{- if and $v.admin.exposed (not $v.admin.tokens.secretName) (not $v.existingSettings.name) -}}
{{- fail "admin.exposed needs admin.tokens.secretName: whoever reaches the listener could act" -}}
{{- end -}}
{{- if not $v.existingSettings.name -}}
{{- if and $v.decisions.grpc.enabled (not $v.decisions.grpc.askers) -}}
{{- fail "decisions.grpc needs askers: the networks of the Envoys that ask, such as [10.0.0.0/8]. An asker can claim to be any client" -}}
{{- end -}}
{{- if and $v.decisions.http.enabled (not $v.decisions.http.askers) (not $v.decisions.http.tokenSecret.secretName) -}}
{{- fail "decisions.http needs askers, or tokenSecret for programs" -}}
{{- end -}}
{{- if and $v.decisions.redis.enabled (not $v.decisions.redis.passwordSecret.secretName) -}}
{{- fail "decisions.redis needs passwordSecret" -}}
{{- end -}}
{{- end -}}
{{- if lt (include "tollgate.grace" . | int) (include "tollgate.neededGrace" . | int) -}}
{{- fail (printf "terminationGracePeriodSeconds must be %s at least: drain.preStopSleepSeconds, .delaySeconds and .seconds together, and 10 more" (include "tollgate.neededGrace" .)) -}}
{{- end -}}
{{- end -}}

{{- /* The pod, of the Deployment and of the StatefulSet. */ -}}
{{- define "tollgate.pod" -}}
metadata:
  labels:
    # Without the chart's version: another one is no reason for a restart.
    {{- include "tollgate.selectorLabels" . | nindent 4 }}
    app.kubernetes.io/component: proxy
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: tollgate
    {{- if not .Values.existingSettings.name }}
    # Settings are read at the start. Policies are taken over while it runs, and are not in here.
    checksum/settings: {{ include "tollgate.settings" . | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "tollgate.serviceAccountName" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "tollgate.grace" . }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: { type: RuntimeDefault }
  containers:
    - name: tollgate
      image: {{ include "tollgate.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [run]
      env:
        # By it, `kubectl exec … tollgate status` and others find the settings, too.
        - name: TOLLGATE_CONFIG
          value: /etc/tollgate/settings/{{ if .Values.existingSettings.name }}{{ .Values.existingSettings.key }}{{ else }}tollgate.yaml{{ end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- if .Values.http.enabled }}
        - { name: http, containerPort: {{ .Values.http.port }} }
        {{- end }}
        {{- if .Values.tls.enabled }}
        - { name: https, containerPort: {{ .Values.tls.port }} }
        {{- end }}
        - { name: metrics, containerPort: {{ .Values.metrics.port }} }
        {{- if .Values.admin.exposed }}
        - { name: admin, containerPort: {{ .Values.admin.port }} }
        {{- end }}
        {{- if .Values.decisions.grpc.enabled }}
        - { name: ask-grpc, containerPort: {{ .Values.decisions.grpc.port }} }
        {{- end }}
        {{- if .Values.decisions.http.enabled }}
        - { name: ask-http, containerPort: {{ .Values.decisions.http.port }} }
        {{- end }}
        {{- if .Values.decisions.redis.enabled }}
        - { name: ask-redis, containerPort: {{ .Values.decisions.redis.port }} }
        {{- end }}
      startupProbe:
        httpGet: { path: /healthz, port: metrics }
        {{- toYaml .Values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: { path: /healthz, port: metrics }
        {{- toYaml .Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: { path: /readyz, port: metrics }
        {{- toYaml .Values.probes.readiness | nindent 8 }}
      {{- if gt (int .Values.drain.preStopSleepSeconds) 0 }}
      # By Kubernetes itself: the image has no shell.
      lifecycle:
        preStop:
          sleep: { seconds: {{ .Values.drain.preStopSleepSeconds }} }
      {{- end }}
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      volumeMounts:
        # Folders, never single files: those would not show a change.
        - { name: settings, mountPath: /etc/tollgate/settings, readOnly: true }
        - { name: policies, mountPath: /etc/tollgate/policies, readOnly: true }
        {{- if .Values.tls.enabled }}
        - { name: tls, mountPath: /etc/tollgate/tls, readOnly: true }
        {{- end }}
        {{- range (include "tollgate.secrets" . | fromYamlArray) }}
        - { name: {{ .name }}, mountPath: /etc/tollgate/secrets/{{ .name }}, readOnly: true }
        {{- end }}
        {{- range .Values.keys }}
        - { name: keys-{{ .name }}, mountPath: /etc/tollgate/keys/{{ .name }}, readOnly: true }
        {{- end }}
        {{- if eq .Values.store.type "disk" }}
        - { name: counters, mountPath: /var/lib/tollgate }
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: settings
      configMap: { name: {{ default (printf "%s-settings" (include "tollgate.fullname" .)) .Values.existingSettings.name }} }
    - name: policies
      configMap: { name: {{ default (printf "%s-policies" (include "tollgate.fullname" .)) .Values.existingPolicies }} }
    {{- if .Values.tls.enabled }}
    - name: tls
      secret: { secretName: {{ .Values.tls.secretName }}, defaultMode: 0440 }
    {{- end }}
    {{- range (include "tollgate.secrets" . | fromYamlArray) }}
    - name: {{ .name }}
      secret: { secretName: {{ .secretName }}, defaultMode: 0440 }
    {{- end }}
    {{- range .Values.keys }}
    - name: keys-{{ .name }}
      {{- if .secretName }}
      secret: { secretName: {{ .secretName }}, defaultMode: 0440 }
      {{- else }}
      configMap: { name: {{ .configMapName }} }
      {{- end }}
    {{- end }}
    {{- if and (eq .Values.store.type "disk") .Values.store.disk.existingClaim }}
    - name: counters
      persistentVolumeClaim: { claimName: {{ .Values.store.disk.existingClaim }} }
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.topologySpread.zone .Values.topologySpread.node }}
  topologySpreadConstraints:
    {{- range $key, $when := dict "topology.kubernetes.io/zone" .Values.topologySpread.zone "kubernetes.io/hostname" .Values.topologySpread.node }}
    {{- if $when }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: {{ $when }}
      labelSelector:
        matchLabels:
          {{- include "tollgate.selectorLabels" $ | nindent 10 }}
      {{- if ne $.Values.store.type "disk" }}
      # Pods of the version that is rolled out count, and not those that go.
      matchLabelKeys: [pod-template-hash]
      {{- end }}
    {{- end }}
    {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- /* Secrets that are mounted, by the folder's name. */ -}}
{{- define "tollgate.secrets" -}}
{{- $v := .Values -}}
{{- $secrets := list -}}
{{- if $v.store.redisPassword.secretName -}}{{- $secrets = append $secrets (dict "name" "redis-password" "secretName" $v.store.redisPassword.secretName) -}}{{- end -}}
{{- if $v.store.redisCa.secretName -}}{{- $secrets = append $secrets (dict "name" "redis-ca" "secretName" $v.store.redisCa.secretName) -}}{{- end -}}
{{- if $v.store.keySecret.secretName -}}{{- $secrets = append $secrets (dict "name" "key-secret" "secretName" $v.store.keySecret.secretName) -}}{{- end -}}
{{- if $v.admin.tokens.secretName -}}{{- $secrets = append $secrets (dict "name" "admin" "secretName" $v.admin.tokens.secretName) -}}{{- end -}}
{{- if and $v.decisions.http.enabled $v.decisions.http.tokenSecret.secretName -}}{{- $secrets = append $secrets (dict "name" "decisions-token" "secretName" $v.decisions.http.tokenSecret.secretName) -}}{{- end -}}
{{- if and $v.decisions.redis.enabled $v.decisions.redis.passwordSecret.secretName -}}{{- $secrets = append $secrets (dict "name" "decisions-password" "secretName" $v.decisions.redis.passwordSecret.secretName) -}}{{- end -}}
{{- toYaml $secrets -}}
{{- end -}}
