//! Each row is an attack that some verifier has once let through.

mod claims;
mod origins;
mod refusals;

use std::{fmt::Write, sync::OnceLock, time::Duration};

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    signature::{KeyPair, RsaKeyPair},
};
use proptest::prelude::*;
use tollgate_keyword::Keyword;

use super::*;
use crate::{
    claim_rules::ClaimRules,
    iss::IssuerClaim,
    issuer::{IssuerKeys, KeyHints},
    keys::{der, pem},
    sign::{SigningKey, tests::ec_pem},
};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const ISS: &str = "https://id.example.com/";
const HEADER: &str = r#"{"alg":"EdDSA","kid":"k1"}"#;
const PAYLOAD: &str = r#"{"iss":"https://id.example.com/","sub":"42","exp":1700000300}"#;

/// An issuer with one Ed25519 key, named k1, and its signing key.
struct Fixture {
    key: SigningKey,
    issuer: Issuer,
    /// The public key, as PEM and as JWK.
    pem: String,
    jwk: String,
}

impl Fixture {
    fn new() -> Fixture {
        let (key, pem) = SigningKey::generate_ed25519().unwrap();
        let jwk = ed25519_jwk(&pem, "k1");
        let issuer = issuer(ISS, KeySet::from_jwks(jwk.as_bytes(), &[], &[]).unwrap().0);
        Fixture { key, issuer, pem, jwk }
    }

    /// One fixture for all tests that need no second key.
    fn shared() -> &'static Fixture {
        static SHARED: OnceLock<Fixture> = OnceLock::new();
        SHARED.get_or_init(Fixture::new)
    }

    fn token(&self, header: &str, payload: &str) -> String {
        self.key.sign_text(header, payload).unwrap()
    }

    fn verify(&self, token: &str) -> Result<VerifiedToken, TokenError> {
        verify(token.as_bytes(), std::slice::from_ref(&self.issuer), NOW)
    }

    fn refuses_header(&self, header: &str, expected: TokenError) {
        let result = self.verify(&self.token(header, PAYLOAD));
        assert_eq!(result.map(|_| ()), Err(expected), "header {header}");
    }
}

/// Verifies a token by the keys and rules of the issuer that it names.
pub(crate) fn verify(
    token: &[u8],
    issuers: &[Issuer],
    now: Timestamp,
) -> Result<VerifiedToken, TokenError> {
    check(token, issuers, now).map_err(|refusal| refusal.error)
}

/// The same, with all that the log is told.
fn check(token: &[u8], issuers: &[Issuer], now: Timestamp) -> Result<VerifiedToken, TokenRefusal> {
    let unverified = Unverified::read(token, issuers, None)?;
    let issuer = &issuers[unverified.issuer];
    unverified.verify(issuer, issuer.keys.fixed().unwrap(), now)
}

pub(crate) fn issuer(name: &str, keys: KeySet) -> Issuer {
    Issuer {
        name: "id".into(),
        issuer: name.into(),
        claim: IssuerClaim::Exact,
        from: Vec::new(),
        claims: ClaimRules::default(),
        types: Vec::new(),
        lenient: Vec::new(),
        key_hints: KeyHints::Reject,
        leeway: Duration::from_secs(60),
        max_age: None,
        max_lifetime: None,
        require_exp: true,
        keys: IssuerKeys::Fixed(keys.into()),
    }
}

fn ed25519_jwk(pem: &str, kid: &str) -> String {
    let der = pem::blocks(pem.as_bytes()).unwrap().remove(0).der;
    let x = URL_SAFE_NO_PAD.encode(&der[der.len() - 32..]);
    format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"{kid}","x":"{x}"}}"#)
}

/// The private and the public key in PEM, generated once since that is slow.
fn rsa() -> &'static (String, String) {
    static RSA: OnceLock<(String, String)> = OnceLock::new();
    RSA.get_or_init(|| {
        let pair = RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        let private: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let public = pem::encode("RSA PUBLIC KEY", pair.public_key().as_ref());
        (pem::encode("PRIVATE KEY", private.as_ref()), public)
    })
}

/// A key that signs with `algorithm`, and the keys that verify it.
fn pair(algorithm: Algorithm) -> (SigningKey, KeySet) {
    if algorithm.is_symmetric() {
        let secret = [7; 64];
        let key = SigningKey::from_secret(&secret, algorithm).unwrap();
        return (key, KeySet::from_secret(&secret, &[algorithm]).unwrap());
    }
    let (private, public) = match algorithm {
        Algorithm::ES256 | Algorithm::ES384 => ec_pem(algorithm),
        Algorithm::EdDSA => {
            let (key, public) = SigningKey::generate_ed25519().unwrap();
            return (key, KeySet::from_pem(public.as_bytes(), &[]).unwrap());
        }
        _ => rsa().clone(),
    };
    let key = SigningKey::from_pem(private.as_bytes(), Some(algorithm)).unwrap();
    (key, KeySet::from_pem(public.as_bytes(), &[algorithm]).unwrap())
}

/// `PAYLOAD` with `members` in place of its `exp`.
fn payload_with(members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    format!(r#"{{"iss":"{ISS}"{comma}{members}}}"#)
}

#[test]
fn a_valid_token_yields_its_claims_and_issuer() {
    let fixture = Fixture::shared();
    let others = Issuer { issuer: "https://other.example/".into(), ..Fixture::new().issuer };
    let token = fixture.token(HEADER, PAYLOAD);
    let verified = verify(token.as_bytes(), &[others, fixture.issuer.clone()], NOW).unwrap();
    assert_eq!(verified.issuer, 1);
    assert_eq!(verified.claims.get("sub"), Some(&"42".into()));
    assert_eq!(verified.expires_at(), Some(Timestamp::from_secs(1_700_000_360)));
}

#[test]
fn every_algorithm_verifies_its_own_tokens_and_no_others() {
    for algorithm in Algorithm::all() {
        let (key, keys) = pair(algorithm);
        let issuers = [issuer(ISS, keys)];
        for named in Algorithm::all() {
            let token = key.sign_text(&format!(r#"{{"alg":"{named}"}}"#), PAYLOAD).unwrap();
            let result = verify(token.as_bytes(), &issuers, NOW).map(|_| ());
            let expected =
                if named == algorithm { Ok(()) } else { Err(TokenError::AlgorithmNotAllowed) };
            assert_eq!(result, expected, "{algorithm} key, header {named}");
        }
        let other = SigningKey::generate_ed25519().unwrap().0;
        let forged = other.sign_text(&format!(r#"{{"alg":"{algorithm}"}}"#), PAYLOAD).unwrap();
        let result = verify(forged.as_bytes(), &issuers, NOW).map(|_| ());
        assert_eq!(result, Err(TokenError::WrongSignature), "{algorithm}, signed by another key");
    }
}

#[test]
fn one_rsa_key_does_not_verify_a_signature_of_another_rsa_algorithm() {
    let (private, public) = rsa();
    let all = [Algorithm::RS256, Algorithm::RS384, Algorithm::RS512];
    let all = [all, [Algorithm::PS256, Algorithm::PS384, Algorithm::PS512]].concat();
    for used in all.clone() {
        let key = SigningKey::from_pem(private.as_bytes(), Some(used)).unwrap();
        for named in all.iter().filter(|named| **named != used) {
            let issuers = [issuer(ISS, KeySet::from_pem(public.as_bytes(), &[*named]).unwrap())];
            let token = key.sign_text(&format!(r#"{{"alg":"{named}"}}"#), PAYLOAD).unwrap();
            let result = verify(token.as_bytes(), &issuers, NOW).map(|_| ());
            assert_eq!(result, Err(TokenError::WrongSignature), "{used} signed, {named} named");
        }
    }
}

#[test]
fn alg_is_exactly_an_allowed_name() {
    let fixture = Fixture::shared();
    for alg in [
        "null",
        "true",
        "1",
        "[]",
        "{}",
        r#"["EdDSA"]"#,
        r#"{"EdDSA":1}"#,
        r#""""#,
        r#""none""#,
        r#""None""#,
        r#""nOnE""#,
        r#""NONE""#,
        r#""none ""#,
        r#"" none""#,
        r#""none\u0000""#,
        r#""EdDSA ""#,
        r#"" EdDSA""#,
        r#""EdDSA\u0000""#,
        r#""eddsa""#,
        r#""EDDSA""#,
        r#""Ed25519""#,
        r#""HS256""#,
        r#""hs256""#,
        r#""RS256""#,
        r#""ES256""#,
        r#""ES512""#,
        r#""ES256K""#,
        r#""dir""#,
        r#""RSA-OAEP""#,
        r#""EdDSA,none""#,
    ] {
        let header = format!(r#"{{"alg":{alg},"kid":"k1"}}"#);
        fixture.refuses_header(&header, TokenError::AlgorithmNotAllowed);
    }
    fixture.refuses_header(r#"{"kid":"k1"}"#, TokenError::AlgorithmNotAllowed);
    fixture.refuses_header(r#"{"ALG":"EdDSA","kid":"k1"}"#, TokenError::AlgorithmNotAllowed);
}

#[test]
fn a_public_key_is_not_an_hmac_secret() {
    let (_, public) = rsa();
    let der = pem::blocks(public.as_bytes()).unwrap().remove(0).der;
    let fixture = Fixture::shared();
    let secret_issuer = {
        let keys = KeySet::from_secret(&[9; 32], &[]).unwrap();
        issuer("https://hmac.example/", keys)
    };
    for (what, secret) in [
        ("PEM", public.as_bytes()),
        ("PEM without its last line end", public.trim_end().as_bytes()),
        ("DER", &der),
        ("JWK", fixture.jwk.as_bytes()),
        ("Ed25519 PEM", fixture.pem.as_bytes()),
    ] {
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
        for keys in [
            KeySet::from_pem(public.as_bytes(), &[]).unwrap(),
            KeySet::from_pem(fixture.pem.as_bytes(), &[]).unwrap(),
        ] {
            let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
            let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(PAYLOAD));
            let tag = aws_lc_rs::hmac::sign(&key, message.as_bytes());
            let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag));
            // Also beside an issuer that does allow HS256.
            for issuers in [
                vec![issuer(ISS, keys.clone())],
                vec![secret_issuer.clone(), issuer(ISS, keys.clone())],
            ] {
                let result = verify(token.as_bytes(), &issuers, NOW).map(|_| ());
                assert_eq!(result, Err(TokenError::AlgorithmNotAllowed), "{what} as the secret");
            }
        }
    }
}

#[test]
fn kid_is_a_short_string_and_only_a_name() {
    let fixture = Fixture::shared();
    for (kid, expected) in [
        (r#""k2""#.to_owned(), TokenError::UnknownKey),
        (r#""K1""#.into(), TokenError::UnknownKey),
        (r#""k1 ""#.into(), TokenError::UnknownKey),
        (r#""k1\u0000""#.into(), TokenError::UnknownKey),
        (r#""""#.into(), TokenError::UnknownKey),
        (r#""../../../../dev/null""#.into(), TokenError::UnknownKey),
        (r#""' OR 1=1 --""#.into(), TokenError::UnknownKey),
        (r#""__proto__""#.into(), TokenError::UnknownKey),
        (format!("{:?}", "k".repeat(128)), TokenError::UnknownKey),
        (format!("{:?}", "k".repeat(129)), TokenError::MalformedHeader),
        ("null".into(), TokenError::MalformedHeader),
        ("1".into(), TokenError::MalformedHeader),
        ("true".into(), TokenError::MalformedHeader),
        (r#"["k1"]"#.into(), TokenError::MalformedHeader),
        ("{}".into(), TokenError::MalformedHeader),
    ] {
        fixture.refuses_header(&format!(r#"{{"alg":"EdDSA","kid":{kid}}}"#), expected);
    }
}

/// An issuer with the keys of all these fixtures, each with a `kid` of its own.
fn issuer_of(fixtures: &[&Fixture]) -> Issuer {
    let named = |(at, fixture): (usize, &&Fixture)| {
        fixture.jwk.replace(r#""kid":"k1""#, &format!(r#""kid":"k{}""#, at + 1))
    };
    let keys: Vec<String> = fixtures.iter().enumerate().map(named).collect();
    let set = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
    issuer(ISS, KeySet::from_jwks(set.as_bytes(), &[], &[]).unwrap().0)
}

#[test]
fn a_token_without_kid_is_tried_with_each_key_that_fits_up_to_four() {
    let fixtures: Vec<Fixture> = (0..5).map(|_| Fixture::new()).collect();
    let fixtures: Vec<&Fixture> = fixtures.iter().collect();
    let header = r#"{"alg":"EdDSA"}"#;
    let four = [issuer_of(&fixtures[..4])];
    for fixture in &fixtures[..4] {
        assert!(verify(fixture.token(header, PAYLOAD).as_bytes(), &four, NOW).is_ok());
    }
    let result = |token: &str, issuers| verify(token.as_bytes(), issuers, NOW).map(|_| ());
    let other = fixtures[4].token(header, PAYLOAD);
    assert_eq!(result(&other, &four), Err(TokenError::WrongSignature));
    let five = [issuer_of(&fixtures)];
    assert_eq!(result(&other, &five), Err(TokenError::AmbiguousKey));
    assert_eq!(result(&fixtures[0].token(HEADER, PAYLOAD), &five), Ok(()));
    // A `kid` names the one key that may have signed.
    let named_wrongly = fixtures[1].token(HEADER, PAYLOAD);
    assert_eq!(result(&named_wrongly, &four), Err(TokenError::WrongSignature));
}

#[test]
fn padded_token_is_taken_of_an_issuer_that_may_pad_and_of_no_other() {
    let fixture = Fixture::shared();
    let padded = |text: &str| format!("{text}{}", "=".repeat((4 - text.len() % 4) % 4));
    let header = padded(&URL_SAFE_NO_PAD.encode(HEADER));
    let payload = padded(&URL_SAFE_NO_PAD.encode(PAYLOAD));
    assert!(header.ends_with('='));
    let signed = fixture.key.sign_message(&format!("{header}.{payload}")).unwrap();
    let token = format!("{signed}{}", "=".repeat(2));
    let mut lenient = fixture.issuer.clone();
    lenient.lenient = vec![Deviation::TokenPadding];
    let elsewhere = Issuer { issuer: "https://other.example/".into(), ..lenient.clone() };
    let result =
        |token: &str, issuers: &[Issuer]| verify(token.as_bytes(), issuers, NOW).map(|_| ());
    assert_eq!(result(&token, &[lenient.clone()]), Ok(()));
    assert!(!super::payload(token.as_bytes()).unwrap().ends_with('='));
    for issuers in [vec![fixture.issuer.clone()], vec![fixture.issuer.clone(), elsewhere]] {
        assert_eq!(result(&token, &issuers), Err(TokenError::Malformed));
    }
    // The signature is of the text as it was sent.
    let stripped = token.replace('=', "");
    assert_eq!(result(&stripped, &[lenient.clone()]), Err(TokenError::WrongSignature));
    for mutant in [format!("{token}="), token.replace("=.", "==."), token.replace("=.", "=.=")] {
        assert_eq!(result(&mutant, &[lenient.clone()]), Err(TokenError::Malformed), "{mutant}");
    }
}

#[test]
fn a_key_without_kid_verifies_tokens_with_any_kid() {
    let fixture = Fixture::new();
    let issuers = [issuer(ISS, KeySet::from_pem(fixture.pem.as_bytes(), &[]).unwrap())];
    for header in [HEADER, r#"{"alg":"EdDSA"}"#, r#"{"alg":"EdDSA","kid":"2024-05"}"#] {
        let token = fixture.token(header, PAYLOAD);
        assert!(verify(token.as_bytes(), &issuers, NOW).is_ok(), "{header}");
    }
}

#[test]
fn crit_is_refused_with_any_content() {
    let fixture = Fixture::shared();
    for crit in [
        "[]",
        r#"["exp"]"#,
        r#"["x"]"#,
        r#"["b64"]"#,
        r#"["alg"]"#,
        r#""exp""#,
        "null",
        "{}",
        "1",
        "false",
        "[null]",
    ] {
        let header = format!(r#"{{"alg":"EdDSA","kid":"k1","crit":{crit}}}"#);
        fixture.refuses_header(&header, TokenError::CriticalExtension);
    }
    let unencoded = r#"{"alg":"EdDSA","kid":"k1","crit":["b64"],"b64":false}"#;
    fixture.refuses_header(unencoded, TokenError::CriticalExtension);
    // Without `crit` the member has no meaning, and the payload is read as base64url.
    let ignored = fixture.token(r#"{"alg":"EdDSA","kid":"k1","b64":false}"#, PAYLOAD);
    assert!(fixture.verify(&ignored).is_ok());
}

#[test]
fn a_header_may_not_contain_a_key() {
    let fixture = Fixture::shared();
    let attacker = Fixture::new();
    for name in ["jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256"] {
        let jwk = attacker.jwk.as_str();
        for value in [jwk, "null", r#""""#, r#""http://127.0.0.1:9/""#, "1", "true", "[]", "{}"] {
            let header = format!(r#"{{"alg":"EdDSA","kid":"k1","{name}":{value}}}"#);
            fixture.refuses_header(&header, TokenError::KeyHint);
            let mut lenient = fixture.issuer.clone();
            lenient.key_hints = KeyHints::Ignore;
            let issuers = [lenient];
            let good = fixture.token(&header, PAYLOAD);
            assert!(verify(good.as_bytes(), &issuers, NOW).is_ok(), "ignored: {header}");
            let forged = attacker.token(&header, PAYLOAD);
            let result = verify(forged.as_bytes(), &issuers, NOW).map(|_| ());
            assert_eq!(result, Err(TokenError::WrongSignature), "own key: {header}");
        }
    }
}

#[test]
fn typ_is_compared_as_a_media_type_when_it_is_expected() {
    let fixture = Fixture::shared();
    let mut strict = fixture.issuer.clone();
    strict.types = vec!["at+jwt".into(), "application/Custom+JWT".into()];
    let issuers = [strict];
    for (typ, expected) in [
        (Some(r#""at+jwt""#), Ok(())),
        (Some(r#""AT+JWT""#), Ok(())),
        (Some(r#""application/at+jwt""#), Ok(())),
        (Some(r#""Application/At+Jwt""#), Ok(())),
        (Some(r#""custom+jwt""#), Ok(())),
        (Some(r#""JWT""#), Err(TokenError::UnexpectedType)),
        (Some(r#""""#), Err(TokenError::UnexpectedType)),
        (Some(r#""at+jwt ""#), Err(TokenError::UnexpectedType)),
        (Some(r#""application/""#), Err(TokenError::UnexpectedType)),
        (Some(r#""application/application/at+jwt""#), Err(TokenError::UnexpectedType)),
        (Some(r#""text/at+jwt""#), Err(TokenError::UnexpectedType)),
        (Some(r#""applicatio\u00e9/at+jwt""#), Err(TokenError::UnexpectedType)),
        (Some("null"), Err(TokenError::MalformedHeader)),
        (Some("1"), Err(TokenError::MalformedHeader)),
        (Some(r#"["at+jwt"]"#), Err(TokenError::MalformedHeader)),
        (None, Err(TokenError::UnexpectedType)),
    ] {
        let member = typ.map_or_else(String::new, |typ| format!(r#","typ":{typ}"#));
        let token = fixture.token(&format!(r#"{{"alg":"EdDSA","kid":"k1"{member}}}"#), PAYLOAD);
        assert_eq!(verify(token.as_bytes(), &issuers, NOW).map(|_| ()), expected, "{typ:?}");
        if expected != Err(TokenError::MalformedHeader) {
            assert!(fixture.verify(&token).is_ok(), "{typ:?} where none is expected");
        }
    }
}

#[test]
fn headers_and_payloads_are_unambiguous_objects() {
    let fixture = Fixture::shared();
    for header in [
        "",
        "null",
        "[]",
        "\"EdDSA\"",
        "{",
        r#"{"alg":"EdDSA","kid":"k1"}x"#,
        r#"{"alg":"none","alg":"EdDSA"}"#,
        r#"{"alg":"EdDSA","kid":"k1","kid":"k1"}"#,
        r#"{"alg":"EdDSA","a":{"b":1,"b":1}}"#,
        r#"{"alg":"EdDSA","a":1e999}"#,
        "\u{feff}{\"alg\":\"EdDSA\"}",
    ] {
        let result = fixture.verify(&fixture.token(header, PAYLOAD)).map(|_| ());
        let empty = header.is_empty();
        let expected = if empty { TokenError::Malformed } else { TokenError::MalformedHeader };
        assert_eq!(result, Err(expected), "header {header}");
    }
    for payload in [
        "null".to_owned(),
        "[]".into(),
        "\"a\"".into(),
        "{".into(),
        format!("{PAYLOAD}{PAYLOAD}"),
        payload_with(r#""exp":1700000300,"sub":"a","sub":"b""#),
        payload_with(r#""exp":1700000300,"a":{"b":1,"b":1}"#),
        payload_with(r#""exp":1e999"#),
        payload_with(&format!(r#""exp":1700000300,"a":{}{}"#, "[".repeat(16), "]".repeat(16))),
        payload_with(&(0..257).fold(r#""exp":1"#.to_owned(), |mut members, n| {
            write!(members, ",\"m{n}\":0").unwrap();
            members
        })),
    ] {
        let result = fixture.verify(&fixture.token(HEADER, &payload)).map(|_| ());
        assert_eq!(result, Err(TokenError::MalformedPayload), "payload {payload}");
    }
}

#[test]
fn other_spellings_of_a_token_are_malformed() {
    let fixture = Fixture::shared();
    let token = fixture.token(HEADER, PAYLOAD);
    let parts: Vec<_> = token.split('.').collect();
    let [header, payload, signature] = parts[..] else { panic!("three segments: {token}") };
    // 64 bytes of signature leave four spare bits in the last character.
    let spare = |last: char| format!("{}{last}", &token[..token.len() - 1]);
    let value = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let last = value.iter().position(|byte| *byte == token.as_bytes()[token.len() - 1]).unwrap();
    let json =
        format!(r#"{{"payload":"{payload}","protected":"{header}","signature":"{signature}"}}"#);
    let general = format!(
        r#"{{"payload":"{payload}","signatures":[{{"protected":"{header}","signature":"{signature}"}}]}}"#
    );
    for (what, mutant) in [
        ("nothing", String::new()),
        ("one dot", ".".into()),
        ("two dots", "..".into()),
        ("one segment", header.into()),
        ("two segments", format!("{header}.{payload}")),
        ("four segments", format!("{token}.{signature}")),
        ("five segments, a JWE", format!("{header}.{payload}.{signature}.{payload}.{header}")),
        ("no header", format!(".{payload}.{signature}")),
        ("no payload", format!("{header}..{signature}")),
        ("no signature", format!("{header}.{payload}.")),
        ("two dots in a row", format!("{header}..{payload}.{signature}")),
        ("a leading dot", format!(".{token}")),
        ("a trailing dot", format!("{token}.")),
        ("flattened JSON", json),
        ("general JSON", general),
        ("quotes", format!("\"{token}\"")),
        ("a leading space", format!(" {token}")),
        ("a trailing space", format!("{token} ")),
        ("a trailing line end", format!("{token}\n")),
        ("a line end in the middle", format!("{header}.{payload}\n.{signature}")),
        ("a tab", format!("{header}.\t{payload}.{signature}")),
        ("a NUL", format!("{token}\0")),
        ("padding", format!("{token}==")),
        ("padding of the header", format!("{header}=.{payload}.{signature}")),
        ("percent escapes", token.replacen('.', "%2E", 1)),
        ("the standard alphabet", format!("{header}.{payload}.{}+/", &signature[..84])),
        ("another dot", token.replace('.', "\u{2024}")),
        ("a full-width letter", format!("{token}\u{ff21}")),
        ("spare bits", spare(char::from(value[last ^ 1]))),
        ("more spare bits", spare(char::from(value[last ^ 8]))),
        ("an impossible length", format!("{header}.{payload}A.{signature}AAA")),
        ("a scheme", format!("Bearer {token}")),
    ] {
        assert_eq!(fixture.verify(&mutant).map(|_| ()), Err(TokenError::Malformed), "{what}");
    }
    assert_eq!(
        verify(b"\xff\xfe.\x80.\x80", std::slice::from_ref(&fixture.issuer), NOW).map(|_| ()),
        Err(TokenError::Malformed)
    );
    let long = format!("{token}{}", "A".repeat(MAX_TOKEN_BYTES));
    assert_eq!(fixture.verify(&long).map(|_| ()), Err(TokenError::TooLong));
}

#[test]
fn a_token_of_the_largest_size_is_read() {
    let fixture = Fixture::shared();
    let padding = |bytes| payload_with(&format!(r#""exp":1700000300,"p":"{}""#, "p".repeat(bytes)));
    // Grows three bytes at a time, as base64url does, until the next step would be too long.
    let overhead = fixture.token(HEADER, &padding(0)).len();
    let bytes = (MAX_TOKEN_BYTES - overhead) / 4 * 3;
    assert!(fixture.verify(&fixture.token(HEADER, &padding(bytes))).is_ok());
    let longer = fixture.token(HEADER, &padding(bytes + 6));
    assert_eq!(fixture.verify(&longer).map(|_| ()), Err(TokenError::TooLong));
}

#[test]
fn signatures_are_of_the_jws_form_and_never_empty() {
    let issuers = |keys| [issuer(ISS, keys)];
    let (key, keys) = pair(Algorithm::ES256);
    let token = key.sign_text(r#"{"alg":"ES256"}"#, PAYLOAD).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let raw = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let integer = |bytes: &[u8]| der::tests::element(0x02, &[&[0], bytes].concat());
    let der = der::tests::element(0x30, &[integer(&raw[..32]), integer(&raw[32..])].concat());
    for (what, signature) in [
        ("DER", der),
        ("one byte less", raw[..63].to_vec()),
        ("one byte more", [&raw[..], &[0]].concat()),
        ("zeros", vec![0; 64]),
        ("r and s swapped", [&raw[32..], &raw[..32]].concat()),
        ("one byte", vec![0]),
    ] {
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
        let result = verify(token.as_bytes(), &issuers(keys.clone()), NOW).map(|_| ());
        assert_eq!(result, Err(TokenError::WrongSignature), "{what}");
    }

    let (key, keys) = pair(Algorithm::HS256);
    let token = key.sign_text(r#"{"alg":"HS256"}"#, PAYLOAD).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let raw = URL_SAFE_NO_PAD.decode(signature).unwrap();
    for length in 1..raw.len() {
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(&raw[..length]));
        let result = verify(token.as_bytes(), &issuers(keys.clone()), NOW).map(|_| ());
        assert_eq!(result, Err(TokenError::WrongSignature), "{length} bytes of an HMAC");
    }
}

#[test]
fn an_ed25519_signature_has_one_spelling() {
    // The order of the base point, little-endian: S + L verifies wherever S is not bounded.
    const L: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let fixture = Fixture::shared();
    let token = fixture.token(HEADER, PAYLOAD);
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let mut raw = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let mut carry = 0;
    for (byte, order) in raw[32..].iter_mut().zip(L) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        (*byte, carry) = (sum as u8, sum >> 8);
    }
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(raw));
    assert_eq!(fixture.verify(&token).map(|_| ()), Err(TokenError::WrongSignature));
}

#[test]
fn iss_selects_the_issuer_to_the_letter() {
    let fixture = Fixture::shared();
    for (iss, expected) in [
        (r#""https://id.example.com""#, TokenError::UnknownIssuer),
        (r#""https://id.example.com//""#, TokenError::UnknownIssuer),
        (r#""HTTPS://id.example.com/""#, TokenError::UnknownIssuer),
        (r#"" https://id.example.com/""#, TokenError::UnknownIssuer),
        (r#""https://id.example.com/\u0000""#, TokenError::UnknownIssuer),
        (r#""__proto__""#, TokenError::UnknownIssuer),
        (r#""""#, TokenError::UnknownIssuer),
        (r#""id""#, TokenError::UnknownIssuer),
        ("null", TokenError::MalformedClaim("iss")),
        ("1", TokenError::MalformedClaim("iss")),
        (r#"["https://id.example.com/"]"#, TokenError::MalformedClaim("iss")),
        (r#"{"a":"https://id.example.com/"}"#, TokenError::MalformedClaim("iss")),
    ] {
        let token = fixture.token(HEADER, &format!(r#"{{"iss":{iss},"exp":1700000300}}"#));
        assert_eq!(fixture.verify(&token).map(|_| ()), Err(expected), "iss {iss}");
    }
    let token = fixture.token(HEADER, r#"{"exp":1700000300}"#);
    assert_eq!(fixture.verify(&token).map(|_| ()), Err(TokenError::MissingClaim("iss")));
}

#[test]
fn the_key_of_one_issuer_does_not_sign_for_another() {
    let ours = Fixture::new();
    let theirs = Fixture::new();
    let mut other = theirs.issuer.clone();
    other.issuer = "https://other.example/".into();
    let issuers = [ours.issuer.clone(), other];
    let result = verify(theirs.token(HEADER, PAYLOAD).as_bytes(), &issuers, NOW);
    assert_eq!(result.map(|_| ()), Err(TokenError::WrongSignature), "same kid, other issuer");
    assert_eq!(verify(ours.token(HEADER, PAYLOAD).as_bytes(), &issuers, NOW).unwrap().issuer, 0);
}

#[test]
fn unknown_key_and_wrong_signature_have_one_description() {
    let fixture = Fixture::shared();
    let other = Fixture::new();
    let unknown = fixture.verify(&other.token(r#"{"alg":"EdDSA","kid":"k2"}"#, PAYLOAD));
    let wrong = fixture.verify(&other.token(HEADER, PAYLOAD));
    let unknown = unknown.unwrap_err();
    let wrong = wrong.unwrap_err();
    assert_eq!((unknown, wrong), (TokenError::UnknownKey, TokenError::WrongSignature));
    assert_eq!(unknown.description(), wrong.description());
}

#[test]
fn descriptions_are_valid_in_a_header() {
    use TokenError::*;
    for error in [
        TooLong,
        Malformed,
        MalformedHeader,
        AlgorithmNotAllowed,
        CriticalExtension,
        KeyHint,
        UnexpectedType,
        MalformedPayload,
        UnknownIssuer,
        UnknownKey,
        AmbiguousKey,
        WrongSignature,
        MissingClaim("exp"),
        MalformedClaim("exp"),
        WrongAudience,
        Expired,
        NotYetValid,
        TooOld,
    ] {
        // RFC 6750 section 3: no quote, no backslash, nothing outside of ASCII.
        let text = error.description();
        let is_allowed = |b: u8| matches!(b, 0x20 | 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        assert!(!text.is_empty() && text.bytes().all(is_allowed), "{error:?}: {text}");
    }
}

#[test]
fn token_with_a_changed_byte_is_refused() {
    let (key, keys) = pair(Algorithm::HS256);
    let issuers = [issuer(ISS, keys)];
    let mut token = key.sign_text(r#"{"alg":"HS256"}"#, PAYLOAD).unwrap().into_bytes();
    for index in 0..token.len() {
        let original = token[index];
        for byte in (0..=u8::MAX).filter(|byte| *byte != original) {
            token[index] = byte;
            assert!(verify(&token, &issuers, NOW).is_err(), "byte {index} as {byte:#x}");
        }
        token[index] = original;
    }
    assert!(verify(&token, &issuers, NOW).is_ok());
}

proptest! {
    #[test]
    fn prop_nothing_verifies_without_the_key(
        header in prop_oneof![Just(HEADER.to_owned()), ".{0,40}"],
        payload in prop_oneof![Just(PAYLOAD.to_owned()), ".{0,80}"],
        signature in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let header = encode(header.as_bytes());
        let payload = encode(payload.as_bytes());
        let token = format!("{header}.{payload}.{}", encode(&signature));
        prop_assert!(Fixture::shared().verify(&token).is_err());
    }

    #[test]
    fn prop_any_bytes_are_refused_without_a_panic(
        token in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'.'), b'A'..=b'z'], 0..200)
    ) {
        prop_assert!(verify(&token, &[Fixture::shared().issuer.clone()], NOW).is_err());
    }

    #[test]
    fn prop_a_segment_is_canonical_iff_it_is_what_encoding_gives(segment in "[A-Za-z0-9_=+-]{0,9}") {
        let decoded = URL_SAFE_NO_PAD.decode(&segment);
        prop_assert_eq!(is_canonical(&segment), !segment.is_empty() && decoded.is_ok());
        if let Ok(bytes) = decoded {
            prop_assert_eq!(URL_SAFE_NO_PAD.encode(bytes), segment);
        }
    }

    #[test]
    fn prop_time_is_checked_alike_at_first_and_later(
        exp in 1_699_999_000u64..1_700_001_000, nbf in 1_699_999_000u64..1_700_001_000,
        seconds in 1_699_999_000u64..1_700_001_000,
    ) {
        let fixture = Fixture::shared();
        let members = format!(r#""exp":{exp},"nbf":{nbf}"#);
        let token = fixture.token(HEADER, &payload_with(&members));
        let issuers = [fixture.issuer.clone()];
        let now = Timestamp::from_secs(seconds);
        let first = verify(token.as_bytes(), &issuers, now);
        prop_assert_eq!(first.is_ok(), seconds < exp + 60 && seconds + 60 >= nbf);
        // A later check has the same result, whenever the token was first verified.
        let between = Timestamp::from_secs(nbf);
        if let Ok(kept) = verify(token.as_bytes(), &issuers, between) {
            let kept = kept.is_current(now).map_err(|refusal| refusal.error);
            prop_assert_eq!(kept, first.map(|_| ()));
        }
    }
}
