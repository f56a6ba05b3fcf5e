//! What is logged of a refused token, besides why.

use super::*;
use crate::{claim_rules::RequiredClaim, iss::TenantIssuer};

fn logged(issuer: &Issuer, token: &str) -> String {
    check(token.as_bytes(), std::slice::from_ref(issuer), NOW).unwrap_err().to_string()
}

#[test]
fn log_says_what_was_expected_of_a_token_and_found() {
    let fixture = Fixture::shared();
    let mut issuer = fixture.issuer.clone();
    issuer.claims.audience = vec!["api".into(), "web".into()];
    issuer.claims.required = vec![RequiredClaim { path: "azp".into(), accepted: Vec::new() }];
    issuer
        .claims
        .required
        .push(RequiredClaim { path: "plan".into(), accepted: vec!["pro".into(), 2.into()] });
    issuer.max_lifetime = Some(Duration::from_secs(3600));
    issuer.max_age = Some(Duration::from_secs(600));
    for (members, expected) in [
        (
            r#""exp":1700000300,"iat":1700000000,"aud":["a","b\u0007","c","d","e"]"#,
            "token is for another audience: expected \"api\", \"web\", \
             found \"a\", \"b\\u{7}\", \"c\", \"d\" and 1 more",
        ),
        (
            r#""exp":1700000300,"iat":1700000000,"aud":"api","secret":"s3cr3t""#,
            "token lacks a claim that the policy requires: \"azp\"",
        ),
        (
            r#""exp":1700000300,"iat":1700000000,"aud":"api","azp":"web","plan":"s3cr3t""#,
            "token lacks a claim that the policy requires: \"plan\" is not \"pro\", 2",
        ),
        (
            r#""exp":1700009300,"iat":1700000000,"aud":"api","azp":"web","plan":2"#,
            "token has a longer lifetime than the issuer's max_lifetime: 9300 s instead of 3600 s",
        ),
        (
            r#""exp":1699999928,"iat":1699999900,"aud":"api","azp":"web","plan":2"#,
            "token has expired: 72 s ago; the leeway is 60 s",
        ),
        (
            r#""exp":1700000300,"iat":1700000000,"nbf":1700000060.5,"aud":"api","azp":"web","plan":2"#,
            "token is not valid yet: it begins in 61 s; the leeway is 60 s",
        ),
        (
            r#""exp":1700000300,"iat":1699999000,"aud":"api","azp":"web","plan":2"#,
            "token is older than the issuer's max_age: by 400 s; the leeway is 60 s",
        ),
    ] {
        let token = fixture.token(HEADER, &payload_with(members));
        assert_eq!(logged(&issuer, &token), expected, "{members}");
    }
    let other = fixture.token(HEADER, r#"{"iss":"https://id.example.com","exp":1700000300}"#);
    assert_eq!(
        logged(&issuer, &other),
        "token issuer is unknown: expected \"https://id.example.com/\" at this place, \
         found \"https://id.example.com\""
    );
    issuer.types = vec!["at+jwt".into()];
    assert_eq!(
        logged(&issuer, &fixture.token(HEADER, PAYLOAD)),
        "token type is not accepted from this issuer: expected \"at+jwt\", found none"
    );
}

#[test]
fn log_says_which_claim_the_tenant_of_a_token_is_not_in() {
    let fixture = Fixture::shared();
    let text = "https://login.example/{tenantid}/v2.0";
    let with_tenants = |tenants: &[&str]| {
        let tenants = tenants.iter().map(|tenant| (*tenant).into()).collect();
        let tenants = TenantIssuer::parse(text, tenants).unwrap();
        let claim = IssuerClaim::Tenants(tenants);
        Issuer { claim, issuer: text.into(), ..fixture.issuer.clone() }
    };
    let any = with_tenants(&[]);
    for (issuer, members, expected) in [
        (
            &any,
            r#""tid":"a""#,
            "token lacks a claim that the policy requires: \"tenantid\", which is in braces in the \
             policy's issuer \"https://login.example/{tenantid}/v2.0\"",
        ),
        (
            &any,
            r#""tenantid":"b""#,
            "token issuer is unknown: its `iss` is of the tenant \"a\", its \"tenantid\" is \"b\"",
        ),
        (
            &any,
            r#""tenantid":["s3cr3t"]"#,
            "token issuer is unknown: its `iss` is of the tenant \"a\", its \"tenantid\" is no text",
        ),
        (
            &with_tenants(&["b", "c"]),
            r#""tenantid":"a""#,
            "token issuer is unknown: expected a tenant of \"b\", \"c\", found \"a\"",
        ),
    ] {
        let payload = format!(r#"{{"iss":"https://login.example/a/v2.0",{members}}}"#);
        let token = fixture.token(HEADER, &payload);
        assert_eq!(logged(issuer, &token), expected, "{members}");
    }
    let other = fixture.token(HEADER, r#"{"iss":"https://login.example/a/v1.0","tenantid":"a"}"#);
    let line = logged(&any, &other);
    assert!(line.ends_with(r#"at this place, found "https://login.example/a/v1.0""#), "{line}");
}

#[test]
fn log_says_which_key_a_token_names_and_which_are_known() {
    let (fixture, other) = (Fixture::shared(), Fixture::new());
    for (token, why, kid) in [
        (fixture.token(r#"{"alg":"EdDSA","kid":"k2"}"#, PAYLOAD), "key is unknown", r#""k2""#),
        (other.token(HEADER, PAYLOAD), "signature is wrong", r#""k1""#),
        (other.token(r#"{"alg":"EdDSA"}"#, PAYLOAD), "signature is wrong", "none"),
    ] {
        let expected =
            format!("token {why}: EdDSA with kid {kid}, the issuer's keys have kid \"k1\"");
        assert_eq!(logged(&fixture.issuer, &token), expected);
    }
    let header = r#"{"alg":"RS256","kid":"k1"}"#;
    let line = logged(&fixture.issuer, &fixture.token(header, PAYLOAD));
    assert_eq!(line, "token algorithm is not allowed: expected EdDSA, found \"RS256\"");
    for (header, found) in [(r#"{"alg":"none"}"#, "\"none\""), (r#"{"alg":1}"#, "none")] {
        let line = logged(&fixture.issuer, &fixture.token(header, PAYLOAD));
        assert_eq!(line, format!("token algorithm is not allowed: expected EdDSA, found {found}"));
    }
}

#[test]
fn what_the_log_quotes_of_a_token_is_printable_and_bounded() {
    let fixture = Fixture::shared();
    let kid = format!("\\n\\u202e{}", "k".repeat(120));
    let token = fixture.token(&format!(r#"{{"alg":"EdDSA","kid":"{kid}"}}"#), PAYLOAD);
    let line = logged(&fixture.issuer, &token);
    assert!(line.contains(&format!(r#""\n\u{{202e}}{}"..."#, "k".repeat(62))), "{line}");
    assert!(line.len() < 300, "{line}");
}
