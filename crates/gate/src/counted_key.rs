//! The key of a counter, found by its name: `user:42`, `client.ip:192.0.2.1`, `jwt.org:acme`; or,
//! where a limit counts by several things, all values: `client.ip=192.0.2.1,header.x-login=bob`.

use std::net::IpAddr;

use serde_json::Value;
use tollgate_identity::{
    CallerByName, Identifier, NameError, Prefixes, ResolvedCaller, unescaped_cookie,
};
use tollgate_limit::Hashing;
use tollgate_policy::{CallerList, KeyPart, KeyValue, Limit, Policy, Wanted};

use super::charge_context::{
    keys::{KeyTuple, scalar, without_final_slash},
    names::{claim_in_name, claim_of_name, hash_in_name, is_hash_in_name},
};

/// Values of what limits count by.
pub struct CountedKey<'p>(Vec<NamedPart<'p>>);

/// A value of one thing that limits count by.
struct NamedPart<'p> {
    part: KeyPart,
    value: NamedValue<'p>,
}

enum NamedValue<'p> {
    Caller(CallerByName<'p>),
    Address(IpAddr),
    /// What a token says, and the id of who has signed it.
    Claim {
        issuer: String,
        value: Value,
    },
    Text(String),
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
        if let Some(address) = name.strip_prefix("client.ip:") {
            return Ok(CountedKey(vec![named(KeyPart::ClientIp, "", address)?]));
        }
        let unknown = match named(KeyPart::Caller, "", name) {
            Err(error @ (NameError::Kind { .. } | NameError::Form(_))) => error,
            caller => return Ok(CountedKey(vec![caller?])),
        };
        if let Some(Beginning { part, issuer, rest }) = Beginning::of(policy, name, ':') {
            return Ok(CountedKey(vec![named(part, issuer, rest)?]));
        }
        let mut parts = Vec::new();
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
            parts.push(named(part, issuer, value)?);
            next = following;
        }
        if parts.is_empty() { Err(with_parts(unknown, policy)) } else { Ok(CountedKey(parts)) }
    }

    /// Whether a limit counts by these values, and by nothing else.
    pub fn is_whole(&self, limit: &Limit) -> bool {
        self.is_of(limit) && limit.per.parts.iter().all(|part| self.values(part).next().is_some())
    }

    /// Whether a limit counts by these values, and perhaps by more.
    pub fn is_of(&self, limit: &Limit) -> bool {
        self.0.iter().all(|own| limit.per.parts.contains(&own.part))
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
        // Routes of one limit have one reading, unless their upstreams differ.
        let route = policy.routes.iter().find(|route| route.limits.contains(&limit.position));
        let reading = route.map(|route| route.reading).unwrap_or_default();
        let fold = |text: &str| reading.fold(text).into_owned();
        let parts = limit.per.parts.iter().flat_map(|part| self.values(part));
        let values: Vec<_> = parts.map(|own| (own, own.counted(&hashes, fold))).collect();
        let mut tuple = KeyTuple::default();
        for (NamedPart { part, value: named }, value) in &values {
            if let NamedValue::Claim { issuer, .. } = named {
                tuple.add_issuer(issuer);
            }
            tuple.add(part, value);
        }
        let entry = tuple.hash(&identifier.hasher);
        (caller.or(address).unwrap_or(entry), entry)
    }

    /// The caller, if it is one of the values.
    pub fn caller(&self) -> Option<&ResolvedCaller<'p>> {
        self.0.iter().find_map(|own| match &own.value {
            NamedValue::Caller(named) => Some(&named.caller),
            _ => None,
        })
    }

    /// The address, if it is one of the values.
    pub fn address(&self) -> Option<IpAddr> {
        self.0.iter().find_map(|own| match own.value {
            NamedValue::Address(address) => Some(address),
            _ => None,
        })
    }

    /// Who has signed the claims, if there are any.
    pub fn claims_issuer(&self) -> Option<&str> {
        self.0.iter().find_map(|own| match &own.value {
            NamedValue::Claim { issuer, .. } => Some(issuer.as_str()),
            _ => None,
        })
    }

    /// The position of the tier whose rates its counters have. None: it is not known, or callers of
    /// every tier share the counters.
    pub fn tier(&self, policy: &Policy) -> Option<usize> {
        let mut all = self.0.iter();
        let named = self.0.iter().find_map(|own| match &own.value {
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
        self.written(NamedPart::text)
    }

    /// The same for people and logs: with a hash in the place of what may be a secret.
    pub fn shown(&self, hashing: &Hashing) -> String {
        self.written(|own| match own.part.may_be_secret() {
            true => hash_in_name(hashing, &own.part, own.text().as_bytes()),
            false => own.text(),
        })
    }

    fn written(&self, text: impl Fn(&NamedPart<'p>) -> String) -> String {
        match self.0.as_slice() {
            [only] => match &only.value {
                NamedValue::Caller(_) => text(only),
                _ => format!("{}:{}", only.part, text(only)),
            },
            several => {
                let part = |own: &NamedPart<'p>| format!("{}={}", own.part, text(own));
                several.iter().map(part).collect::<Vec<_>>().join(",")
            }
        }
    }

    /// How to ask for the counters of a limit that counts by more:
    /// `caller=user:42,path.owner=VALUE`.
    pub fn name_with_more(&self, limit: &Limit) -> String {
        if let [only] = limit.per.parts.as_slice()
            && *only != KeyPart::Caller
        {
            return format!("{only}:VALUE");
        }
        let parts = limit.per.parts.iter().map(|part| {
            let value = self.values(part).next().map_or("VALUE".into(), NamedPart::text);
            format!("{part}={value}")
        });
        parts.collect::<Vec<_>>().join(",")
    }

    fn values(&self, part: &KeyPart) -> impl Iterator<Item = &NamedPart<'p>> {
        self.0.iter().filter(move |own| own.part == *part)
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
            let is_issuer = issuer.is_empty() || begins_with_an_issuer(issuer, policy);
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
        let value = match &part {
            KeyPart::Caller => NamedValue::Caller(identifier.by_name(rules, value)?),
            KeyPart::ClientIp => {
                let refused = |_| NameError::NotAnAddress { kind: part.to_string() };
                NamedValue::Address(value.parse::<IpAddr>().map_err(refused)?.to_canonical())
            }
            KeyPart::Claim(_) => {
                let (issuer, _) = rules.claims_issuer(&format!("{issuer}{part}:{value}"))?;
                NamedValue::Claim { issuer, value: claim_of_name(value) }
            }
            KeyPart::Host => NamedValue::Text(value.to_ascii_lowercase()),
            KeyPart::Method => NamedValue::Text(value.to_ascii_uppercase()),
            KeyPart::Path
            | KeyPart::PathParameter(_)
            | KeyPart::Header(_)
            | KeyPart::Cookie(_)
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

    fn text(&self) -> String {
        match &self.value {
            NamedValue::Caller(named) => {
                format!("{}:{}", named.caller.kind, named.caller.value)
            }
            NamedValue::Address(address) => address.to_string(),
            NamedValue::Claim { value, .. } => claim_in_name(value).into_owned(),
            NamedValue::Text(text) => text.clone(),
        }
    }
}

/// Whether a text is `main/` or `main/TENANT/`, of an issuer of the policy.
fn begins_with_an_issuer(text: &str, policy: &Policy) -> bool {
    let rules = &policy.identity;
    let mut names = (0..rules.api_keys_position()).filter_map(|at| rules.issuer_name(at));
    text.ends_with('/')
        && names.any(|name| text.strip_prefix(name).is_some_and(|rest| rest.starts_with('/')))
}

/// The error for a name that begins with nothing known, with all that it may begin with.
fn with_parts(error: NameError, policy: &Policy) -> NameError {
    let NameError::Kind { kind, known } = error else { return error };
    let mut all = vec![known];
    for part in policy.limits.iter().flat_map(|limit| &limit.per.parts) {
        let word = part.to_string();
        if *part != KeyPart::Caller && !all.contains(&word) {
            all.push(word);
        }
    }
    NameError::Kind { kind, known: all.join(", ") }
}
