//! Which issuer a token is tried with.

use super::*;
use crate::credential::TokenPlace;

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
