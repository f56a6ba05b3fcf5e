//! Asking about opaque tokens: what is sent, what is believed, and how often anybody is asked.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use tollgate_identity::{Fetcher, IntrospectionError, IntrospectionResponse, Introspector};

use super::server;
use crate::support::{Answer, Authority, INTROSPECTION, Signal};

/// Who asks, as a hash.
const CLIENT: u128 = 7;

fn introspector(authority: &Authority) -> Introspector {
    Introspector::new(server(authority, INTROSPECTION), "proxy", "p&ss")
}

#[tokio::test]
async fn known_token_is_active_with_its_claims() {
    let authority = Authority::start_tls();
    let fetcher = Fetcher::start().unwrap();
    authority.know_token("t0ken", json!({ "sub": "alice", "exp": 4_000_000_000_u64 }));
    let introspector = introspector(&authority);
    let said = introspector.introspect(&fetcher, CLIENT, b"t0ken").await.unwrap();
    let IntrospectionResponse::Active(claims) = said else { panic!("{said:?}") };
    assert_eq!(claims.get("sub"), Some(&json!("alice")));

    let asked = authority.last();
    assert_eq!(asked.method, "POST");
    assert_eq!(asked.body, "token=t0ken&token_type_hint=access_token");
    assert_eq!(asked.field("content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(asked.field("accept"), Some("application/json"));
    let basic = format!("Basic {}", STANDARD.encode("proxy:p%26ss"));
    assert_eq!(asked.field("authorization"), Some(basic.as_str()));

    authority.forget_token("t0ken");
    let said = introspector.introspect(&fetcher, CLIENT, b"t0ken").await.unwrap();
    assert_eq!(said, IntrospectionResponse::Inactive);
}

#[tokio::test]
async fn whatever_is_no_answer_is_not_taken_for_a_bad_token() {
    let authority = Authority::start();
    let fetcher = Fetcher::start().unwrap();
    let introspector = introspector(&authority);
    for (answer, expected) in [
        (Answer::Status(401), "the response has status 401"),
        (Answer::Status(500), "the response has status 500"),
        (Answer::Redirect(authority.url(INTROSPECTION)), "the response has status 302"),
        (
            Answer::Body(b"<html>".to_vec()),
            "the response is not a JSON object without repeated names",
        ),
        (
            Answer::Body(br#"{"active":"true"}"#.to_vec()),
            "the response has no `active` that is true or false",
        ),
    ] {
        authority.answer(INTROSPECTION, answer);
        let error = introspector.introspect(&fetcher, CLIENT, b"t0ken").await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    authority.answer(INTROSPECTION, Answer::Close);
    let error = introspector.introspect(&fetcher, CLIENT, b"t0ken").await.unwrap_err();
    assert!(matches!(error, IntrospectionError::Fetch(_)), "{error}");
}

#[tokio::test]
async fn what_no_token_looks_like_is_not_sent() {
    let authority = Authority::start();
    let fetcher = Fetcher::start().unwrap();
    for token in [&b""[..], b"a b", b"a\r\nb", &[b'a'; 8193]] {
        let said = introspector(&authority).introspect(&fetcher, CLIENT, token).await.unwrap();
        assert_eq!(said, IntrospectionResponse::Inactive);
    }
    assert_eq!(authority.count(INTROSPECTION), 0);
}

#[tokio::test]
async fn all_who_ask_about_one_token_at_a_time_share_a_call() {
    let authority = Authority::start();
    let fetcher = Fetcher::start().unwrap();
    let go = Signal::default();
    authority.know_token("t0ken", json!({ "sub": "alice" }));
    authority.answer(INTROSPECTION, Answer::Held(go.clone()));
    let introspector = introspector(&authority);
    let ask = || introspector.introspect(&fetcher, CLIENT, b"t0ken");
    let open = async {
        authority.wait_for(INTROSPECTION, 1);
        go.open();
    };
    let (one, other, third, ()) = tokio::join!(biased; ask(), ask(), ask(), open);
    for said in [one, other, third] {
        assert!(matches!(said.unwrap(), IntrospectionResponse::Active(_)));
    }
    assert_eq!(authority.count(INTROSPECTION), 1);
    ask().await.unwrap();
    assert_eq!(authority.count(INTROSPECTION), 2, "nothing is remembered");
}

#[tokio::test]
async fn caller_that_goes_away_does_not_cancel_the_call_for_others() {
    let authority = Authority::start();
    let fetcher = Fetcher::start().unwrap();
    let go = Signal::default();
    authority.answer(INTROSPECTION, Answer::Held(go.clone()));
    let introspector = introspector(&authority);
    let mut first = Box::pin(introspector.introspect(&fetcher, CLIENT, b"t0ken"));
    tokio::select! {
        biased;
        _ = &mut first => panic!("the issuer has not answered"),
        () = async { authority.wait_for(INTROSPECTION, 1) } => {}
    }
    let second = introspector.introspect(&fetcher, CLIENT, b"t0ken");
    let leave = async {
        drop(first);
        go.open();
    };
    let (said, ()) = tokio::join!(biased; second, leave);
    assert_eq!(said.unwrap(), IntrospectionResponse::Inactive);
    assert_eq!(authority.count(INTROSPECTION), 1);
}

#[tokio::test]
async fn call_that_no_caller_waits_for_ends() {
    let authority = Authority::start();
    let fetcher = Fetcher::start().unwrap();
    let go = Signal::default();
    authority.answer(INTROSPECTION, Answer::HeldFor("token=slow", go.clone()));
    let introspector = introspector(&authority);
    // More than a client has turns, one after the other: each is given back when its asker goes
    // away.
    for number in 0..20 {
        let token = format!("slow-{number}");
        let mut asking = Box::pin(introspector.introspect(&fetcher, CLIENT, token.as_bytes()));
        tokio::select! {
            biased;
            _ = &mut asking => panic!("the issuer has not answered"),
            () = async { authority.wait_for(INTROSPECTION, number + 1) } => {}
        }
    }
    let said = introspector.introspect(&fetcher, CLIENT, b"t0ken").await.unwrap();
    assert_eq!(said, IntrospectionResponse::Inactive);
    go.open();
}
