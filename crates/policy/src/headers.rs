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
    /// None.
    None,
}

keywords! { HeaderProfile { Github = "github", Ietf = "ietf", Both = "both", None = "none" } }

/// Whether only this proxy writes fields of this name, in requests and responses.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with("x-tollgate-")
        || HeaderFamily::all().any(|family| name.starts_with(family.prefix()))
}

impl HeaderFamily {
    /// The headers of all families, which scripts of other origins may read.
    pub fn names_of_all() -> String {
        let names: Vec<&str> = HeaderFamily::all().map(HeaderFamily::names).collect();
        names.join(", ")
    }

    const fn names(self) -> &'static str {
        match self {
            HeaderFamily::Github => {
                "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Used, X-RateLimit-Reset, \
                 X-RateLimit-Resource"
            }
            HeaderFamily::Ietf => "RateLimit, RateLimit-Policy",
        }
    }

    /// How their names begin, in lower case. No client and no upstream may send such headers, under
    /// any policy.
    const fn prefix(self) -> &'static str {
        match self {
            HeaderFamily::Github => "x-ratelimit-",
            HeaderFamily::Ietf => "ratelimit",
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
            HeaderProfile::None => &[],
        }
    }

    /// Whether clients without a preference get problems (RFC 9457) as error bodies.
    pub fn prefers_problems(self) -> bool {
        match self {
            HeaderProfile::Ietf => true,
            HeaderProfile::Github | HeaderProfile::Both | HeaderProfile::None => false,
        }
    }
}
