//! What is written beside all that: nothing of it limits or refuses requests.

use super::{
    Importer,
    access::is_guard,
    directive::{Directive, within},
};
use crate::words;

/// Said elsewhere.
const HANDLED: &str = "\
    alias allow auth_basic_user_file auth_delay auth_jwt_key_file auth_jwt_leeway \
    auth_jwt_require auth_jwt_type auth_request_set client_max_body_size deny geo \
    grpc_connect_timeout grpc_pass grpc_read_timeout grpc_set_header hash http if internal \
    ip_hash limit_conn limit_conn_dry_run limit_conn_status limit_conn_zone limit_except \
    limit_req limit_req_dry_run limit_req_status limit_req_zone listen location map \
    proxy_connect_timeout proxy_pass proxy_read_timeout proxy_set_header real_ip_header \
    real_ip_recursive return rewrite root satisfy server server_name set set_real_ip_from \
    try_files upstream";

/// Of no account here: how nginx runs, logs, and speaks with clients and servers.
const IGNORED: &str = "\
    absolute_redirect access_log aio autoindex autoindex_ break brotli charset \
    chunked_transfer_encoding client_body_ client_header_ connection_pool_size daemon \
    default_type directio env error_log etag events expires fastcgi_ geoip grpc_ gzip hostnames \
    http2 http3 if_modified_since ignore_invalid_headers include index keepalive \
    large_client_header_buffers least_conn limit_conn_log_level limit_req_log_level lingering_ \
    load_module log_format log_not_found log_subrequest lua_ mail map_hash master_process \
    max_ranges merge_slashes more_ msie_ open_file_cache open_log_file_cache output_buffers \
    passenger_ pcre_jit pid port_in_redirect postpone_output proxy_buffer proxy_busy \
    proxy_headers_hash proxy_http_version proxy_max_temp proxy_read_ahead proxy_request_buffering \
    proxy_send_timeout proxy_socket_keepalive proxy_ssl_ proxy_temp quic_ random \
    recursive_error_pages request_pool_size reset_timedout_connection resolver root satisfy scgi_ \
    send_lowat send_timeout sendfile server_name_in_redirect server_names_hash server_rewrite \
    server_tokens split_clients ssl_ status_zone stream stub_status subs_filter_types tcp_ \
    thread_pool timer_resolution types types_hash underscores_in_headers user uwsgi_ \
    variables_hash vhost_traffic_status volatile worker_ zone zstd";

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
            if is_skipped(directive) || words::has(HANDLED, name) || is_guard(directive) {
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
    let begun = "gzip keepalive large_client proxy_buffer proxy_busy vhost_traffic_status";
    IGNORED.split_ascii_whitespace().any(|known| is_of(name, known)) || words::begin(begun, name)
}
