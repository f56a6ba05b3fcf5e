//! The response to a caller that queries its standings, in the form of GitHub's `GET /rate_limit`.

use http::{HeaderValue, Response, header};
use serde::{Serialize, Serializer};
use tollgate_limit::Standing;

use super::{
    body::Body,
    json::{JSON, json_line},
    limit_headers::reported_reset,
};

/// How the caller stands, by resource. `rate` is that of the primary limit.
#[derive(Serialize)]
struct Standings<'s> {
    #[serde(serialize_with = "as_map")]
    resources: Vec<(&'s str, Numbers)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Numbers>,
}

#[derive(Clone, Copy, Serialize)]
struct Numbers {
    limit: u32,
    used: u32,
    remaining: u32,
    reset: u64,
}

impl From<&Standing> for Numbers {
    fn from(standing: &Standing) -> Self {
        let &Standing { limit, used, remaining, .. } = standing;
        Numbers { limit, used, remaining, reset: reported_reset(standing).ceil_secs() }
    }
}

fn as_map<S: Serializer>(resources: &[(&str, Numbers)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(resources.iter().copied())
}

/// The response: each resource by name, and the primary limit again as `rate`.
pub fn standings<'s>(
    resources: impl IntoIterator<Item = (&'s str, &'s Standing)>,
    rate: Option<&Standing>,
) -> Response<Body> {
    let resources = resources.into_iter().map(|(name, standing)| (name, standing.into())).collect();
    let body = json_line(&Standings { resources, rate: rate.map(Numbers::from) });
    let mut response = Response::new(Body::full(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
