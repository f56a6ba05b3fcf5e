//! Limit headers: which families there are, and which of them responses carry.

use tollgate_keyword::keywords;

/// Limit headers that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFamily {
    /// The five `x-ratelimit-*` headers.
    Github,
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10).
    Ietf,
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

/// How the names of headers begin that only this proxy writes, in requests and responses.
pub(super) const RESERVED: [&str; 3] =
    [HeaderFamily::Github.prefix(), HeaderFamily::Ietf.prefix(), "x-tollgate-"];

impl HeaderFamily {
    /// All families.
    pub const ALL: [HeaderFamily; 2] = [HeaderFamily::Github, HeaderFamily::Ietf];

    /// Its headers, which scripts of other origins may read.
    pub const fn names(self) -> &'static str {
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
