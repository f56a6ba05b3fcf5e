//! Settings of the admin listener: where whoever runs the proxy can ask how it is.

use std::{net::SocketAddr, path::Path};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Checker,
    configuration::{entry, read_text},
};
use crate::{
    policy::Sources,
    yaml::{Document, Problem, Spanned, Value},
};

/// Where whoever runs the proxy can ask how it is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "admin section")]
pub(super) struct RawAdmin {
    /// Where to listen for who asks how the proxy is: an IP address and a port, `127.0.0.1:9901`.
    /// Whoever reaches it needs no password.
    #[schemars(extend("examples" = ["127.0.0.1:9901"]))]
    pub(super) address: Spanned<String>,
}

impl Checker<'_> {
    pub(super) fn admin(&mut self, raw: Option<&RawAdmin>) -> Option<SocketAddr> {
        let raw = &raw?.address;
        let address = self.address(raw)?;
        self.warn_of_public_admin(raw, address);
        Some(address)
    }
}

/// Where a settings file says that the admin listener is, whatever else may be wrong with it: asking
/// a running proxy what is wrong with its settings must not need good ones.
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
