//! Which issuer a token is tried with.

use super::*;
use crate::{credential::TokenPlace, iss::TenantIssuer};

/// As djangorestframework-simplejwt writes it.
const WITHOUT_ISS: &str =
    r#"{"token_type":"access","exp":1700000300,"iat":1700000000,"jti":"3f2a","user_id":42}"#;

fn without_iss(name: &str, keys: KeySet) -> Issuer {
    Issuer { name: name.into(), claim: IssuerClaim::Absent, ..issuer(name, keys) }
}

fn keys_of(fixture: &Fixture, kid: &str) -> KeySet {
    let jwk = fixture.jwk.replace(r#""kid":"k1""#, &format!(r#""kid":"{kid}""#));
    KeySet::from_jwks(jwk.as_bytes(), &[], &[]).unwrap().0
}

/// The position of the issuer that takes a token.
fn taker(token: &str, issuers: &[Issuer]) -> Result<usize, TokenError> {
    verify(token.as_bytes(), issuers, NOW).map(|verified| verified.issuer)
}

#[test]
fn token_without_iss_is_taken_of_an_issuer_whose_tokens_have_none() {
    let (key, keys) = pair(Algorithm::HS256);
    let header = r#"{"alg":"HS256","typ":"JWT"}"#;
    let token = key.sign_text(header, WITHOUT_ISS).unwrap();
    let issuers = [issuer("shop", keys.clone()), without_iss("django", keys.clone())];
    assert_eq!(taker(&token, &issuers), Ok(1));
    assert_eq!(taker(&token, &issuers[..1]), Err(TokenError::MissingClaim("iss")));
    // A token with an `iss` is never one without, whatever it names.
    let django = &issuers[1..];
    for iss in [r#""shop""#, r#""none""#, r#""django""#, r#""""#] {
        let claims = format!(r#"{{"iss":{iss},"exp":1700000300}}"#);
        let token = key.sign_text(header, &claims).unwrap();
        assert_eq!(taker(&token, django), Err(TokenError::UnknownIssuer), "{iss}");
    }
    let null = key.sign_text(header, r#"{"iss":null,"exp":1700000300}"#).unwrap();
    assert_eq!(taker(&null, django), Err(TokenError::MalformedClaim("iss")));
}

#[test]
fn issuers_without_iss_are_told_apart_by_the_key_that_a_token_names() {
    let (one, other) = (Fixture::new(), Fixture::new());
    let (secret, shared) = pair(Algorithm::HS256);
    let issuers = [
        without_iss("one", keys_of(&one, "a")),
        without_iss("other", keys_of(&other, "b")),
        without_iss("shared", shared),
    ];
    let signed = |fixture: &Fixture, kid: &str| {
        fixture.token(&format!(r#"{{"alg":"EdDSA","kid":"{kid}"}}"#), WITHOUT_ISS)
    };
    assert_eq!(taker(&signed(&one, "a"), &issuers), Ok(0));
    assert_eq!(taker(&signed(&other, "b"), &issuers), Ok(1));
    let token = secret.sign_text(r#"{"alg":"HS256"}"#, WITHOUT_ISS).unwrap();
    assert_eq!(taker(&token, &issuers), Ok(2));
    assert_eq!(taker(&signed(&one, "b"), &issuers), Err(TokenError::WrongSignature));
    assert_eq!(taker(&signed(&one, "c"), &issuers), Err(TokenError::UnknownKey));
    // It may be of either, and is tried with one issuer only.
    let nameless = one.token(r#"{"alg":"EdDSA"}"#, WITHOUT_ISS);
    assert_eq!(taker(&nameless, &issuers), Err(TokenError::AmbiguousKey));
    assert_eq!(taker(&nameless, &issuers[..1]), Ok(0));
    for (at, issuer) in issuers.iter().enumerate() {
        let confused = issuers.iter().map(|other| issuer.is_confused_with(other));
        assert_eq!(confused.collect::<Vec<_>>(), [at == 0, at == 1, at == 2]);
    }
    let unnamed = KeySet::from_pem(one.pem.as_bytes(), &[]).unwrap();
    assert!(without_iss("unnamed", unnamed.clone()).is_confused_with(&issuers[0]));
    assert!(!issuer("exact", unnamed).is_confused_with(&issuers[0]));
}

#[test]
fn issuer_may_be_chosen_by_where_the_token_is() {
    let fixture = Fixture::shared();
    let at = |place| Issuer { from: vec![place], ..without_iss("x", keys_of(fixture, "k1")) };
    let issuers = [at(TokenPlace::Header), at(TokenPlace::Cookie)];
    let token = fixture.token(HEADER, WITHOUT_ISS);
    for (place, expected) in [
        (TokenPlace::Header, Ok(0)),
        (TokenPlace::Cookie, Ok(1)),
        (TokenPlace::Authorization, Err(TokenError::MissingClaim("iss"))),
    ] {
        let read = Unverified::read(token.as_bytes(), &issuers, Some(place));
        let found = read.map(|token| token.issuer).map_err(|refusal| refusal.error);
        assert_eq!(found, expected, "{place:?}");
    }
    assert!(!issuers[0].is_confused_with(&issuers[1]));
    let exact = [Issuer { from: vec![TokenPlace::Cookie], ..fixture.issuer.clone() }];
    let token = fixture.token(HEADER, PAYLOAD);
    let read = |place| Unverified::read(token.as_bytes(), &exact, Some(place)).is_ok();
    assert!(read(TokenPlace::Cookie) && !read(TokenPlace::Header));
}

fn with_tenants(text: &str, tenants: &[&str], keys: KeySet) -> Issuer {
    let tenants = tenants.iter().map(|tenant| (*tenant).into()).collect();
    let tenants = TenantIssuer::parse(text, tenants).unwrap();
    Issuer { claim: IssuerClaim::Tenants(tenants), ..issuer(text, keys) }
}

#[test]
fn tenant_in_iss_is_the_one_that_the_claim_names() {
    let fixture = Fixture::shared();
    let text = "https://login.example/{tid}/v2.0";
    let any = [with_tenants(text, &[], keys_of(fixture, "k1"))];
    let listed = [with_tenants(text, &["a", "b-1"], keys_of(fixture, "k1"))];
    let unknown = Err(TokenError::UnknownIssuer);
    let long = "t".repeat(129);
    for (iss, tid, of_any, of_listed) in [
        ("https://login.example/a/v2.0", r#""a""#, Ok("a"), Ok("a")),
        ("https://login.example/b-1/v2.0", r#""b-1""#, Ok("b-1"), Ok("b-1")),
        ("https://login.example/c/v2.0", r#""c""#, Ok("c"), unknown),
        ("https://login.example/a/v2.0", r#""b-1""#, unknown, unknown),
        ("https://login.example/a/v2.0", r#"["a"]"#, unknown, unknown),
        ("https://login.example/a/v2.0", "null", unknown, unknown),
        ("https://login.example/a/v2.0/", r#""a""#, unknown, unknown),
        ("https://login.example/A/v2.0", r#""a""#, unknown, unknown),
        ("https://login.example//v2.0", r#""""#, unknown, unknown),
        ("https://login.example/a/x/v2.0", r#""a/x""#, unknown, unknown),
        ("https://login.example/a:x/v2.0", r#""a:x""#, unknown, unknown),
        ("https://login.example/{tid}/v2.0", r#""{tid}""#, unknown, unknown),
        ("https://login.example/v2.0", r#""""#, unknown, unknown),
        (&format!("https://login.example/{long}/v2.0"), &format!("{long:?}"), unknown, unknown),
    ] {
        let claims = format!(r#"{{"iss":"{iss}","tid":{tid},"exp":1700000300}}"#);
        let token = fixture.token(HEADER, &claims);
        for (issuers, expected) in [(&any, of_any), (&listed, of_listed)] {
            let verified = verify(token.as_bytes(), issuers, NOW);
            let tenant = verified.map(|verified| verified.tenant.unwrap().name.to_string());
            assert_eq!(tenant, expected.map(str::to_owned), "{claims}");
        }
    }
    let without = fixture.token(HEADER, r#"{"tid":"a","exp":1700000300}"#);
    assert_eq!(taker(&without, &any), Err(TokenError::MissingClaim("iss")));
}

#[test]
fn exact_issuer_goes_before_one_with_tenants() {
    let (own, theirs) = (Fixture::new(), Fixture::new());
    let iss = "https://login.example/a/v2.0";
    let issuers = [
        with_tenants("https://login.example/{tid}/v2.0", &[], keys_of(&theirs, "k1")),
        issuer(iss, keys_of(&own, "k1")),
    ];
    let claims = format!(r#"{{"iss":"{iss}","tid":"a","exp":1700000300}}"#);
    assert_eq!(taker(&own.token(HEADER, &claims), &issuers), Ok(1));
    assert_eq!(taker(&theirs.token(HEADER, &claims), &issuers), Err(TokenError::WrongSignature));
}

#[test]
fn issuers_with_tenants_overlap_where_one_iss_may_be_of_both() {
    let of = |text: &str| TenantIssuer::parse(text, Vec::new()).unwrap();
    for (one, other, expected) in [
        ("https://a/{t}/v2.0", "https://a/{org}/v2.0", true),
        ("https://a/{t}", "https://a/x{t}", true),
        ("https://a/{t}", "https://a/{t}.b", true),
        ("https://a/{t}", "https://a/{t}/v2.0", false),
        ("https://a/{t}", "https://a/eu/{t}", false),
        ("https://a/{t}/v1", "https://a/{t}/v2", false),
    ] {
        for (one, other) in [(one, other), (other, one)] {
            assert_eq!(of(one).overlaps(&of(other)), expected, "{one} {other}");
        }
    }
}

#[test]
fn place_of_a_tenant_is_one_claim_in_braces() {
    for (text, claim) in [
        ("https://a/{tid}/v2.0", Some("tid")),
        ("{tid}", Some("tid")),
        ("https://a/{realm.name}", Some("realm.name")),
        ("https://a/", None),
        ("https://a/{}", None),
        ("https://a/{tid", None),
        ("https://a/tid}", None),
        ("https://a/{a}/{b}", None),
        ("https://a/{{tid}}", None),
    ] {
        let found = TenantIssuer::parse(text, Vec::new());
        assert_eq!(found.as_ref().map(TenantIssuer::claim), claim, "{text}");
    }
}
