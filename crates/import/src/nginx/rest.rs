//! What is written beside all that: nothing of it limits or refuses requests.

use super::{
    Importer,
    access::is_guard,
    directive::{Directive, within},
};

/// Said elsewhere.
const HANDLED: &[&str] = &[
    "http",
    "server",
    "location",
    "upstream",
    "map",
    "geo",
    "if",
    "limit_except",
    "limit_req",
    "limit_conn",
    "limit_req_zone",
    "limit_conn_zone",
    "limit_req_dry_run",
    "limit_conn_dry_run",
    "limit_req_status",
    "limit_conn_status",
    "allow",
    "deny",
    "satisfy",
    "return",
    "rewrite",
    "internal",
    "try_files",
    "proxy_pass",
    "grpc_pass",
    "proxy_set_header",
    "grpc_set_header",
    "proxy_connect_timeout",
    "proxy_read_timeout",
    "grpc_connect_timeout",
    "grpc_read_timeout",
    "client_max_body_size",
    "server_name",
    "listen",
    "set",
    "hash",
    "ip_hash",
    "auth_basic_user_file",
    "auth_request_set",
    "auth_delay",
    "auth_jwt_key_file",
    "auth_jwt_require",
    "auth_jwt_leeway",
    "auth_jwt_type",
    "root",
    "alias",
    "set_real_ip_from",
    "real_ip_header",
    "real_ip_recursive",
];

/// Of no account here: how nginx runs, logs, and speaks with clients and servers.
const IGNORED: &[&str] = &[
    "access_log",
    "error_log",
    "log_format",
    "log_not_found",
    "log_subrequest",
    "open_log_file_cache",
    "limit_req_log_level",
    "limit_conn_log_level",
    "server_tokens",
    "sendfile",
    "tcp_",
    "aio",
    "directio",
    "output_buffers",
    "keepalive",
    "reset_timedout_connection",
    "lingering_",
    "client_body_",
    "client_header_",
    "large_client_header_buffers",
    "send_timeout",
    "send_lowat",
    "resolver",
    "ssl_",
    "http2",
    "http3",
    "quic_",
    "gzip",
    "brotli",
    "zstd",
    "etag",
    "types",
    "default_type",
    "charset",
    "index",
    "open_file_cache",
    "server_names_hash",
    "variables_hash",
    "map_hash",
    "types_hash",
    "proxy_buffer",
    "proxy_busy",
    "proxy_http_version",
    "proxy_headers_hash",
    "proxy_temp",
    "proxy_max_temp",
    "proxy_request_buffering",
    "proxy_socket_keepalive",
    "proxy_ssl_",
    "proxy_send_timeout",
    "proxy_read_ahead",
    "fastcgi_",
    "uwsgi_",
    "scgi_",
    "grpc_",
    "root",
    "autoindex",
    "server_name_in_redirect",
    "port_in_redirect",
    "absolute_redirect",
    "underscores_in_headers",
    "ignore_invalid_headers",
    "recursive_error_pages",
    "merge_slashes",
    "connection_pool_size",
    "request_pool_size",
    "user",
    "worker_",
    "pid",
    "events",
    "load_module",
    "daemon",
    "env",
    "pcre_jit",
    "thread_pool",
    "timer_resolution",
    "master_process",
    "include",
    "zone",
    "max_ranges",
    "if_modified_since",
    "msie_",
    "postpone_output",
    "status_zone",
    "stub_status",
    "vhost_traffic_status",
    "geoip",
    "split_clients",
    "volatile",
    "hostnames",
    "more_",
    "expires",
    "break",
    "lua_",
    "server_rewrite",
    "satisfy",
    "least_conn",
    "random",
    "chunked_transfer_encoding",
    "autoindex_",
    "passenger_",
    "subs_filter_types",
    "stream",
    "mail",
];

/// What responses or servers have of it no longer.
const LEFT_OUT: &[(&str, &str)] = &[
    ("limit_rate", "a limit of bytes a second has no counterpart"),
    ("proxy_limit_rate", "a limit of bytes a second has no counterpart"),
    ("proxy_cache", "nothing is cached: all requests reach the upstream"),
    ("proxy_store", "nothing is cached"),
    ("proxy_next_upstream", "see `retries` of the upstream"),
    ("proxy_intercept_errors", "the upstream's own errors are shown"),
    ("proxy_redirect", "`Location` is passed on as the upstream writes it"),
    ("proxy_cookie", "cookies are passed on as the upstream writes them"),
    ("proxy_hide_header", "write it into `response_headers: { remove: […] }`"),
    ("proxy_ignore_headers", "no counterpart"),
    ("proxy_pass_header", "fields of the upstream are passed on in any case"),
    ("proxy_method", "the method stays as it is"),
    ("proxy_set_body", "the body stays as it is"),
    ("error_page", "no counterpart: pages for errors are those of Tollgate or the upstream"),
    ("add_header", "write it into `response_headers: { set: {…} }`"),
    ("sub_filter", "the body stays as it is"),
    ("mirror", "no request is mirrored"),
    ("valid_referers", "no counterpart"),
    ("auth_jwt_", "no counterpart"),
];

impl Importer<'_> {
    /// Rows for what no other part of the import looks at; the same name and reason is one row.
    pub(super) fn rest(&mut self, all: &[Directive]) {
        for directive in within(all, |directive| !is_skipped(directive)) {
            let name = directive.name.as_str();
            let limits_connections = |inner: &Directive| inner.name.starts_with("limit_conn");
            if name == "stream"
                && directive.inner().iter().any(|inner| {
                    limits_connections(inner)
                        || inner.inner().iter().any(|inner| inner.name == "limit_conn")
                })
            {
                let why = "limits of connections without HTTP have no counterpart";
                self.left_out(directive, why);
            }
            if is_skipped(directive) || HANDLED.contains(&name) || is_guard(directive) {
                continue;
            }
            match LEFT_OUT.iter().find(|(known, _)| is_of(name, known)) {
                Some((_, why)) => self.left_out(directive, why),
                None if is_ignored(name) => {}
                None if name.contains("_by_lua") || name.starts_with("js_") => self.left_out(
                    directive,
                    "programs are not run: see whether it limits or refuses something",
                ),
                None => self.left_out(
                    directive,
                    "not known here: see whether it limits or refuses something",
                ),
            }
        }
        self.real_ip(all);
    }

    /// Where clients' addresses come from: that is a setting.
    fn real_ip(&mut self, all: &[Directive]) {
        let mut found =
            within(all, |block| matches!(block.name.as_str(), "http" | "server" | "location"));
        found.retain(|directive| {
            matches!(directive.name.as_str(), "set_real_ip_from" | "real_ip_header")
        });
        let networks: Vec<&str> = found
            .iter()
            .filter(|directive| directive.name == "set_real_ip_from")
            .map(|directive| directive.arg(0))
            .filter(|network| super::maps::network(network).is_some())
            .collect();
        if networks.is_empty() {
            return;
        }
        self.report.ask(format!(
            "write the proxies in front into the settings, or all clients behind one share its \
             counters:\ntrusted_proxies: [{}]",
            networks.join(", ")
        ));
        let header = found.iter().find(|directive| directive.name == "real_ip_header");
        let is_read =
            header.is_some_and(|header| header.arg(0).eq_ignore_ascii_case("X-Forwarded-For"));
        for directive in found {
            match is_read {
                true => self.grouped(
                    directive
                        .nearly("not of the policy: write `trusted_proxies` into the settings"),
                ),
                false => self.left_out(
                    directive,
                    "the client's address is read from X-Forwarded-For (or the PROXY protocol) \
                     alone: have the proxy in front write that, and name it in `trusted_proxies` \
                     of the settings",
                ),
            }
        }
    }
}

/// Whether its block holds no directives of this kind.
fn is_skipped(directive: &Directive) -> bool {
    matches!(
        directive.name.as_str(),
        "map" | "geo" | "types" | "events" | "stream" | "mail" | "split_clients" | "if"
    )
}

/// Whether a name is the known one, or begins with it and an underscore.
fn is_of(name: &str, known: &str) -> bool {
    name.strip_prefix(known)
        .is_some_and(|rest| rest.is_empty() || known.ends_with('_') || rest.starts_with('_'))
}

fn is_ignored(name: &str) -> bool {
    // Of these, also longer words: `proxy_buffers`.
    let begun =
        ["proxy_buffer", "gzip", "keepalive", "vhost_traffic_status", "large_client", "proxy_busy"];
    IGNORED.iter().any(|known| is_of(name, known))
        || begun.iter().any(|known| name.starts_with(known))
}
