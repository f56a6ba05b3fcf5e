//! Where a location forwards requests, and what it changes about them.

use super::{Importer, directive::Directive, levels::Levels, paths::Kind, times};
use crate::flow::Flow;

/// What a route says about forwarding.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) upstream: String,
    /// `strip_prefix` and others.
    pub(super) fields: Vec<(&'static str, Flow)>,
    /// Whether only whole segments after the location's text are taken.
    pub(super) is_whole: bool,
    pub(super) notes: Vec<String>,
}

impl<'c> Importer<'c> {
    /// Where requests of a location go.
    ///
    /// # Errors
    /// Why that cannot be said here.
    pub(super) fn target(
        &mut self,
        levels: &Levels<'c>,
        kind: Kind,
        text: &str,
        pass: &Directive,
    ) -> Result<Target, String> {
        let address = levels.filled(pass.arg(0));
        let address = address.strip_suffix("$request_uri").unwrap_or(&address);
        let (scheme, rest) = match (pass.name.as_str(), address.split_once("://")) {
            ("grpc_pass", None) => ("grpc", address),
            (_, Some((scheme, rest))) => (scheme, rest),
            _ => ("", address),
        };
        let (authority, uri) = rest
            .find('/')
            .map_or((rest, None), |at| (rest.get(..at).unwrap_or_default(), rest.get(at..)));
        let is_whole_path = uri.is_some() && pass.arg(0).contains('$');
        if !matches!(scheme, "http" | "https" | "grpc" | "grpcs")
            || address.contains('$')
            || authority.is_empty()
            || is_whole_path
        {
            return Err("its address is made of variables".to_owned());
        }
        if authority.starts_with("unix:") {
            return Err("a server is `http://host:port` here, and no socket".to_owned());
        }
        let mut target =
            Target { upstream: self.upstream(levels, scheme, authority)?, ..Target::default() };
        self.rewriting(levels, (kind, text), uri, &mut target)?;
        self.headers(levels, authority, pass.name == "grpc_pass", &mut target);
        if scheme.ends_with('s')
            && levels.one("proxy_ssl_verify").is_none_or(|verify| verify.arg(0) != "on")
        {
            target
                .notes
                .push("the certificate of the servers is checked, which is stricter".to_owned());
        }
        Ok(target)
    }

    /// The name of an upstream with these servers and timeouts.
    fn upstream(
        &mut self,
        levels: &Levels<'c>,
        scheme: &str,
        authority: &str,
    ) -> Result<String, String> {
        let scheme_here = if scheme.ends_with('s') { "https" } else { "http" };
        let block = self
            .http
            .iter()
            .find(|directive| directive.name == "upstream" && directive.arg(0) == authority);
        let mut servers: Vec<Flow> = Vec::new();
        for server in block
            .map_or(&[][..], Directive::inner)
            .iter()
            .filter(|directive| directive.name == "server")
        {
            let is_left_out = server.args.iter().any(|arg| arg == "down" || arg == "backup")
                || server.arg(0).starts_with("unix:");
            let url = format!("{scheme_here}://{}", server.arg(0));
            match (
                is_left_out,
                server.parameter("weight").and_then(|weight| weight.parse::<u64>().ok()),
            ) {
                (true, _) => self.row(
                    server
                        .left_out("such a server has no counterpart: the others get the requests"),
                ),
                (false, Some(weight)) if weight != 1 => {
                    servers.push(Flow::fields([("url", url.into()), ("weight", weight.into())]))
                }
                (false, _) => servers.push(url.into()),
            }
        }
        match block {
            Some(block) if servers.is_empty() => {
                return Err(format!("upstream {} has no server that can be used", block.arg(0)));
            }
            Some(_) => {}
            None => servers.push(format!("{scheme_here}://{authority}").into()),
        }
        let mut flow = Flow::fields([("servers", Flow::List(servers))]);
        if scheme.starts_with("grpc") {
            flow = flow.with("protocol", "h2");
        }
        if block.is_some_and(|block| {
            block
                .inner()
                .iter()
                .any(|directive| matches!(directive.name.as_str(), "ip_hash" | "hash"))
        }) {
            flow = flow.with("balance", "caller");
        }
        let of = if scheme.starts_with("grpc") { "grpc" } else { "proxy" };
        for (directive, fields) in [
            ("connect_timeout", &["connect_timeout"][..]),
            ("read_timeout", &["response_timeout", "idle_timeout"]),
        ] {
            let Some(directive) = levels.one(&format!("{of}_{directive}")) else { continue };
            let Some(seconds) = times::seconds(directive.arg(0)).filter(|seconds| *seconds > 0)
            else {
                continue;
            };
            for field in fields {
                flow = flow.with(field, format!("{}s", seconds.min(86_400)));
            }
            self.row(directive.same(format!("`{}` of the upstream", fields.join("` and `"))));
        }
        Ok(self.upstreams.name(authority.split(':').next().unwrap_or(authority), flow))
    }

    /// What becomes of the path.
    fn rewriting(
        &mut self,
        levels: &Levels<'c>,
        (kind, text): (Kind, &str),
        uri: Option<&str>,
        target: &mut Target,
    ) -> Result<(), String> {
        let rewrites: Vec<&Directive> =
            levels.own().iter().filter(|directive| directive.name == "rewrite").collect();
        let inner: Vec<&&Directive> =
            rewrites.iter().filter(|rewrite| !is_redirect(rewrite)).collect();
        let (from, to) = match (&inner[..], uri) {
            ([], None) => return Ok(()),
            ([], Some(uri)) if matches!(kind, Kind::Exact | Kind::Final | Kind::Prefix) => {
                (text.to_owned(), uri.to_owned())
            }
            ([rewrite], _) => {
                let from = rewrite
                    .arg(0)
                    .strip_prefix('^')
                    .and_then(|from| from.trim_end_matches('$').strip_suffix("(.*)"));
                let to = rewrite.arg(1).strip_suffix("$1");
                let is_plain = |from: &&str| {
                    from.ends_with('/')
                        && from
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || b"/-_".contains(&byte))
                };
                let (Some(from), Some(to), "break") =
                    (from.filter(is_plain), to.filter(|to| to.ends_with('/')), rewrite.arg(2))
                else {
                    return Err("its rewrites are more than a prefix taken off".to_owned());
                };
                if from.trim_end_matches('/') != text.trim_end_matches('/') {
                    return Err("its rewrite is not for all of its paths".to_owned());
                }
                self.row(rewrite.same("`strip_prefix` and `add_prefix`"));
                (from.to_owned(), to.to_owned())
            }
            _ => return Err("what it makes of the path has no counterpart".to_owned()),
        };
        let (strip, add) = (from.trim_end_matches('/'), to.trim_end_matches('/'));
        if from.ends_with('/') && !to.ends_with('/')
            || kind == Kind::Exact && to.ends_with('/') != from.ends_with('/')
            || to.contains(['?', '#', '$'])
        {
            return Err("it joins the path to a text that is no whole segment".to_owned());
        }
        if strip != add {
            if !strip.is_empty() {
                target.fields.push(("strip_prefix", strip.into()));
                target.is_whole = true;
            }
            if !add.is_empty() {
                target.fields.push(("add_prefix", add.into()));
            }
        }
        Ok(())
    }

    /// The header fields that it sets.
    fn headers(
        &mut self,
        levels: &Levels<'c>,
        authority: &str,
        is_grpc: bool,
        target: &mut Target,
    ) {
        let own = levels.nearest(&[if is_grpc { "grpc_set_header" } else { "proxy_set_header" }]);
        let (mut set, mut remove) = (Vec::new(), Vec::new());
        let (mut has_host, mut has_upgrade) = (false, is_grpc);
        for directive in own {
            let name = directive.arg(0).to_ascii_lowercase();
            let value = levels.filled(directive.arg(1));
            let is_of_the_connection = matches!(
                name.as_str(),
                "connection"
                    | "content-length"
                    | "transfer-encoding"
                    | "te"
                    | "accept-encoding"
                    | "keep-alive"
                    | "expect"
            );
            match (name.as_str(), value.as_str()) {
                ("host", "$host" | "$http_host" | "$host:$server_port" | "$server_name") => {
                    has_host = true
                }
                ("host", "$proxy_host") => {}
                ("upgrade", _) => has_upgrade = true,
                (
                    "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host" | "x-request-id",
                    value,
                ) if value.starts_with('$') => {
                    self.grouped(directive.same("the upstream gets it in any case"));
                }
                (_, value)
                    if value.contains('$')
                        && value == format!("$http_{}", name.replace('-', "_")) => {}
                (_, value)
                    if value.contains('$')
                        || name.contains('_')
                        || name.starts_with("x-forwarded")
                        || name.starts_with("x-real") =>
                {
                    has_host |= name == "host";
                    self.left_out(
                        directive,
                        match name.as_str() {
                            "x-real-ip" => {
                                "the upstream gets X-Forwarded-For alone: have it read that"
                            }
                            _ => "no counterpart: the upstream does not get this value",
                        },
                    );
                }
                _ if is_of_the_connection => {}
                (name, value) if !value.is_empty() && is_secret(name) => {
                    self.left_out(
                        directive,
                        "it may be a credential: write it into \
                         `request_headers` of the route yourself, by `${NAME}`",
                    );
                }
                (_, "") => remove.push(name),
                (_, value) => {
                    has_host |= name == "host";
                    set.push((name, Flow::Text(value.to_owned())));
                }
            }
        }
        if !has_host {
            set.push(("host".to_owned(), authority.into()));
        }
        set.sort_by(|one, other| one.0.cmp(&other.0));
        set.dedup_by(|one, other| one.0 == other.0);
        let edits = Flow::fields([]).with_fields("set", set).with_list("remove", remove);
        if !edits.is_empty() {
            target.fields.push(("request_headers", edits));
        }
        if !has_upgrade {
            target.fields.push(("upgrades", Flow::List(Vec::new())));
        }
    }
}

/// Whether the value of a header field may be a credential.
fn is_secret(name: &str) -> bool {
    ["auth", "key", "token", "secret", "cookie", "password", "credential"]
        .iter()
        .any(|part| name.contains(part))
}

/// Whether a `rewrite` answers with another address.
pub(super) fn is_redirect(rewrite: &Directive) -> bool {
    let has_address =
        ["http://", "https://", "$scheme"].iter().any(|scheme| rewrite.arg(1).starts_with(scheme));
    has_address || matches!(rewrite.arg(2), "redirect" | "permanent")
}
