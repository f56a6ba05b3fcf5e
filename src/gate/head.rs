//! The form of a request's head: what must hold before anything else about it is looked at.

use std::{borrow::Cow, net::IpAddr};

use http::{HeaderMap, HeaderValue, Method, Uri, header, request::Parts, uri::PathAndQuery};

use crate::{
    identity::TokenSources,
    policy::{self, PathRewrite, Policies, Policy},
    response::Rejection,
    upstream::check_connection,
    wire::target::{Form, Host, check_query, form, normalize_path, request_host},
};

/// A head whose form is sound.
pub(super) struct Head<'r> {
    pub(super) form: Form,
    pub(super) method: &'r Method,
    /// In its normal form: matched, counted and forwarded alike.
    pub(super) path: Cow<'r, str>,
    host: Option<Host<'r>>,
    uri: &'r Uri,
    has_host_field: bool,
}

/// What the upstream is asked for.
pub(super) struct Target {
    /// Path in normal form, or what its route makes of that, and the query as it came.
    pub(super) uri: Uri,
    /// The `Host` field, if the request has none because HTTP/2 says it otherwise.
    pub(super) host: Option<HeaderValue>,
}

impl<'r> Head<'r> {
    /// Reads the head's form, and finds the policy that is for its host: what an escaped slash in a
    /// path stands for is the policy's to say.
    ///
    /// # Errors
    /// A [`Rejection`] for a method that is not forwarded and for whatever is ambiguous or invalid
    /// about target, host and connection.
    pub(super) fn read<'p>(
        parts: &'r Parts,
        policies: &'p Policies,
    ) -> Result<(Self, Option<&'p Policy>), Rejection> {
        let is_method = |name: &str| parts.method.as_str().eq_ignore_ascii_case(name);
        if is_method("CONNECT") || is_method("TRACE") {
            return Err(Rejection::Method);
        }
        check_connection(&parts.headers)?;
        let host = request_host(&parts.uri, &parts.headers, parts.version)?;
        let policy = policies.for_host(host.as_ref().map(Host::as_str));
        let encoded_slash = policy.map(|policy| policy.encoded_slash).unwrap_or_default();
        let form = form(&parts.method, &parts.uri);
        let path = match form {
            Form::Asterisk => Cow::Borrowed("*"),
            _ => normalize_path(parts.uri.path(), encoded_slash)?,
        };
        if let Some(query) = parts.uri.query() {
            check_query(query)?;
        }
        let has_host_field = parts.headers.contains_key(header::HOST);
        let (method, uri) = (&parts.method, &parts.uri);
        Ok((Head { form, method, path, host, uri, has_host_field }, policy))
    }

    /// The host that the request is for.
    pub(super) fn host(&self) -> Option<&str> {
        self.host.as_ref().map(Host::as_str)
    }

    /// The query as it came.
    pub(super) fn query(&self) -> Option<&str> {
        self.uri.query()
    }

    /// What a route is chosen by, for a client at this address.
    pub(super) fn as_route_request(&self, address: IpAddr) -> policy::Request<'_> {
        policy::Request { host: self.host(), path: &self.path, method: self.method, address }
    }

    /// What the upstream is asked for: the path that was matched, as its route has it rewritten, and
    /// the query without a token.
    pub(super) fn target(&self, sources: &TokenSources, rewrite: &PathRewrite) -> Target {
        let query = self.uri.query().map(|query| sources.strip_query(query));
        let path = rewrite.rewrite(&self.path);
        let is_as_it_came = self.form == Form::Origin
            && matches!(self.path, Cow::Borrowed(_))
            && path == self.path
            && matches!(query, None | Some(Cow::Borrowed(_)));
        let uri = match query {
            _ if is_as_it_came => self.uri.clone(),
            // What was nothing but a token leaves no query behind.
            Some(Cow::Owned(query)) if query.is_empty() => origin_form(path.into_owned()),
            Some(query) => origin_form(format!("{path}?{query}")),
            None => origin_form(path.into_owned()),
        };
        let host = self.host.as_ref().filter(|_| !self.has_host_field).and_then(|host| {
            let name = host.as_str();
            let value = match host.port() {
                Some(port) => HeaderValue::from_maybe_shared(format!("{name}:{port}").into_bytes()),
                None => HeaderValue::from_str(name),
            };
            value.ok()
        });
        Target { uri, host }
    }
}

/// Whether a request of HTTP/1.1 says that a body follows.
pub(super) fn declares_body(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0")
}

/// A path in normal form is always a valid target; were it not, the root would be asked for.
fn origin_form(target: String) -> Uri {
    PathAndQuery::from_maybe_shared(target.into_bytes()).map(Uri::from).unwrap_or_default()
}
