//! Which key material is accepted, and the errors for the rest.

use std::sync::OnceLock;

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    rsa::KeySize,
    signature::{KeyPair, RsaKeyPair, RsaPublicKeyComponents},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tollgate_keyword::Keyword;

use super::*;
use crate::sign::{SigningKey, tests::ec_pem};

/// A public RSA key of 2048 bits in PKCS#1.
fn rsa() -> &'static [u8] {
    static RSA: OnceLock<Vec<u8>> = OnceLock::new();
    RSA.get_or_init(|| {
        RsaKeyPair::generate(KeySize::Rsa2048).unwrap().public_key().as_ref().to_vec()
    })
}

fn rsa_jwk() -> Value {
    let key = aws_lc_rs::rsa::PublicKey::from_der(rsa()).unwrap();
    let key = RsaPublicKeyComponents::<Vec<u8>>::from(&key);
    json!({ "kty": "RSA", "n": base64url(&key.n), "e": base64url(&key.e) })
}

fn ec_jwk(algorithm: Algorithm) -> Value {
    let der = der(&ec_pem(algorithm).1);
    let (curve, length) = if algorithm == Algorithm::ES256 { ("P-256", 32) } else { ("P-384", 48) };
    let (x, y) = der[der.len() - 2 * length..].split_at(length);
    json!({ "kty": "EC", "crv": curve, "x": base64url(x), "y": base64url(y) })
}

fn ed25519_jwk() -> Value {
    let der = der(&SigningKey::generate_ed25519().unwrap().1);
    json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(&der[der.len() - 32..]) })
}

fn der(pem: &str) -> Vec<u8> {
    pem::blocks(pem.as_bytes()).unwrap().remove(0).der
}

fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// `jwk` with one member set, or removed if it is set to null.
fn with(mut jwk: Value, name: &str, value: impl Into<Value>) -> Value {
    let members = jwk.as_object_mut().unwrap();
    match value.into() {
        Value::Null => members.remove(name),
        value => members.insert(name.into(), value),
    };
    jwk
}

fn algorithms(set: &KeySet) -> Vec<Algorithm> {
    set.keys.iter().map(|key| key.algorithm).collect()
}

/// The algorithm or the problem of `jwk` in a set beside a valid key.
fn result_for(jwk: &Value, allowed: &[Algorithm]) -> Result<Algorithm, KeyProblem> {
    let good = with(ed25519_jwk(), "kid", "good");
    let text = json!({ "keys": [jwk, good] }).to_string();
    let mut allowed = allowed.to_vec();
    if !allowed.is_empty() {
        allowed.push(Algorithm::EdDSA);
    }
    let (set, mut skipped) = KeySet::from_jwks(text.as_bytes(), &allowed, &[]).unwrap();
    assert_eq!(set.len() + skipped.len(), 2, "{jwk}");
    match skipped.pop() {
        None => Ok(set.keys[0].algorithm),
        Some(SkippedKey { index, problem, .. }) => {
            assert_eq!(index, 0, "{jwk}");
            Err(problem)
        }
    }
}

#[test]
fn a_secret_is_as_long_as_its_hash_and_has_one_algorithm() {
    use Algorithm::{ES256, HS256, HS384, HS512, RS256};
    let short = |algorithm, min| Err(KeyError::Key(KeyProblem::ShortSecret { algorithm, min }));
    for (bytes, allowed, expected) in [
        (0, vec![], short(HS256, 32)),
        (31, vec![], short(HS256, 32)),
        (32, vec![], Ok(vec![HS256])),
        (32, vec![HS256], Ok(vec![HS256])),
        (47, vec![HS384], short(HS384, 48)),
        (48, vec![HS384], Ok(vec![HS384])),
        (63, vec![HS512], short(HS512, 64)),
        (64, vec![HS512], Ok(vec![HS512])),
        (64, vec![HS256, HS512], Err(KeyError::SecretAlgorithm)),
        (64, vec![RS256], Err(KeyError::SecretAlgorithm)),
        (64, vec![HS256, ES256], Err(KeyError::SecretAlgorithm)),
    ] {
        let set = KeySet::from_secret(&vec![b's'; bytes], &allowed);
        assert_eq!(set.map(|set| algorithms(&set)), expected, "{bytes} bytes, {allowed:?}");
    }
}

#[test]
fn a_public_key_is_not_taken_for_a_secret() {
    let pem = format!("\n{}", ec_pem(Algorithm::ES256).1);
    let error = KeySet::from_secret(pem.as_bytes(), &[Algorithm::HS256]).unwrap_err();
    assert_eq!(error, KeyError::SecretIsPem);
}

#[test]
fn pem_has_public_keys_of_every_kind() {
    use Algorithm::{ES256, ES384, EdDSA, PS512, RS256};
    let ed25519 = SigningKey::generate_ed25519().unwrap().1;
    let pkcs1 = pem::encode("RSA PUBLIC KEY", rsa());
    let key = aws_lc_rs::rsa::PublicKey::from_der(rsa()).unwrap();
    let spki: PublicKeyX509Der<'_> = key.as_der().unwrap();
    let p256 = ec_pem(ES256).1;
    let p384 = ec_pem(ES384).1;
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let certificate = rcgen::CertificateParams::default().self_signed(&pair).unwrap().pem();
    for (what, pem, allowed, expected) in [
        ("PKCS#1", pkcs1.clone(), vec![], vec![RS256]),
        ("PKCS#1 for PSS", pkcs1.clone(), vec![PS512], vec![PS512]),
        ("RSA", pem::encode("PUBLIC KEY", spki.as_ref()), vec![], vec![RS256]),
        ("P-256", p256.clone(), vec![], vec![ES256]),
        ("P-384", p384, vec![ES256, ES384], vec![ES384]),
        ("a certificate", certificate, vec![], vec![ES384]),
        ("Ed25519", ed25519.clone(), vec![], vec![EdDSA]),
        ("three", p256 + &pkcs1 + &ed25519, vec![], vec![ES256, RS256, EdDSA]),
    ] {
        let set = KeySet::from_pem(pem.as_bytes(), &allowed).map(|set| algorithms(&set));
        assert_eq!(set, Ok(expected), "{what}");
    }
}

#[test]
fn unusable_pem_is_refused() {
    use Algorithm::{ES256, EdDSA, HS256, PS256, RS256};
    let (private, public) = ec_pem(ES256);
    let pkcs1 = pem::encode("RSA PUBLIC KEY", rsa());
    let private_der = der(&private);
    let integer = |bytes: &[u8]| der::tests::element(0x02, bytes);
    let small = [integer(&[&[0][..], &[0xff; 128]].concat()), integer(&[1, 0, 1])].concat();
    let small = pem::encode("RSA PUBLIC KEY", &der::tests::element(0x30, &small));
    let mut off_curve = der(&public);
    *off_curve.last_mut().unwrap() ^= 1;
    let mut weak = der(&SigningKey::generate_ed25519().unwrap().1);
    weak.splice(weak.len() - 32.., [0; 32]);
    let key = KeyError::Key;
    for (what, pem, allowed, expected) in [
        ("nothing", String::new(), vec![], KeyError::NoPemKey),
        ("text", "ssh-ed25519 AAAA".into(), vec![], KeyError::NoPemKey),
        ("a cut block", public[..80].into(), vec![], KeyError::NoPemKey),
        ("a request", pem::encode("CERTIFICATE REQUEST", &[48, 0]), vec![], KeyError::NoPemKey),
        ("no certificate", pem::encode("CERTIFICATE", &[48, 0]), vec![], KeyError::NoPemKey),
        ("PKCS#8", private.clone(), vec![], KeyError::PrivateKey),
        ("both halves", public.clone() + &private, vec![], KeyError::PrivateKey),
        ("SEC 1", pem::encode("EC PRIVATE KEY", &[]), vec![], KeyError::PrivateKey),
        ("PKCS#1", pem::encode("RSA PRIVATE KEY", &[]), vec![], KeyError::PrivateKey),
        ("encrypted", pem::encode("ENCRYPTED PRIVATE KEY", &[]), vec![], KeyError::PrivateKey),
        (
            "mislabelled",
            pem::encode("PUBLIC KEY", &private_der),
            vec![],
            key(KeyProblem::Unsupported),
        ),
        ("rubbish", pem::encode("PUBLIC KEY", &[1, 2, 3]), vec![], key(KeyProblem::Unsupported)),
        (
            "off the curve",
            pem::encode("PUBLIC KEY", &off_curve),
            vec![],
            key(KeyProblem::Unsupported),
        ),
        ("zeros", pem::encode("PUBLIC KEY", &weak), vec![], key(KeyProblem::WeakPoint)),
        ("HS256", public.clone(), vec![HS256], KeyError::PemAlgorithm),
        ("HS256 too", public.clone(), vec![ES256, HS256], KeyError::PemAlgorithm),
        ("another algorithm", public.clone(), vec![EdDSA], key(KeyProblem::NotAllowed)),
        ("two algorithms", pkcs1.clone(), vec![RS256, PS256], key(KeyProblem::Ambiguous)),
        ("two keys", public + &ec_pem(ES256).1, vec![], KeyError::SeveralKeys(ES256)),
        ("1024 bits", small, vec![], key(KeyProblem::RsaSize { bits: 1024 })),
        ("too large", pkcs1.repeat(1000), vec![], KeyError::TooLarge),
    ] {
        let error = KeySet::from_pem(pem.as_bytes(), &allowed).map(|set| algorithms(&set));
        assert_eq!(error, Err(expected), "{what}");
    }
}

#[test]
fn a_jwk_gets_one_algorithm() {
    use Algorithm::{ES256, ES384, EdDSA, PS256, RS256, RS512};
    let alg = |jwk, alg: &str| with(jwk, "alg", alg);
    for (jwk, allowed, expected) in [
        (rsa_jwk(), vec![], Ok(RS256)),
        (rsa_jwk(), vec![PS256, ES256], Ok(PS256)),
        (rsa_jwk(), vec![RS256, PS256], Err(KeyProblem::Ambiguous)),
        (rsa_jwk(), vec![ES256], Err(KeyProblem::NotAllowed)),
        (alg(rsa_jwk(), "RS512"), vec![], Ok(RS512)),
        (alg(rsa_jwk(), "RS512"), vec![RS256, RS512], Ok(RS512)),
        (alg(rsa_jwk(), "RS512"), vec![RS256], Err(KeyProblem::NotAllowed)),
        (alg(rsa_jwk(), "ES256"), vec![], Err(KeyProblem::WrongAlgorithm)),
        (alg(rsa_jwk(), "HS256"), vec![], Err(KeyProblem::WrongAlgorithm)),
        (alg(rsa_jwk(), "none"), vec![], Err(KeyProblem::Unsupported)),
        (alg(rsa_jwk(), "RSA-OAEP"), vec![], Err(KeyProblem::Unsupported)),
        (ec_jwk(ES256), vec![], Ok(ES256)),
        (alg(ec_jwk(ES256), "ES384"), vec![], Err(KeyProblem::WrongAlgorithm)),
        (ec_jwk(ES384), vec![], Ok(ES384)),
        (ed25519_jwk(), vec![], Ok(EdDSA)),
        (ed25519_jwk(), vec![RS256], Ok(EdDSA)),
    ] {
        assert_eq!(result_for(&jwk, &allowed), expected, "{jwk} with {allowed:?}");
    }
}

#[test]
fn bad_keys_of_a_set_are_skipped_one_by_one() {
    use KeyProblem::*;
    let ec = || ec_jwk(Algorithm::ES256);
    let number = |first: u8, length: usize, last: u8| {
        let mut bytes = vec![first; length];
        bytes[length - 1] = last;
        base64url(&bytes)
    };
    for (what, jwk, problem) in [
        ("no object", json!(1), Malformed),
        ("null", json!(null), Malformed),
        ("empty", json!({}), Missing("kty")),
        ("unknown kty", with(ec(), "kty", "PQ"), Unsupported),
        ("kty of another case", with(ec(), "kty", "ec"), Unsupported),
        ("kty no string", with(ec(), "kty", 1), WrongType("kty")),
        ("P-521", with(ec(), "crv", "P-521"), Unsupported),
        ("secp256k1", with(ec(), "crv", "secp256k1"), Unsupported),
        ("Ed448", with(ed25519_jwk(), "crv", "Ed448"), Unsupported),
        ("X25519", with(ed25519_jwk(), "crv", "X25519"), Unsupported),
        ("no y", with(ec(), "y", Value::Null), Missing("y")),
        ("padded", with(ec(), "y", "AAA="), NotBase64url("y")),
        ("off the curve", with(ec(), "y", ec()["y"].clone()), NotOnCurve),
        ("coordinate too short", with(ec(), "y", number(1, 31, 1)), NotOnCurve),
        ("of another curve", with(ec(), "crv", "P-384"), NotOnCurve),
        ("all zeros", with(ec(), "y", number(0, 32, 0)), NotOnCurve),
        ("Ed25519 too short", with(ed25519_jwk(), "x", number(1, 31, 1)), NotOnCurve),
        ("Ed25519 zeros", with(ed25519_jwk(), "x", number(0, 32, 0)), WeakPoint),
        ("Ed25519 -1", with(ed25519_jwk(), "x", base64url(&minus_one())), WeakPoint),
        ("512 bits", with(rsa_jwk(), "n", number(0xff, 64, 1)), RsaSize { bits: 512 }),
        ("2047 bits", with(rsa_jwk(), "n", number(0x7f, 256, 1)), RsaSize { bits: 2047 }),
        ("8200 bits", with(rsa_jwk(), "n", number(0xff, 1025, 1)), RsaSize { bits: 8200 }),
        ("n empty", with(rsa_jwk(), "n", ""), RsaSize { bits: 0 }),
        ("n even", with(rsa_jwk(), "n", number(0xff, 256, 0)), RsaNumbers),
        ("e 1", with(rsa_jwk(), "e", "AQ"), RsaNumbers),
        ("e 2", with(rsa_jwk(), "e", "Ag"), RsaNumbers),
        ("e 0", with(rsa_jwk(), "e", "AA"), RsaNumbers),
        ("e empty", with(rsa_jwk(), "e", ""), RsaNumbers),
        ("e huge", with(rsa_jwk(), "e", number(0x7f, 256, 1)), RsaNumbers),
        ("e no string", with(rsa_jwk(), "e", 65537), WrongType("e")),
        ("use enc", with(ec(), "use", "enc"), Purpose),
        ("use no string", with(ec(), "use", json!(["sig"])), WrongType("use")),
        ("key_ops sign", with(ec(), "key_ops", json!(["sign"])), Purpose),
        ("key_ops empty", with(ec(), "key_ops", json!([])), Purpose),
        ("key_ops no array", with(ec(), "key_ops", "verify"), WrongType("key_ops")),
        ("key_ops mixed", with(ec(), "key_ops", json!(["verify", 1])), WrongType("key_ops")),
        ("kid no string", with(ec(), "kid", 1), WrongType("kid")),
        ("kid too long", with(ec(), "kid", "k".repeat(129)), LongKid),
        ("EC private", with(ec(), "d", "AQ"), Private),
        ("RSA private", with(rsa_jwk(), "p", "AQ"), Private),
        ("a secret", json!({ "kty": "oct", "k": number(1, 64, 1), "alg": "HS256" }), NotAllowed),
    ] {
        assert_eq!(result_for(&jwk, &[]), Err(problem), "{what}");
    }
    let repeated = r#"{"keys":[{"kty":"EC","kty":"RSA"}]}"#;
    let error = KeySet::from_jwks(repeated.as_bytes(), &[], &[]).unwrap_err();
    let skipped = SkippedKey { index: 0, kid: None, problem: Malformed };
    assert_eq!(error, KeyError::NoUsableKey(vec![skipped]));
}

/// The point (0, -1) of edwards25519.
fn minus_one() -> [u8; 32] {
    let mut point = [0xff; 32];
    (point[0], point[31]) = (0xec, 0x7f);
    point
}

#[test]
fn irrelevant_members_do_not_invalidate_a_key() {
    let ec = || ec_jwk(Algorithm::ES256);
    let leading_zero = {
        let n = URL_SAFE_NO_PAD.decode(rsa_jwk()["n"].as_str().unwrap()).unwrap();
        with(rsa_jwk(), "n", base64url(&[&[0], n.as_slice()].concat()))
    };
    for jwk in [
        with(ec(), "use", "sig"),
        with(ec(), "key_ops", json!(["sign", "verify"])),
        with(ec(), "x5c", json!(["MII"])),
        with(ec(), "unknown", json!({ "a": [1] })),
        with(ec(), "kid", "k".repeat(128)),
        with(rsa_jwk(), "e", "Aw"),
        leading_zero,
    ] {
        assert!(result_for(&jwk, &[]).is_ok(), "{jwk}");
    }
}

#[test]
fn secrets_come_in_a_jwks_only_when_hmac_is_listed() {
    use Algorithm::{HS256, HS512, RS256};
    let secret = |bytes: usize| json!({ "kty": "oct", "k": base64url(&vec![7; bytes]) });
    let set = |keys: Value, allowed: &[Algorithm]| {
        KeySet::from_jwks(json!({ "keys": keys }).to_string().as_bytes(), allowed, &[])
            .map(|(set, skipped)| (algorithms(&set), skipped.len()))
    };
    assert_eq!(set(json!([secret(32)]), &[HS256]), Ok((vec![HS256], 0)));
    assert_eq!(set(json!([secret(32), rsa_jwk()]), &[HS256]), Ok((vec![HS256], 1)));
    let named = with(secret(64), "alg", "HS512");
    assert_eq!(set(json!([named]), &[HS256, HS512]), Ok((vec![HS512], 0)));
    assert_eq!(set(json!([secret(64)]), &[HS256, RS256]), Err(KeyError::MixedAlgorithms));
    for (keys, allowed) in [
        (json!([secret(64)]), vec![]),
        (json!([secret(64)]), vec![RS256]),
        (json!([secret(31)]), vec![HS256]),
        (json!([secret(0)]), vec![HS256]),
        (json!([secret(64)]), vec![HS256, HS512]),
    ] {
        let result = set(keys.clone(), &allowed);
        assert!(matches!(result, Err(KeyError::NoUsableKey(_))), "{keys} {allowed:?}: {result:?}");
    }
}

#[test]
fn keys_with_one_kid_and_algorithm_are_all_skipped() {
    use Algorithm::{ES256, EdDSA, RS256};
    let named = |jwk, kid: &str| with(jwk, "kid", kid);
    for (what, keys, used, skipped) in [
        (
            "other names",
            vec![named(ec_jwk(ES256), "a"), named(ec_jwk(ES256), "b")],
            vec![ES256; 2],
            vec![],
        ),
        (
            "other algorithms",
            vec![named(ec_jwk(ES256), "a"), named(rsa_jwk(), "a")],
            vec![ES256, RS256],
            vec![],
        ),
        (
            "a pair",
            vec![named(ec_jwk(ES256), "a"), named(ed25519_jwk(), "a"), named(ec_jwk(ES256), "a")],
            vec![EdDSA],
            vec![0, 2],
        ),
        ("no names", vec![ec_jwk(ES256), ec_jwk(ES256)], vec![ES256; 2], vec![]),
    ] {
        let text = json!({ "keys": keys }).to_string();
        let (set, skipped_keys) = KeySet::from_jwks(text.as_bytes(), &[], &[]).unwrap();
        assert_eq!(algorithms(&set), used, "{what}");
        assert_eq!(skipped_keys.iter().map(|key| key.index).collect::<Vec<_>>(), skipped, "{what}");
        assert!(skipped_keys.iter().all(|key| key.problem == KeyProblem::DuplicateKid), "{what}");
    }
}

#[test]
fn a_jwks_is_a_set_or_a_key_of_bounded_size() {
    let key = ed25519_jwk();
    let set = |count: usize| {
        let mut keys = vec![json!({}); count];
        keys[count - 1] = key.clone();
        json!({ "keys": keys })
    };
    assert_eq!(KeySet::from_jwks(key.to_string().as_bytes(), &[], &[]).unwrap().0.len(), 1);
    assert_eq!(KeySet::from_jwks(set(100).to_string().as_bytes(), &[], &[]).unwrap().1.len(), 99);
    let padded = format!("{key}{}", " ".repeat(MAX_KEY_FILE_BYTES));
    for (what, text, expected) in [
        ("nothing", String::new(), KeyError::NotJwks),
        ("no JSON", "keys".into(), KeyError::NotJwks),
        ("an array", format!("[{key}]"), KeyError::NotJwks),
        ("an empty object", "{}".into(), KeyError::NotJwks),
        ("keys no array", r#"{"keys":{}}"#.into(), KeyError::NotJwks),
        ("keys twice", r#"{"keys":[],"keys":[]}"#.into(), KeyError::NotJwks),
        ("no keys", r#"{"keys":[]}"#.into(), KeyError::NoUsableKey(Vec::new())),
        ("101 keys", set(101).to_string(), KeyError::TooManyKeys),
        ("too large", padded, KeyError::TooLarge),
    ] {
        let error = KeySet::from_jwks(text.as_bytes(), &[], &[]).map(|(set, _)| algorithms(&set));
        assert_eq!(error, Err(expected), "{what}");
    }
}

#[test]
fn nothing_printed_contains_a_key() {
    let secret = "correct horse battery staple, and then some";
    let k = base64url(secret.as_bytes());
    let set = KeySet::from_secret(secret.as_bytes(), &[]).unwrap();
    let jwk = json!({ "kty": "oct", "kid": "s", "k": k });
    let error = KeySet::from_jwks(jwk.to_string().as_bytes(), &[], &[]).unwrap_err();
    for text in [format!("{set:?}"), format!("{error}"), format!("{error:?}")] {
        assert!(!text.contains("horse") && !text.contains(&k), "{text}");
    }
    assert!(error.to_string().contains(r#"key 1 of the JWKS "s" is not used"#), "{error}");
}

#[test]
fn problem_of_a_key_names_the_member_and_never_shows_it() {
    let jwk = with(rsa_jwk(), "n", "c2VjcmV0==");
    let error = KeySet::from_jwks(jwk.to_string().as_bytes(), &[], &[]).unwrap_err().to_string();
    assert!(error.contains("its `n` is not base64url without padding"), "{error}");
    assert!(!error.contains("c2Vj"), "{error}");
}

#[test]
fn each_deviation_of_a_key_is_taken_only_where_it_is_named() {
    use Deviation::{JwksBase64, JwksPadding, SpiffeUse};
    let n = URL_SAFE_NO_PAD.decode(rsa_jwk()["n"].as_str().unwrap()).unwrap();
    let standard = base64::engine::general_purpose::STANDARD.encode(&n);
    for (what, jwk, deviation) in [
        ("padded", with(rsa_jwk(), "n", format!("{}==", base64url(&n))), JwksPadding),
        ("unpadded", with(rsa_jwk(), "n", standard.trim_end_matches('=')), JwksBase64),
        ("use", with(ed25519_jwk(), "use", "jwt-svid"), SpiffeUse),
    ] {
        let text = jwk.to_string();
        for own in Deviation::all() {
            let keys = KeySet::from_jwks(text.as_bytes(), &[], &[own]);
            assert_eq!(keys.is_ok(), own == deviation, "{what} with {own:?}");
        }
        assert!(KeySet::from_jwks(text.as_bytes(), &[], &[]).is_err(), "{what}");
    }
    let text = with(rsa_jwk(), "n", standard).to_string();
    for named in [&[JwksBase64][..], &[JwksPadding], &[JwksBase64, JwksPadding]] {
        let keys = KeySet::from_jwks(text.as_bytes(), &[], named);
        assert_eq!(keys.is_ok(), named.len() == 2, "padded standard base64 with {named:?}");
    }
    let text = with(ec_jwk(Algorithm::ES256), "use", "x509-svid").to_string();
    assert!(KeySet::from_jwks(text.as_bytes(), &[], &[SpiffeUse]).is_err());
}
