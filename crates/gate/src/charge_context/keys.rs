//! Which counter a limit charges: the request's values of what the limit counts by.

use std::{borrow::Cow, net::IpAddr};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use smallvec::SmallVec;
use tollgate_identity::{
    CallerValue, Identity, Prefixes, canonical, cookie_to_count, unescaped_cookie,
};
use tollgate_limit::{Hashing, Origin};
use tollgate_policy::{
    Chooser, KeyPart, Limit, MCP_SESSION_ID, OpenParts, Per, Route, UnfitMember, Unfitness,
};
use tollgate_response::Rejection;

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

/// The values of a key, in the order in which its limit lists what it counts by.
#[derive(Default)]
pub struct KeyTuple<'k>(SmallVec<[KeyPiece<'k>; 8]>);

impl<'k> KeyTuple<'k> {
    /// Whose word the claim is that is added next.
    pub fn add_issuer(&mut self, id: &'k str) {
        self.0.push((Tag::Issuer as u8, id.as_bytes()));
    }

    /// Adds a value in the form in which it is counted: of a caller or an address, its hash. An
    /// empty one is none.
    pub fn add(&mut self, part: &'k KeyPart, value: &'k [u8]) {
        let KeyTuple(pieces) = self;
        pieces.extend(part.name().map(|name| (Tag::Name as u8, name.as_bytes())));
        pieces.push(match part {
            KeyPart::Host if value.is_empty() => (Tag::NoHost as u8, value),
            _ if value.is_empty() && part.may_be_missing() => (Tag::Missing as u8, value),
            _ => (Tag::of(part) as u8, value),
        });
    }

    /// The hash that names the key's counters.
    pub fn hash(self, hasher: &Hashing) -> u128 {
        hasher.hash(self.0)
    }
}

impl KeyBuilder<'_, '_, '_> {
    /// Owner and entry of the counter; none if the request lacks what the limit counts by.
    pub fn hash(&self) -> Option<(u128, u128)> {
        match (self.per.parts.as_slice(), &self.identity.caller) {
            ([KeyPart::Caller], Some(caller)) => Some((caller.hash, caller.hash)),
            ([KeyPart::ClientIp], _) => {
                let address = self.address();
                Some((address, address))
            }
            (parts, _) => self.hash_tuple(parts),
        }
    }

    fn hash_tuple(&self, parts: &[KeyPart]) -> Option<(u128, u128)> {
        let caller = self.identity.caller.as_ref().map(|caller| caller.hash.to_le_bytes());
        let address = self.address().to_le_bytes();
        let values: SmallVec<[Option<Cow<'_, [u8]>>; 4]> =
            parts.iter().map(|part| self.value(part)).collect();

        let mut tuple = KeyTuple::default();
        for (part, value) in parts.iter().zip(&values) {
            let issuer = match part {
                KeyPart::Claim(_) => self.issuer(),
                _ => None,
            };
            let value: Option<&[u8]> = match part {
                KeyPart::Caller => caller.as_ref().map(<[u8; 16]>::as_slice),
                KeyPart::ClientIp => Some(&address),
                KeyPart::Claim(_) => issuer.and(value.as_deref()),
                // A request of HTTP/1.0 may have no host. It has a counter too, or leaving the host
                // out would evade the limit.
                KeyPart::Host => Some(value.as_deref().unwrap_or_default()),
                // So it is with a message that calls no tool: every client has to send some.
                KeyPart::McpTool | KeyPart::McpMethod if self.context.message.is_some() => {
                    Some(value.as_deref().unwrap_or_default())
                }
                _ => value.as_deref(),
            };
            match value {
                Some(value) => {
                    issuer.into_iter().for_each(|issuer| tuple.add_issuer(issuer));
                    tuple.add(part, value);
                }
                None if self.per.shares(part) => tuple.add(part, &[]),
                None => return None,
            }
        }
        let entry = tuple.hash(&self.context.identifier.hasher);
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
        match part.chooser() {
            Chooser::Nobody | Chooser::Issuer | Chooser::Program => Origin::Verified,
            Chooser::Identity => match self.identity.caller.as_ref().map(|caller| &caller.value) {
                Some(CallerValue::Address(address)) => by_address(*address),
                Some(CallerValue::Claim(_) | CallerValue::Certificate(_)) | None => {
                    Origin::Verified
                }
            },
            Chooser::Network => by_address(self.context.input.client.address),
            Chooser::Hosts if !open.hosts => Origin::Verified,
            Chooser::Paths if !open.paths => Origin::Verified,
            Chooser::Methods if is_usual(self.context.input.head.method()) => Origin::Verified,
            Chooser::Hosts
            | Chooser::Paths
            | Chooser::Segments
            | Chooser::Calls
            | Chooser::Methods
            | Chooser::Client => Origin::Chosen { by: self.client() },
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
        rules.issuer_id_of(&known.token).filter(|_| has_claims)
    }

    /// The request's value of a source, in the form in which it is counted. None: it has none, or
    /// the source is the caller or its address, which have a hash.
    pub(crate) fn value(&self, part: &KeyPart) -> Option<Cow<'_, [u8]>> {
        let ChargeContext { route, input, .. } = self.context;
        let JudgeInput { head, client, .. } = input;
        match part {
            KeyPart::All => Some(Cow::Borrowed(&[])),
            KeyPart::Host => head.host().map(bytes),
            KeyPart::Path => match self.path((*route)?) {
                Cow::Borrowed(path) => Some(bytes(without_final_slash(path))),
                Cow::Owned(path) => Some(Cow::Owned(without_final_slash(&path).into())),
            },
            KeyPart::PathParameter(name) => match self.path((*route)?) {
                Cow::Borrowed(path) => (*route)?.path.parameter(name, path).map(bytes),
                Cow::Owned(path) => {
                    let segment = (*route)?.path.parameter(name, &path)?;
                    Some(Cow::Owned(segment.into()))
                }
            },
            // Some servers take `get` for GET, so counters do as well.
            KeyPart::Method => {
                route.map(|_| Cow::Owned(head.method().as_str().to_ascii_uppercase().into_bytes()))
            }
            KeyPart::Claim(name) => {
                let value = scalar(self.claim(name)?)?;
                Some(Cow::Owned(value.into_bytes()))
            }
            KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::McpSession => {
                chosen_value(part, client.headers).ok()?
            }
            KeyPart::Body(_) => self.member(part),
            KeyPart::McpTool => self.context.message?.tool().map(bytes),
            KeyPart::McpMethod => self.context.message?.method.as_deref().map(bytes),
            KeyPart::Caller | KeyPart::ClientIp | KeyPart::Key | KeyPart::Descriptor(_) => None,
        }
    }

    /// A member of the body that can be counted by.
    fn member(&self, part: &KeyPart) -> Option<Cow<'_, [u8]>> {
        Some(match self.context.input.facts.get()?.in_words(part)? {
            Cow::Borrowed(text) => bytes(text),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        })
    }

    /// Checks that the body has one value of each member that the limit counts by.
    ///
    /// # Errors
    /// [`Rejection::Member`].
    pub(super) fn check_members(&self) -> Result<(), Rejection> {
        let Some(facts) = self.context.input.facts.get() else { return Ok(()) };
        let Some(found) = &facts.members else { return Ok(()) };
        let repeated = self.per.parts.iter().find_map(|part| match part {
            KeyPart::Body(member) if found.is_repeated(member.number) => Some(member),
            _ => None,
        });
        match repeated {
            Some(member) => {
                let path = member.path.clone();
                Err(UnfitMember { path, why: Unfitness::Repeated }.into())
            }
            None => Ok(()),
        }
    }

    /// The path of a request that takes a route, in the form in which it is counted.
    fn path(&self, route: &Route) -> Cow<'_, str> {
        route.path.form_to_count(self.context.input.head.request_path(), route.reading)
    }

    /// The request's value of a source but its address, for people. None: it has none, or it may be
    /// a secret.
    pub fn value_in_words(&self, part: &KeyPart) -> Option<String> {
        let ChargeContext { input, .. } = self.context;
        match part {
            KeyPart::Caller => {
                let rules = &self.context.policy.identity;
                self.identity.caller.as_ref().map(|caller| caller.name(rules).to_string())
            }
            KeyPart::Path => match self.context.route {
                Some(route) => Some(self.path(route).into_owned()),
                None => Some(input.head.plain_path().to_owned()),
            },
            KeyPart::Claim(name) => self.claim(name).map(ToString::to_string),
            _ if part.chooser() == Chooser::Client => None,
            _ => self.value(part).map(|value| String::from_utf8_lossy(&value).into_owned()),
        }
    }

    /// Whether the request has this value of a source, as a policy writes it.
    pub(crate) fn has_text(&self, part: &KeyPart, text: &str) -> bool {
        let text = match part {
            KeyPart::Cookie(_) => unescaped_cookie(text.as_bytes()),
            KeyPart::PathParameter(_) => {
                let reading = self.context.route.map(|route| route.reading).unwrap_or_default();
                Cow::Owned(reading.fold(text).into_owned().into_bytes())
            }
            _ => Cow::Borrowed(text.as_bytes()),
        };
        self.value(part).is_some_and(|value| value == text)
    }

    /// A claim of the verified token.
    pub(super) fn claim(&self, name: &str) -> Option<&serde_json::Value> {
        self.identity.token.as_ref()?.token.claims.lookup(name)
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
    All = b'A',
    /// There is no caller, claim, header or cookie.
    Missing = b'M',
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
    Member = b'j',
    Tool = b't',
    Call = b'r',
    Session = b'S',
}

impl Tag {
    fn of(part: &KeyPart) -> Tag {
        match part {
            KeyPart::All => Tag::All,
            KeyPart::Caller => Tag::Caller,
            KeyPart::ClientIp => Tag::Address,
            KeyPart::Host => Tag::Host,
            KeyPart::Path => Tag::Path,
            KeyPart::PathParameter(_) => Tag::Segment,
            KeyPart::Method => Tag::Method,
            KeyPart::Claim(_) => Tag::Claim,
            KeyPart::Header(_) => Tag::Header,
            KeyPart::Cookie(_) => Tag::Cookie,
            KeyPart::Key => Tag::Key,
            KeyPart::Descriptor(_) => Tag::Descriptor,
            KeyPart::Body(_) => Tag::Member,
            KeyPart::McpTool => Tag::Tool,
            KeyPart::McpMethod => Tag::Call,
            KeyPart::McpSession => Tag::Session,
        }
    }
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
    let mut tuple = KeyTuple::default();
    for part in &per.parts {
        let KeyPart::Descriptor(name) = part else { continue };
        // A descriptor may have a key more than once.
        for (_, value) in entries.clone().filter(|(key, _)| **name == **key) {
            tuple.add(part, value.as_bytes());
        }
    }
    tuple.hash(hasher)
}

/// Whether a request has more than one value of what `limit` counts by: servers may read one of
/// them, and counters another.
pub(crate) fn is_ambiguous(limit: &Limit, headers: &HeaderMap) -> bool {
    limit.per.parts.iter().any(|part| chosen_value(part, headers).is_err())
}

/// More than one value.
#[derive(Debug)]
pub(crate) struct Ambiguous;

/// The value of a source that is read from a field. None: there is none, or it is another source,
/// which has one value by the request's form, or by the token.
///
/// # Errors
/// There is more than one.
pub(crate) fn chosen_value<'h>(
    part: &KeyPart,
    headers: &'h HeaderMap,
) -> Result<Option<Cow<'h, [u8]>>, Ambiguous> {
    match part {
        KeyPart::Header(name) => only_value(headers, name),
        KeyPart::McpSession => only_value(headers, &MCP_SESSION_ID),
        KeyPart::Cookie(name) => cookie_to_count(headers, name).map_err(|_| Ambiguous),
        KeyPart::All
        | KeyPart::Caller
        | KeyPart::ClientIp
        | KeyPart::Host
        | KeyPart::Path
        | KeyPart::PathParameter(_)
        | KeyPart::Method
        | KeyPart::Claim(_)
        | KeyPart::Body(_)
        | KeyPart::McpTool
        | KeyPart::McpMethod
        | KeyPart::Key
        | KeyPart::Descriptor(_) => Ok(None),
    }
}

fn only_value<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<Cow<'h, [u8]>>, Ambiguous> {
    let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Ambiguous),
        (value, None) => Ok(value.filter(|value| !value.is_empty()).map(Cow::Borrowed)),
    }
}

fn bytes(text: &str) -> Cow<'_, [u8]> {
    Cow::Borrowed(text.as_bytes())
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
/// A path as it is counted.
pub fn without_final_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// A claim that can be counted by: text, number or truth value, not empty, or a list of one of
/// these. The kind is part of it, so that `"1"` and `1` differ.
pub fn scalar(value: &serde_json::Value) -> Option<String> {
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
