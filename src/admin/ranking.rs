//! Which callers use most, and who was denied last: `GET /callers` and `GET /denials`.

use std::str::FromStr;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tollgate_gate::{DenialFilter, KEPT_DENIALS};
use tollgate_keyword::Keyword;

use super::{Context, admin_request::AdminRequest, json_response, message};
use crate::callers::{
    denials,
    top::{RankBy, TopError, TopQuery, top},
};

const BY: &str = "`by` is `units`, `denials` or `would_be_denials`";

/// The most callers in one answer.
const MAX_TOP: usize = 1000;

/// Denials in an answer to a request that does not say how many.
const USUAL_DENIALS: usize = 100;

impl Context {
    /// The callers that use limits most.
    pub(super) fn top_callers(&self, asked: &AdminRequest) -> Response<Full<Bytes>> {
        let query = match top_query(asked.uri.query().unwrap_or_default()) {
            Ok(query) => query,
            Err(mistake) => return message(StatusCode::BAD_REQUEST, &mistake),
        };
        match top(&self.shared, &query, self.shared.clock.now()) {
            Ok(report) => json_response(StatusCode::OK, &report),
            Err(error @ TopError::NoSuchLimit { .. }) => {
                message(StatusCode::NOT_FOUND, &error.to_string())
            }
            Err(error @ TopError::Minutes) => message(StatusCode::BAD_REQUEST, &error.to_string()),
        }
    }

    /// The latest denials.
    pub(super) fn latest_denials(&self, asked: &AdminRequest) -> Response<Full<Bytes>> {
        match denials_query(asked.uri.query().unwrap_or_default()) {
            Ok((after, filter, most)) => {
                json_response(StatusCode::OK, &denials(&self.shared, after, &filter, most))
            }
            Err(mistake) => message(StatusCode::BAD_REQUEST, &mistake),
        }
    }
}

fn top_query(text: &str) -> Result<TopQuery, String> {
    let mut query = TopQuery::default();
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        match &*name {
            "by" => {
                query.by = RankBy::from_keyword(&value).ok_or(BY)?;
            }
            "limit" => query.limit = Some(value.into_owned()),
            "policy" => query.policy = Some(value.into_owned()),
            "minutes" => query.minutes = number("minutes", &value)?,
            "top" => query.top = number("top", &value)?,
            _ => {
                let known = "`by`, `limit`, `policy`, `minutes` and `top`";
                return Err(format!("the only parameters are {known}"));
            }
        }
    }
    match query.top {
        1..=MAX_TOP => Ok(query),
        _ => Err(format!("`top` is 1 to {MAX_TOP}")),
    }
}

fn denials_query(text: &str) -> Result<(u64, DenialFilter, usize), String> {
    let (mut after, mut filter, mut most) = (0, DenialFilter::default(), USUAL_DENIALS);
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        match &*name {
            "after" => after = number("after", &value)?,
            "caller" => filter.caller = Some(value.into_owned()),
            "limit" => filter.limit = Some(value.into_owned()),
            "policy" => filter.policy = Some(value.into_owned()),
            "top" => most = number("top", &value)?,
            _ => {
                let known = "`after`, `caller`, `limit`, `policy` and `top`";
                return Err(format!("the only parameters are {known}"));
            }
        }
    }
    match most {
        1..=KEPT_DENIALS => Ok((after, filter, most)),
        _ => Err(format!("`top` is 1 to {KEPT_DENIALS}")),
    }
}

fn number<N: FromStr>(name: &str, text: &str) -> Result<N, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| format!("`{name}` is a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_and_mistakes_named() {
        let query = top_query("by=denials&limit=co%20re&policy=api&minutes=60&top=5").unwrap();
        let [policy, limit] = ["api", "co re"].map(|name| Some(name.to_owned()));
        assert_eq!(query, TopQuery { by: RankBy::Denials, policy, limit, minutes: 60, top: 5 });
        assert_eq!(top_query(""), Ok(TopQuery::default()));
        for (text, expected) in [
            ("by=cost", BY),
            ("top=0", "`top` is 1 to 1000"),
            ("top=1001", "`top` is 1 to 1000"),
            ("top=+5", "`top` is a whole number"),
            ("minutes=", "`minutes` is a whole number"),
            ("limits=core", "the only parameters are `by`, `limit`, `policy`, `minutes` and `top`"),
        ] {
            assert_eq!(top_query(text).unwrap_err(), expected, "{text}");
        }
        let filter = DenialFilter { caller: Some("user:42".into()), ..DenialFilter::default() };
        assert_eq!(denials_query("caller=user:42&after=7&top=20"), Ok((7, filter, 20)));
        assert_eq!(denials_query("top=1025").unwrap_err(), "`top` is 1 to 1024");
        let known = "the only parameters are `after`, `caller`, `limit`, `policy` and `top`";
        assert_eq!(denials_query("seq=7").unwrap_err(), known);
    }
}
