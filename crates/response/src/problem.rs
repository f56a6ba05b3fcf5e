//! Errors as problem details (RFC 9457).
//!
//! The content type names the charset although JSON needs none: some clients read a body of a type
//! that they do not know as text only if it does.

use http::{HeaderValue, Response, StatusCode, header};

use super::{body::Body, json::json_line};

/// The content type of a [`Problem`].
pub(super) static PROBLEM_JSON: HeaderValue =
    HeaderValue::from_static("application/problem+json; charset=utf-8");

/// The body of a response to a request that failed.
#[derive(Debug, serde::Serialize)]
pub(super) struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<&'a str>,
}

impl<'a> Problem<'a> {
    /// A problem that says no more than its status. A 503 is a lack of capacity that passes.
    pub(super) fn new(status: StatusCode, detail: &'a str) -> Self {
        let (kind, title) = if status == StatusCode::SERVICE_UNAVAILABLE {
            TEMPORARY_REDUCED_CAPACITY
        } else {
            // Without a type of its own, the title is the status's phrase (section 4.2.1).
            //= rfc9457#section-4.2.1
            //# When "about:blank" is used, the title SHOULD be the same as the recommended HTTP
            //# status phrase for that code
            ("about:blank", status.canonical_reason().unwrap_or("Error"))
        };
        let status = status.as_u16();
        Problem { kind, title, status, detail, instance: None, violated_policies: Vec::new() }
    }

    /// A denial by these limits.
    pub(super) fn quota_exceeded(
        status: StatusCode,
        detail: &'a str,
        violated_policies: Vec<&'a str>,
    ) -> Self {
        //= rfc9457#section-3.1.3
        //# It SHOULD NOT change from occurrence to occurrence of the problem, except for
        //# localization
        let (kind, title) = QUOTA_EXCEEDED;
        Problem { kind, title, violated_policies, ..Problem::new(status, detail) }
    }

    /// Names the request that failed, unless its id could not stand in a URN as it is.
    #[must_use]
    pub(super) fn of_request(mut self, id: &str) -> Self {
        //= rfc9457#section-3.1.5
        //# it is RECOMMENDED that absolute URIs be used in "instance" when possible
        self.instance = is_plain(id).then(|| ["urn:request:", id].concat());
        self
    }
}

/// A response that says no more than what went wrong.
pub fn problem(status: StatusCode, detail: &str) -> Response<Body> {
    let mut response = Response::new(Body::full(json_line(&Problem::new(status, detail))));
    //= rfc9457#section-3.1.2
    //# Generators MUST use the same status code in the actual HTTP response
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, PROBLEM_JSON.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Types of draft-ietf-httpapi-ratelimit-headers-10, each with its title.
//= rfc9457#section-3.1.1
//# it is RECOMMENDED that absolute URIs be used in "type" when possible
const QUOTA_EXCEEDED: (&str, &str) = (
    "https://iana.org/assignments/http-problem-types#quota-exceeded",
    "Request cannot be satisfied as assigned quota has been exceeded",
);
const TEMPORARY_REDUCED_CAPACITY: (&str, &str) = (
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
    "Request cannot be satisfied due to temporary server capacity constraints",
);

/// Longest request id that is shown; a client may have chosen it.
const MAX_ID_BYTES: usize = 128;

fn is_plain(id: &str) -> bool {
    let is_plain_byte =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_ID_BYTES).contains(&id.len()) && id.as_bytes().iter().all(is_plain_byte)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_denial_names_the_limits_and_the_request() {
        for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::FORBIDDEN] {
            let problem = Problem::quota_exceeded(status, "Too much.", vec!["core", "core-1m"]);
            let body = serde_json::to_string(&problem.of_request("0a1b-2.c_D")).unwrap();
            let expected = [
                r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded""#,
                r#""title":"Request cannot be satisfied as assigned quota has been exceeded""#,
                &format!(r#""status":{}"#, status.as_u16()),
                r#""detail":"Too much.""#,
                r#""instance":"urn:request:0a1b-2.c_D""#,
                r#""violated-policies":["core","core-1m"]}"#,
            ];
            assert_eq!(body, expected.join(","));
        }
    }

    #[test]
    fn a_lack_of_capacity_has_a_type_of_its_own() {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Busy.");
        assert_eq!(
            serde_json::to_value(problem).unwrap(),
            json!({
                "type":
                    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "title":
                    "Request cannot be satisfied due to temporary server capacity constraints",
                "status": 503,
                "detail": "Busy.",
            })
        );
    }

    #[test]
    fn other_problems_say_what_their_status_says() {
        for (status, title) in [
            (StatusCode::FORBIDDEN, "Forbidden"),
            (StatusCode::NOT_FOUND, "Not Found"),
            (StatusCode::BAD_GATEWAY, "Bad Gateway"),
            (StatusCode::from_u16(599).unwrap(), "Error"),
        ] {
            assert_eq!(
                serde_json::to_value(Problem::new(status, "\"No\".")).unwrap(),
                json!({
                    "type": "about:blank",
                    "title": title,
                    "status": status.as_u16(),
                    "detail": "\"No\".",
                })
            );
        }
    }

    #[test]
    fn only_a_plain_request_id_is_shown() {
        let longest = "x".repeat(MAX_ID_BYTES);
        for (id, expected) in [
            ("a", Some("urn:request:a".to_owned())),
            (&longest, Some(["urn:request:", &longest].concat())),
            (&[&longest, "x"].concat(), None),
            ("", None),
            ("a b", None),
            ("a:b", None),
            ("a/../b", None),
            ("a%20", None),
            ("\u{e9}", None),
            ("\"", None),
        ] {
            let problem = Problem::new(StatusCode::BAD_REQUEST, "No.").of_request(id);
            assert_eq!(problem.instance, expected, "{id}");
        }
    }
}
