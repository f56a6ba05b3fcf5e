//! The raw `cors` section: whether pages of other origins may read responses.

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_yaml::{Choice, Spanned};

use super::keywords::PreflightMode;

/// What pages of other origins may do.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "cors section")]
pub(crate) struct RawCors {
    /// Whose pages, as browsers write it: `https://app.example.com`, `https://*.example.com` for
    /// all below, or `*` alone for all origins.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [["https://app.example.com"]]))]
    pub(crate) origins: Spanned<Vec<Spanned<String>>>,
    /// Whether they may read what was answered to a request with cookies or a client certificate.
    /// Default: false.
    pub(crate) credentials: Option<Spanned<bool>>,
    /// How preflight requests are handled. `check`: like any other request; `pass`: forwarded
    /// without a token and charged to the client's address, by the route's limits per `client.ip`
    /// or else at 1,000 a minute; `answer`: answered by this proxy. Default: check.
    pub(crate) preflight: Option<Spanned<Choice<PreflightMode>>>,
    /// For `preflight: answer`: methods that pages may use, in capitals. Left out: the requested
    /// method.
    #[schemars(extend("examples" = [["GET"]]))]
    pub(crate) methods: Option<Spanned<Vec<Spanned<String>>>>,
    /// For `preflight: answer`: header fields that pages may send. Left out: the requested fields.
    #[schemars(extend("examples" = [["content-type"]]))]
    pub(crate) headers: Option<Spanned<Vec<Spanned<String>>>>,
    /// For `preflight: answer`: how long browsers may cache the answer, in whole seconds, 0s to
    /// 24h. Left out: the browser's default.
    #[schemars(extend("examples" = ["600s"]))]
    pub(crate) max_age: Option<Spanned<String>>,
}
