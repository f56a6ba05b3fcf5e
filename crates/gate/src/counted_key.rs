//! The key of a counter, found by its name: `user:42`, `client.ip:192.0.2.1`, `jwt.org:acme`; or,
//! where a limit counts by several things, all values: `client.ip=192.0.2.1,header.x-login=bob`.

use std::net::IpAddr;

use serde_json::Value;
use tollgate_identity::{
    CallerByName, ClaimsIssuer, Identifier, IdentityRules, NameError, Prefixes, ResolvedCaller,
    counted_address, unescaped_cookie,
};
use tollgate_limit::Hashing;
use tollgate_policy::{CallerList, Fact, KeyPart, KeyValue, Limit, PathReading, Policy, Wanted};

use super::charge_context::{
    keys::{KeyTuple, scalar, without_final_slash},
    names::{ALL, claim_in_name, claim_of_name, hash_in_name, is_hash_in_name},
};

/// Values of what limits count by, under the rules of a policy.
pub struct CountedKey<'p> {
    rules: &'p IdentityRules,
    parts: Vec<NamedPart<'p>>,
}

/// A value of one thing that limits count by.
struct NamedPart<'p> {
    part: KeyPart,
    value: NamedValue<'p>,
}

enum NamedValue<'p> {
    Caller(CallerByName<'p>),
    Address(IpAddr),
    /// What a token says, and who has signed it.
    Claim {
        issuer: ClaimsIssuer,
        value: Value,
    },
    Text(String),
}

/// A part of a name of several values, and its value: `main/jwt.org=acme`.
struct Piece<'n> {
    part: KeyPart,
    /// `main/`, or nothing.
    issuer: &'n str,
    value: &'n str,
}

/// What a part of a name begins with: `main/jwt.org=`.
struct Beginning<'n> {
    part: KeyPart,
    /// `main/`, or nothing.
    issuer: &'n str,
    /// What follows: the value, and other parts.
    rest: &'n str,
}

impl<'p> CountedKey<'p> {
    /// The key with this name under a policy.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn find(
        identifier: &Identifier,
        policy: &'p Policy,
        name: &str,
    ) -> Result<CountedKey<'p>, NameError> {
        let named = |part, issuer, value| NamedPart::find(identifier, policy, part, issuer, value);
        let whole = |parts| CountedKey { rules: &policy.identity, parts };
        if name == ALL && policy.limits.iter().any(|limit| limit.per.parts == [KeyPart::All]) {
            return Ok(whole(vec![named(KeyPart::All, "", "")?]));
        }
        if let Some(address) = name.strip_prefix("client.ip:") {
            return Ok(whole(vec![named(KeyPart::ClientIp, "", address)?]));
        }
        let unknown = match named(KeyPart::Caller, "", name) {
            Err(error @ (NameError::Kind { .. } | NameError::Form(_))) => error,
            caller => return Ok(whole(vec![caller?])),
        };
        if let Some(Beginning { part, issuer, rest }) = Beginning::of(policy, name, ':') {
            return Ok(whole(vec![named(part, issuer, rest)?]));
        }
        let mut parts = Vec::new();
        for Piece { part, issuer, value } in Piece::all(policy, name) {
            parts.push(named(part, issuer, value)?);
        }
        if parts.is_empty() { Err(with_examples(unknown, policy, name)) } else { Ok(whole(parts)) }
    }

    /// Whether a limit counts by these values, and by nothing else.
    pub fn is_whole(&self, limit: &Limit) -> bool {
        self.is_of(limit) && limit.per.parts.iter().all(|part| self.values(part).next().is_some())
    }

    /// Whether a limit counts by these values, and perhaps by more.
    pub fn is_of(&self, limit: &Limit) -> bool {
        self.parts.iter().all(|own| limit.per.parts.contains(&own.part))
    }

    /// Owner and entry of a limit's counters, as requests have them
    /// (`charge_context/keys.rs`).
    pub fn hash(&self, identifier: &Identifier, policy: &Policy, limit: &Limit) -> (u128, u128) {
        let caller = self.caller().map(|caller| caller.hash);
        let address = self.address().map(|address| {
            let prefixes = Prefixes { ipv4: limit.per.ipv4_prefix, ipv6: limit.per.ipv6_prefix };
            identifier.hash_address(address, prefixes)
        });
        match (limit.per.parts.as_slice(), caller, address) {
            ([KeyPart::Caller], Some(only), _) | ([KeyPart::ClientIp], _, Some(only)) => {
                return (only, only);
            }
            _ => {}
        }
        let hashes = [caller, address].map(|hash| hash.unwrap_or_default().to_le_bytes());
        let reading = reading_of(policy, limit);
        let fold = |text: &str| reading.fold(text).into_owned();
        let parts = limit.per.parts.iter().flat_map(|part| self.values(part));
        let values: Vec<_> = parts.map(|own| (own, own.counted(&hashes, fold))).collect();
        let mut tuple = KeyTuple::default();
        for (NamedPart { part, value: named }, value) in &values {
            if let NamedValue::Claim { issuer, .. } = named {
                tuple.add_issuer(&issuer.id);
            }
            tuple.add(part, value);
        }
        let entry = tuple.hash(&identifier.hasher);
        (caller.or(address).unwrap_or(entry), entry)
    }

    /// The caller, if it is one of the values.
    pub fn caller(&self) -> Option<&ResolvedCaller<'p>> {
        self.parts.iter().find_map(|own| match &own.value {
            NamedValue::Caller(named) => Some(&named.caller),
            _ => None,
        })
    }

    /// The address, if it is one of the values.
    pub fn address(&self) -> Option<IpAddr> {
        self.parts.iter().find_map(|own| match own.value {
            NamedValue::Address(address) => Some(address),
            _ => None,
        })
    }

    /// Who has signed the claims, if there are any.
    pub fn claims_issuer(&self) -> Option<&str> {
        self.parts.iter().find_map(|own| match &own.value {
            NamedValue::Claim { issuer, .. } => Some(issuer.id.as_str()),
            _ => None,
        })
    }

    /// The position of the tier whose rates its counters have. None: it is not known, or callers of
    /// every tier share the counters.
    pub fn tier(&self, policy: &Policy) -> Option<usize> {
        let mut all = self.parts.iter();
        let named = self.parts.iter().find_map(|own| match &own.value {
            NamedValue::Caller(named) => Some(named.tier),
            _ => None,
        });
        let is_program =
            |own: &NamedPart<'_>| matches!(own.part, KeyPart::Key | KeyPart::Descriptor(_));
        let default = policy.identity.tiers.default;
        named.unwrap_or_else(|| all.all(is_program).then_some(default))
    }

    /// Whether its caller or its address is on a list.
    pub fn is_on(&self, list: &CallerList) -> bool {
        let caller = self.caller();
        caller.is_some_and(|caller| list.callers.iter().any(|name| name.is_of(caller)))
            || self.address().is_some_and(|address| list.contains_address(address))
    }

    /// Whether an override is for it, whatever else a request has.
    pub fn has(&self, wanted: &[KeyValue]) -> bool {
        wanted.iter().all(|own| self.values(&own.part).any(|named| named.is(own)))
    }

    /// As policies and commands write it.
    pub fn name(&self) -> String {
        self.written(|own| own.text(self.rules))
    }

    /// The same for people and logs: with a hash in the place of what may be a secret.
    pub fn shown(&self, hashing: &Hashing) -> String {
        self.written(|own| match own.part.may_be_secret() {
            true => hash_in_name(hashing, &own.part, own.text(self.rules).as_bytes()),
            false => own.text(self.rules),
        })
    }

    fn written(&self, text: impl Fn(&NamedPart<'p>) -> String) -> String {
        match self.parts.as_slice() {
            [only] => match &only.value {
                NamedValue::Caller(_) => text(only),
                _ if only.part == KeyPart::All => ALL.to_owned(),
                _ => format!("{}{}:{}", only.whose(), only.part, text(only)),
            },
            several => {
                let part =
                    |own: &NamedPart<'p>| format!("{}{}={}", own.whose(), own.part, text(own));
                several.iter().map(part).collect::<Vec<_>>().join(",")
            }
        }
    }

    /// How to ask for the counters of a limit that counts by more:
    /// `caller=user:42,path.owner=VALUE`.
    pub fn name_with_more(&self, limit: &Limit) -> String {
        let value = |part: &KeyPart| {
            let known = self.values(part).next().map(|own| own.text(self.rules));
            known.unwrap_or_else(|| example(part, self.rules, VALUE))
        };
        name_of(limit, value, |part| self.whose(part))
    }

    /// How to ask for the counters of a limit by a name that says too little: a value alone, or
    /// something else.
    pub fn name_like(limit: &Limit, policy: &Policy, name: &str) -> String {
        let value = if is_bare(name) { name } else { VALUE };
        name_of(limit, |part| example(part, &policy.identity, value), |_| String::new())
    }

    /// The name of a counter of `limit` that has these values and others, from its name as `top`
    /// and denials have it: there values may be hashed, and here those of this key never are. None:
    /// it has other values.
    pub fn name_from_seen(
        &self,
        hashing: &Hashing,
        policy: &Policy,
        limit: &Limit,
        seen: &str,
    ) -> Option<String> {
        let pieces = Piece::all(policy, seen);
        if !is_of_limit(&pieces, limit) {
            return None;
        }
        let own: Vec<(&NamedPart<'_>, String)> =
            self.parts.iter().map(|own| (own, own.as_seen(hashing, policy, limit))).collect();
        let is_same = |(own, value): &(&NamedPart<'_>, String), piece: &Piece<'_>| {
            own.part == piece.part && own.whose() == piece.issuer && value == piece.value
        };
        if !own.iter().all(|own| pieces.iter().any(|piece| is_same(own, piece))) {
            return None;
        }
        let written = pieces.iter().map(|piece| {
            let Piece { part, issuer, value } = piece;
            let known = own.iter().find(|own| is_same(own, piece));
            let value = known.map_or((*value).to_owned(), |(own, _)| own.text(self.rules));
            format!("{issuer}{part}={value}")
        });
        Some(written.collect::<Vec<_>>().join(","))
    }

    /// Whether `seen`, as `top` and denials have it, is the name of a counter of `limit`.
    pub fn is_name_of(policy: &Policy, limit: &Limit, seen: &str) -> bool {
        let only = |begins| Beginning::of(policy, seen, begins).map(|own| own.part);
        match limit.per.parts.as_slice() {
            [KeyPart::All] => seen == ALL,
            [part] => only(':').is_some_and(|own| own == *part),
            _ => is_of_limit(&Piece::all(policy, seen), limit),
        }
    }

    /// Whose word a claim is, as far as the key says it.
    fn whose(&self, part: &KeyPart) -> String {
        let of_claim = self.parts.iter().map(NamedPart::whose).find(|whose| !whose.is_empty());
        match (part, of_claim, self.caller()) {
            (KeyPart::Claim(_), Some(whose), _) => whose.to_owned(),
            (KeyPart::Claim(_), None, Some(ResolvedCaller { issuer: Some(at), tenant, .. })) => {
                let tenant = tenant.as_ref().map(|tenant| &*tenant.name);
                self.rules.whose(*at, tenant).to_string()
            }
            _ => String::new(),
        }
    }

    fn values(&self, part: &KeyPart) -> impl Iterator<Item = &NamedPart<'p>> {
        self.parts.iter().filter(move |own| own.part == *part)
    }
}

impl<'n> Piece<'n> {
    /// The parts of a name of several values; none: it is no such name.
    fn all(policy: &Policy, name: &'n str) -> Vec<Piece<'n>> {
        let mut all = Vec::new();
        let mut next = Beginning::of(policy, name, '=');
        while let Some(Beginning { part, issuer, rest }) = next {
            // A value may have commas: only what begins another part ends it.
            let commas = rest.match_indices(',').map(|(at, _)| rest.split_at(at));
            let mut commas = commas.filter_map(|(value, rest)| {
                Some((value, Beginning::of(policy, rest.strip_prefix(',')?, '=')?))
            });
            let (value, following) = match commas.next() {
                Some((value, following)) => (value, Some(following)),
                None => (rest, None),
            };
            all.push(Piece { part, issuer, value });
            next = following;
        }
        all
    }
}

impl<'n> Beginning<'n> {
    /// What `text` begins with, if that is something that a limit of the policy counts by.
    fn of(policy: &Policy, text: &'n str, sign: char) -> Option<Beginning<'n>> {
        let mut parts: Vec<&KeyPart> =
            policy.limits.iter().flat_map(|limit| &limit.per.parts).collect();
        // Of two, the one that says more.
        parts.sort_by_key(|part| std::cmp::Reverse(part.to_string().len()));
        parts.into_iter().find_map(|part| {
            let word = format!("{part}{sign}");
            let (issuer, rest) = match part {
                KeyPart::Claim(_) => text.split_once(&word)?,
                _ => ("", text.strip_prefix(&word)?),
            };
            let is_issuer = issuer.is_empty() || policy.identity.is_whose(issuer);
            is_issuer.then(|| Beginning { part: part.clone(), issuer, rest })
        })
    }
}

impl<'p> NamedPart<'p> {
    fn find(
        identifier: &Identifier,
        policy: &'p Policy,
        part: KeyPart,
        issuer: &str,
        value: &str,
    ) -> Result<NamedPart<'p>, NameError> {
        let rules = &policy.identity;
        if is_hash_in_name(value) {
            return Err(NameError::Hashed { part: part.to_string() });
        }
        if value.is_empty() && part.may_be_missing() {
            return Ok(NamedPart { part, value: NamedValue::Text(String::new()) });
        }
        let value = match &part {
            KeyPart::Caller => NamedValue::Caller(identifier.by_name(rules, value)?),
            KeyPart::ClientIp => {
                let refused = |_| NameError::NotAnAddress { kind: part.to_string() };
                NamedValue::Address(value.parse::<IpAddr>().map_err(refused)?.to_canonical())
            }
            KeyPart::Claim(_) => {
                let issuer = rules.claims_issuer(&format!("{issuer}{part}:{value}"))?;
                NamedValue::Claim { issuer, value: claim_of_name(value) }
            }
            KeyPart::Host => NamedValue::Text(value.to_ascii_lowercase()),
            KeyPart::Method => NamedValue::Text(value.to_ascii_uppercase()),
            KeyPart::All
            | KeyPart::Path
            | KeyPart::PathParameter(_)
            | KeyPart::Header(_)
            | KeyPart::Cookie(_)
            | KeyPart::Body(_)
            | KeyPart::McpTool
            | KeyPart::McpMethod
            | KeyPart::McpSession
            | KeyPart::Key
            | KeyPart::Descriptor(_) => NamedValue::Text(value.to_owned()),
        };
        Ok(NamedPart { part, value })
    }

    /// The value in the form in which it is counted. `hashes` are those of the caller and the
    /// address; `fold` takes letters of paths as the servers do.
    fn counted(&self, hashes: &[[u8; 16]; 2], fold: impl Fn(&str) -> String) -> Vec<u8> {
        let [caller, address] = hashes;
        let text = match (&self.value, &self.part) {
            (NamedValue::Caller(_), _) => return caller.to_vec(),
            (NamedValue::Address(_), _) => return address.to_vec(),
            (NamedValue::Claim { value, .. }, _) => scalar(value).unwrap_or_default(),
            (NamedValue::Text(text), KeyPart::Cookie(_)) => {
                return unescaped_cookie(text.as_bytes()).into_owned();
            }
            (NamedValue::Text(text), KeyPart::Path) => without_final_slash(&fold(text)).to_owned(),
            (NamedValue::Text(text), KeyPart::PathParameter(_)) => fold(text),
            (NamedValue::Text(text), _) => text.clone(),
        };
        text.into_bytes()
    }

    /// The value as names of a limit's counters have it (`charge_context/names.rs`).
    fn as_seen(&self, hashing: &Hashing, policy: &Policy, limit: &Limit) -> String {
        let is_hashed = |own: &Fact| own.source == self.part && own.is_hashed;
        match &self.value {
            NamedValue::Address(address) => {
                let prefixes =
                    Prefixes { ipv4: limit.per.ipv4_prefix, ipv6: limit.per.ipv6_prefix };
                counted_address(*address, prefixes).to_string()
            }
            NamedValue::Claim { value, .. } if policy.facts.iter().any(is_hashed) => {
                hash_in_name(hashing, &self.part, value.to_string().as_bytes())
            }
            NamedValue::Text(_) => {
                let reading = reading_of(policy, limit);
                let value =
                    self.counted(&Default::default(), |text| reading.fold(text).into_owned());
                match self.part.may_be_secret() {
                    true => hash_in_name(hashing, &self.part, &value),
                    false => String::from_utf8_lossy(&value).into_owned(),
                }
            }
            NamedValue::Caller(_) | NamedValue::Claim { .. } => self.text(&policy.identity),
        }
    }

    fn is(&self, wanted: &KeyValue) -> bool {
        match (&wanted.value, &self.value) {
            (Wanted::Caller(name), NamedValue::Caller(named)) => name.is_of(&named.caller),
            (Wanted::Network(network), NamedValue::Address(address)) => network.contains(address),
            (Wanted::Host(pattern), NamedValue::Text(host)) => pattern.matches(host),
            (Wanted::Path(pattern), NamedValue::Text(path)) => pattern.matches(path),
            (Wanted::Claim { value, .. }, NamedValue::Claim { value: own, .. }) => value == own,
            (Wanted::Text(text), NamedValue::Text(own)) => match self.part {
                KeyPart::Cookie(_) => {
                    unescaped_cookie(text.as_bytes()) == unescaped_cookie(own.as_bytes())
                }
                _ => **text == **own,
            },
            _ => false,
        }
    }

    /// What the name of a claim begins with: `main/`, or nothing.
    fn whose(&self) -> &str {
        match &self.value {
            NamedValue::Claim { issuer, .. } => &issuer.whose,
            _ => "",
        }
    }

    fn text(&self, rules: &IdentityRules) -> String {
        match &self.value {
            NamedValue::Caller(named) => named.caller.name(rules).to_string(),
            NamedValue::Address(address) => address.to_string(),
            NamedValue::Claim { value, .. } => claim_in_name(value).into_owned(),
            NamedValue::Text(text) => text.clone(),
        }
    }
}

/// How the servers of a limit's routes read paths. Routes of one limit have one reading, unless
/// their upstreams differ.
fn reading_of(policy: &Policy, limit: &Limit) -> PathReading {
    let route = policy.routes.iter().find(|route| route.limits.contains(&limit.position));
    route.map(|route| route.reading).unwrap_or_default()
}

/// Whether a name has a value of each part that the limit counts by, and no other.
fn is_of_limit(pieces: &[Piece<'_>], limit: &Limit) -> bool {
    let parts = &limit.per.parts;
    parts.iter().all(|part| pieces.iter().any(|own| own.part == *part))
        && pieces.iter().all(|own| parts.contains(&own.part))
}

/// What stands for a value in the example of a name.
const VALUE: &str = "VALUE";

/// Whether a name is a value alone.
fn is_bare(name: &str) -> bool {
    !name.contains([':', '='])
}

/// A value of what a limit counts by.
fn example(part: &KeyPart, rules: &IdentityRules, value: &str) -> String {
    let own = match part {
        KeyPart::Caller => rules.names_with(value).into_iter().next(),
        KeyPart::ClientIp if value == VALUE => Some("192.0.2.1".into()),
        _ => None,
    };
    own.unwrap_or_else(|| value.to_owned())
}

/// The name of a counter of a limit.
fn name_of(
    limit: &Limit,
    value: impl Fn(&KeyPart) -> String,
    whose: impl Fn(&KeyPart) -> String,
) -> String {
    match limit.per.parts.as_slice() {
        [KeyPart::Caller] => value(&KeyPart::Caller),
        [only] => format!("{}{only}:{}", whose(only), value(only)),
        several => {
            let part = |part: &KeyPart| format!("{}{part}={}", whose(part), value(part));
            several.iter().map(part).collect::<Vec<_>>().join(",")
        }
    }
}

/// The error for a name that begins with nothing known, with a name of each kind that there is.
fn with_examples(error: NameError, policy: &Policy, name: &str) -> NameError {
    let value = if is_bare(name) { name } else { VALUE };
    let mut all = policy.identity.names_with(value);
    for limit in
        policy.limits.iter().filter(|limit| limit.per.parts.as_slice() != [KeyPart::Caller])
    {
        let example = CountedKey::name_like(limit, policy, name);
        if !all.contains(&example) {
            all.push(example);
        }
    }
    let known = all.join(", ");
    match error {
        _ if is_bare(name) => NameError::Bare { name: name.to_owned(), choices: known },
        NameError::Kind { kind, .. } => NameError::Kind { kind, known },
        error => error,
    }
}
