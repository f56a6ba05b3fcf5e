//! The `tests` section as it is written: requests, and what is to become of them.

use schemars::JsonSchema;
use serde::Deserialize;

use super::shape;
use crate::yaml::{Entries, Node, Spanned};

/// A request, perhaps sent more than once, and what is to become of the last one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "test")]
pub(in crate::policy) struct RawCase {
    /// What it is about, for people.
    #[schemars(length(min = 1))]
    pub(in crate::policy) name: Option<Spanned<String>>,
    /// When it begins: a day in UTC (`2026-12-31`), from its midnight on, or an instant
    /// (`2026-03-29T00:30:00+01:00`). Nothing is charged before it. Default: 2026-01-15T12:00:00Z.
    #[schemars(extend("examples" = ["2026-03-31T23:59:59+02:00"]))]
    pub(in crate::policy) at: Option<Spanned<String>>,
    /// Goes on where the test before it ended, so much later (`61s`). Left out: begins anew, with
    /// nothing charged yet.
    #[schemars(extend("examples" = ["61s"]))]
    pub(in crate::policy) after: Option<Spanned<String>>,
    /// The request.
    #[schemars(extend("examples" = [{ "path": "/" }]))]
    pub(in crate::policy) given: RawGiven,
    /// How often it is sent. Default: 1.
    #[schemars(range(min = 1))]
    pub(in crate::policy) repeat: Option<Spanned<u32>>,
    /// How much time passes between two of these requests (`10ms`). Default: none.
    #[schemars(extend("examples" = ["10ms"]))]
    pub(in crate::policy) every: Option<Spanned<String>>,
    /// What is to become of the last one.
    #[schemars(extend("examples" = [{ "status": 200 }]))]
    pub(in crate::policy) expect: RawExpect,
}

/// A request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "given section")]
pub(in crate::policy) struct RawGiven {
    /// Its method. Default: GET.
    #[schemars(extend("examples" = ["POST"]))]
    pub(in crate::policy) method: Option<Spanned<String>>,
    /// Its host. Left out: one that the policy is for.
    #[schemars(extend("examples" = ["api.example.com"]))]
    pub(in crate::policy) host: Option<Spanned<String>>,
    /// Its path, perhaps with a query.
    #[schemars(extend("examples" = ["/search?q=x"]))]
    pub(in crate::policy) path: Spanned<String>,
    /// Its headers.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "accept": "application/json" }]))]
    pub(in crate::policy) headers: Entries<Spanned<String>>,
    /// The claims of its token, which counts as verified: `{ sub: "42", plan: free }`. `iss` left
    /// out: the first issuer.
    #[schemars(extend("examples" = [{ "sub": "42" }]))]
    pub(in crate::policy) jwt: Option<Spanned<Entries<Node>>>,
    /// The id of its API key, which counts as shown.
    #[schemars(length(min = 1))]
    pub(in crate::policy) api_key: Option<Spanned<String>>,
    /// The client's address. Default: 192.0.2.1.
    #[schemars(extend("examples" = ["192.0.2.1"]))]
    pub(in crate::policy) address: Option<Spanned<String>>,
    /// What the upstream answers if it is asked.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "status": 200 }]))]
    pub(in crate::policy) response: RawResponse,
}

/// What an upstream answers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "response section")]
pub(in crate::policy) struct RawResponse {
    /// Its status. Default: 200.
    #[schemars(range(min = 100, max = 599))]
    pub(in crate::policy) status: Option<Spanned<u16>>,
    /// Its headers.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "x-query-cost": "7" }]))]
    pub(in crate::policy) headers: Entries<Spanned<String>>,
}

/// What is to become of a request. What is left out does not matter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "expect section")]
pub(in crate::policy) struct RawExpect {
    /// The status that the client sees.
    #[schemars(range(min = 100, max = 599))]
    pub(in crate::policy) status: Option<Spanned<u16>>,
    /// The name of the limit that denies it.
    #[schemars(length(min = 1))]
    pub(in crate::policy) limit: Option<Spanned<String>>,
    /// The path pattern of the route that it takes.
    #[schemars(extend("examples" = ["/search/**"]))]
    pub(in crate::policy) route: Option<Spanned<String>>,
    /// Who is charged, such as `user:42`.
    #[schemars(extend("examples" = ["user:42"]))]
    pub(in crate::policy) caller: Option<Spanned<String>>,
    /// How many of the repeated requests are not refused.
    pub(in crate::policy) admitted: Option<Spanned<u32>>,
    /// Headers that the client sees; `null`: not this one.
    #[serde(default)]
    #[schemars(with = "Entries<shape::ExpectedHeader>")]
    #[schemars(extend("examples" = [{ "x-ratelimit-remaining": "0" }]))]
    pub(in crate::policy) headers: Entries<Node>,
}
