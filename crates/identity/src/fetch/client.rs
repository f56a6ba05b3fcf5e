//! One HTTP/1.1 request to an issuer: connections, redirects, and how much is read.

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, USER_AGENT},
    uri::{PathAndQuery, Scheme},
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use parking_lot::Mutex;
use tollgate_outbound::{self as outbound, HttpClient, OUR_USER_AGENT};

use super::{FetchError, IssuerServer, MAX_BODY_BYTES, issuer_server};

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 3;
/// How long an idle connection is kept, and how many to one server.
const IDLE: Duration = Duration::from_secs(30);
const MAX_IDLE: usize = 8;
/// Clients that are kept, one for each set of authorities. A policy has few; a client that was
/// dropped is made again when it is next needed.
const MAX_CLIENTS: usize = 32;

/// A client for each set of authorities, the most recently used at the end.
#[derive(Default)]
pub(super) struct HttpClients(Mutex<Vec<(Authorities, HttpClient)>>);

/// In PEM. None: the public authorities.
type Authorities = Option<Arc<[u8]>>;

impl HttpClients {
    /// The client that trusts the server's authorities.
    pub(super) fn for_server(&self, server: &IssuerServer) -> Result<HttpClient, FetchError> {
        let mut clients = self.0.lock();
        let known = clients.iter().position(|(authorities, _)| *authorities == server.ca);
        let entry = match known {
            Some(position) => clients.remove(position),
            None => (server.ca.clone(), client(server.ca.as_deref())?),
        };
        if clients.len() >= MAX_CLIENTS {
            clients.remove(0);
        }
        let client = entry.1.clone();
        clients.push(entry);
        Ok(client)
    }
}

fn client(authorities: Option<&[u8]>) -> Result<HttpClient, FetchError> {
    let roots = match authorities {
        None => outbound::public_authorities(),
        Some(pem) => issuer_server::authorities(pem).map_err(FetchError::Authorities)?,
    };
    // IssuerServer::parse has refused the URLs that must not be plain HTTP.
    outbound::client(roots, IDLE, MAX_IDLE).map_err(FetchError::Tls)
}

/// Gets the document at `url`, and follows redirects on its server.
pub(super) async fn get(
    client: &HttpClient,
    url: &Uri,
    accept: HeaderValue,
) -> Result<Vec<u8>, FetchError> {
    let mut url = url.clone();
    for _ in 0..=MAX_REDIRECTS {
        let mut request = request(Method::GET, &url, Bytes::new());
        request.headers_mut().insert(ACCEPT, accept.clone());
        let response = client.request(request).await.map_err(failure)?;
        match response.status() {
            StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT => url = redirected(&url, response.headers())?,
            _ => return body(response).await,
        }
    }
    Err(FetchError::Redirected)
}

/// Posts a form.
pub(super) async fn post(
    client: &HttpClient,
    url: &Uri,
    authorization: HeaderValue,
    form: String,
) -> Result<Vec<u8>, FetchError> {
    let mut request = request(Method::POST, url, form.into());
    let headers = request.headers_mut();
    headers.insert(AUTHORIZATION, authorization);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(CONTENT_TYPE, form);
    body(client.request(request).await.map_err(failure)?).await
}

fn request(method: Method, url: &Uri, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = url.clone();
    //= rfc9110#section-10.1.5
    //# A user agent SHOULD send a User-Agent header field in each request
    request.headers_mut().insert(USER_AGENT, OUR_USER_AGENT);
    request
}

async fn body(response: Response<Incoming>) -> Result<Vec<u8>, FetchError> {
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status().as_u16()));
    }
    let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await;
    match body {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLarge),
        Err(error) => Err(FetchError::Request(Arc::new(BrokenBody(error)))),
    }
}

/// A body that ended too soon.
#[derive(Debug, thiserror::Error)]
#[error("the body broke off")]
struct BrokenBody(#[source] Box<dyn Error + Send + Sync>);

fn failure(error: legacy::Error) -> FetchError {
    match error.is_connect() {
        true => FetchError::Connect(Arc::new(error)),
        false => FetchError::Request(Arc::new(error)),
    }
}

/// Where `Location` leads, if it leads to the same server: absolute, or a path from the root.
fn redirected(from: &Uri, headers: &HeaderMap) -> Result<Uri, FetchError> {
    let location = headers.get(LOCATION).ok_or(FetchError::Redirected)?;
    let to = Uri::try_from(location.as_bytes()).map_err(|_| FetchError::Redirected)?;
    let is_path = to.authority().is_none() && location.as_bytes().starts_with(b"/");
    // `//elsewhere/path` is no path (RFC 3986 section 4.2).
    if is_path && !location.as_bytes().starts_with(b"//") {
        let mut parts = from.clone().into_parts();
        parts.path_and_query = Some(to.into_parts().path_and_query.unwrap_or(ROOT));
        return Uri::from_parts(parts).map_err(|_| FetchError::Redirected);
    }
    if to.scheme().is_none() {
        return Err(FetchError::Redirected);
    }
    if origin(&to) != origin(from) || issuer_server::has_user(&to) {
        return Err(FetchError::RedirectedElsewhere);
    }
    Ok(to)
}

const ROOT: PathAndQuery = PathAndQuery::from_static("/");

/// Scheme, host and port.
fn origin(url: &Uri) -> (Option<&Scheme>, Option<String>, Option<u16>) {
    let usual = if url.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    (url.scheme(), url.host().map(str::to_ascii_lowercase), url.port_u16().or(Some(usual)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a response from `https://id.example.com/old` with this `Location` leads.
    fn from_old(location: &str) -> Result<String, String> {
        let from = Uri::from_static("https://id.example.com/old?a=1");
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, HeaderValue::from_str(location).unwrap());
        let to = redirected(&from, &headers);
        to.map(|url| url.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn redirects_stay_on_the_server() {
        for (location, expected) in [
            ("/new", "https://id.example.com/new"),
            ("/new?b=2", "https://id.example.com/new?b=2"),
            ("https://id.example.com/new", "https://id.example.com/new"),
            ("https://ID.example.com:443/new", "https://ID.example.com:443/new"),
            ("/new#part", "https://id.example.com/new"),
        ] {
            assert_eq!(from_old(location).as_deref(), Ok(expected), "{location}");
        }
        for elsewhere in [
            "https://other.example.com/new",
            "https://example.com/new",
            "http://id.example.com/new",
            "http://id.example.com:443/new",
            "https://id.example.com:8443/new",
            "https://user@id.example.com/new",
            "https://id.example.com@other.example/new",
            "ftp://id.example.com/new",
        ] {
            let expected = Err("redirected to another server".to_owned());
            assert_eq!(from_old(elsewhere), expected, "{elsewhere}");
        }
        for nowhere in ["", "new", "../new", "//other.example.com/new", "?b=2", "https://", "*"] {
            assert!(from_old(nowhere).is_err(), "{nowhere}");
        }
        assert!(redirected(&Uri::from_static("https://a.example/"), &HeaderMap::new()).is_err());
    }

    #[test]
    fn equal_authorities_share_a_client_and_few_are_kept() {
        let clients = HttpClients::default();
        let server = |ca| IssuerServer::parse("https://a.example/", false, ca, IDLE).unwrap();
        clients.for_server(&server(None)).unwrap();
        clients.for_server(&server(None)).unwrap();
        assert_eq!(clients.0.lock().len(), 1);
        let pem = issuer_server::tests::authority();
        for number in 0..2 * MAX_CLIENTS {
            let pem = format!("{number}\n{pem}").into_bytes();
            clients.for_server(&server(Some(pem.into()))).unwrap();
        }
        assert_eq!(clients.0.lock().len(), MAX_CLIENTS);
    }
}
