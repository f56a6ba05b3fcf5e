//! What the body of a request says, for the limits that count by it: it is read before the request
//! is charged, as far as that is bounded, and passed on as if nothing had been read.

use std::{
    borrow::Cow,
    cell::{Cell, OnceCell},
    rc::Rc,
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use smallvec::SmallVec;
use tollgate_clock::deadline::Ticker;
use tollgate_graphql::{Measure, Refusal, RequestCost, body_cost, document_cost, query_cost};
use tollgate_policy::{AskedUsage, KeyPart, Policy, Route, UnfitMember};
use tollgate_response::Rejection;
use tollgate_upstream::ClientBody;
use tollgate_usage::{
    include_usage::with_usage,
    json::Amount,
    mcp::{Message, MessageError, Messages, Recipients, RepeatedFields},
    request::{FoundMembers, Member, decoded},
};
use tollgate_wire::media_type::MediaType;

/// Where the body of a request is.
#[derive(Clone, Copy, Default)]
pub enum BodyInput<'r> {
    /// There is none, or another proxy has it.
    #[default]
    Elsewhere,
    /// It is here, of a request that no client has sent.
    Whole(&'r [u8]),
    /// Of a request of the past: it had so many bytes, and said at least this. Nobody knows the
    /// rest.
    Logged(u64, &'r [u8]),
    /// It comes from the client.
    Coming(&'r ComingBody<'r>),
}

/// A body that comes from a client, and how much of it may be read ahead.
pub struct ComingBody<'g> {
    body: Cell<Option<ClientBody>>,
    /// What it says, once it was looked at.
    pub(super) facts: OnceCell<BodyFacts>,
    ticker: &'g Rc<Ticker>,
    bounds: LookBounds,
}

/// How much of a body is read before its request is charged.
#[derive(Clone, Copy)]
pub(super) struct LookBounds {
    pub(super) bytes: u64,
    pub(super) time: Duration,
}

/// The request whose body is looked into.
#[derive(Clone, Copy)]
pub(super) struct LookedInto<'r> {
    pub(super) policy: &'r Policy,
    pub(super) route: &'r Route,
    pub(super) method: &'r Method,
    pub(super) path: &'r str,
    /// The query of its target.
    pub(super) query: &'r str,
    pub(super) headers: &'r HeaderMap,
}

/// What the body of a request says.
pub struct BodyFacts {
    /// None: it is no JSON, or too long, or not here.
    pub(super) members: Option<FoundMembers>,
    /// How long it is at most; none: as long as it likes.
    pub(super) bytes: Option<u64>,
    /// The messages of the Model Context Protocol in it, where they are looked for. None: there are
    /// none to be read.
    pub(super) messages: Result<Option<Messages>, MessageError>,
    /// Whether it is JSON by its type, and could not be read.
    pub(super) is_unread_json: bool,
    /// Whether it is for Anthropic's Messages, which look like OpenAI's Chat Completions.
    is_for_anthropic: bool,
    /// What the GraphQL requests in it, or in the target, cost by each measure that counts.
    pub(super) queries: SmallVec<[(Measure, Result<RequestCost, Refusal>); 1]>,
}

impl<'g> ComingBody<'g> {
    pub(super) fn new(
        body: Option<ClientBody>,
        ticker: &'g Rc<Ticker>,
        bounds: LookBounds,
    ) -> Self {
        ComingBody { body: Cell::new(body), facts: OnceCell::new(), ticker, bounds }
    }

    /// The body, to be passed on.
    pub(super) fn take(&self) -> Option<ClientBody> {
        self.body.take()
    }

    /// The body, to be passed on with this head, and with a question for the usage of its stream:
    /// at most `max_bytes`, without its content coding. A body that cannot be read is left as it
    /// is.
    pub(super) fn take_asking_for_usage(
        &self,
        headers: &mut HeaderMap,
        max_bytes: u64,
    ) -> Option<ClientBody> {
        let mut body = self.take()?;
        let asking = decoded(body.ahead(), content_coding(headers), self.bounds.bytes)
            .ok()
            .and_then(|body| with_usage(&body))
            .filter(|body| body.len() as u64 <= max_bytes);
        if let Some(asking) = asking {
            if headers.remove(header::CONTENT_LENGTH).is_some() {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(asking.len()));
            }
            headers.remove(header::CONTENT_ENCODING);
            body.replace_ahead(&asking);
        }
        Some(body)
    }
}

impl BodyInput<'_> {
    /// Looks into the body of a request on this route with this head.
    ///
    /// # Errors
    /// The [`Rejection`]: the client breaks it off, is too slow, or sends more than the route
    /// takes.
    pub(super) async fn look(self, request: LookedInto<'_>) -> Result<BodyFacts, Rejection> {
        let LookedInto { route, headers, .. } = request;
        let declared = headers.contains_key(header::CONTENT_LENGTH);
        let told = if declared { Some(declared_bytes(headers)) } else { route.max_body };
        let coming = match self {
            // It may be longer than this says; what it says itself is not known either.
            BodyInput::Elsewhere => return Ok(request.elsewhere(declared_bytes(headers))),
            BodyInput::Logged(bytes, []) => return Ok(request.elsewhere(bytes)),
            BodyInput::Logged(bytes, said) => {
                return Ok(BodyFacts { bytes: Some(bytes), ..request.facts_of(said, u64::MAX) });
            }
            BodyInput::Whole(body) => return Ok(request.facts_of(body, u64::MAX)),
            BodyInput::Coming(coming) => coming,
        };
        let LookBounds { bytes, time } = coming.bounds;
        let Some(mut body) = coming.take() else { return Ok(request.facts_of(&[], bytes)) };
        // What is known to be too long is not read ahead at all.
        if declared && told > Some(bytes) {
            coming.body.set(Some(body));
            return Ok(request.unread(told));
        }
        let most = route.max_body.map_or(bytes, |most| most.min(bytes));
        let is_whole = body.read_ahead(most, time, coming.ticker).await?;
        let facts = match is_whole {
            true => request.facts_of(body.ahead(), bytes),
            false if route.max_body.is_some_and(|max| max <= bytes) => {
                return Err(Rejection::BodyTooLarge);
            }
            false => request.unread(told),
        };
        coming.body.set(Some(body));
        Ok(facts)
    }
}

impl LookedInto<'_> {
    /// What a whole body says, which has at most `max_bytes` without its content coding.
    fn facts_of(&self, body: &[u8], max_bytes: u64) -> BodyFacts {
        let Some((media_type, body)) = self.plain(body, max_bytes) else {
            return self.unread(Some(body.len() as u64));
        };
        let members = self.policy.members.as_ref();
        let members = members.and_then(|members| members.find(&body).ok());
        let messages = match self.route.body.is_of_messages {
            false => Ok(None),
            // Clients open a stream so, and end a session.
            true if body.is_empty() && self.method != Method::POST => Ok(Some(Messages::default())),
            true => self.messages(&body),
        };
        BodyFacts {
            is_unread_json: media_type.is_json() && members.is_none() && !body.is_empty(),
            is_for_anthropic: self.is_for_anthropic(),
            members,
            bytes: Some(body.len() as u64),
            messages,
            queries: self.queries(|measure| self.query_cost(measure, &media_type, &body)),
        }
    }

    /// A body without its content coding, and what it is. None: servers may read something else.
    fn plain<'b>(&self, body: &'b [u8], max_bytes: u64) -> Option<(MediaType<'_>, Cow<'b, [u8]>)> {
        // What is said of no body says nothing.
        if body.is_empty() {
            return Some((MediaType::NONE, Cow::Borrowed(body)));
        }
        let media_type = MediaType::of_content(self.headers).filter(MediaType::is_utf8)?;
        Some((media_type, decoded(body, content_coding(self.headers), max_bytes).ok()?))
    }

    /// All that is known of a body of so many bytes that is not here.
    fn elsewhere(&self, bytes: u64) -> BodyFacts {
        let has_no_body = [Method::GET, Method::HEAD].contains(self.method) && bytes == 0;
        let cost = |measure| match has_no_body {
            true => query_cost(measure, self.query),
            // It has one request at least.
            false => Ok(RequestCost { units: 0, unknown: 1 }),
        };
        let queries = self.queries(cost);
        BodyFacts {
            members: None,
            bytes: Some(bytes),
            messages: Ok(None),
            is_unread_json: false,
            is_for_anthropic: self.is_for_anthropic(),
            queries,
        }
    }

    /// All that is known of a body that is too long to be read, or cannot be decoded.
    fn unread(&self, bytes: Option<u64>) -> BodyFacts {
        let is_json = MediaType::of_content(self.headers).is_none_or(|own| own.is_json());
        BodyFacts {
            members: None,
            bytes,
            messages: Ok(self.route.body.is_of_messages.then(Messages::unread)),
            is_unread_json: is_json,
            is_for_anthropic: self.is_for_anthropic(),
            queries: self.queries(|_| Err(Refusal::Unread)),
        }
    }

    fn is_for_anthropic(&self) -> bool {
        self.headers.contains_key(ANTHROPIC_VERSION) && self.path.ends_with("/messages")
    }

    fn queries(
        &self,
        cost: impl Fn(Measure) -> Result<RequestCost, Refusal>,
    ) -> SmallVec<[(Measure, Result<RequestCost, Refusal>); 1]> {
        self.route.body.measures.iter().map(|measure| (*measure, cost(*measure))).collect()
    }

    /// What the GraphQL requests in a whole body, or in the target, cost.
    fn query_cost(
        &self,
        measure: Measure,
        media_type: &MediaType<'_>,
        body: &[u8],
    ) -> Result<RequestCost, Refusal> {
        match body {
            [] => query_cost(measure, self.query),
            _ if media_type.is("application/graphql") => document_cost(measure, self.query, body),
            _ if media_type.is("application/x-www-form-urlencoded") => {
                let form = str::from_utf8(body).map_err(|_| Refusal::NotUtf8)?;
                // Some servers read JSON whatever its type is.
                match form.trim_start().starts_with(['{', '[']) {
                    true => Err(Refusal::Unread),
                    false => query_cost(measure, &format!("{}&{form}", self.query)),
                }
            }
            _ if media_type.is("multipart/form-data") => Err(Refusal::Unread),
            _ => body_cost(measure, self.query, body),
        }
    }

    /// The messages of the Model Context Protocol in a body.
    fn messages(&self, body: &[u8]) -> Result<Option<Messages>, MessageError> {
        let mut messages = Messages::read(body)?.or_else(|| Some(Messages::unread()));
        if let Some(messages) = &mut messages {
            let value = |name: &HeaderName| {
                let mut values = self.headers.get_all(name).iter().map(HeaderValue::as_bytes);
                match (values.next(), values.next()) {
                    (Some(_), Some(_)) => Some(REPEATED),
                    (value, _) => value,
                }
            };
            let [version, method, name] = MESSAGE_FIELDS.each_ref().map(value);
            messages.check_fields(RepeatedFields { version, method, name })?;
        }
        Ok(messages)
    }
}

impl BodyFacts {
    /// Whom a response is for that is made in place of that to the messages; none: there are none.
    pub(super) fn recipients(&self) -> Option<Recipients<'_>> {
        match &self.messages {
            Ok(messages) => messages.as_ref()?.recipients(),
            Err(error) => Some(error.recipients()),
        }
    }

    /// Its message; of several, the first.
    pub fn first_message(&self) -> Option<&Message> {
        self.messages.as_ref().ok()?.as_ref()?.each().first()
    }

    /// What it says there, if that can be counted by: a text that is not empty, a whole number or a
    /// truth value; of several messages, the first one's.
    pub(super) fn in_words(&self, part: &KeyPart) -> Option<Cow<'_, str>> {
        match part {
            KeyPart::McpTool => self.first_message()?.tool().map(Cow::Borrowed),
            KeyPart::McpMethod => self.first_message()?.method.as_deref().map(Cow::Borrowed),
            KeyPart::Body(member) => match self.members.as_ref()?.at(member.number) {
                Member::Text(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
                Member::Number(Some(Amount { units, is_whole: true })) => {
                    Some(Cow::Owned(units.to_string()))
                }
                Member::Bool(truth) => Some(Cow::Owned(truth.to_string())),
                Member::Missing | Member::Text(_) | Member::Number(_) | Member::Other => None,
            },
            _ => None,
        }
    }

    /// Whether the request wants a stream of OpenAI's, and does not ask for its usage.
    ///
    /// # Errors
    /// [`UnfitMember`].
    pub(super) fn lacks_usage(&self, asked: &AskedUsage) -> Result<bool, UnfitMember> {
        // The streams of Anthropic always tell.
        match &self.members {
            Some(found) if !self.is_for_anthropic => asked.is_missing(found),
            _ => Ok(false),
        }
    }
}

/// The field that all requests for Anthropic's Messages have.
const ANTHROPIC_VERSION: &str = "anthropic-version";

/// The fields that repeat what a message says: its revision, its method, and what that names.
static MESSAGE_FIELDS: [HeaderName; 3] = [
    HeaderName::from_static("mcp-protocol-version"),
    HeaderName::from_static("mcp-method"),
    HeaderName::from_static("mcp-name"),
];

/// In place of a field that is there twice: no method, name or revision reads so, and a revision
/// this high has to have the other fields.
const REPEATED: &[u8] = b"\xFF";

/// The content coding of a body; `unknown`, if there are several.
fn content_coding(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::CONTENT_ENCODING).iter();
    match (values.next(), values.next()) {
        (None, _) => None,
        (Some(only), None) => Some(only.to_str().unwrap_or("unknown")),
        (Some(_), Some(_)) => Some("unknown"),
    }
}

/// The length that a request declares for its body; zero if it declares none.
pub(super) fn declared_bytes(headers: &HeaderMap) -> u64 {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|digits| digits.parse().ok()).unwrap_or_default()
}
