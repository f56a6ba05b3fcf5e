//! Claims that are missing, of the wrong type, for another audience, or not valid at the time.

use super::*;

#[test]
fn registered_claims_are_typed_and_in_range() {
    use TokenError::{Expired, MalformedClaim, MissingClaim, NotYetValid};
    let fixture = Fixture::shared();
    let long = |bytes| format!(r#""exp":1700000300,"sub":"{}""#, "s".repeat(bytes));
    let mut rows: Vec<(String, Result<(), TokenError>)> = vec![
        (String::new(), Err(MissingClaim("exp"))),
        (long(256), Ok(())),
        (long(257), Err(MalformedClaim("sub"))),
    ];
    for date in [
        r#""1700000300""#,
        r#""9999999999""#,
        "null",
        "true",
        "false",
        "[]",
        "[1700000300]",
        "{}",
        "-1",
        "-0.5",
        "-1e300",
        "1e300",
        "9007199254740992",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
    ] {
        rows.push((format!(r#""exp":{date}"#), Err(MalformedClaim("exp"))));
        rows.push((format!(r#""exp":1700000300,"nbf":{date}"#), Err(MalformedClaim("nbf"))));
        rows.push((format!(r#""exp":1700000300,"iat":{date}"#), Err(MalformedClaim("iat"))));
    }
    for (members, expected) in [
        (r#""exp":0"#, Err(Expired)),
        (r#""exp":-0"#, Err(Expired)),
        (r#""exp":1699999940"#, Err(Expired)),
        (r#""exp":1699999940.000000"#, Err(Expired)),
        (r#""exp":1699999940.5"#, Ok(())),
        (r#""exp":1699999941"#, Ok(())),
        (r#""exp":1.7000003e9"#, Ok(())),
        (r#""exp":9007199254740991"#, Ok(())),
        (r#""exp":9007199254740991.0"#, Ok(())),
        (r#""exp":1700000300,"nbf":1700000060"#, Ok(())),
        (r#""exp":1700000300,"nbf":1700000060.5"#, Err(NotYetValid)),
        (r#""exp":1700000300,"nbf":1700000061"#, Err(NotYetValid)),
        (r#""exp":1700000300,"nbf":9007199254740991"#, Err(NotYetValid)),
        (r#""exp":1700000300,"nbf":0,"iat":0"#, Ok(())),
        (r#""exp":1700000300,"iat":1700000060"#, Ok(())),
        (r#""exp":1700000300,"iat":1700000061"#, Err(NotYetValid)),
        (r#""exp":1700000300,"sub":"""#, Err(MalformedClaim("sub"))),
        (r#""exp":1700000300,"sub":null"#, Err(MalformedClaim("sub"))),
        (r#""exp":1700000300,"sub":42"#, Err(MalformedClaim("sub"))),
        (r#""exp":1700000300,"sub":["42"]"#, Err(MalformedClaim("sub"))),
        (r#""exp":1700000300,"sub":"a\nb""#, Err(MalformedClaim("sub"))),
        (r#""exp":1700000300,"sub":"a\u0000""#, Err(MalformedClaim("sub"))),
        (r#""exp":1700000300,"sub":"a\u007f""#, Err(MalformedClaim("sub"))),
        (r#""exp":1700000300,"sub":"a\u0085""#, Err(MalformedClaim("sub"))),
        (r#""exp":1700000300,"sub":"\u00e9 \u4e2d""#, Ok(())),
        // A wrong type is refused even if no audience is configured.
        (r#""exp":1700000300,"aud":1"#, Err(MalformedClaim("aud"))),
        (r#""exp":1700000300,"aud":null"#, Err(MalformedClaim("aud"))),
        (r#""exp":1700000300,"aud":["api",1]"#, Err(MalformedClaim("aud"))),
        (r#""exp":1700000300,"aud":"anyone""#, Ok(())),
        (r#""exp":1700000300,"aud":[]"#, Ok(())),
    ] {
        rows.push((members.into(), expected));
    }
    for (members, expected) in rows {
        let result = fixture.verify(&fixture.token(HEADER, &payload_with(&members)));
        assert_eq!(result.map(|_| ()), expected, "{members}");
    }
}

#[test]
fn audience_is_matched_to_the_letter() {
    use TokenError::{MalformedClaim, MissingClaim, WrongAudience};
    let fixture = Fixture::shared();
    let mut strict = fixture.issuer.clone();
    strict.claims.audience = vec!["api".into(), "https://api.example.com".into()];
    let issuers = [strict];
    for (aud, expected) in [
        (Some(r#""api""#), Ok(())),
        (Some(r#"["web","api"]"#), Ok(())),
        (Some(r#"["https://api.example.com"]"#), Ok(())),
        (Some(r#""https://api.example.com/""#), Err(WrongAudience)),
        (Some(r#""API""#), Err(WrongAudience)),
        (Some(r#""apis""#), Err(WrongAudience)),
        (Some(r#""ap""#), Err(WrongAudience)),
        (Some(r#""api web""#), Err(WrongAudience)),
        (Some(r#""""#), Err(WrongAudience)),
        (Some("[]"), Err(WrongAudience)),
        (Some(r#"[["api"]]"#), Err(MalformedClaim("aud"))),
        (Some(r#"["api",null]"#), Err(MalformedClaim("aud"))),
        (Some(r#"{"api":1}"#), Err(MalformedClaim("aud"))),
        (Some("null"), Err(MalformedClaim("aud"))),
        (None, Err(MissingClaim("aud"))),
    ] {
        let member = aud.map_or_else(String::new, |aud| format!(r#","aud":{aud}"#));
        let payload = payload_with(&format!(r#""exp":1700000300{member}"#));
        let token = fixture.token(HEADER, &payload);
        assert_eq!(verify(token.as_bytes(), &issuers, NOW).map(|_| ()), expected, "{aud:?}");
    }
}

#[test]
fn exp_may_be_missing_only_if_the_issuer_allows_it() {
    let fixture = Fixture::shared();
    let mut lax = fixture.issuer.clone();
    lax.require_exp = false;
    let issuers = [lax];
    for (members, expected) in [
        ("", Ok(())),
        (r#""exp":1700000300"#, Ok(())),
        (r#""exp":1699999940"#, Err(TokenError::Expired)),
        (r#""exp":"1700000300""#, Err(TokenError::MalformedClaim("exp"))),
        (r#""exp":null"#, Err(TokenError::MalformedClaim("exp"))),
    ] {
        let token = fixture.token(HEADER, &payload_with(members));
        assert_eq!(verify(token.as_bytes(), &issuers, NOW).map(|_| ()), expected, "{members}");
    }
}

#[test]
fn a_cached_token_is_checked_for_time_again() {
    let fixture = Fixture::shared();
    let mut issuer = fixture.issuer.clone();
    issuer.max_age = Some(Duration::from_secs(100));
    let members = r#""exp":1700000300,"nbf":1699999990,"iat":1699999980"#;
    let token = fixture.token(HEADER, &payload_with(members));
    let aged = verify(token.as_bytes(), &[issuer.clone()], NOW).unwrap();
    let plain = fixture.verify(&token).unwrap();
    let micros = Timestamp::as_micros(Timestamp::from_secs(1));
    let starts = 1_699_999_930 * micros;
    let outdated = 1_700_000_140 * micros;
    let expires = 1_700_000_360 * micros;
    for (token, now, expected) in [
        (&plain, starts - 1, Err(TokenError::NotYetValid)),
        (&plain, starts, Ok(())),
        (&plain, expires - 1, Ok(())),
        (&plain, expires, Err(TokenError::Expired)),
        (&aged, outdated, Ok(())),
        (&aged, outdated + 1, Err(TokenError::TooOld)),
    ] {
        let current = token.is_current(Timestamp::from_micros(now));
        assert_eq!(current.map_err(|refusal| refusal.error), expected, "at {now}");
    }
    assert_eq!(aged.expires_at(), Some(Timestamp::from_micros(outdated + 1)));
    let undated = fixture.token(HEADER, PAYLOAD);
    let result = verify(undated.as_bytes(), &[issuer], NOW).map(|_| ());
    assert_eq!(result, Err(TokenError::MissingClaim("iat")));
}
