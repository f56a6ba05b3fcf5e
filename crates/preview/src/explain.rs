//! How a described request would be handled: by policies in files, on the command line, or by those
//! in force, on a running proxy. Nothing is charged.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tollgate_gate::Shared;
use tollgate_identity::{AssumedTokenError, Scheme};
use tollgate_policy::{HostPattern, Policies, Policy};

use crate::{Draft, Explanation, Rehearsal};

/// The description of a request. Not `Debug`: it holds a token, or a key.
#[derive(Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Its method.
    pub method: String,
    /// Its URL; or only path and query, if there is one policy.
    pub url: String,
    /// Its token, shown in `Authorization` by the first scheme that the policy lists.
    pub token: Option<String>,
    /// The claims of a token that counts as verified.
    pub claims: Option<Map<String, Value>>,
    /// Its API key.
    pub api_key: Option<String>,
    /// The address that it comes from; 127.0.0.1.
    pub address: Option<IpAddr>,
    /// Its headers.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
}

/// Whose counters are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    /// Those of the proxy that answers.
    InUse,
    /// None: nothing was charged yet.
    Fresh,
}

/// Why there is nothing to explain.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// No method.
    #[error("`{0}` is not a method: write GET or another one")]
    Method(String),
    /// No URL.
    #[error("not a URL: write http://api.example.com/path, or only the path")]
    Url,
    /// Neither a URL nor a path: a word that would be taken for a host.
    #[error("`{0}` is not a URL or a path: write /{0}, or http://{0}/ if it is a host")]
    NotAPath(String),
    /// Only a path, and it is not clear for which policy.
    #[error("there are several policies: write a URL with a host")]
    WhichHost,
    /// No header.
    #[error("header `{0}` cannot be sent: write `name: value`")]
    Header(String),
    /// A token or a key that no header can hold.
    #[error("the credential cannot be sent in a header")]
    Credential,
    /// Several of them.
    #[error("give only one of a token, claims and an API key")]
    Credentials,
    /// An API key for a policy that has none.
    #[error("the policy has no API keys")]
    NoApiKeys,
    /// Claims that can be no token's.
    #[error(transparent)]
    Claims(#[from] AssumedTokenError),
    /// The system does not let it.
    #[error("cannot start the dry run: {0}")]
    System(#[from] std::io::Error),
}

/// How the request would be handled under the policies that are in force in `shared`.
///
/// It runs on this thread until it is known, and asks issuers and stores on the way: never call it
/// where others wait.
///
/// # Errors
/// [`QuestionError`] if the question makes no sense.
pub fn explain(
    shared: &Arc<Shared>,
    question: &Question,
    counters: Counters,
) -> Result<Explanation, QuestionError> {
    let snapshot = shared.snapshot();
    let policies = &snapshot.policies;
    let draft = draft(question, policies)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())?;
    Ok(runtime.block_on(async {
        match counters {
            Counters::InUse => {
                let rehearsal = Rehearsal::of_running(Arc::clone(shared), &snapshot.keys).await;
                rehearsal.explain(policies, &draft).await
            }
            Counters::Fresh => {
                let rehearsal = Rehearsal::with_fresh_counters(shared, &snapshot.keys);
                rehearsal.explain(policies, &draft).await.without_standings()
            }
        }
    }))
}

fn draft(question: &Question, policies: &Policies) -> Result<Draft, QuestionError> {
    let Question { method, url, token, claims, api_key, address, headers } = question;
    if [token.is_some(), claims.is_some(), api_key.is_some()].into_iter().filter(|it| *it).count()
        > 1
    {
        return Err(QuestionError::Credentials);
    }
    let method =
        Method::from_bytes(method.as_bytes()).map_err(|_| QuestionError::Method(method.clone()))?;
    let uri: Uri = url.parse().map_err(|_| QuestionError::Url)?;
    if uri.scheme().is_none() && uri.authority().is_some() {
        return Err(QuestionError::NotAPath(url.clone()));
    }
    let mut request = Request::new(());
    for (name, value) in headers {
        let refused = || QuestionError::Header(name.clone());
        let value = HeaderValue::from_str(value).map_err(|_| refused())?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        request.headers_mut().append(name, value);
    }
    let host = match (uri.authority(), request.headers().get(header::HOST)) {
        (Some(authority), _) => authority.to_string(),
        (None, Some(host)) => host.to_str().map_err(|_| QuestionError::Url)?.to_owned(),
        (None, None) => sample_host(policies)?,
    };
    let host_value = HeaderValue::from_str(&host).map_err(|_| QuestionError::Url)?;
    request.headers_mut().insert(header::HOST, host_value);
    // The form in which clients send it. `OPTIONS *` is about the server, and has no path.
    *request.uri_mut() = match uri.path_and_query() {
        Some(target) => Uri::from(target.clone()),
        None => Uri::from_static("/"),
    };
    *request.method_mut() = method;

    let credential =
        |text: &str| HeaderValue::from_str(text).map_err(|_| QuestionError::Credential);
    let policy = || policy_for(&host, policies);
    if let Some(token) = token {
        let schemes = policy().map(|policy| policy.identity.sources.schemes.as_slice());
        let scheme = schemes.and_then(|schemes| schemes.first()).unwrap_or(&Scheme::Bearer);
        request
            .headers_mut()
            .append(header::AUTHORIZATION, credential(&scheme.field_value(token))?);
    }
    if let Some(key) = api_key {
        let name = policy().and_then(|policy| policy.identity.sources.api_key.clone());
        let name = name.ok_or(QuestionError::NoApiKeys)?;
        request.headers_mut().append(name, credential(key)?);
    }
    let token = match (claims, policy()) {
        (Some(claims), Some(policy)) => Some(policy.identity.assume_token(claims.clone())?),
        _ => None,
    };
    let (head, ()) = request.into_parts();
    let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)).to_canonical();
    Ok(Draft { head, body: Box::default(), address, token })
}

fn sample_host(policies: &Policies) -> Result<String, QuestionError> {
    let mut all = policies.iter();
    match (all.next(), all.next()) {
        (Some(policy), None) => Ok(HostPattern::sample(&policy.hosts).into()),
        _ => Err(QuestionError::WhichHost),
    }
}

/// The policy for the host of a URL, as the proxy will read it.
fn policy_for<'p>(host: &str, policies: &'p Policies) -> Option<&'p Policy> {
    let host = tollgate_wire::target::Host::parse(host.as_bytes()).ok()?;
    policies.for_host(Some(host.as_str()))
}
