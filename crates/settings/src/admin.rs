//! Settings of the admin listener: status, metrics and reload for operators.

mod place;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use tollgate_keyword::{Keyword, keywords};
use tollgate_yaml::{Check, Choice, Node, Spanned, Value};

use super::{Checker, ListenAddress, tokens::CurrentTokens};

pub use self::place::{AdminPlace, admin_place};

/// The admin listener for operators, who may use it, and its readiness rule.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminSettings {
    /// Where it listens.
    pub address: ListenAddress,
    /// Who may connect to a Unix socket, as its file's mode.
    pub mode: u32,
    /// Where it also listens, for those who get only what needs no secrecy: metrics, without a
    /// token, and how the process is.
    pub metrics: Option<ListenAddress>,
    /// The names and addresses by which clients may ask, beside those of loopback and its own, in
    /// lower case.
    pub hosts: Vec<String>,
    /// The tokens that clients need. None: they need none.
    pub tokens: Option<Arc<CurrentTokens>>,
    /// When the proxy is ready.
    pub ready: ReadyRules,
}

/// What the proxy needs to be ready, besides that it serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadyRules {
    /// That Redis decides, and counters can be written to disk.
    pub store: ReadyRule,
    /// That the keys of each issuer were fetched at least once.
    pub keys: ReadyRule,
}

/// Whether the proxy is not ready without something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadyRule {
    /// It is not ready.
    Require,
    /// It is all the same: each limit has its own rule for the time when Redis does not decide, and
    /// routes that need no token go on without keys. All proxies of a fleet share a store and
    /// issuers, and when they are away a load balancer would have no proxy left to send to.
    #[default]
    Ignore,
}

keywords! { ReadyRule { Require = "require", Ignore = "ignore" } }

/// The admin listener for operators: status, metrics and reload.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "admin section")]
pub(super) struct RawAdmin {
    /// The address of the admin listener: an IP address and a port, `127.0.0.1:9901`, or a Unix
    /// socket, `unix:/run/tollgate/admin.sock`. One that other machines reach needs `auth`.
    #[schemars(extend("examples" = ["127.0.0.1:9901"]))]
    address: Spanned<String>,
    /// Who may connect to a Unix socket, as an octal file mode. Default: "0600".
    #[schemars(regex(pattern = "^0?[0-7]{3}$"))]
    #[schemars(extend("examples" = ["0660"]))]
    mode: Option<Spanned<String>>,
    /// An address of its own for Prometheus and probes: an IP address and a port. Whoever reaches
    /// it gets `/metrics`, `/healthz` and `/readyz` without a token, and nothing else. Left out:
    /// there is none.
    #[schemars(extend("examples" = ["0.0.0.0:9902"]))]
    metrics: Option<Spanned<String>>,
    /// Names and addresses by which clients may ask (the `Host` of a request), beside loopback and
    /// the listener's own address. Left out: no others.
    #[serde(default)]
    #[schemars(extend("examples" = [["tollgate.internal"]]))]
    hosts: Vec<Spanned<String>>,
    /// Files with the tokens that clients need; or `off`: they need none. May be left out on
    /// loopback and for a Unix socket, where it then is `off`.
    #[schemars(with = "Option<AuthShape>")]
    #[schemars(extend("examples" = [{ "write_token_file": "secrets/admin-write-token" }]))]
    auth: Option<Node>,
    /// When `/readyz` says that the proxy is ready.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "store": "require" }]))]
    ready: RawReady,
}

/// Files with the tokens that clients of the admin listener need: at least one of them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "auth section")]
struct RawAuth {
    /// A file with the token to read: status and metrics. Left out: reading needs the other one.
    #[schemars(extend("examples" = ["secrets/admin-read-token"]))]
    read_token_file: Option<Spanned<String>>,
    /// A file with the token to read and to act: reload. Left out: nobody can act.
    #[schemars(extend("examples" = ["secrets/admin-write-token"]))]
    write_token_file: Option<Spanned<String>>,
}

/// The word in place of files with tokens.
#[derive(Clone, Copy)]
enum NoAuth {
    Off,
}

keywords! { NoAuth { Off = "off" } }

/// How `auth` is written, for the JSON Schema.
struct AuthShape;

impl JsonSchema for AuthShape {
    fn schema_name() -> Cow<'static, str> {
        "auth".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let section = generator.subschema_for::<RawAuth>();
        json_schema!({
            "anyOf": [
                generator.subschema_for::<Choice<NoAuth>>(),
                { "description": "Files with tokens.", "$ref": section.get("$ref") },
            ],
        })
    }
}

/// When the proxy is ready to take requests.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "ready section")]
struct RawReady {
    /// `require`: not while Redis does not decide about some callers; for limits that are `closed`
    /// then, and a load balancer with somewhere else to send to. `ignore`: limits do as their
    /// `on_store_error` says. Default: ignore.
    store: Option<Spanned<Choice<ReadyRule>>>,
    /// `require`: not while the keys of an issuer that publishes them were never fetched, so that
    /// all its tokens get 503. Default: ignore.
    keys: Option<Spanned<Choice<ReadyRule>>>,
}

/// Only this user: unless there are tokens, every process that can connect to a Unix socket may
/// act.
const DEFAULT_MODE: u32 = 0o600;

impl Checker<'_> {
    pub(super) fn admin(&mut self, raw: Option<&RawAdmin>) -> Option<AdminSettings> {
        let raw = raw?;
        let [store, keys] = [&raw.ready.store, &raw.ready.keys]
            .map(|rule| rule.as_ref().and_then(|raw| self.keyword(raw)).unwrap_or_default());
        let address = self.listen_address(&raw.address);
        if let (Some(ListenAddress::Tcp(_)), Some(mode)) = (&address, &raw.mode) {
            self.refuse(mode, "only a Unix socket has this", "remove it");
        }
        let mode = raw.mode.as_ref().map_or(DEFAULT_MODE, |raw| self.mode(raw));
        let metrics = raw.metrics.as_ref().and_then(|raw| self.metrics_address(raw));
        let hosts = raw.hosts.iter().filter_map(|raw| self.host_name(raw)).collect();
        let tokens = match &raw.auth {
            Some(node) => self.admin_auth(node),
            None => None,
        };
        let address = address?;
        match &raw.auth {
            None if !address.is_local() => self.refuse(
                &raw.address,
                "other machines reach this address, and the admin listener has no `auth`",
                "write `auth: { read_token_file: …, write_token_file: … }`, or an address such as \
                 127.0.0.1:9901, or `auth: off` if the network keeps others away",
            ),
            _ => self.warn_of_public_admin(&raw.address, &address, tokens.is_some()),
        }
        let ready = ReadyRules { store, keys };
        Some(AdminSettings { address, mode, metrics, hosts, tokens, ready })
    }

    /// The address of Prometheus and probes, which speak TCP.
    fn metrics_address(&mut self, raw: &Spanned<String>) -> Option<ListenAddress> {
        let address = self.listen_address(raw)?;
        if address.tcp().is_none() {
            let help = "write an IP address and a port: 0.0.0.0:9902";
            self.refuse(raw, "Prometheus does not ask at Unix sockets", help);
            return None;
        }
        Some(address)
    }

    /// A host without a port, in lower case.
    pub(super) fn host_name(&mut self, raw: &Spanned<String>) -> Option<String> {
        let host = raw.value.to_ascii_lowercase();
        let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = !host.is_empty() && host.bytes().all(of_name);
        if is_name || host.parse::<IpAddr>().is_ok() {
            return Some(host);
        }
        let help = match host.parse::<SocketAddr>().is_ok() || host.rsplit_once(':').is_some() {
            true => "write it without a port and without http://: tollgate.internal",
            false => "write a name or an address: tollgate.internal, 10.0.0.7",
        };
        self.note(raw, format!("`{}` is not a host", raw.value), help);
        None
    }

    /// None: clients need no token, or what is written has a mistake.
    fn admin_auth(&mut self, node: &Node) -> Option<Arc<CurrentTokens>> {
        if let Value::String(text) = &node.value {
            if NoAuth::from_keyword(text).is_none() {
                // Not quoted: it may be a token.
                let help = "write files with tokens, { write_token_file: … }, or off";
                self.refuse(node, "neither files with tokens nor `off`", help);
            }
            return None;
        }
        let problems = self.inspection.problems.len();
        let raw: RawAuth = self.decode(node, &[])?;
        match &raw {
            RawAuth { read_token_file: None, write_token_file: None } => {
                // A misspelt field is reported already.
                if self.inspection.problems.len() == problems {
                    let help =
                        "add `write_token_file`, `read_token_file` or both, or write `auth: off`";
                    self.refuse(node, "no file with a token", help);
                }
                None
            }
            RawAuth { read_token_file, write_token_file } => {
                Some(self.admin_tokens(read_token_file.as_ref(), write_token_file.as_ref()))
            }
        }
    }
}
