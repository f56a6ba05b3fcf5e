//! The form of a request's head, which is checked before anything else about the request.

use std::{borrow::Cow, net::IpAddr};

use http::{HeaderMap, HeaderValue, Method, Uri, header, request::Parts, uri::PathAndQuery};
use tollgate_identity::{CredentialError, IdentityError, TokenSources};
use tollgate_policy::{self as policy, Policies, Policy, Route};
use tollgate_response::Rejection;
use tollgate_upstream::check_connection;
use tollgate_wire::{
    method_override::{MethodOverride, OverrideError, overriding_method, without_overrides},
    target::{
        Form, Host, TargetError, check_query, check_same_segments, form, normalize_path,
        plain_form, request_host,
    },
};

/// A head whose form is sound.
pub struct Head<'r> {
    pub(super) form: Form,
    /// The method that came.
    pub(super) method: &'r Method,
    /// The one by which servers take the request instead; none: they do not.
    pub(super) overriding_method: Option<Method>,
    /// What is done with what names another method.
    method_override: MethodOverride,
    /// In its normal form.
    pub path: Cow<'r, str>,
    /// Its plain form, if that is another.
    plain: Option<Box<str>>,
    host: Option<Host<'r>>,
    uri: &'r Uri,
    has_host_field: bool,
}

/// The target of the forwarded request.
pub(super) struct Target {
    /// Path in normal form, or as its route rewrites it, and the query as it came.
    pub(super) uri: Uri,
    /// The `Host` field, if the request has none because HTTP/2 names the host otherwise.
    pub(super) host: Option<HeaderValue>,
}

impl<'r> Head<'r> {
    /// Reads the head's form, and finds the policy for its host, which says what an escaped slash
    /// in a path stands for.
    ///
    /// # Errors
    /// A [`Rejection`] of a method that is not forwarded, and of an ambiguous or invalid method,
    /// target, host or `Connection`.
    pub fn read<'p>(
        parts: &'r Parts,
        policies: &'p Policies,
    ) -> Result<(Self, Option<&'p Policy>), Rejection> {
        check_method(&parts.method)?;
        let host = request_host(&parts.uri, &parts.headers, parts.version)?;
        let policy = policies.for_host(host.as_ref().map(Host::as_str));
        // All upstreams of a policy have the same.
        let upstream = policy.and_then(|policy| policy.upstreams.first());
        check_connection(&parts.headers, upstream.map(|upstream| &*upstream.own_headers))?;
        let encoded_slash = policy.map(|policy| policy.encoded_slash).unwrap_or_default();
        let method_override = policy.map(|policy| policy.method_override).unwrap_or_default();
        let overriding_method = match (policy, method_override) {
            // Which upstream it is for depends on the method.
            (Some(policy), MethodOverride::Match) => {
                let query = parts.uri.query().filter(|_| policy.reads_method_in_query());
                overriding_method(&parts.method, &parts.headers, query)?
            }
            (None, _) | (_, MethodOverride::Drop | MethodOverride::Ignore) => None,
        };
        let form = form(&parts.method, &parts.uri);
        let path = match form {
            Form::Asterisk => Cow::Borrowed("*"),
            _ => normalize_path(parts.uri.path(), encoded_slash)?,
        };
        if let Some(query) = parts.uri.query() {
            check_query(query)?;
        }
        let plain = match plain_form(&path) {
            Cow::Borrowed(_) => None,
            Cow::Owned(plain) => Some(plain.into()),
        };
        let has_host_field = parts.headers.contains_key(header::HOST);
        let (method, uri) = (&parts.method, &parts.uri);
        let head = Head {
            form,
            method,
            overriding_method,
            method_override,
            path,
            plain,
            host,
            uri,
            has_host_field,
        };
        Ok((head, policy))
    }

    /// The method that the request is judged by.
    pub fn method(&self) -> &Method {
        self.overriding_method.as_ref().unwrap_or(self.method)
    }

    /// The path as it is matched and counted, where nothing says how servers read it.
    pub fn plain_path(&self) -> &str {
        self.plain.as_deref().unwrap_or(&self.path)
    }

    /// The path as routes match it.
    pub(super) fn request_path(&self) -> policy::RequestPath<'_> {
        policy::RequestPath::new(&self.path, self.plain_path())
    }

    /// The host that the request is for.
    pub fn host(&self) -> Option<&str> {
        self.host.as_ref().map(Host::as_str)
    }

    /// The query as it came.
    pub(super) fn query(&self) -> Option<&str> {
        self.uri.query()
    }

    /// Checks that a server which gets the path as it came reads it as it was judged here.
    ///
    /// # Errors
    /// [`TargetError::NotNormal`].
    pub(super) fn check_forwarded_as_it_came(&self) -> Result<(), TargetError> {
        check_same_segments(self.uri.path(), &self.path)
    }

    /// Checks that a server which gets the path as it came finds in it what its route spells out.
    ///
    /// # Errors
    /// [`TargetError::NotNormal`].
    pub(super) fn check_spelled_out(&self, route: &Route) -> Result<(), TargetError> {
        match route.path.is_spelled_out_by(self.uri.path(), &self.path, route.reading) {
            true => Ok(()),
            false => Err(TargetError::NotNormal),
        }
    }

    /// Checks that nothing in the query overrides the method at the servers of a route, which get
    /// the query as it came.
    ///
    /// # Errors
    /// [`OverrideError::NotDropped`].
    pub(super) fn check_query_override(&self, route: &Route) -> Result<(), OverrideError> {
        match self.uri.query().map(|query| self.without_dropped(query, route)) {
            Some(Cow::Owned(_)) => Err(OverrideError::NotDropped),
            Some(Cow::Borrowed(_)) | None => Ok(()),
        }
    }

    /// Checks that what the servers of a route take for the query, though it is in the path, has no
    /// token and overrides no method: here they are looked for in the query alone.
    ///
    /// # Errors
    /// [`CredentialError::Malformed`] and [`OverrideError::Ambiguous`].
    pub(super) fn check_query_in_path(
        &self,
        route: &Route,
        sources: &TokenSources,
    ) -> Result<(), Rejection> {
        let Some(query) = route.reading.query_in(&self.path) else { return Ok(()) };
        if sources.may_be_in(query) {
            return Err(IdentityError::from(CredentialError::Malformed).into());
        }
        let is_override = route.reading.reads_method_in_query()
            && matches!(without_overrides(query), Cow::Owned(_));
        match self.method_override {
            MethodOverride::Drop | MethodOverride::Match if is_override => {
                Err(OverrideError::Ambiguous.into())
            }
            _ => Ok(()),
        }
    }

    /// The query without what would override the method at the servers of a route.
    fn without_dropped<'q>(&self, query: &'q str, route: &Route) -> Cow<'q, str> {
        let is_dropped = self.method_override == MethodOverride::Drop;
        match is_dropped && route.reading.reads_method_in_query() {
            true => without_overrides(query),
            false => Cow::Borrowed(query),
        }
    }

    /// What a route is chosen by, of a client at this address.
    pub fn as_route_request(&self, address: IpAddr) -> policy::Request<'_> {
        policy::Request {
            host: self.host(),
            path: self.request_path(),
            method: self.method(),
            address,
        }
    }

    /// What the upstream of a route is asked for, before the route rewrites it: a path, and perhaps
    /// a query that is written otherwise.
    pub(super) fn path_for(&self, route: &Route) -> Cow<'_, str> {
        match self.plain.is_none() && route.reading.is_literal() {
            true => Cow::Borrowed(&self.path),
            false => route.path.spell(&self.path, route.reading),
        }
    }

    /// The target of the forwarded request: the path that was matched, as its route rewrites it,
    /// and the query without a token and without what overrides the method.
    pub(super) fn target(&self, sources: &TokenSources, route: &Route) -> Target {
        let query = self.uri.query().map(|query| match sources.strip_query(query) {
            Cow::Borrowed(query) => self.without_dropped(query, route),
            Cow::Owned(query) => Cow::Owned(self.without_dropped(&query, route).into_owned()),
        });
        let spelled = self.path_for(route);
        let path = route.rewrite.rewrite(&spelled, route.reading);
        let is_unchanged = matches!(self.path, Cow::Borrowed(_))
            && path == self.path
            && matches!(query, None | Some(Cow::Borrowed(_)));
        // An address may have no path at all: `http://a.example?b`.
        let given = self.uri.path_and_query().filter(|given| given.as_str().starts_with('/'));
        let uri = match (given.filter(|_| is_unchanged), query) {
            (Some(given), _) => given.clone().into(),
            // A query that was nothing but these is left out.
            (None, Some(Cow::Owned(query))) if query.is_empty() => origin_form(path.into_owned()),
            (None, Some(query)) => origin_form(format!("{path}?{query}")),
            (None, None) => origin_form(path.into_owned()),
        };
        //= rfc9112#section-3.2
        //# then a client MUST send a field value for Host that is identical to that authority
        //# component
        //= rfc9113#section-8.3.1
        //# MUST use the value from the ":authority" pseudo-header field as the value of the "Host"
        //# field
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

fn check_method(method: &Method) -> Result<(), Rejection> {
    let is = |name: &str| method.as_str().eq_ignore_ascii_case(name);
    //= rfc9110#section-9.3.6
    //# A server MUST reject a CONNECT request that targets an empty or invalid port number
    match is("CONNECT") || is("TRACE") {
        true => Err(Rejection::Method),
        false => Ok(()),
    }
}

/// Whether a request of HTTP/1.1 declares a body.
pub(super) fn declares_body(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0")
}

/// Whether a request is for the caller's own standings, which get their response here.
pub(super) fn asks_for_standings(policy: &Policy, request: policy::Request<'_>) -> bool {
    let path = request.path.plain();
    let path = path.strip_suffix('/').unwrap_or(path);
    policy.responses.rate_limit_path.as_deref() == Some(path)
        && matches!(*request.method, Method::GET | Method::HEAD)
}

/// A path in normal form is always a valid target; if it were not, the target would be the root.
fn origin_form(target: String) -> Uri {
    PathAndQuery::from_maybe_shared(target.into_bytes()).map(Uri::from).unwrap_or_default()
}
