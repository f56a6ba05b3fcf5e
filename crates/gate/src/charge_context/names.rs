//! The names of counters, as `tollgate look` takes them: `jwt.org:acme`, or all values of a key of
//! several parts. What may be a secret has a hash in its place.

use std::{borrow::Cow, fmt::Write};

use serde_json::Value;
use tollgate_identity::{Prefixes, counted_address};
use tollgate_limit::Hashing;
use tollgate_policy::KeyPart;

use super::keys::{KeyBuilder, chosen_value, counted_claim};

/// The name of the only counter of a limit for all requests.
pub(crate) const ALL: &str = "all";

/// What stands for a value that may be a secret. The digits are the first of those that the access
/// log has.
const HASHED: &str = "(hash ";

/// Digits of a hash: enough to tell a few hundred values apart.
const HASH_DIGITS: usize = 12;

/// What hashes that people see are made from, apart from all hashes that name counters: who reads
/// them learns no key.
#[repr(u8)]
enum Tag {
    Fact = b'F',
    Value = b'f',
}

impl KeyBuilder<'_, '_, '_> {
    /// Writes the name of the counter of a request that has all parts of the key.
    pub fn write_name(&self, to: &mut String) {
        match self.per.parts.as_slice() {
            [KeyPart::All] => return to.push_str(ALL),
            [KeyPart::Caller] if self.identity.caller.is_some() => {
                return self.write_value(&KeyPart::Caller, to);
            }
            _ => {}
        }
        let mut names = NameWriter::new(self.per.parts.len(), to);
        for part in &self.per.parts {
            match part {
                KeyPart::Claim(_) => names.begin(format_args!("{}{part}", self.whose())),
                _ => names.begin(format_args!("{part}")),
            }
            self.write_value(part, names.to);
        }
    }

    fn write_value(&self, part: &KeyPart, to: &mut String) {
        let policy = self.context.policy;
        let hashing = &self.context.identifier.hasher;
        let input = self.context.input;
        match part {
            KeyPart::Caller => {
                let Some(caller) = &self.identity.caller else { return };
                // Writing to a `String` never fails.
                let _ = write!(to, "{}", caller.name(&policy.identity));
            }
            KeyPart::ClientIp => {
                let prefixes = Prefixes { ipv4: self.per.ipv4_prefix, ipv6: self.per.ipv6_prefix };
                let _ = write!(to, "{}", counted_address(input.client.address, prefixes));
            }
            KeyPart::Claim(name) => {
                let Some(claim) = self.claim(name).map(counted_claim) else { return };
                let is_private =
                    policy.facts.iter().any(|own| own.source == *part && own.is_hashed);
                match is_private {
                    true => write_hash(hashing, part, claim.to_string().as_bytes(), to),
                    false => to.push_str(&claim_in_name(claim)),
                }
            }
            _ if part.may_be_secret() => {
                let value = match part {
                    KeyPart::Body(_) => self.value(part),
                    _ => chosen_value(part, input.client.headers).ok().flatten(),
                };
                if let Some(value) = value {
                    write_hash(hashing, part, &value, to);
                }
            }
            _ => to.push_str(&String::from_utf8_lossy(&self.value(part).unwrap_or_default())),
        }
    }

    /// Whose word a claim is, as a name has it: `main/`, or nothing where only one issuer has
    /// tokens.
    fn whose(&self) -> String {
        let Some(known) = &self.identity.token else { return String::new() };
        let tenant = known.token.tenant.as_ref().map(|tenant| &*tenant.name);
        self.context.policy.identity.whose(known.token.issuer, tenant).to_string()
    }
}

/// Writes the name of a counter that a program has named by these parts and values.
pub fn write_key_name<'v>(
    parts: impl ExactSizeIterator<Item = (&'v KeyPart, &'v [u8])>,
    hashing: &Hashing,
    to: &mut String,
) {
    let mut names = NameWriter::new(parts.len(), to);
    for (part, value) in parts {
        names.begin(format_args!("{part}"));
        match part.may_be_secret() {
            true => write_hash(hashing, part, value, names.to),
            false => names.to.push_str(&String::from_utf8_lossy(value)),
        }
    }
}

/// A claim as a name has it: a text that would be read as a number is in quotes.
pub(crate) fn claim_in_name(claim: &Value) -> Cow<'_, str> {
    match claim {
        Value::String(text) if claim_of_name(text) == *claim => Cow::Borrowed(text),
        _ => Cow::Owned(claim.to_string()),
    }
}

/// The claim that a name has: a number, a truth value or a text in quotes as JSON writes them, or
/// else a text.
pub(crate) fn claim_of_name(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::String(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

/// Whether a name has a hash in the place of this value, so that no counter can be found by it.
pub(crate) fn is_hash_in_name(value: &str) -> bool {
    let digits = value.strip_prefix(HASHED).and_then(|rest| rest.strip_suffix(')'));
    digits.is_some_and(|digits| {
        digits.len() == HASH_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// The hash that people see of a value that may be a secret, of what policies call `name`.
pub(crate) fn hash_fact(hashing: &Hashing, name: &str, value: &[u8]) -> u128 {
    hashing.hash([(Tag::Fact as u8, name.as_bytes()), (Tag::Value as u8, value)])
}

fn write_hash(hashing: &Hashing, part: &KeyPart, value: &[u8], to: &mut String) {
    to.push_str(&hash_in_name(hashing, part, value));
}

/// What a name has in the place of a value that may be a secret.
pub(crate) fn hash_in_name(hashing: &Hashing, part: &KeyPart, value: &[u8]) -> String {
    let digits = format!("{:032x}", hash_fact(hashing, &part.to_string(), value));
    format!("{HASHED}{digits:.HASH_DIGITS$})")
}

/// Writes what comes before each value.
struct NameWriter<'t> {
    to: &'t mut String,
    /// What is between a part and its value.
    sign: char,
}

impl NameWriter<'_> {
    fn new(parts: usize, to: &mut String) -> NameWriter<'_> {
        NameWriter { to, sign: if parts == 1 { ':' } else { '=' } }
    }

    fn begin(&mut self, part: std::fmt::Arguments<'_>) {
        if !self.to.is_empty() {
            self.to.push(',');
        }
        let _ = write!(self.to, "{part}{}", self.sign);
    }
}
