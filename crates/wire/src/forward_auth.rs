//! Requests about requests (forward-auth): another proxy says in fields what it has received, and
//! asks whether it may forward that.
//!
//! Nothing is guessed. A field that is missing would stand for every path or every host, and one
//! that is there twice may have come from the client.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header, request::Parts,
};

/// How another proxy asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Traefik, Caddy, HAProxy: `X-Forwarded-Method`, `-Host` and `-Uri`.
    Forward,
    /// nginx, whose `auth_request` knows the statuses 2xx, 401 and 403 only: `X-Original-Method`
    /// and `-URI`, and `Host`, which a client cannot add to.
    Nginx,
    /// Envoy's filter `ext_authz`, by gRPC: it says all in one message.
    Envoy,
}

/// Why what another proxy asks cannot be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The settings do not let this address ask.
    #[error("this address may not ask: `askers` in the settings names who may")]
    NotAnAsker,
    /// Nothing is decided at this path.
    #[error("nothing is decided at this path: ask at /decide/forward or /decide/nginx")]
    Path,
    /// A field is missing that says what the request is.
    #[error("the field {0} is missing: the proxy that asks has to set it")]
    Missing(&'static str),
    /// A field is there more than once.
    #[error(
        "the field {0} is there more than once: the proxy that asks has to replace a client's own"
    )]
    Repeated(&'static str),
    /// A field does not have the form of what it stands for.
    #[error("the field {0} is malformed")]
    Malformed(&'static str),
    /// A client has sent a malformed method or target, and the proxy passes it on as it came.
    #[error("the field {field} is malformed")]
    RequestLine {
        /// Who asks.
        asker: Asker,
        /// Where it tells that.
        field: &'static str,
    },
}

/// The fields that say what the request is.
struct Fields {
    method: &'static str,
    target: &'static str,
    host: &'static str,
}

impl Asker {
    /// The path that it asks at.
    pub fn path(self) -> &'static str {
        match self {
            Asker::Forward => "/decide/forward",
            Asker::Nginx => "/decide/nginx",
            Asker::Envoy => "/envoy.service.auth.v3.Authorization/Check",
        }
    }

    /// Its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Asker::Forward => "forward",
            Asker::Nginx => "nginx",
            Asker::Envoy => "envoy",
        }
    }

    /// Who asks at a path by fields, and by which.
    fn at(path: &str) -> Option<(Asker, Fields)> {
        let forward = Fields {
            method: "x-forwarded-method",
            target: "x-forwarded-uri",
            host: "x-forwarded-host",
        };
        let nginx = Fields { method: "x-original-method", target: "x-original-uri", host: "host" };
        let all = [(Asker::Forward, forward), (Asker::Nginx, nginx)];
        all.into_iter().find(|(asker, _)| asker.path() == path)
    }
}

/// What a proxy says of a request in a message.
#[derive(Clone, Copy, Debug)]
pub struct Description<'m> {
    /// Its method.
    pub method: &'m str,
    /// Its path with the query.
    pub target: &'m str,
    /// Its host, with the port if it has one.
    pub host: &'m str,
}

/// The head of the request that a message describes, with these fields.
///
/// # Errors
/// The question cannot be decided.
pub fn head_of(description: Description<'_>, fields: HeaderMap) -> Result<Parts, AskError> {
    let Description { method, target, host } = description;
    for (name, text) in [("method", method), ("path", target), ("host", host)] {
        if text.is_empty() {
            return Err(AskError::Missing(name));
        }
    }
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method =
        Method::from_bytes(method.as_bytes()).map_err(|_| AskError::Malformed("method"))?;
    let target = HeaderValue::from_str(target).ok().and_then(|target| origin_form(&target));
    parts.uri = target.ok_or(AskError::Malformed("path"))?;
    parts.headers = fields;
    let host = HeaderValue::from_str(host).map_err(|_| AskError::Malformed("host"))?;
    parts.headers.insert(header::HOST, host);
    Ok(parts)
}

/// Makes the head of a proxy's question the head of the request that it asks about. The other
/// fields are the client's already.
///
/// # Errors
/// The question cannot be decided; the head is then as it came.
pub fn restore(parts: &mut Parts) -> Result<Asker, AskError> {
    let (asker, fields) = Asker::at(parts.uri.path()).ok_or(AskError::Path)?;
    let method = only(parts, fields.method)?;
    let malformed = |field| AskError::RequestLine { asker, field };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| malformed(fields.method))?;
    let target = only(parts, fields.target)?;
    let target = origin_form(target).ok_or(malformed(fields.target))?;
    let host = match only(parts, fields.host) {
        // HTTP/2 has no such field.
        Err(AskError::Missing(_)) if asker == Asker::Nginx => authority(&parts.uri)?,
        host => host?.clone(),
    };
    parts.method = method;
    parts.uri = target;
    parts.version = Version::HTTP_11;
    for name in [fields.method, fields.target] {
        parts.headers.remove(name);
    }
    parts.headers.insert(header::HOST, host);
    Ok(asker)
}

/// The value of a field that has to be there once.
fn only<'p>(parts: &'p Parts, name: &'static str) -> Result<&'p HeaderValue, AskError> {
    let mut values = parts.headers.get_all(HeaderName::from_static(name)).iter();
    match (values.next(), values.next()) {
        (None, _) => Err(AskError::Missing(name)),
        (Some(value), None) if value.is_empty() => Err(AskError::Missing(name)),
        (Some(value), None) => Ok(value),
        (Some(_), Some(_)) => Err(AskError::Repeated(name)),
    }
}

/// A path and a query, if they are no more and no less.
fn origin_form(target: &HeaderValue) -> Option<Uri> {
    let is_whole = |uri: &Uri| uri.scheme().is_none() && uri.authority().is_none();
    // A fragment would be dropped, and with it what a server may take for a part of the path.
    let is_path = target.as_bytes().starts_with(b"/") && !target.as_bytes().contains(&b'#');
    Uri::try_from(target.as_bytes()).ok().filter(|uri| is_path && is_whole(uri))
}

fn authority(uri: &Uri) -> Result<HeaderValue, AskError> {
    let authority = uri.authority().ok_or(AskError::Missing("host"))?;
    HeaderValue::from_str(authority.as_str()).map_err(|_| AskError::Malformed("host"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, fields: &[(&str, &str)]) -> (Result<Asker, AskError>, Parts) {
        let mut request = Request::builder().method("GET").uri(path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        (restore(&mut parts), parts)
    }

    const FORWARDED: [(&str, &str); 3] = [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-host", "api.example:8443"),
        ("x-forwarded-uri", "/a/b?c=/d&e=?"),
    ];

    #[test]
    fn request_is_what_the_fields_say() {
        let (asker, parts) = asked("/decide/forward", &FORWARDED);
        assert_eq!(asker, Ok(Asker::Forward));
        assert_eq!(
            (parts.method.as_str(), parts.uri.to_string().as_str()),
            ("POST", "/a/b?c=/d&e=?")
        );
        assert_eq!(parts.headers[header::HOST], "api.example:8443");

        let fields = [
            ("x-original-method", "DELETE"),
            ("x-original-uri", "//x/../y"),
            ("host", "a.example"),
        ];
        let (asker, parts) = asked("/decide/nginx", &fields);
        assert_eq!(asker, Ok(Asker::Nginx));
        assert_eq!((parts.method.as_str(), parts.uri.to_string().as_str()), ("DELETE", "//x/../y"));
        assert_eq!(parts.headers[header::HOST], "a.example");
    }

    #[test]
    fn what_is_missing_or_there_twice_is_never_guessed() {
        for (name, value) in FORWARDED {
            let others: Vec<_> = FORWARDED.into_iter().filter(|field| field.0 != name).collect();
            assert_eq!(asked("/decide/forward", &others).0, Err(AskError::Missing(name)));
            let twice: Vec<_> = FORWARDED.into_iter().chain([(name, value)]).collect();
            assert_eq!(asked("/decide/forward", &twice).0, Err(AskError::Repeated(name)));
            let empty: Vec<_> = others.into_iter().chain([(name, "")]).collect();
            assert_eq!(asked("/decide/forward", &empty).0, Err(AskError::Missing(name)));
        }
        let nginx = [("x-original-method", "GET"), ("x-original-uri", "/")];
        assert_eq!(asked("/decide/nginx", &nginx).0, Err(AskError::Missing("host")));
        for path in ["/", "/decide", "/decide/", "/decide/forward/", "/DECIDE/FORWARD"] {
            assert_eq!(asked(path, &FORWARDED).0, Err(AskError::Path), "{path}");
        }
    }

    #[test]
    fn head_is_what_a_message_says_and_nothing_is_guessed() {
        let description = Description { method: "PUT", target: "/a?b", host: "api.example" };
        let mut fields = HeaderMap::new();
        fields.append(header::HOST, HeaderValue::from_static("another.example"));
        let parts = head_of(description, fields).unwrap();
        assert_eq!((parts.method.as_str(), parts.uri.to_string().as_str()), ("PUT", "/a?b"));
        assert_eq!(parts.headers[header::HOST], "api.example");
        let error = |description| head_of(description, HeaderMap::new()).unwrap_err();
        assert_eq!(error(Description { method: "", ..description }), AskError::Missing("method"));
        assert_eq!(error(Description { target: "", ..description }), AskError::Missing("path"));
        assert_eq!(error(Description { host: "", ..description }), AskError::Missing("host"));
        assert_eq!(
            error(Description { method: "P T", ..description }),
            AskError::Malformed("method")
        );
        assert_eq!(error(Description { target: "a", ..description }), AskError::Malformed("path"));
        assert_eq!(error(Description { host: "a\nb", ..description }), AskError::Malformed("host"));
    }

    #[test]
    fn target_is_a_path_and_nothing_else() {
        for target in ["a", "http://evil.example/", "*", "/a#b", "evil.example:80", "?a"] {
            let fields = FORWARDED.map(|(name, value)| match name {
                "x-forwarded-uri" => (name, target),
                _ => (name, value),
            });
            let asker = Asker::Forward;
            let error = AskError::RequestLine { asker, field: "x-forwarded-uri" };
            assert_eq!(asked("/decide/forward", &fields).0, Err(error), "{target}");
        }
    }
}
