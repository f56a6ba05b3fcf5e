//! Fetches a set of keys: one document, or two with discovery.

use std::sync::Arc;

use thiserror::Error;
use tokio::time::timeout;

use super::{KeyLocation, RemoteSpec};
use crate::{
    claims::parse_object,
    fetch::{FetchError, Fetcher, IssuerServer, IssuerServerError},
    keys::{KeyError, KeySet, SkippedKey},
};

/// The result of a fetch.
#[derive(Clone, Debug)]
pub(super) struct FetchedKeys {
    pub(super) keys: Arc<KeySet>,
    pub(super) skipped: Vec<SkippedKey>,
}

/// Why a fetch failed.
#[derive(Clone, Debug, Error)]
pub(in crate::keys) enum RemoteError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error("HS* algorithms need a secret, and a published key is not secret")]
    Symmetric,
    #[error("the discovery document is not a JSON object without repeated names")]
    Metadata,
    #[error("the discovery document is that of another issuer")]
    OtherIssuer,
    #[error("the discovery document has no `jwks_uri`")]
    NoJwksUri,
    #[error("the `jwks_uri` of the discovery document is {0}")]
    JwksUri(IssuerServerError),
    #[error("the fetch was cancelled")]
    Cancelled,
}

/// Fetches the keys, within the time limit of the location.
pub(super) async fn fetch(
    spec: &RemoteSpec,
    fetcher: &Fetcher,
) -> Result<FetchedKeys, RemoteError> {
    let limit = spec.location.server().timeout;
    match timeout(limit, fetch_all(spec, fetcher)).await {
        Ok(result) => result,
        Err(_) => Err(FetchError::TimedOut(limit).into()),
    }
}

async fn fetch_all(spec: &RemoteSpec, fetcher: &Fetcher) -> Result<FetchedKeys, RemoteError> {
    // With a secret that every client can fetch, every client could sign.
    if spec.algorithms.iter().any(|algorithm| algorithm.is_symmetric()) {
        return Err(RemoteError::Symmetric);
    }
    let jwks = match &spec.location {
        KeyLocation::Jwks(server) => server.clone(),
        KeyLocation::Discovery { issuer, server } => {
            let metadata = fetcher.get(server, "application/json").await?;
            jwks_server(&metadata, issuer, server)?
        }
    };
    let document = fetcher.get(&jwks, "application/jwk-set+json, application/json").await?;
    let (keys, skipped) = KeySet::from_jwks(&document, &spec.algorithms, &spec.lenient)?;
    Ok(FetchedKeys { keys: Arc::new(keys), skipped })
}

/// The `jwks_uri` in the metadata of an issuer. Metadata of another issuer is refused, even if only
/// a slash differs (OpenID Connect Discovery 1.0 section 4.3).
fn jwks_server(
    metadata: &[u8],
    issuer: &str,
    server: &IssuerServer,
) -> Result<IssuerServer, RemoteError> {
    let members = parse_object(metadata).map_err(|_| RemoteError::Metadata)?;
    if members.get("issuer").and_then(|issuer| issuer.as_str()) != Some(issuer) {
        return Err(RemoteError::OtherIssuer);
    }
    let url = members.get("jwks_uri").and_then(|url| url.as_str());
    server.beside(url.ok_or(RemoteError::NoJwksUri)?).map_err(RemoteError::JwksUri)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ISSUER: &str = "https://id.example.com/";

    fn parse(url: &str) -> Result<IssuerServer, IssuerServerError> {
        IssuerServer::parse(url, false, None, Duration::from_secs(5))
    }

    #[test]
    fn only_the_metadata_of_the_issuer_itself_counts() {
        let server = parse("https://id.example.com/.well-known/openid-configuration").unwrap();
        let jwks = |metadata: &str| {
            let server = jwks_server(metadata.as_bytes(), ISSUER, &server);
            server.map(|server| server.to_string()).map_err(|error| error.to_string())
        };
        let uri = "https://keys.example.com/jwks";
        let good = format!(r#"{{"issuer":"{ISSUER}","jwks_uri":"{uri}","x":[]}}"#);
        assert_eq!(jwks(&good).as_deref(), Ok(uri));
        let other = "the discovery document is that of another issuer";
        let broken = "the discovery document is not a JSON object without repeated names";
        let missing = "the discovery document has no `jwks_uri`";
        for (metadata, expected) in [
            (format!(r#"{{"issuer":"https://id.example.com","jwks_uri":"{uri}"}}"#), other),
            (format!(r#"{{"issuer":["{ISSUER}"],"jwks_uri":"{uri}"}}"#), other),
            (format!(r#"{{"jwks_uri":"{uri}"}}"#), other),
            (format!(r#"{{"issuer":"{ISSUER}","issuer":"{ISSUER}","jwks_uri":"{uri}"}}"#), broken),
            ("[]".into(), broken),
            ("<html>".into(), broken),
            (format!(r#"{{"issuer":"{ISSUER}"}}"#), missing),
            (format!(r#"{{"issuer":"{ISSUER}","jwks_uri":null}}"#), missing),
            (
                format!(r#"{{"issuer":"{ISSUER}","jwks_uri":"http://keys.example.com/"}}"#),
                "the `jwks_uri` of the discovery document is not an https URL",
            ),
            (
                format!(r#"{{"issuer":"{ISSUER}","jwks_uri":"/jwks"}}"#),
                "the `jwks_uri` of the discovery document is not an absolute URL",
            ),
        ] {
            assert_eq!(jwks(&metadata), Err(expected.into()), "{metadata}");
        }
    }
}
