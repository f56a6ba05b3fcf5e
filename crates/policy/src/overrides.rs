//! Other rates for single callers, and for single values of what a limit counts by.

use std::fmt;

use http::{HeaderName, HeaderValue, Method};
use ipnet::IpNet;
use tollgate_clock::Timestamp;

use super::{Allowances, CallerName, HostPattern, PathPattern, networks::in_words};

/// Other rates than those of the tiers. The first that is for a request applies.
#[derive(Clone, Debug, Default)]
pub struct Overrides(pub Vec<Override>);

/// Another rate, for some requests.
#[derive(Clone, Debug)]
pub struct Override {
    /// What a request must have, all of it. Never empty.
    pub of: Vec<KeyValue>,
    /// What may be used.
    pub allowances: Allowances,
    /// From this instant on, no longer; none: it has no end.
    pub until: Option<Timestamp>,
    /// The reason, for people.
    pub why: Box<str>,
}

/// Something that a request has.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyValue {
    /// It is of this caller.
    Caller(CallerName),
    /// It comes from this network.
    Address(IpNet),
    /// It is for such a host.
    Host(HostPattern),
    /// It is for such a path.
    Path(PathPattern),
    /// Its path has this segment.
    PathParameter {
        /// What the route's pattern calls the segment.
        name: Box<str>,
        /// The segment.
        value: Box<str>,
    },
    /// It has this method.
    Method(Method),
    /// Its verified token has this claim.
    Claim {
        /// By name or dotted path.
        name: Box<str>,
        /// A text, a number or a truth value.
        value: serde_json::Value,
        /// Whose word it is: the position of an issuer. None: the policy knows only one.
        issuer: Option<usize>,
    },
    /// It has this header, once.
    Header(HeaderName, HeaderValue),
    /// It has this cookie, once.
    Cookie {
        /// Its name.
        name: Box<str>,
        /// Its value.
        value: Box<str>,
    },
    /// A program charges the limit for this key.
    Key(Box<str>),
    /// Envoy sends a descriptor with this entry.
    Descriptor {
        /// Its key.
        name: Box<str>,
        /// Its value.
        value: Box<str>,
    },
}

impl Override {
    /// Whether its end has not come.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl fmt::Display for Override {
    /// The caller that it is for, as it may be shown to people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.of.iter().map(ToString::to_string).collect();
        f.write_str(&values.join(" and "))
    }
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyValue::Caller(caller) => caller.fmt(f),
            KeyValue::Address(network) => write!(f, "client.ip {}", in_words(network)),
            KeyValue::Host(HostPattern::Exact(host)) => write!(f, "host {host}"),
            KeyValue::Host(HostPattern::Below(suffix)) => write!(f, "host *{suffix}"),
            KeyValue::Path(path) => write!(f, "path {path}"),
            KeyValue::PathParameter { name, value } => write!(f, "path.{name} {value}"),
            KeyValue::Method(method) => write!(f, "method {method}"),
            KeyValue::Claim { name, value: serde_json::Value::String(text), .. } => {
                write!(f, "jwt.{name} {text}")
            }
            KeyValue::Claim { name, value, .. } => write!(f, "jwt.{name} {value}"),
            // Such a value may be a secret.
            KeyValue::Header(name, _) => write!(f, "a value of header.{name}"),
            KeyValue::Cookie { name, .. } => write!(f, "a value of cookie.{name}"),
            KeyValue::Key(key) => write!(f, "key {key}"),
            KeyValue::Descriptor { name, value } => write!(f, "descriptor.{name} {value}"),
        }
    }
}
