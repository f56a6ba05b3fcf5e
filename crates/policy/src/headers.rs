//! Limit headers: which families there are, and which of them responses carry.

use tollgate_keyword::{Keyword as _, keywords};

keywords! {
    /// Limit headers that belong together.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum HeaderFamily {
        /// The five `x-ratelimit-*` headers.
        Github = "github",
        /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10).
        Ietf = "ietf",
        /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` in seconds, and
        /// `RateLimit-Policy` with all windows (draft-ietf-httpapi-ratelimit-headers-03 to -06).
        Draft03 = "draft-03",
        /// `X-RateLimit-Limit` with all windows behind the number, `X-RateLimit-Remaining` and
        /// `X-RateLimit-Reset` in seconds, as Envoy's `DRAFT_VERSION_03` has them.
        Envoy = "envoy",
        /// `X-RateLimit-Limit-Minute` and `X-RateLimit-Remaining-Minute` for each window, and
        /// `RateLimit-*` of the one that is reported, as Kong has them.
        Kong = "kong",
        /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, and `X-RateLimit-Reset` in seconds, as
        /// APISIX has them.
        Apisix = "apisix",
        /// `x-ratelimit-limit-requests`, `x-ratelimit-limit-tokens` and so on, and
        /// `retry-after-ms`, as OpenAI has them.
        OpenAi = "openai",
    }
}

/// Which limit headers responses carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderProfile {
    /// Those of [`HeaderFamily::Github`].
    #[default]
    Github,
    /// Those of [`HeaderFamily::Ietf`].
    Ietf,
    /// Both of these.
    Both,
    /// Those of [`HeaderFamily::Draft03`].
    Draft03,
    /// Those of [`HeaderFamily::Envoy`].
    Envoy,
    /// Those of [`HeaderFamily::Kong`].
    Kong,
    /// Those of [`HeaderFamily::Apisix`].
    Apisix,
    /// Those of [`HeaderFamily::OpenAi`], with its form of errors.
    OpenAi,
    /// None.
    None,
}

keywords! {
    HeaderProfile {
        Github = "github",
        Ietf = "ietf",
        Both = "both",
        Draft03 = "draft-03",
        Envoy = "envoy",
        Kong = "kong",
        Apisix = "apisix",
        OpenAi = "openai",
        None = "none",
    }
}

/// Whether only this proxy writes fields of this name, in requests and responses.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with("x-tollgate-")
        || HeaderFamily::all().any(|family| name.starts_with(family.prefix()))
}

impl HeaderFamily {
    /// Its headers, which scripts of other origins may read.
    pub const fn names(self) -> &'static str {
        match self {
            HeaderFamily::Github => {
                "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Used, X-RateLimit-Reset, \
                 X-RateLimit-Resource"
            }
            HeaderFamily::Ietf => "RateLimit, RateLimit-Policy",
            HeaderFamily::Draft03 => {
                "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, RateLimit-Policy"
            }
            HeaderFamily::Envoy | HeaderFamily::Apisix => {
                "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
            }
            HeaderFamily::OpenAi => {
                "X-RateLimit-Limit-Requests, X-RateLimit-Remaining-Requests, \
                 X-RateLimit-Reset-Requests, X-RateLimit-Limit-Tokens, \
                 X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Tokens, Retry-After-Ms"
            }
            HeaderFamily::Kong => {
                "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, X-RateLimit-Limit-Second, \
                 X-RateLimit-Remaining-Second, X-RateLimit-Limit-Minute, \
                 X-RateLimit-Remaining-Minute, X-RateLimit-Limit-Hour, \
                 X-RateLimit-Remaining-Hour, X-RateLimit-Limit-Day, X-RateLimit-Remaining-Day, \
                 X-RateLimit-Limit-Month, X-RateLimit-Remaining-Month, X-RateLimit-Limit-Year, \
                 X-RateLimit-Remaining-Year"
            }
        }
    }

    /// How their names begin, in lower case. No client and no upstream may send such headers, under
    /// any policy.
    const fn prefix(self) -> &'static str {
        match self {
            HeaderFamily::Github
            | HeaderFamily::Envoy
            | HeaderFamily::Kong
            | HeaderFamily::Apisix
            | HeaderFamily::OpenAi => "x-ratelimit-",
            HeaderFamily::Ietf | HeaderFamily::Draft03 => "ratelimit",
        }
    }
}

impl HeaderProfile {
    /// The limit headers that responses carry.
    pub fn families(self) -> &'static [HeaderFamily] {
        match self {
            HeaderProfile::Github => &[HeaderFamily::Github],
            HeaderProfile::Ietf => &[HeaderFamily::Ietf],
            HeaderProfile::Both => &[HeaderFamily::Github, HeaderFamily::Ietf],
            HeaderProfile::Draft03 => &[HeaderFamily::Draft03],
            HeaderProfile::Envoy => &[HeaderFamily::Envoy],
            HeaderProfile::Kong => &[HeaderFamily::Kong],
            HeaderProfile::Apisix => &[HeaderFamily::Apisix],
            HeaderProfile::OpenAi => &[HeaderFamily::OpenAi],
            HeaderProfile::None => &[],
        }
    }

    /// Whether clients without a preference get problems (RFC 9457) as error bodies.
    pub fn prefers_problems(self) -> bool {
        match self {
            HeaderProfile::Ietf => true,
            HeaderProfile::Github
            | HeaderProfile::Both
            | HeaderProfile::Draft03
            | HeaderProfile::Envoy
            | HeaderProfile::Kong
            | HeaderProfile::Apisix
            | HeaderProfile::OpenAi
            | HeaderProfile::None => false,
        }
    }
}
