//! The raw `tests` section: requests with their expected results.

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_yaml::{Entries, Node, Spanned};

use super::shape;

/// A request, sent once or more, and the expected result of the last one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "test")]
pub(crate) struct RawCase {
    /// What it tests, for readers.
    #[schemars(length(min = 1))]
    pub(crate) name: Option<Spanned<String>>,
    /// When it starts: a day in UTC (`2026-12-31`), which means its midnight, or an instant
    /// (`2026-03-29T00:30:00+01:00`). All counters are empty then. Default: 2026-01-15T12:00:00Z.
    #[schemars(extend("examples" = ["2026-03-31T23:59:59+02:00"]))]
    pub(crate) at: Option<Spanned<String>>,
    /// Continues from the end of the previous test, this much later (`61s`), with its counters.
    /// Left out: starts with empty counters.
    #[schemars(extend("examples" = ["61s"]))]
    pub(crate) after: Option<Spanned<String>>,
    /// The request.
    #[schemars(extend("examples" = [{ "path": "/" }]))]
    pub(crate) given: RawGiven,
    /// How many times it is sent. Default: 1.
    #[schemars(range(min = 1))]
    pub(crate) repeat: Option<Spanned<u32>>,
    /// The time between two of these requests (`10ms`). Default: none.
    #[schemars(extend("examples" = ["10ms"]))]
    pub(crate) every: Option<Spanned<String>>,
    /// The expected result of the last one.
    #[schemars(extend("examples" = [{ "status": 200 }]))]
    pub(crate) expect: RawExpect,
}

/// A request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "given section")]
pub(crate) struct RawGiven {
    /// Its method. Default: GET.
    #[schemars(extend("examples" = ["POST"]))]
    pub(crate) method: Option<Spanned<String>>,
    /// Its host. Left out: one of the policy's hosts.
    #[schemars(extend("examples" = ["api.example.com"]))]
    pub(crate) host: Option<Spanned<String>>,
    /// Its path, with or without a query.
    #[schemars(extend("examples" = ["/search?q=x"]))]
    pub(crate) path: Spanned<String>,
    /// Its headers.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "accept": "application/json" }]))]
    pub(crate) headers: Entries<Spanned<String>>,
    /// Its body: a text as it is, anything else as JSON.
    #[schemars(extend("examples" = [{ "max_tokens": 100 }]))]
    pub(crate) body: Option<Node>,
    /// The claims of its token, which is taken as verified: `{ sub: "42", plan: free }`. `iss` left
    /// out: the first issuer.
    #[schemars(extend("examples" = [{ "sub": "42" }]))]
    pub(crate) jwt: Option<Spanned<Entries<Node>>>,
    /// The id of its API key, which is taken as verified.
    #[schemars(length(min = 1))]
    pub(crate) api_key: Option<Spanned<String>>,
    /// The client's address. Default: 192.0.2.1.
    #[schemars(extend("examples" = ["192.0.2.1"]))]
    pub(crate) address: Option<Spanned<String>>,
    /// The upstream's response, if the request is forwarded.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "status": 200 }]))]
    pub(crate) response: RawResponse,
}

/// An upstream's response.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "response section")]
pub(crate) struct RawResponse {
    /// Its status. Default: 200.
    #[schemars(range(min = 100, max = 599))]
    pub(crate) status: Option<Spanned<u16>>,
    /// Its headers.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "x-query-cost": "7" }]))]
    pub(crate) headers: Entries<Spanned<String>>,
    /// Its body, as JSON.
    #[schemars(extend("examples" = [{ "usage": { "prompt_tokens": 10, "completion_tokens": 5 } }]))]
    pub(crate) json: Option<Node>,
    /// Its body, as a stream of server-sent events: a text as it is, anything else as JSON.
    #[schemars(with = "Option<Vec<Node>>", extend("examples" = [["[DONE]"]]))]
    pub(crate) sse: Option<Spanned<Vec<Node>>>,
}

/// The expected result of a request. What is left out is not checked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "expect section")]
pub(crate) struct RawExpect {
    /// The status of the response to the client.
    #[schemars(range(min = 100, max = 599))]
    pub(crate) status: Option<Spanned<u16>>,
    /// The name of the limit that denies it.
    #[schemars(length(min = 1))]
    pub(crate) limit: Option<Spanned<String>>,
    /// The limits in shadow mode, and candidates (`core;candidate`), that would have denied it: a
    /// name, or a list of all of them; `[]`: none.
    #[schemars(with = "Option<shape::WouldDeny>", extend("examples" = ["core"]))]
    pub(crate) would_deny: Option<Node>,
    /// The path pattern of the route that matches it.
    #[schemars(extend("examples" = ["/search/**"]))]
    pub(crate) route: Option<Spanned<String>>,
    /// The caller that is charged, such as `user:42`.
    #[schemars(extend("examples" = ["user:42"]))]
    pub(crate) caller: Option<Spanned<String>>,
    /// How many of the repeated requests are admitted.
    pub(crate) admitted: Option<Spanned<u32>>,
    /// Headers of the response to the client; `null`: the header must be absent.
    #[serde(default)]
    #[schemars(with = "Entries<shape::ExpectedHeader>")]
    #[schemars(extend("examples" = [{ "x-ratelimit-remaining": "0" }]))]
    pub(crate) headers: Entries<Node>,
}
