{{- define "floe.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-floe" .Release.Name) (contains "floe" .Release.Name) -}}
{{- /* Leaves room for `-haproxy` and a StatefulSet's hash. */ -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "floe.selector" -}}
app.kubernetes.io/name: floe
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "floe.nodes.selector" -}}
{{ include "floe.selector" . }}
app.kubernetes.io/component: node
{{- end -}}

{{- define "floe.haproxy.selector" -}}
{{ include "floe.selector" . }}
app.kubernetes.io/component: haproxy
{{- end -}}

{{- define "floe.labels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "floe.secretName" -}}
{{- .Values.secrets.existingSecret | default (include "floe.fullname" .) -}}
{{- end -}}

{{- define "floe.nodes.domain" -}}
{{- printf "%s-nodes.%s.svc.%s" (include "floe.fullname" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- /* One node alone asks no other. */ -}}
{{- define "floe.hasPeers" -}}
{{- if and .Values.peers.enabled (gt (int .Values.replicas) 1) }}true{{ end -}}
{{- end -}}

{{- define "floe.hasOriginKeys" -}}
{{- if eq .Values.origin.auth "keys" }}true{{ end -}}
{{- end -}}

{{- define "floe.hasS3Keys" -}}
{{- if eq .Values.s3.access "keys" }}true{{ end -}}
{{- end -}}

{{- /* One line for each variable that comes from the secret: NAME key. */ -}}
{{- define "floe.secretEnv" -}}
{{- if include "floe.hasPeers" . }}
FLOE_PEERS_SECRET: peers-secret
{{- end }}
{{- if include "floe.hasOriginKeys" . }}
FLOE_ORIGIN_ACCESS_KEY: origin-access-key
FLOE_ORIGIN_SECRET_KEY: origin-secret-key
{{- end }}
{{- if include "floe.hasS3Keys" . }}
FLOE_S3_KEYS: s3-keys
{{- end }}
{{- end -}}

{{- define "floe.listen" -}}
{{- ternary "[::]" "0.0.0.0" .Values.ipv6 -}}
{{- end -}}

{{- define "floe.toml" -}}
# Rendered from the chart's values. Secrets are in variables.
[device]
path = "/var/lib/floe/cache.floe"
size = {{ .Values.deviceSize | toJson }}

[ram]
size = {{ .Values.ramSize | toJson }}

[object]
consistency = {{ .Values.consistency | toJson }}

[origin]
kind = {{ .Values.origin.kind | toJson }}
{{- with .Values.origin.endpoint }}
endpoint = {{ . | toJson }}
{{- end }}
{{- with .Values.origin.region }}
region = {{ . | toJson }}
{{- end }}
{{- if .Values.origin.allowHttp }}
allow_http = true
{{- end }}
{{- if .Values.origin.virtualHostStyle }}
virtual_host_style = true
{{- end }}
{{- if and (eq .Values.origin.auth "anonymous") (ne .Values.origin.kind "http") }}
anonymous = true
{{- end }}

[s3]
listen = "{{ include "floe.listen" . }}:9000"
{{- if eq .Values.s3.access "client" }}
credentials = "client"
{{- else if eq .Values.s3.access "anonymous" }}
anonymous = true
{{- end }}

[memcached]
listen = "off"

[admin]
# The kubelet, HAProxy and Prometheus ask.
listen = "{{ include "floe.listen" . }}:9100"
public = true
{{- if include "floe.hasPeers" . }}

[peers]
listen = "{{ include "floe.listen" . }}:9095"
order = {{ .Values.peers.order | toJson }}
{{- if eq .Values.peers.order "haproxy" }}
# As the servers of haproxy.cfg, in the order of their ids.
weight = 16
nodes = [
{{- range $i := until (int .Values.replicas) }}
    "{{ include "floe.fullname" $ }}-{{ $i }}.{{ include "floe.nodes.domain" $ }}:9095",
{{- end }}
]
{{- else }}
# All addresses of the service.
nodes = ["{{ include "floe.nodes.domain" . }}:9095"]
{{- end }}
{{- $most := ternary 2 16 (eq .Values.peers.order "haproxy") }}
asked = {{ int .Values.peers.asked | default (min (sub (int .Values.replicas) 1) $most) }}
timeout_ms = {{ int .Values.peers.timeoutMs }}
{{- end }}
{{- if .Values.etcd }}

[node]
rejoin = "wait"
etcd = {{ .Values.etcd | toJson }}
{{- end }}

[server]
# Until the service and HAProxy have seen that the pod is leaving.
leave_seconds = 5
drain_timeout_seconds = {{ int .Values.drainTimeoutSeconds }}

[log]
level = {{ .Values.logLevel | toJson }}
format = "json"
{{- end -}}

{{- define "floe.haproxy.cfg" -}}
# As packaging/ring/haproxy-s3.cfg, with the nodes' names in DNS.
global
    maxconn {{ int .Values.haproxy.maxConnections }}
    hard-stop-after 60s
    log stdout format raw local0 notice

defaults
    mode http
    log global
    # More than a second, after which a lost first packet is sent again.
    timeout connect 1200ms
    # Requests beyond maxconn wait, as long as this, for one before them to end.
    timeout queue 30s
    timeout client 60s
    timeout server 60s
    timeout http-request 10s
    timeout http-keep-alive 60s
    timeout check 500ms
    option http-keep-alive
    http-reuse safe

# A pod that starts again has another address. Its name is known as soon as it has one.
resolvers cluster
    parse-resolv-conf
    accepted_payload_size 8192
    resolve_retries 3
    timeout resolve 1s
    timeout retry 1s
    hold valid 5s
    hold nx 10s
    hold obsolete 10s

frontend s3
    bind {{ ternary ":::9000 v4v6" ":9000" .Values.ipv6 }}
    default_backend floe

# For the kubelet and Prometheus.
frontend admin
    bind {{ ternary ":::8404 v4v6" ":8404" .Values.ipv6 }}
    monitor-uri /ready
    monitor fail if { nbsrv(floe) lt 1 }
    http-request use-service prometheus-exporter if { path /metrics }
    http-request deny deny_status 404

backend floe
    balance uri path-only
    # 256 points for each server: with the 16 of weight 1 their shares differ more.
    hash-type consistent djb2 avalanche
    # With hundreds of requests at once, let hot objects spill to the next node:
    # hash-balance-factor 150
    option httpchk
    http-check connect port 9100
    http-check send meth GET uri /ready ver HTTP/1.1 hdr Host floe
    http-check expect status 200
    # 404: the pod is leaving. It gets nothing new, and what it is sending goes on.
    http-check disable-on-404
    retries 2
    option redispatch 1
    retry-on conn-failure empty-response response-timeout
    # A write is sent once: a second one could follow a newer write.
    http-request disable-l7-retry if !{ method GET HEAD }
    http-response set-header x-floe-node %s
    default-server weight 16 check inter 250ms fastinter 100ms downinter 500ms fall 2 rise 2 port 9100 maxconn {{ int .Values.haproxy.maxConnectionsPerNode }} observe layer4 error-limit 3 on-error mark-down on-marked-down shutdown-sessions resolvers cluster resolve-prefer {{ ternary "ipv6" "ipv4" .Values.ipv6 }} init-addr last,libc,none
{{- range $i := until (int .Values.replicas) }}
    server {{ include "floe.fullname" $ }}-{{ $i }} {{ include "floe.fullname" $ }}-{{ $i }}.{{ include "floe.nodes.domain" $ }}:9000 id {{ add1 $i }}
{{- end }}
{{- end -}}
