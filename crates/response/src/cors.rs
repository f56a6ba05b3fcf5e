//! The CORS fields of responses that are made here: which pages may read them.
//!
//! Without these fields a denial looks like a network error to a page of another origin.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tollgate_policy::{Cors, Origins, Preflight};

use super::body::Body;

static ANY: HeaderValue = HeaderValue::from_static("*");
static TRUE: HeaderValue = HeaderValue::from_static("true");
static ORIGIN: HeaderValue = HeaderValue::from_static("origin");
static OF_PREFLIGHT: HeaderValue = HeaderValue::from_static(
    "origin, access-control-request-method, access-control-request-headers",
);

/// An origin whose pages may read a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedOrigin {
    origin: HeaderValue,
    credentials: bool,
}

impl AllowedOrigin {
    /// `origin`, if `cors` allows its pages to.
    pub fn of(cors: &Cors, origin: &HeaderValue) -> Option<AllowedOrigin> {
        let &Cors { credentials, .. } = cors;
        let origin = match cors.origins {
            // With credentials, browsers do not accept an asterisk.
            Origins::Any if !credentials => ANY.clone(),
            _ if cors.allows(origin) => origin.clone(),
            _ => return None,
        };
        Some(AllowedOrigin { origin, credentials })
    }

    /// Puts the fields on a response.
    pub fn apply(&self, headers: &mut HeaderMap) {
        if self.origin != ANY && !headers.contains_key(header::VARY) {
            //= rfc9110#section-12.5.5
            //# A proxy MUST NOT generate "*" in a Vary field value
            //= rfc9110#section-12.5.5
            //# An origin server SHOULD generate a Vary header field on a cacheable response
            headers.insert(header::VARY, ORIGIN.clone());
        }
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.origin.clone());
        if self.credentials {
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE.clone());
        }
    }
}

/// The response to a preflight request with these `headers`, without the origin's fields. A page
/// that may not send requests gets no permission.
pub fn preflight_answer(cors: &Cors, headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::VARY, OF_PREFLIGHT.clone());
    if headers.get(header::ORIGIN).is_some_and(|origin| cors.allows(origin)) {
        let fields = response.headers_mut();
        let methods = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD).cloned();
        let names = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let (methods, names, max_age) = match &cors.preflight {
            Preflight::Answer { methods: own_methods, headers: own_names, max_age } => (
                listed(own_methods).or(methods),
                listed(own_names).or(names),
                max_age.map(|age| HeaderValue::from(age.as_secs())),
            ),
            Preflight::Check | Preflight::Pass => (methods, names, None),
        };
        let values = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, methods),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, names),
            (header::ACCESS_CONTROL_MAX_AGE, max_age),
        ];
        for (name, value) in values {
            value.map(|value| fields.insert(name, value));
        }
    }
    response
}

/// Names in a list; none if there are none.
fn listed<T: AsRef<str>>(names: &[T]) -> Option<HeaderValue> {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    (!names.is_empty()).then(|| HeaderValue::from_str(&names.join(", ")).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderName, Method};
    use tollgate_policy::OriginPattern;

    use super::*;

    const PAGE: HeaderValue = HeaderValue::from_static("https://app.example.com");

    fn cors(origins: Origins, credentials: bool) -> Cors {
        Cors { origins, credentials, preflight: Preflight::Check }
    }

    fn listed_origins() -> Origins {
        Origins::Patterns(vec![OriginPattern::Exact("https://app.example.com".into())])
    }

    fn fields_for(cors: &Cors, origin: &HeaderValue) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        AllowedOrigin::of(cors, origin)?.apply(&mut headers);
        Some(headers)
    }

    #[test]
    fn a_page_is_named_unless_every_page_may_read() {
        let headers = fields_for(&cors(listed_origins(), true), &PAGE).unwrap();
        assert_eq!(headers["access-control-allow-origin"], PAGE);
        assert_eq!(headers["access-control-allow-credentials"], "true");
        assert_eq!(headers["vary"], "origin");

        let headers = fields_for(&cors(Origins::Any, false), &PAGE).unwrap();
        assert_eq!(headers["access-control-allow-origin"], "*");
        assert_eq!(headers.len(), 1);

        let headers = fields_for(&cors(Origins::Any, true), &PAGE).unwrap();
        assert_eq!(headers["access-control-allow-origin"], PAGE);
    }

    #[test]
    fn other_pages_get_no_permission() {
        let other = HeaderValue::from_static("https://evil.example");
        assert_eq!(fields_for(&cors(listed_origins(), true), &other), None);
    }

    fn preflight_of(origin: &HeaderValue) -> HeaderMap {
        [
            (header::ORIGIN, origin.clone()),
            (header::ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("PUT")),
            (header::ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static("authorization")),
        ]
        .into_iter()
        .collect()
    }

    #[test]
    fn a_preflight_gets_what_the_policy_lists_or_what_it_requests() {
        let answer = |methods, headers, max_age| {
            let preflight = Preflight::Answer { methods, headers, max_age };
            let cors = Cors { preflight, ..cors(listed_origins(), false) };
            preflight_answer(&cors, &preflight_of(&PAGE)).headers().clone()
        };
        let all = answer(Vec::new(), Vec::new(), None);
        assert_eq!(all["access-control-allow-methods"], "PUT");
        assert_eq!(all["access-control-allow-headers"], "authorization");
        assert!(!all.contains_key("access-control-max-age"));

        let listed = answer(
            vec![Method::GET, Method::POST],
            vec![HeaderName::from_static("x-a"), HeaderName::from_static("x-b")],
            Some(Duration::from_secs(600)),
        );
        assert_eq!(listed["access-control-allow-methods"], "GET, POST");
        assert_eq!(listed["access-control-allow-headers"], "x-a, x-b");
        assert_eq!(listed["access-control-max-age"], "600");
    }

    #[test]
    fn a_preflight_of_another_page_gets_no_permission() {
        let cors = cors(listed_origins(), false);
        let response =
            preflight_answer(&cors, &preflight_of(&HeaderValue::from_static("https://a.b")));
        assert_eq!(response.status(), 204);
        assert_eq!(response.headers().len(), 1);
    }
}
