//! Which counter a limit charges: the request's values of what the limit counts by.

use std::{borrow::Cow, net::IpAddr};

use http::{HeaderMap, HeaderName, Method};
use smallvec::SmallVec;
use tollgate_identity::{CallerValue, Identity, Prefixes, canonical, cookie_to_count};
use tollgate_limit::{Hashing, Origin};
use tollgate_policy::{KeyPart, Limit, OpenParts, Per};

use super::ChargeContext;
use crate::judge_input::JudgeInput;

/// What a key is made from.
pub struct KeyBuilder<'k, 'r, 'p> {
    /// The request.
    pub context: &'k ChargeContext<'r, 'p>,
    /// What the limit counts by.
    pub per: &'p Per,
    /// Who is calling.
    pub identity: &'k Identity<'k>,
}

/// A tagged piece of a key: a value, or the name of a claim, header, cookie or path parameter.
type KeyPiece<'k> = (u8, &'k [u8]);

impl KeyBuilder<'_, '_, '_> {
    /// Owner and entry of the counter; none if the request lacks what the limit counts by.
    pub fn hash(&self) -> Option<(u128, u128)> {
        match self.per.parts.as_slice() {
            [KeyPart::Caller] => {
                self.identity.caller.as_ref().map(|caller| (caller.hash, caller.hash))
            }
            [KeyPart::ClientIp] => {
                let address = self.address();
                Some((address, address))
            }
            parts => self.hash_tuple(parts),
        }
    }

    fn hash_tuple(&self, parts: &[KeyPart]) -> Option<(u128, u128)> {
        let ChargeContext { identifier, input, .. } = self.context;
        let JudgeInput { head, client, .. } = input;
        let caller = self.identity.caller.as_ref().map(|caller| caller.hash.to_le_bytes());
        let address = self.address().to_le_bytes();
        // Some servers take `get` for GET, so counters do as well.
        let method = head.method.as_str().to_ascii_uppercase();
        let texts: SmallVec<[Option<Cow<'_, [u8]>>; 4]> =
            parts.iter().map(|part| self.text(part)).collect();

        let mut tuple: SmallVec<[KeyPiece<'_>; 8]> = SmallVec::new();
        for (part, text) in parts.iter().zip(&texts) {
            match part {
                KeyPart::Caller => tuple.push((Tag::Caller as u8, caller.as_ref()?)),
                KeyPart::ClientIp => tuple.push((Tag::Address as u8, &address)),
                // A request of HTTP/1.0 may have no host. It has a counter too, or leaving the host
                // out would evade the limit.
                KeyPart::Host => tuple.push(match head.host() {
                    Some(host) => (Tag::Host as u8, host.as_bytes()),
                    None => (Tag::NoHost as u8, b""),
                }),
                KeyPart::Method => {
                    self.context.route?;
                    tuple.push((Tag::Method as u8, method.as_bytes()));
                }
                KeyPart::Path => {
                    self.context.route?;
                    tuple.push((Tag::Path as u8, without_final_slash(&head.path)));
                }
                KeyPart::PathParameter(name) => {
                    let segment = self.context.route?.path.parameter(name, &head.path)?;
                    tuple.extend([
                        (Tag::Name as u8, name.as_bytes()),
                        (Tag::Segment as u8, segment.as_bytes()),
                    ]);
                }
                KeyPart::Claim(name) => {
                    let issuer = self.issuer()?;
                    let claim = text.as_ref()?;
                    tuple.extend([
                        (Tag::Issuer as u8, issuer.as_bytes()),
                        (Tag::Name as u8, name.as_bytes()),
                    ]);
                    tuple.push((Tag::Claim as u8, claim));
                }
                KeyPart::Header(name) => {
                    tuple.push((Tag::Name as u8, name.as_str().as_bytes()));
                    tuple.push((Tag::Header as u8, only_value(client.headers, name)?));
                }
                KeyPart::Key | KeyPart::Descriptor(_) => return None,
                KeyPart::Cookie(name) => {
                    tuple.extend([
                        (Tag::Name as u8, name.as_bytes()),
                        (Tag::Cookie as u8, text.as_ref()?),
                    ]);
                }
            }
        }
        let entry = identifier.hasher.hash(tuple);
        // The store decides all counters of one owner together: the caller's, else the address's.
        let owner = match &self.identity.caller {
            Some(caller) if parts.contains(&KeyPart::Caller) => caller.hash,
            _ if parts.contains(&KeyPart::ClientIp) => self.address(),
            _ => entry,
        };
        Some((owner, entry))
    }

    /// Who can make up new counters: of several parts, the origin of the one that is easiest to
    /// make up.
    pub(crate) fn origin(&self, open: OpenParts) -> Origin {
        let origins = self.per.parts.iter().map(|part| self.origin_of(part, open));
        origins.max().unwrap_or(Origin::Verified)
    }

    fn origin_of(&self, part: &KeyPart, open: OpenParts) -> Origin {
        match part {
            KeyPart::Claim(_) | KeyPart::Key | KeyPart::Descriptor(_) => Origin::Verified,
            KeyPart::Caller => match self.identity.caller.as_ref().map(|caller| &caller.value) {
                Some(CallerValue::Address(address)) => by_address(*address),
                Some(CallerValue::Claim(_) | CallerValue::Certificate(_)) | None => {
                    Origin::Verified
                }
            },
            KeyPart::ClientIp => by_address(self.context.input.client.address),
            KeyPart::Host if !open.hosts => Origin::Verified,
            KeyPart::Path if !open.paths => Origin::Verified,
            KeyPart::Method if is_usual(self.context.input.head.method) => Origin::Verified,
            KeyPart::Host
            | KeyPart::Path
            | KeyPart::PathParameter(_)
            | KeyPart::Method
            | KeyPart::Header(_)
            | KeyPart::Cookie(_) => Origin::Chosen { by: self.client() },
        }
    }

    /// Who has made up a counter: a verified caller, or else the address. A verified caller does
    /// not pay for others at its address.
    fn client(&self) -> u128 {
        match &self.identity.caller {
            Some(caller) if !matches!(caller.value, CallerValue::Address(_)) => caller.hash,
            _ => {
                let ChargeContext { identifier, input, .. } = self.context;
                identifier.hash_address(input.client.address, Prefixes::default())
            }
        }
    }

    /// The client's address, or the network that the limit counts as one.
    pub(crate) fn address(&self) -> u128 {
        let prefixes = Prefixes { ipv4: self.per.ipv4_prefix, ipv6: self.per.ipv6_prefix };
        let ChargeContext { identifier, input, .. } = self.context;
        identifier.hash_address(input.client.address, prefixes)
    }

    /// Whose word a claim is: what two issuers say alike is not the same.
    fn issuer(&self) -> Option<&str> {
        let known = self.identity.token.as_ref()?;
        let rules = &self.context.policy.identity;
        // A key has fields, not claims.
        let has_claims = known.token.issuer != rules.api_keys_position();
        rules.issuer_id(known.token.issuer).filter(|_| has_claims)
    }

    /// The value of a claim or a cookie, in the form in which it is counted.
    fn text(&self, part: &KeyPart) -> Option<Cow<'_, [u8]>> {
        match part {
            KeyPart::Claim(name) => {
                let known = self.identity.token.as_ref()?;
                let value = known.token.claims.lookup(name).and_then(scalar)?;
                Some(Cow::Owned(value.into_bytes()))
            }
            KeyPart::Cookie(name) => {
                cookie_to_count(self.context.input.client.headers, name).ok()?
            }
            KeyPart::Caller
            | KeyPart::ClientIp
            | KeyPart::Host
            | KeyPart::Path
            | KeyPart::PathParameter(_)
            | KeyPart::Method
            | KeyPart::Key
            | KeyPart::Descriptor(_)
            | KeyPart::Header(_) => None,
        }
    }
}

/// What a part of a key's hash is, so that no value of one kind is taken for another. Counters in
/// Redis and in snapshots are named by these: a tag is never changed or used again.
#[repr(u8)]
enum Tag {
    Caller = b'c',
    Address = b'i',
    Host = b'o',
    NoHost = b'O',
    Method = b'm',
    Path = b'p',
    Name = b'n',
    Segment = b's',
    Issuer = b'u',
    Claim = b'v',
    Header = b'h',
    Cookie = b'k',
    Key = b'K',
    Descriptor = b'D',
}

/// Hash of a key that a program names: the owner of its counters, and their entry.
pub fn hash_named_key(hasher: &Hashing, key: &[u8]) -> u128 {
    hasher.hash([(Tag::Key as u8, key)])
}

/// Hash of the entries of a descriptor that a limit counts by: the owner of its counters, and their
/// entry.
pub fn hash_descriptor<'d>(
    hasher: &Hashing,
    per: &Per,
    entries: impl Iterator<Item = (&'d str, &'d str)> + Clone,
) -> u128 {
    let mut tuple: SmallVec<[KeyPiece<'_>; 8]> = SmallVec::new();
    for part in &per.parts {
        let KeyPart::Descriptor(name) = part else { continue };
        // A descriptor may have a key more than once.
        for (_, value) in entries.clone().filter(|(key, _)| **name == **key) {
            tuple.push((Tag::Name as u8, name.as_bytes()));
            tuple.push((Tag::Descriptor as u8, value.as_bytes()));
        }
    }
    hasher.hash(tuple)
}

/// Whether a request has more than one value of what `limit` counts by: servers may read one of
/// them, and counters another.
pub(crate) fn is_ambiguous(limit: &Limit, headers: &HeaderMap) -> bool {
    limit.per.parts.iter().any(|part| match part {
        KeyPart::Header(name) => headers.get_all(name).iter().nth(1).is_some(),
        KeyPart::Cookie(name) => cookie_to_count(headers, name).is_err(),
        // These have one value by the request's form, or by the token.
        KeyPart::Caller
        | KeyPart::ClientIp
        | KeyPart::Host
        | KeyPart::Path
        | KeyPart::PathParameter(_)
        | KeyPart::Method
        | KeyPart::Key
        | KeyPart::Descriptor(_)
        | KeyPart::Claim(_) => false,
    })
}

/// The value of a field that comes once, unless it is empty.
pub(crate) fn only_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    Some(value.as_bytes()).filter(|value| !value.is_empty())
}

fn by_address(address: IpAddr) -> Origin {
    match canonical(address) {
        IpAddr::V4(_) => Origin::Address,
        IpAddr::V6(_) => Origin::Network,
    }
}

/// Whether a method is one of the few that clients have no choice but to use.
fn is_usual(method: &Method) -> bool {
    const USUAL: [Method; 7] = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
    ];
    USUAL.iter().any(|usual| usual.as_str().eq_ignore_ascii_case(method.as_str()))
}

/// A slash at the end makes no difference to routes, so none to counters.
fn without_final_slash(path: &str) -> &[u8] {
    path.strip_suffix('/').unwrap_or(path).as_bytes()
}

/// A claim that can be counted by: text, number or truth value, not empty, or a list of one of
/// these. The kind is part of it, so that `"1"` and `1` differ.
fn scalar(value: &serde_json::Value) -> Option<String> {
    match counted_claim(value) {
        serde_json::Value::String(text) if text.is_empty() => None,
        serde_json::Value::String(text) => Some(format!("s{text}")),
        serde_json::Value::Number(number) => Some(format!("n{number}")),
        serde_json::Value::Bool(truth) => Some(format!("b{truth}")),
        _ => None,
    }
}

/// What a claim is counted by: a list of one is that one.
pub(crate) fn counted_claim(value: &serde_json::Value) -> &serde_json::Value {
    match value {
        serde_json::Value::Array(values) => match values.as_slice() {
            [only] => only,
            _ => value,
        },
        _ => value,
    }
}
