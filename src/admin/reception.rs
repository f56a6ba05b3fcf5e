//! Who is let in: the checks before an endpoint sees a request, in this order. First where it comes
//! from, which costs least and tells a foreign page nothing; then whether there is such an
//! endpoint; then the token; and only then is a body read.

use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Either, LengthLimitError, Limited};
use hyper::body::Incoming;
use tollgate_settings::{AdminSettings, CurrentTokens, Permission, TokenRefusal};

use super::{
    AnswerBody, Context,
    admin_request::AdminRequest,
    endpoint::{Endpoint, Verb},
    live::Live,
    message,
};
use crate::guard::{Hosts, Suspicion, check_action};

/// What the listener reports on, and who may ask about it.
pub(super) struct Reception {
    context: Context,
    live: Live,
    /// The names by which it may be asked.
    hosts: Vec<String>,
    /// None: clients need none.
    tokens: Option<Arc<CurrentTokens>>,
}

/// Where a connection comes from, and where it has come in.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    /// The client's address. All clients of a Unix socket have that of loopback.
    pub(super) peer: IpAddr,
    /// The address of this machine that the client has connected to, unless it is a Unix socket.
    pub(super) own: Option<IpAddr>,
    /// What is to be had there.
    pub(super) offer: Offer,
}

/// What is to be had where a connection has come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// Every endpoint.
    All,
    /// Those that Prometheus and probes ask. They need no token: labels of metrics are words of the
    /// policy, never callers.
    Metrics,
}

type Answer = Response<AnswerBody>;

/// Why a request gets no further.
#[derive(Debug)]
enum Refused {
    /// A page of another origin may have sent it.
    Suspicion(Suspicion),
    NoEndpoint,
    /// The endpoints of the path are asked by these methods.
    Method(String),
    /// The token is not there, or does not allow it.
    Token(TokenRefusal),
    BodyTooLarge,
    BodyUnreadable,
}

/// The longest body of a request that is read.
const MAX_BODY_BYTES: usize = 64 * 1024;

static RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

impl Reception {
    pub(super) fn new(settings: &AdminSettings, context: Context) -> Reception {
        let hosts = settings.hosts.clone();
        let tokens = settings.tokens.clone();
        let live = Live::new(&context);
        Reception { context, live, hosts, tokens }
    }

    /// Observes what the dashboard shows.
    pub(super) async fn observe(&self) -> Infallible {
        self.live.run(&self.context).await
    }

    pub(super) async fn answer(&self, request: Request<Incoming>, ends: Ends) -> Answer {
        let mut answer = match self.admit(request, ends).await {
            Ok((endpoint, asked)) => self.context.answer(endpoint.page, &asked, &self.live).await,
            Err(refused) => refused.into(),
        };
        // And no header that lets pages of other origins read it.
        let headers = answer.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(&RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
        answer
    }

    /// The endpoint that is asked, with what it needs of the request.
    async fn admit(
        &self,
        request: Request<Incoming>,
        ends: Ends,
    ) -> Result<(&'static Endpoint, AdminRequest), Refused> {
        let (parts, body) = request.into_parts();
        let hosts = Hosts { listed: &self.hosts, takes_local_names: false };
        hosts.check(&parts.uri, &parts.headers, ends.own).map_err(Refused::Suspicion)?;
        let endpoint = find(&parts, ends.offer)?;
        if endpoint.verb == Verb::Post {
            check_action(&parts.headers).map_err(Refused::Suspicion)?;
        }
        let tokens = self.tokens.as_ref().filter(|_| ends.offer == Offer::All);
        let is_closed = tokens.is_some();
        if let (Some(needed), Some(tokens)) = (endpoint.needs, tokens) {
            let checked = tokens.check(needed, &parts.headers, ends.peer, Instant::now());
            if checked == Err(TokenRefusal::WrongToken) {
                tracing::warn!(peer = %ends.peer, "a wrong token was sent to the admin listener");
            }
            checked.map_err(Refused::Token)?;
        }
        let body = match endpoint.verb {
            Verb::Get => Bytes::new(),
            Verb::Post => read(body).await?,
        };
        if endpoint.needs == Some(Permission::Write) {
            let (peer, path) = (ends.peer, parts.uri.path());
            tracing::info!(%peer, path, "asked to act at the admin listener");
        }
        let may_read = match ends.offer {
            Offer::All => endpoint.needs.is_some() || !is_closed,
            Offer::Metrics => false,
        };
        let token = endpoint.needs.filter(|_| is_closed);
        let Parts { uri, headers, .. } = parts;
        Ok((endpoint, AdminRequest { uri, headers, peer: ends.peer, token, body, may_read }))
    }
}

fn find(parts: &Parts, offer: Offer) -> Result<&'static Endpoint, Refused> {
    let mut there = Endpoint::at(parts.uri.path());
    there.retain(|endpoint| offer == Offer::All || endpoint.page.is_for_probes());
    if there.is_empty() {
        return Err(Refused::NoEndpoint);
    }
    let asked = there.iter().find(|endpoint| endpoint.verb.is_asked_by(&parts.method));
    asked.copied().ok_or_else(|| {
        let methods: Vec<&str> = there.iter().map(|endpoint| endpoint.verb.methods()).collect();
        Refused::Method(methods.join(", "))
    })
}

/// The body of a request.
async fn read(body: Incoming) -> Result<Bytes, Refused> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refused::BodyTooLarge),
        Err(_) => Err(Refused::BodyUnreadable),
    }
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Answer {
        let message = |status, text: &str| message(status, text).map(Either::Left);
        match refused {
            Refused::Suspicion(why) => message(StatusCode::FORBIDDEN, &why.to_string()),
            Refused::NoEndpoint => message(StatusCode::NOT_FOUND, "there is nothing here"),
            Refused::Method(methods) => {
                let text = format!("ask by {methods}");
                let answer = message(StatusCode::METHOD_NOT_ALLOWED, &text);
                with_field(answer, header::ALLOW, &methods)
            }
            Refused::Token(refusal) => {
                let (status, name, value) = refusal.answer();
                with_field(message(status, &refusal.to_string()), name, value)
            }
            Refused::BodyTooLarge => {
                let text = format!("send at most {MAX_BODY_BYTES} bytes");
                message(StatusCode::PAYLOAD_TOO_LARGE, &text)
            }
            Refused::BodyUnreadable => message(StatusCode::BAD_REQUEST, "the body cannot be read"),
        }
    }
}

fn with_field(mut answer: Answer, name: HeaderName, value: &str) -> Answer {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
    answer
}
