//! What is written beside all that: nothing of it limits or refuses requests.

use std::collections::BTreeSet;

use super::{
    Importer,
    access::is_guard,
    directive::{Directive, within},
};
use crate::{Finding, Verdict, words};

/// Said elsewhere.
const HANDLED: &str = "\
    add_header alias allow auth_basic_user_file auth_delay auth_jwt_key_file auth_jwt_leeway \
    auth_jwt_require auth_jwt_type auth_request_set client_max_body_size deny geo \
    grpc_connect_timeout grpc_pass grpc_read_timeout grpc_set_header hash http if internal \
    ip_hash limit_conn limit_conn_dry_run limit_conn_status limit_conn_zone limit_except \
    limit_req limit_req_dry_run limit_req_status limit_req_zone listen location map \
    proxy_connect_timeout proxy_hide_header proxy_pass proxy_read_timeout proxy_set_header \
    real_ip_header real_ip_recursive return rewrite root satisfy server server_name set \
    set_real_ip_from try_files upstream";

/// Of no account here: how nginx runs, logs, and speaks with clients and servers.
const IGNORED: &str = "\
    absolute_redirect access_log aio autoindex autoindex_ break chunked_transfer_encoding \
    connection_pool_size daemon default_type directio env error_log etag events fastcgi_ geoip \
    grpc_ hostnames http2 http3 if_modified_since ignore_invalid_headers include index keepalive \
    least_conn limit_conn_log_level limit_req_log_level load_module log_format log_not_found \
    log_subrequest lua_ mail map_hash master_process max_ranges msie_ open_file_cache \
    open_log_file_cache output_buffers passenger_ pcre_jit pid port_in_redirect postpone_output \
    proxy_buffer proxy_busy proxy_headers_hash proxy_http_version proxy_max_temp proxy_read_ahead \
    proxy_request_buffering proxy_send_timeout proxy_socket_keepalive proxy_temp quic_ random \
    recursive_error_pages request_pool_size resolver root satisfy scgi_ send_lowat sendfile \
    server_name_in_redirect server_names_hash server_rewrite server_tokens split_clients \
    status_zone stream stub_status subs_filter_types tcp_ thread_pool timer_resolution types \
    types_hash user uwsgi_ variables_hash vhost_traffic_status volatile worker_ zone";

/// What clients of a page for denials get instead.
const DENIAL: &str = "\
    no counterpart: a denial has the body {\"message\":\"API rate limit exceeded for \
    192.0.2.1.\"}, and by another limit than the first of its route {\"message\":\"You have \
    exceeded a secondary rate limit. Try again in 5 seconds.\"}: see whether clients read it";

/// What is the same here where nginx has it off.
const SAME_IF_OFF: &str = "\
    charset mirror proxy_cache proxy_intercept_errors proxy_limit_rate proxy_redirect proxy_store";

/// What belongs together, by the beginnings of names: one row.
const FAMILIES: &[(&str, Verdict, &str)] = &[
    (
        "gzip brotli zstd",
        Verdict::LeftOut,
        "responses are not compressed here: let the upstream do it",
    ),
    ("ssl_", Verdict::Nearly, "not of the policy: write `tls` at the listener of the settings"),
    ("proxy_ssl_ grpc_ssl_", Verdict::Nearly, "see `tls` of the upstream"),
    (
        "client_body_ client_header_ keepalive_ large_client_header_ lingering_ send_timeout \
         reset_timedout_connection",
        Verdict::Nearly,
        "not of the policy: how long clients may take, and how much they may send, is in \
         `timeouts` and `limits` of the settings",
    ),
    (
        "expires",
        Verdict::LeftOut,
        "`Expires` and `Cache-Control` are those of the upstream; constants may be written into \
         `response_headers: { set: {…} }`",
    ),
    (
        "more_",
        Verdict::LeftOut,
        "write it into `response_headers` or `request_headers` of the routes",
    ),
    ("merge_slashes", Verdict::Nearly, "repeated slashes are one, on all paths"),
    (
        "underscores_in_headers",
        Verdict::Nearly,
        "fields with an underscore in their name never reach the upstream",
    ),
];

/// What responses or servers have of it no longer.
const LEFT_OUT: &[(&str, &str)] = &[
    ("limit_rate", "a limit of bytes a second has no counterpart"),
    ("proxy_limit_rate", "a limit of bytes a second has no counterpart"),
    ("vhost_traffic_status_limit", "limits of bytes have no counterpart"),
    ("proxy_cache", "nothing is cached: all requests reach the upstream"),
    ("proxy_store", "nothing is cached"),
    ("proxy_next_upstream", "see `retries` of the upstream"),
    ("proxy_intercept_errors", "the upstream's own errors are shown"),
    ("proxy_redirect", "`Location` is passed on as the upstream writes it"),
    ("proxy_cookie", "cookies are passed on as the upstream writes them"),
    ("proxy_ignore_headers", "no counterpart"),
    ("proxy_pass_header", "fields of the upstream are passed on in any case"),
    ("proxy_method", "the method stays as it is"),
    ("proxy_set_body", "the body stays as it is"),
    ("error_page", "no counterpart: pages for errors are those of Tollgate or the upstream"),
    ("charset", "`Content-Type` is passed on as the upstream writes it"),
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
            if words::has(SAME_IF_OFF, name) && directive.arg(0) == "off" {
                self.grouped(directive.same("nor does Tollgate do so"));
                continue;
            }
            let is_denial = |arg: &String| {
                arg.parse().is_ok_and(|status: u16| self.statuses.contains_key(&status))
            };
            if name == "error_page" && directive.args.iter().any(is_denial) {
                self.left_out(directive, DENIAL);
                continue;
            }
            match LEFT_OUT.iter().find(|(known, _)| is_of(name, known)) {
                Some((_, why)) => self.left_out(directive, why),
                None if is_ignored(name) || is_of_family(name) => {}
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
        self.families(all);
        self.real_ip(all);
    }

    /// A row for each family that is in use.
    fn families(&mut self, all: &[Directive]) {
        let found = within(all, |directive| !is_skipped(directive));
        for (begun, verdict, here) in FAMILIES {
            let own = found.iter().filter(|own| words::begin(begun, &own.name) && !is_guard(own));
            let on: Vec<&&Directive> = own.filter(|own| own.arg(0) != "off").collect();
            let is_switched = begun.starts_with("gzip");
            let is_on = |own: &&Directive| {
                !is_switched || words::has(begun, &own.name) && own.arg(0) == "on"
            };
            let Some(first) = on.iter().find(|own| is_on(own)) else { continue };
            let names: BTreeSet<&str> = on.iter().map(|own| own.name.as_str()).collect();
            let there = Vec::from_iter(names).join(", ");
            let place = first.place.to_string();
            self.row(Finding { verdict: *verdict, ..Finding::same(place, there, *here) });
        }
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
        let sources: Vec<_> = found.iter().filter(|own| own.name == "set_real_ip_from").collect();
        if let Some(first) = sources.first() {
            self.row(Finding::nearly(
                first.place.to_string(),
                format!("set_real_ip_from, {} times", sources.len()),
                "not of the policy: write `trusted_proxies` into the settings",
            ));
            let headers: Vec<_> = found.iter().filter(|own| own.name == "real_ip_header").collect();
            if headers.is_empty() {
                let place = first.place.to_string();
                let there = "real_ip_header X-Real-IP, the default";
                self.row(Finding::left_out(place, there, OTHER_FIELD));
            }
            for header in headers {
                self.real_ip_header(header);
            }
        }
    }

    fn real_ip_header(&mut self, header: &Directive) {
        self.grouped(match header.arg(0).to_ascii_lowercase().as_str() {
            "x-forwarded-for" => header.same("what `trusted_proxies` write there is read"),
            "proxy_protocol" => header.nearly(
                "not of the policy: write `proxy_protocol: { trusted: […] }` at the listener of \
                 the settings",
            ),
            "cf-connecting-ip" | "cf-connecting-ipv6" => header.nearly(
                "X-Forwarded-For is read, and Cloudflare writes that as well: its networks in \
                 `trusted_proxies` of the settings are enough",
            ),
            _ => header.left_out(OTHER_FIELD),
        });
    }
}

/// What to do about another field with the client's address.
const OTHER_FIELD: &str = "\
    the client's address is read from X-Forwarded-For (or Forwarded, or the PROXY protocol) alone: \
    have the proxy in front write that, and name it in `trusted_proxies` of the settings";

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

fn is_of_family(name: &str) -> bool {
    FAMILIES.iter().any(|(begun, ..)| words::begin(begun, name))
}

fn is_ignored(name: &str) -> bool {
    // Of these, also longer words: `proxy_buffers`.
    let begun = "keepalive proxy_buffer proxy_busy vhost_traffic_status";
    IGNORED.split_ascii_whitespace().any(|known| is_of(name, known)) || words::begin(begun, name)
}
