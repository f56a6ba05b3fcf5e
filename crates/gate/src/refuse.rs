//! The response to what never became a request: a head that is malformed, too large or too slow.

use std::time::Instant;

use http::{HeaderValue, Method, Response, header};
use tollgate_observe::{
    access_log::{Entry, Tail},
    metrics::{MethodLabel, RequestMeter},
    panics::Panic,
};
use tollgate_policy::Responses;
use tollgate_response::{Account, Body, ErrorDetails, Format, Rejection};
use tollgate_upstream::downstream::Peer;

use super::{Arrival, Gate, X_REQUEST_ID};

/// How HTTP writes a date (RFC 9110 section 5.6.7).
//= rfc9110#section-5.6.7
//# the sender MUST generate those timestamps in the IMF-fixdate format
//= rfc9110#section-5.6.7
//# A sender MUST NOT generate additional whitespace in an HTTP-date beyond that specifically
//# included as SP in the grammar
const DATE: &str = "%a, %d %b %Y %H:%M:%S GMT";

impl Gate {
    /// Makes the response to bytes that were no request, and logs it. `line` is their beginning, as
    /// far as it is known; nothing in it can be relied on.
    pub fn refuse(&self, rejection: Rejection, peer: &Peer, line: &[u8]) -> Response<Body> {
        let arrival = Arrival { now: self.shared().clock.now(), started: Instant::now() };
        let request_id = &self.request_ids.fresh();
        let error = rejection.to_string();
        let mut response = last_response(rejection, request_id, arrival);
        let status = response.status().as_u16();
        let (method, path) = method_and_path(line);
        let tail = self.log.as_ref().and_then(|log| {
            let line = log.begin(&Entry {
                time: arrival.now,
                request_id: request_id.to_str().unwrap_or_default(),
                trace_id: None,
                client: peer.address,
                caller: None,
                tier: None,
                method: &method,
                host: None,
                path: &path,
                route: None,
                asked_by: None,
                status,
                is_exempt: false,
                decided_by: None,
                denied: None,
                would_deny: None,
                error: Some(&error),
                limit: None,
                key: None,
                limits: &[],
                user_agent: None,
                facts: None,
                upstream: None,
            })?;
            Some(Tail::new(log.clone(), line))
        });
        let series = self.series(&self.shared().snapshot(), None);
        let method = Method::from_bytes(method.as_bytes());
        let method = method.as_ref().map_or(MethodLabel::OTHER, MethodLabel::of);
        let meter = RequestMeter::begin(series, method, arrival.started);
        response.body_mut().set_account(Some(Account::new(meter, None, status, tail)));
        response
    }

    /// Makes the response to a request whose handling has just panicked, and logs the panic. The
    /// access log has the request's line already, unless the panic came before its head was read.
    pub fn fail(&self, peer: &Peer, panic: Panic) -> Response<Body> {
        let arrival = Arrival { now: self.shared().clock.now(), started: Instant::now() };
        let (request_id, response) = match self.panicked.take() {
            Some(request_id) => {
                let response = last_response(Rejection::Internal, &request_id, arrival);
                (Some(request_id), response)
            }
            None => {
                let response = self.refuse(Rejection::Internal, peer, b"");
                (response.headers().get(&X_REQUEST_ID).cloned(), response)
            }
        };
        let request_id = request_id.as_ref().and_then(|id| id.to_str().ok());
        let Panic { message, location, backtrace } = panic;
        let backtrace = backtrace.as_deref();
        tracing::error!(
            request_id,
            panic = message,
            place = location,
            backtrace,
            "a request has panicked"
        );
        response
    }
}

/// A refusal after which the connection closes.
fn last_response(
    rejection: Rejection,
    request_id: &HeaderValue,
    arrival: Arrival,
) -> Response<Body> {
    let details =
        ErrorDetails { format: Format::Json, request_id, violated: Vec::new(), recipients: None };
    let mut response = rejection.into_response(&Responses::DEFAULT, &details);
    let headers = response.headers_mut();
    headers.insert(X_REQUEST_ID.clone(), request_id.clone());
    //= rfc9112#section-9.6
    //# A sender SHOULD send a Connection header field (Section 7.6.1 of [HTTP]) containing the
    //# "close" connection option when it intends to close a connection
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    //= rfc9110#section-6.6.1
    //# An origin server with a clock (as defined in Section 5.6.7) MUST generate a Date header
    //# field
    if let Some(date) = http_date(arrival) {
        headers.insert(header::DATE, date);
    }
    response
}

/// The words in the places of method and path, without a query, which may hold a secret.
fn method_and_path(line: &[u8]) -> (String, String) {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let mut next = |end: u8| {
        let word = words.next().and_then(|word| word.split(|byte| *byte == end).next());
        let word = String::from_utf8_lossy(word.unwrap_or_default());
        // Long enough to recognise, and no longer.
        let word: String = word.chars().take(100).collect();
        if word.is_empty() { "-".to_owned() } else { word }
    };
    (next(b' '), next(b'?'))
}

fn http_date(arrival: Arrival) -> Option<HeaderValue> {
    let micros = i64::try_from(arrival.now.as_micros()).ok()?;
    let now = jiff::Timestamp::from_microsecond(micros).ok()?;
    HeaderValue::from_str(&now.strftime(DATE).to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_and_path_are_short_and_without_a_query() {
        let long = "x".repeat(1000);
        for (line, expected) in [
            ("", ("-", "-")),
            ("GET /a?token=secret HTTP/1.1", ("GET", "/a")),
            ("GET", ("GET", "-")),
            ("  ?x=y", ("?x=y", "-")),
            ("GET ?secret", ("GET", "-")),
            (&long, (&long[..100], "-")),
        ] {
            let (method, path) = method_and_path(line.as_bytes());
            assert_eq!((&*method, &*path), expected, "{line}");
        }
        assert_eq!(method_and_path(b"\x16\x03\x01\xff / x").1, "/");
    }
}
