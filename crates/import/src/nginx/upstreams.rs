//! Where a location forwards requests.

use super::{
    Importer, directive::Directive, levels::Levels, rewrites::Rewrite, server::Location, times,
};
use crate::flow::Flow;

/// The longest timeout of an upstream, in seconds.
const MAX_TIMEOUT: u64 = 86_400;

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

/// Where `proxy_pass` or `grpc_pass` leads.
struct Address<'a> {
    scheme: &'a str,
    authority: &'a str,
    /// The path, if there is one.
    uri: Option<&'a str>,
}

impl<'c> Importer<'c> {
    /// Where requests of a location go.
    ///
    /// # Errors
    /// Why that cannot be said here.
    pub(super) fn target(
        &mut self,
        location: &Location<'c>,
        pass: &Directive,
    ) -> Result<Target, String> {
        let levels = &location.levels;
        let written = levels.filled(pass.arg(0));
        let address = Address::of(&written, pass)?;
        let mut target = Target { upstream: self.upstream(levels, &address)?, ..Target::default() };
        let Rewrite { strip, add } = self.rewrite(location, address.uri)?;
        target.is_whole = !strip.is_empty();
        let changes = [("strip_prefix", strip), ("add_prefix", add)].into_iter();
        let changes = changes.filter(|(_, text)| !text.is_empty());
        target.fields = changes.map(|(name, text)| (name, text.into())).collect();
        target.fields.extend(self.headers(levels, address.authority, pass.name == "grpc_pass"));
        let is_verified =
            levels.one("proxy_ssl_verify").is_some_and(|verify| verify.arg(0) == "on");
        if address.is_tls() && !is_verified {
            let note = "the certificate of the servers is checked, which is stricter";
            target.notes.push(note.to_owned());
        }
        Ok(target)
    }

    /// The name of an upstream with these servers and timeouts.
    fn upstream(&mut self, levels: &Levels<'c>, address: &Address<'_>) -> Result<String, String> {
        let is_it = |own: &&Directive| own.name == "upstream" && own.arg(0) == address.authority;
        let block = self.http.iter().find(is_it);
        let servers = match block {
            None => vec![address.url(address.authority).into()],
            Some(block) => self.servers_of(block, address),
        };
        if let Some(block) = block.filter(|_| servers.is_empty()) {
            return Err(format!("upstream {} has no server that can be used", block.arg(0)));
        }
        let mut balances = block.map_or(&[][..], Directive::inner).iter();
        let is_by_caller = balances.any(|own| matches!(own.name.as_str(), "ip_hash" | "hash"));
        let mut upstream = Flow::fields([("servers", Flow::List(servers))])
            .with_some("protocol", address.is_grpc().then_some("h2"))
            .with_some("balance", is_by_caller.then_some("caller"));
        let kind = if address.is_grpc() { "grpc" } else { "proxy" };
        for (name, fields) in [
            ("connect_timeout", &["connect_timeout"][..]),
            ("read_timeout", &["response_timeout", "idle_timeout"]),
        ] {
            let Some(timeout) = levels.one(&format!("{kind}_{name}")) else { continue };
            let seconds = times::seconds(timeout.arg(0)).filter(|seconds| *seconds > 0);
            let Some(seconds) = seconds else { continue };
            for field in fields {
                upstream = upstream.with(field, format!("{}s", seconds.min(MAX_TIMEOUT)));
            }
            self.row(timeout.same(format!("`{}` of the upstream", fields.join("` and `"))));
        }
        let name = address.authority.split(':').next().unwrap_or(address.authority);
        Ok(self.upstreams.name(name, upstream))
    }

    /// The servers of an `upstream`, with rows for those that are left out.
    fn servers_of(&mut self, block: &Directive, address: &Address<'_>) -> Vec<Flow> {
        let mut servers = Vec::new();
        for server in block.inner().iter().filter(|directive| directive.name == "server") {
            let is_spare = server.args.iter().any(|arg| arg == "down" || arg == "backup");
            if is_spare || server.arg(0).starts_with("unix:") {
                let why = "such a server has no counterpart: the others get the requests";
                self.row(server.left_out(why));
                continue;
            }
            if server.parameter("max_conns").is_some() {
                let why = "`max_conns` of one server has no counterpart: `max_connections` of the \
                           upstream is for each of them, and 1024";
                self.row(server.left_out(why));
            }
            let url = address.url(server.arg(0));
            let weight = server.parameter("weight").and_then(|weight| weight.parse::<u64>().ok());
            servers.push(match weight.filter(|weight| *weight != 1) {
                Some(weight) => Flow::fields([("url", url.into()), ("weight", weight.into())]),
                None => url.into(),
            });
        }
        servers
    }
}

impl<'a> Address<'a> {
    fn of(written: &'a str, pass: &Directive) -> Result<Self, String> {
        let written = written.strip_suffix("$request_uri").unwrap_or(written);
        let (scheme, rest) = match (pass.name.as_str(), written.split_once("://")) {
            ("grpc_pass", None) => ("grpc", written),
            (_, Some((scheme, rest))) => (scheme, rest),
            _ => ("", written),
        };
        let (authority, uri) = match rest.find('/').and_then(|at| rest.split_at_checked(at)) {
            Some((authority, uri)) => (authority, Some(uri)),
            None => (rest, None),
        };
        let is_whole_path = uri.is_some() && pass.arg(0).contains('$');
        if !matches!(scheme, "http" | "https" | "grpc" | "grpcs")
            || written.contains('$')
            || authority.is_empty()
            || is_whole_path
        {
            return Err("its address is made of variables".to_owned());
        }
        if authority.starts_with("unix:") {
            return Err("a server is `http://host:port` here, and no socket".to_owned());
        }
        Ok(Address { scheme, authority, uri })
    }

    fn is_tls(&self) -> bool {
        self.scheme.ends_with('s')
    }

    fn is_grpc(&self) -> bool {
        self.scheme.starts_with("grpc")
    }

    /// The URL of a server.
    fn url(&self, authority: &str) -> String {
        format!("{}://{authority}", if self.is_tls() { "https" } else { "http" })
    }
}
