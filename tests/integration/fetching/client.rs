//! The HTTP client: which servers it trusts, which redirects it follows, how much it reads, and how
//! long it waits.

use std::time::Duration;

use tollgate_identity::{FetchError, Fetcher, IssuerServer};

use super::{server, server_within};
use crate::support::{Answer, Authority, JWKS, PATIENCE, Signal};

const JSON: &str = "application/json";

async fn get(server: &IssuerServer) -> Result<Vec<u8>, FetchError> {
    Fetcher::start().unwrap().get(server, JSON).await
}

#[tokio::test]
async fn document_is_read_over_http_and_tls() {
    for authority in [Authority::start(), Authority::start_tls()] {
        let document = get(&server(&authority, JWKS)).await.unwrap();
        assert_eq!(document, br#"{"keys":[]}"#);
        let asked = authority.last();
        assert_eq!(asked.method, "GET");
        assert_eq!(asked.field("accept"), Some(JSON));
        assert!(asked.field("user-agent").unwrap().starts_with("tollgate/"));
    }
}

#[tokio::test]
async fn server_that_no_trusted_authority_vouches_for_is_not_asked() {
    let authority = Authority::start_tls();
    let other = Authority::start_tls();
    let own = server(&authority, JWKS);
    let strangers = IssuerServer { ca: server(&other, JWKS).ca, ..own.clone() };
    let public = IssuerServer { ca: None, ..own.clone() };
    for distrusting in [strangers, public] {
        let error = get(&distrusting).await.unwrap_err();
        assert!(matches!(error, FetchError::Connect(_)), "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    let by_name = authority.url(JWKS).replace("127.0.0.1", "localhost");
    let by_name = IssuerServer::parse(&by_name, false, own.ca.clone(), PATIENCE).unwrap();
    get(&by_name).await.unwrap();
    let misnamed = authority.url(JWKS).replace("127.0.0.1", "127.0.0.2");
    let misnamed = IssuerServer::parse(&misnamed, false, own.ca, PATIENCE).unwrap();
    assert!(matches!(get(&misnamed).await, Err(FetchError::Connect(_))));
    assert_eq!(authority.count(JWKS), 1);
}

#[tokio::test]
async fn redirects_are_followed_on_the_server_only_and_three_times() {
    let authority = Authority::start();
    let other = Authority::start();
    for (from, to) in [("/1", "/2"), ("/2", "/3"), ("/3", JWKS)] {
        authority.answer(from, Answer::Redirect(to.into()));
    }
    get(&server(&authority, "/1")).await.unwrap();
    authority.answer("/0", Answer::Redirect(authority.url("/1")));
    assert!(matches!(get(&server(&authority, "/0")).await, Err(FetchError::Redirected)));
    authority.answer("/out", Answer::Redirect(other.url(JWKS)));
    let error = get(&server(&authority, "/out")).await.unwrap_err();
    assert!(matches!(error, FetchError::RedirectedElsewhere), "{error}");
    assert_eq!((authority.count(JWKS), other.count(JWKS)), (1, 0));
}

#[tokio::test]
async fn whatever_is_no_good_answer_is_an_error_that_quotes_nothing() {
    let authority = Authority::start();
    let fetch = async |answer| {
        authority.answer(JWKS, answer);
        get(&server(&authority, JWKS)).await
    };
    for status in [201, 204, 304, 401, 404, 500, 503] {
        let error = fetch(Answer::Status(status)).await.unwrap_err();
        assert_eq!(error.to_string(), format!("the response has status {status}"));
    }
    let most = vec![b' '; 256 * 1024];
    assert_eq!(fetch(Answer::Body(most.clone())).await.unwrap().len(), most.len());
    let error = fetch(Answer::Body([most, vec![b' ']].concat())).await.unwrap_err();
    assert_eq!(error.to_string(), "the response is larger than 256 KiB");
    let error = fetch(Answer::Close).await.unwrap_err();
    assert!(matches!(error, FetchError::Request(_)), "{error}");
    let address = authority.url(JWKS);
    drop(authority);
    let gone = IssuerServer::parse(&address, false, None, PATIENCE).unwrap();
    let error = get(&gone).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot connect: "), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn server_that_hangs_is_given_up_in_time() {
    let authority = Authority::start();
    authority.answer(JWKS, Answer::Hang);
    let short = Duration::from_millis(20);
    let error = get(&server_within(&authority, JWKS, short)).await.unwrap_err();
    assert_eq!(error.to_string(), "no complete response within 20ms");
}

#[tokio::test]
async fn server_that_hangs_holds_up_no_other() {
    let slow = Authority::start();
    let quick = Authority::start();
    let go = Signal::default();
    let fetcher = Fetcher::start().unwrap();
    slow.answer(JWKS, Answer::Held(go.clone()));
    let slow_server = server(&slow, JWKS);
    let waiting = fetcher.get(&slow_server, JSON);
    let meanwhile = async {
        fetcher.get(&server(&quick, JWKS), JSON).await.unwrap();
        go.open();
    };
    let (late, ()) = tokio::join!(waiting, meanwhile);
    late.unwrap();
}
