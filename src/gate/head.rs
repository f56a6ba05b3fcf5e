//! The form of a request's head: what must hold before anything else about it is looked at.

use std::borrow::Cow;

use http::{
    HeaderName, HeaderValue, Method, Uri, Version, header, request::Parts, uri::PathAndQuery,
};

use crate::{
    identity::TokenSources,
    policy,
    response::Rejection,
    server::{HeadLimits, Violation},
    target::{EncodedSlash, Form, Host, check_query, form, normalize_path, request_host},
    upstream::check_connection,
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
    /// Path in normal form, and the query as it came.
    pub(super) uri: Uri,
    /// The `Host` field, if the request has none because HTTP/2 says it otherwise.
    pub(super) host: Option<HeaderValue>,
}

impl<'r> Head<'r> {
    /// Reads the head's form.
    ///
    /// # Errors
    /// A [`Rejection`] for a method that is not forwarded and for whatever is ambiguous or invalid
    /// about target, host and connection.
    pub(super) fn read(parts: &'r Parts) -> Result<Self, Rejection> {
        let is_method = |name: &str| parts.method.as_str().eq_ignore_ascii_case(name);
        if is_method("CONNECT") || is_method("TRACE") {
            return Err(Rejection::Method);
        }
        if parts.version == Version::HTTP_2 {
            check_size(parts)?;
        }
        check_connection(&parts.headers)?;
        let host = request_host(&parts.uri, &parts.headers, parts.version)?;
        let form = form(&parts.method, &parts.uri);
        let path = match form {
            Form::Asterisk => Cow::Borrowed("*"),
            _ => normalize_path(parts.uri.path(), EncodedSlash::Reject)?,
        };
        if let Some(query) = parts.uri.query() {
            check_query(query)?;
        }
        let has_host_field = parts.headers.contains_key(header::HOST);
        Ok(Head { form, method: &parts.method, path, host, uri: &parts.uri, has_host_field })
    }

    /// The host that the request is for.
    pub(super) fn host(&self) -> Option<&str> {
        self.host.as_ref().map(Host::as_str)
    }

    /// What a route is chosen by.
    pub(super) fn as_route_request(&self) -> policy::Request<'_> {
        policy::Request { host: self.host(), path: &self.path, method: self.method }
    }

    /// What the upstream is asked for: exactly the path that was matched, and the query without a
    /// token.
    pub(super) fn target(&self, sources: &TokenSources) -> Target {
        let query = self.uri.query().map(|query| sources.strip_query(query));
        let is_as_it_came = self.form == Form::Origin
            && matches!(self.path, Cow::Borrowed(_))
            && matches!(query, None | Some(Cow::Borrowed(_)));
        let uri = match query {
            _ if is_as_it_came => self.uri.clone(),
            // What was nothing but a token leaves no query behind.
            Some(Cow::Owned(query)) if query.is_empty() => {
                origin_form(self.path.clone().into_owned())
            }
            Some(query) => origin_form(format!("{}?{query}", self.path)),
            None => origin_form(self.path.clone().into_owned()),
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

/// What the framing check does for HTTP/1: the same limits hold for HTTP/2.
fn check_size(parts: &Parts) -> Result<(), Violation> {
    let HeadLimits { fields, field_bytes, target_bytes, .. } = HeadLimits::default();
    let target = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if target > target_bytes {
        return Err(Violation::TargetTooLong);
    }
    if parts.headers.len() > fields {
        return Err(Violation::TooManyFields);
    }
    let is_large = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() > field_bytes
    };
    if parts.headers.iter().any(is_large) {
        return Err(Violation::FieldTooLarge);
    }
    Ok(())
}

/// A path in normal form is always a valid target; were it not, the root would be asked for.
fn origin_form(target: String) -> Uri {
    PathAndQuery::from_maybe_shared(target.into_bytes()).map(Uri::from).unwrap_or_default()
}
