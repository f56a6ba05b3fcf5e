//! The response to a caller that queries its standings, in the form of GitHub's `GET /rate_limit`.

use http::{HeaderValue, Response, header};
use serde::{Serialize, Serializer};
use tollgate_limit::Standing;

use super::{
    body::Body,
    json::{JSON, json_line},
};

/// How the caller stands, by resource. `rate` is that of the primary limit.
#[derive(Serialize)]
struct Standings<'s> {
    #[serde(serialize_with = "as_map")]
    resources: Vec<(&'s str, &'s Standing)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Numbers<'s>>,
}

/// Writes the numbers of a standing.
struct Numbers<'s>(&'s Standing);

impl Serialize for Numbers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &Numbers(&Standing { limit, used, remaining, .. }) = self;
        let numbers = [("limit", limit), ("used", used), ("remaining", remaining)];
        let numbers = numbers.map(|(name, number)| (name, u64::from(number)));
        let reset = ("reset", self.0.reported_reset().ceil_secs());
        serializer.collect_map(numbers.into_iter().chain([reset]))
    }
}

fn as_map<S: Serializer>(
    resources: &[(&str, &Standing)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(resources.iter().map(|(name, standing)| (name, Numbers(standing))))
}

/// The response: each resource by name, and the primary limit again as `rate`.
pub fn standings<'s>(
    resources: impl IntoIterator<Item = (&'s str, &'s Standing)>,
    rate: Option<&'s Standing>,
) -> Response<Body> {
    let resources = resources.into_iter().collect();
    let body = json_line(&Standings { resources, rate: rate.map(Numbers) });
    let mut response = Response::new(Body::full(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
