//! Whether pages of other origins may read what a route answers (the Fetch standard's CORS
//! protocol).
//!
//! The upstream speaks it for its own responses. What this proxy answers itself would be a riddle
//! to such a page without these fields: a denial that it may not read looks like a broken network.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};

/// What pages of other origins may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// Whose pages.
    pub origins: Origins,
    /// Whether they may read responses to requests with cookies.
    pub credentials: bool,
    /// How a preflight request is handled.
    pub preflight: Preflight,
}

/// Origins: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// Every one.
    Any,
    /// Those that match one of these.
    Patterns(Vec<OriginPattern>),
}

/// An origin, or all at the subdomains of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginPattern {
    /// As browsers write it: `https://app.example.com`.
    Exact(Box<str>),
    /// `https://*.example.com:8443`: what it begins with, and what it ends with.
    Below {
        /// `https://`.
        scheme: Box<str>,
        /// `.example.com:8443`.
        suffix: Box<str>,
    },
}

/// How a preflight request is handled. Browsers send it without credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preflight {
    /// It is a request like any other.
    Check,
    /// It is forwarded, without a token and charged to its address.
    Pass,
    /// It is answered here.
    Answer {
        /// Methods that pages may use; none: the one that they ask for.
        methods: Vec<Method>,
        /// Fields that they may send; none: those that they ask for.
        headers: Vec<HeaderName>,
        /// How long browsers may remember the answer.
        max_age: Option<Duration>,
    },
}

impl Cors {
    /// Whether the page of an `Origin` field may read an answer.
    pub fn allows(&self, origin: &HeaderValue) -> bool {
        match &self.origins {
            Origins::Any => true,
            Origins::Patterns(patterns) => {
                origin.to_str().is_ok_and(|origin| patterns.iter().any(|own| own.matches(origin)))
            }
        }
    }
}

impl OriginPattern {
    fn matches(&self, origin: &str) -> bool {
        match self {
            OriginPattern::Exact(own) => origin == &**own,
            OriginPattern::Below { scheme, suffix } => {
                let host =
                    origin.strip_prefix(&**scheme).and_then(|rest| rest.strip_suffix(&**suffix));
                host.is_some_and(|below| !below.is_empty() && !below.contains(['/', ':', '@']))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_is_for_names_below_it_and_nothing_else() {
        let listed = Origins::Patterns(vec![
            OriginPattern::Exact("https://app.example.com".into()),
            OriginPattern::Below { scheme: "https://".into(), suffix: ".dev.example:8443".into() },
        ]);
        let cors = Cors { origins: listed, credentials: false, preflight: Preflight::Check };
        for (origin, expected) in [
            ("https://app.example.com", true),
            ("https://a.dev.example:8443", true),
            ("https://a.b.dev.example:8443", true),
            ("https://dev.example:8443", false),
            ("https://.dev.example:8443", false),
            ("https://a.dev.example", false),
            ("http://a.dev.example:8443", false),
            ("https://evil.test/.dev.example:8443", false),
            ("https://evil.test:1.dev.example:8443", false),
            ("https://user@a.dev.example:8443", false),
            ("https://app.example.com.evil.test", false),
            ("https://APP.example.com", false),
            ("http://app.example.com", false),
            ("https://app.example.com:443", false),
            ("null", false),
            ("", false),
        ] {
            let origin = HeaderValue::from_static(origin);
            assert_eq!(cors.allows(&origin), expected, "{origin:?}");
            let any = Cors { origins: Origins::Any, ..cors.clone() };
            assert!(any.allows(&origin));
        }
    }
}
