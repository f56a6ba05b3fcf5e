//! The `cors` section as it is written: whether pages of other origins may read responses.

use schemars::JsonSchema;
use serde::Deserialize;

use super::keywords::PreflightMode;
use crate::yaml::{Choice, Spanned};

/// What pages of other origins may do.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "cors section")]
pub(in crate::policy) struct RawCors {
    /// Whose pages, as browsers write it: `https://app.example.com`, `https://*.example.com` for all
    /// below, or `*` alone for everybody's.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [["https://app.example.com"]]))]
    pub(in crate::policy) origins: Spanned<Vec<Spanned<String>>>,
    /// Whether they may read what was answered to a request with cookies or a client certificate.
    /// Default: false.
    pub(in crate::policy) credentials: Option<Spanned<bool>>,
    /// What becomes of the request by which a browser asks whether it may send another. `check`: it
    /// is a request like any other; `pass`: it is forwarded without a token and charged to its
    /// address, by the route's limits per `client.ip` or else at 1,000 a minute; `answer`: it is
    /// answered here. Default: check.
    pub(in crate::policy) preflight: Option<Spanned<Choice<PreflightMode>>>,
    /// For `preflight: answer`: methods that pages may use, in capitals. Left out: the one that they
    /// ask for.
    #[schemars(extend("examples" = [["GET"]]))]
    pub(in crate::policy) methods: Option<Spanned<Vec<Spanned<String>>>>,
    /// For `preflight: answer`: header fields that pages may send. Left out: those that they ask
    /// for.
    #[schemars(extend("examples" = [["content-type"]]))]
    pub(in crate::policy) headers: Option<Spanned<Vec<Spanned<String>>>>,
    /// For `preflight: answer`: how long browsers may remember it, in whole seconds, 0s to 24h. Left
    /// out: as browsers like.
    #[schemars(extend("examples" = ["600s"]))]
    pub(in crate::policy) max_age: Option<Spanned<String>>,
}
