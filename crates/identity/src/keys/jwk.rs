//! JSON Web Keys (RFC 7517, RFC 7518 section 6, RFC 8037 section 2).
//!
//! A set is read key by key, so that one unknown or malformed key does not invalidate the others.

use base64::{
    Engine,
    engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD},
};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{Algorithm, KeyProblem, MAX_KID_BYTES, material::KeyMaterial};
use crate::{claims::parse_object, credential::BASE64, lenient::Deviation};

/// A set, or a single key where a set was expected.
#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    keys: Option<Vec<&'a RawValue>>,
    kty: Option<&'a RawValue>,
}

/// A key that has passed every check and has no algorithm yet.
pub(super) struct Jwk {
    pub(super) kid: Option<String>,
    pub(super) algorithm: Option<Algorithm>,
    pub(super) material: KeyMaterial,
}

/// The texts of the keys in a document. None: it is neither a set nor a key.
pub(super) fn split(json: &[u8]) -> Option<Vec<&[u8]>> {
    let document: Document<'_> = serde_json::from_slice(json).ok()?;
    match document {
        Document { keys: Some(keys), .. } => {
            Some(keys.into_iter().map(|key| key.get().as_bytes()).collect())
        }
        Document { kty: Some(_), .. } => Some(vec![json]),
        Document { .. } => None,
    }
}

/// Reads one key. Its `kid` is returned even for a key that is refused, to name it in a report.
pub(super) fn parse(
    json: &[u8],
    lenient: &[Deviation],
) -> (Option<String>, Result<Jwk, KeyProblem>) {
    //= rfc7517#section-4
    //# JWK parsers MUST either reject JWKs with duplicate member names or use a JSON parser that
    //# returns only the lexically last duplicate member name
    let Ok(members) = parse_object(json) else { return (None, Err(KeyProblem::Malformed)) };
    let members = Members { members, lenient };
    let kid = match members.text("kid") {
        Ok(kid) => kid,
        Err(problem) => return (None, Err(problem)),
    };
    if kid.is_some_and(|kid| kid.len() > MAX_KID_BYTES) {
        return (None, Err(KeyProblem::LongKid));
    }
    let kid = kid.map(str::to_owned);
    (kid.clone(), members.key(kid))
}

struct Members<'l> {
    members: Map<String, Value>,
    lenient: &'l [Deviation],
}

impl Members<'_> {
    fn key(&self, kid: Option<String>) -> Result<Jwk, KeyProblem> {
        self.check_purpose()?;
        //= rfc7517#section-4
        //# if not understood by implementations encountering them, they MUST be ignored
        let algorithm = self.text("alg")?.map(str::parse).transpose();
        let algorithm = algorithm.map_err(|_| KeyProblem::Unsupported)?;
        //= rfc7517#section-4.1
        //# This member MUST be present in a JWK
        let kty = self.text("kty")?.ok_or(KeyProblem::Missing("kty"))?;
        if kty != "oct" && ["d", "p", "q", "dp", "dq", "qi", "oth"].iter().any(|m| self.has(m)) {
            return Err(KeyProblem::Private);
        }
        Ok(Jwk { kid, algorithm, material: self.material(kty)? })
    }

    /// Refuses a key for encryption, or for signing only (RFC 7517 sections 4.2 and 4.3).
    fn check_purpose(&self) -> Result<(), KeyProblem> {
        match self.text("use")? {
            None | Some("sig") => {}
            Some("jwt-svid") if self.allows(Deviation::SpiffeUse) => {}
            Some(_) => return Err(KeyProblem::Purpose),
        }
        match self.members.get("key_ops") {
            None => Ok(()),
            Some(Value::Array(operations)) if operations.iter().all(Value::is_string) => {
                //= rfc7517#section-4.3
                //# if both are used, the information they convey MUST be consistent
                let verifies = operations.iter().any(|operation| operation == "verify");
                if verifies { Ok(()) } else { Err(KeyProblem::Purpose) }
            }
            Some(_) => Err(KeyProblem::WrongType("key_ops")),
        }
    }

    fn material(&self, kty: &str) -> Result<KeyMaterial, KeyProblem> {
        match (kty, self.text("crv")?) {
            ("oct", _) => self.bytes("k").map(KeyMaterial::Secret),
            ("RSA", _) => KeyMaterial::rsa(&self.bytes("n")?, &self.bytes("e")?),
            ("EC", Some("P-256")) => KeyMaterial::p256(self.point(32)?),
            ("EC", Some("P-384")) => KeyMaterial::p384(self.point(48)?),
            ("OKP", Some("Ed25519")) => {
                let point = self.bytes("x")?;
                if point.len() != 32 {
                    return Err(KeyProblem::NotOnCurve);
                }
                KeyMaterial::ed25519(point)
            }
            _ => Err(KeyProblem::Unsupported),
        }
    }

    /// The uncompressed point of SEC 1 section 2.3.3. Each coordinate has its full length.
    fn point(&self, length: usize) -> Result<Vec<u8>, KeyProblem> {
        let x = self.bytes("x")?;
        let y = self.bytes("y")?;
        if x.len() != length || y.len() != length {
            return Err(KeyProblem::NotOnCurve);
        }
        Ok([&[4], x.as_slice(), &y].concat())
    }

    fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    fn text(&self, name: &'static str) -> Result<Option<&str>, KeyProblem> {
        match self.members.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(KeyProblem::WrongType(name)),
        }
    }

    fn bytes(&self, name: &'static str) -> Result<Vec<u8>, KeyProblem> {
        use Deviation::{JwksBase64, JwksPadding};
        let text = self.text(name)?.ok_or(KeyProblem::Missing(name))?;
        let as_padded = || URL_SAFE.decode(text).ok().filter(|_| self.allows(JwksPadding));
        let is_base64 =
            self.allows(JwksBase64) && (self.allows(JwksPadding) || !text.ends_with('='));
        let as_base64 = || BASE64.decode(text).ok().filter(|_| is_base64);
        let bytes = URL_SAFE_NO_PAD.decode(text).ok().or_else(as_padded).or_else(as_base64);
        bytes.ok_or(KeyProblem::NotBase64url(name))
    }

    fn allows(&self, deviation: Deviation) -> bool {
        self.lenient.contains(&deviation)
    }
}
