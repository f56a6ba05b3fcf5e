//! The raw `responses` section.

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_yaml::{Choice, Spanned};

use crate::HeaderProfile;

/// What responses of this proxy contain.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "responses section")]
pub(crate) struct RawResponses {
    /// Which limit headers responses have: `github` (x-ratelimit-*), `ietf` (RateLimit and
    /// RateLimit-Policy), `both`, `none`; or with a reset in seconds `draft-03`
    /// (RateLimit-Limit, -Remaining, -Reset, -Policy), `envoy`, `kong`, `apisix` (as these write
    /// them). Default: github.
    pub(crate) headers: Option<Spanned<Choice<HeaderProfile>>>,
    /// The status of a denial: 429, 403 as GitHub has it, 503 as nginx, or any other from 400 to
    /// 499. Default: 429.
    #[schemars(range(min = 400, max = 503), extend(
        "examples" = [429, 403, 503],
        "not" = { "type": "integer", "minimum": 500, "maximum": 502 },
    ))]
    pub(crate) denied_status: Option<Spanned<u16>>,
    /// The status of a denial of messages of the Model Context Protocol before its revision
    /// 2026-07-28: 200 or 429. Some clients of that time end their session at any other status than
    /// 200; the error is in the body. Default: `denied_status`.
    #[schemars(extend("enum" = [200, 429, null]))]
    pub(crate) mcp_denied_status: Option<Spanned<u16>>,
    /// A page that explains the API's limits; denials link to it.
    #[schemars(extend("examples" = ["https://docs.example.com/limits"]))]
    pub(crate) documentation_url: Option<Spanned<String>>,
    /// The realm in `WWW-Authenticate`, for clients without a valid token. Default: tollgate.
    #[schemars(length(min = 1))]
    pub(crate) realm: Option<Spanned<String>>,
    /// The path where callers can query their limits, or `off`. Default: /rate_limit.
    #[schemars(extend("examples" = ["/rate_limit"]))]
    pub(crate) rate_limit_path: Option<Spanned<String>>,
    /// A random time up to this is added to `Retry-After`, so that clients do not all retry at
    /// once, 0s to 60s. Default: 0s.
    #[schemars(extend("examples" = ["5s"]))]
    pub(crate) jitter: Option<Spanned<String>>,
    /// Whether responses name the limits in shadow mode that would have denied. Default: false.
    #[serde(default)]
    pub(crate) shadow_header: bool,
}
