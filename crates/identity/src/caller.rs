//! Callers: the rules that name them, and the caller of a request.

use std::{fmt, net::IpAddr, sync::Arc};

use http::HeaderValue;

use super::{certificate::CertificateName, iss::Tenant, tiers::TierSource};

/// A rule that names callers.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The kind of caller: `user`, `anonymous`.
    pub name: Box<str>,
    /// What distinguishes callers of this kind.
    pub key: CallerKey,
    /// How its tier is chosen.
    pub tier: TierSource,
}

/// What distinguishes callers of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerKey {
    /// A claim of the token, by name or dotted path, together with the issuer and the claim's name.
    Claim(Box<str>),
    /// A field of the API key.
    ApiKey(Box<str>),
    /// A name in the client's certificate.
    Certificate(CertificateName),
    /// The client's address; for IPv6, a prefix of it.
    Address {
        /// The length of the prefix, 32 to 128.
        ipv6_prefix: u8,
    },
}

impl CallerKey {
    /// What the policy calls the place that it is taken from.
    pub fn kind(&self) -> &'static str {
        match self {
            CallerKey::Claim(_) => "jwt",
            CallerKey::ApiKey(_) => "api_key",
            CallerKey::Certificate(_) => "client_certificate",
            CallerKey::Address { .. } => "client",
        }
    }
}

/// The caller of a request.
#[derive(Clone, Debug)]
pub struct ResolvedCaller<'p> {
    /// The position of the token's issuer; none for an address or a certificate.
    pub issuer: Option<usize>,
    /// The tenant of that issuer, if it has several.
    pub tenant: Option<Arc<Tenant>>,
    /// The kind of caller: `user`, `anonymous`.
    pub kind: &'p str,
    /// The caller's name.
    pub value: CallerValue,
    /// Keyed hash of (issuer, claim, value), of the certificate's name, or of the address prefix.
    pub hash: u128,
}

/// The name of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerValue {
    /// A claim's value: printable, at most 256 bytes, as a header value for the upstream.
    Claim(HeaderValue),
    /// A name in a client's certificate, of the same form.
    Certificate(Box<str>),
    /// An address; for IPv6, the first of its prefix.
    Address(IpAddr),
}

impl fmt::Display for CallerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallerValue::Claim(value) => f.write_str(&String::from_utf8_lossy(value.as_bytes())),
            CallerValue::Certificate(name) => f.write_str(name),
            CallerValue::Address(address) => address.fmt(f),
        }
    }
}
