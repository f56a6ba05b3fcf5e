//! Settings of the admin listener: status, metrics and reload for operators.

use std::{net::SocketAddr, path::Path};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Checker,
    configuration::{entry, read_text},
};
use crate::yaml::{Choice, Document, Problem, Sources, Spanned, Value, keywords};

/// The admin listener for operators, and its readiness rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Where it listens.
    pub address: SocketAddr,
    /// What the store has to do with whether the proxy is ready.
    pub ready_store: ReadyStore,
}

/// What the store has to do with whether the proxy is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadyStore {
    /// The proxy is not ready while Redis does not decide.
    Require,
    /// Nothing: each limit has its own rule for the time when Redis does not decide. All proxies of
    /// a fleet share a store, and when it is away a load balancer would have no proxy left to send
    /// to.
    #[default]
    Ignore,
}

keywords! { ReadyStore { Require = "require", Ignore = "ignore" } }

/// The admin listener for operators: status, metrics and reload.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "admin section")]
pub(super) struct RawAdmin {
    /// The address of the admin listener: an IP address and a port, `127.0.0.1:9901`.
    /// It has no password: restrict who can reach it.
    #[schemars(extend("examples" = ["127.0.0.1:9901"]))]
    pub(super) address: Spanned<String>,
    /// When `/readyz` says that the proxy is ready.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "store": "require" }]))]
    ready: RawReady,
}

/// When the proxy is ready to take requests.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "ready section")]
struct RawReady {
    /// `require`: not while Redis does not decide about some callers; for limits that are `closed`
    /// then, and a load balancer with somewhere else to send to. `ignore`: limits do as their
    /// `on_store_error` says. Default: ignore.
    store: Option<Spanned<Choice<ReadyStore>>>,
}

impl Checker<'_> {
    pub(super) fn admin(&mut self, raw: Option<&RawAdmin>) -> Option<AdminSettings> {
        let RawAdmin { address: raw, ready } = raw?;
        let ready_store = ready.store.as_ref().and_then(|raw| self.keyword(raw));
        let address = self.address(raw)?;
        self.warn_of_public_admin(raw, address);
        Some(AdminSettings { address, ready_store: ready_store.unwrap_or_default() })
    }
}

/// The address of the admin listener from a settings file, which may have other mistakes: a command
/// that queries a running proxy about its settings must work without valid settings.
///
/// # Errors
/// The file cannot be read, or is no YAML.
pub fn admin_address(file: &Path, sources: &Sources) -> Result<Option<SocketAddr>, Vec<Problem>> {
    let text = read_text(file, sources)?;
    let document = Document::parse_with(&file.display().to_string(), &text, sources)
        .map_err(|problem| vec![problem])?;
    let admin = entry(&document.root().value, "admin");
    let address = admin.and_then(|admin| entry(&admin.value, "address"));
    Ok(match address.map(|address| &address.value) {
        Some(Value::String(address)) => address.parse().ok(),
        _ => None,
    })
}
