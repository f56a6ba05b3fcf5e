//! The `tests` section as it is written: requests, and what is to become of them.

use serde::Deserialize;

use crate::yaml::{Entries, Node, Spanned};

/// A request, perhaps sent more than once, and what is to become of the last one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "test")]
pub(in crate::policy) struct RawCase {
    /// What it is about, for people.
    pub(in crate::policy) name: Option<Spanned<String>>,
    /// Goes on where the test before it ended, so much later (`61s`). Left out: begins anew, with
    /// nothing charged yet.
    pub(in crate::policy) after: Option<Spanned<String>>,
    /// The request.
    pub(in crate::policy) given: RawGiven,
    /// How often it is sent; 1.
    pub(in crate::policy) repeat: Option<Spanned<u32>>,
    /// What is to become of the last one.
    pub(in crate::policy) expect: RawExpect,
}

/// A request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "given section")]
pub(in crate::policy) struct RawGiven {
    /// GET.
    pub(in crate::policy) method: Option<Spanned<String>>,
    /// Left out: one that the policy is for.
    pub(in crate::policy) host: Option<Spanned<String>>,
    /// The path, perhaps with a query.
    pub(in crate::policy) path: Spanned<String>,
    /// Its headers.
    #[serde(default)]
    pub(in crate::policy) headers: Entries<Spanned<String>>,
    /// The claims of its token, which counts as verified; `iss` left out: the first issuer.
    pub(in crate::policy) jwt: Option<Spanned<Entries<Node>>>,
    /// The id of its API key, which counts as shown.
    pub(in crate::policy) api_key: Option<Spanned<String>>,
    /// The client's address; 192.0.2.1.
    pub(in crate::policy) address: Option<Spanned<String>>,
    /// What the upstream answers if it is asked.
    #[serde(default)]
    pub(in crate::policy) response: RawResponse,
}

/// What an upstream answers.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename = "response section")]
pub(in crate::policy) struct RawResponse {
    /// 200.
    pub(in crate::policy) status: Option<Spanned<u16>>,
    /// Its headers.
    #[serde(default)]
    pub(in crate::policy) headers: Entries<Spanned<String>>,
}

/// What is to become of a request. What is left out does not matter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "expect section")]
pub(in crate::policy) struct RawExpect {
    /// The status that the client sees.
    pub(in crate::policy) status: Option<Spanned<u16>>,
    /// The limit that denies it.
    pub(in crate::policy) limit: Option<Spanned<String>>,
    /// The path pattern of the route that it takes.
    pub(in crate::policy) route: Option<Spanned<String>>,
    /// Who is charged: `user:42`.
    pub(in crate::policy) caller: Option<Spanned<String>>,
    /// Headers that the client sees; `null`: not this one.
    #[serde(default)]
    pub(in crate::policy) headers: Entries<Node>,
}
