//! What a GraphQL request costs, told from its text before it is executed.
//!
//! The cost is GitHub's score, or GitHub's number of nodes. Both follow from the connections of the
//! text: fields with an argument `first` or `last`, which tells how often what is inside of them is
//! executed. No schema is needed.
//!
//! - `request`: the requests in a body or in a URL.
//! - `json`: JSON that tells of members that are there twice.
//! - `document`: the operations and fragments of a text.
//! - `values`: the numbers and conditions that arguments have, with the variables of the request.
//! - `count`: the cost of an operation.
//! - `bounds`: how long and how deep it may be.
//! - `refusal`: requests that have no cost, and why.
//!
//! A server must not execute more than was counted here. So what two servers may read in two ways
//! is refused, and where the text does not tell, the cost is an upper bound:
//!
//! - A selection whose `@skip` or `@include` has no known condition counts.
//! - Selections with the same response key count each, although servers merge them.
//! - A fragment counts wherever it is spread, whatever type it is for.
//!
//! What it does not see is a connection without `first` and `last`, and one whose `first` is a
//! member of an input object: it takes both for fields that are executed once. A `first` or `last`
//! that is no whole number is refused, even if it means something else to the server.
//!
//! Servers do not agree whether a request is in its URL or in its body when it has both. Whoever
//! has a body asks [`body_cost`] or [`document_cost`], whatever the method is.

mod bounds;
mod count;
mod document;
mod json;
mod refusal;
mod request;
mod values;

use tollgate_keyword::keywords;

pub use self::refusal::{Place, Refusal, Unfitness};
use self::{
    bounds::{MAX_BATCH, MAX_TOKENS},
    json::Json,
    request::{Counted, Request, UrlParameters},
};

/// Which number of a request is its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// GitHub's score: how many requests of one connection would ask for the same, by 100.
    Points,
    /// How many nodes the connections have at most.
    Nodes,
}

keywords! { Measure { Points = "points", Nodes = "nodes" } }

/// What the requests in one HTTP request cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCost {
    /// Units of those whose text is there.
    pub units: u64,
    /// How many name a text that the server has: what they cost is not known.
    pub unknown: u32,
}

/// What a body in JSON costs: one request, or an array of several. The query of the URL may only
/// repeat the name of the operation, for some servers prefer what it says.
///
/// # Errors
/// [`Refusal`]: the request is not to be executed.
pub fn body_cost(measure: Measure, url_query: &str, body: &[u8]) -> Result<RequestCost, Refusal> {
    let url_name = UrlParameters::read(url_query)?.into_operation_name()?;
    match Json::parse(body)? {
        Json::Object(members) => Request::new(members)?.named(url_name.as_deref())?.cost(measure),
        Json::List(entries) => batch_cost(measure, url_name.as_deref(), entries),
        _ => Err(Refusal::NoRequest),
    }
}

/// What a body costs that is the text of a document (`application/graphql`).
///
/// # Errors
/// [`Refusal`]: the request is not to be executed.
pub fn document_cost(
    measure: Measure,
    url_query: &str,
    body: &[u8],
) -> Result<RequestCost, Refusal> {
    let url_name = UrlParameters::read(url_query)?.into_operation_name()?;
    let text = str::from_utf8(body).map_err(|_| Refusal::NotUtf8)?;
    Request::of_text(text.to_owned()).named(url_name.as_deref())?.cost(measure)
}

/// What a request costs that is in the query of its URL. One whose body is a form
/// (`application/x-www-form-urlencoded`) is in both: join them with `&`.
///
/// # Errors
/// [`Refusal`]: the request is not to be executed.
pub fn query_cost(measure: Measure, url_query: &str) -> Result<RequestCost, Refusal> {
    UrlParameters::read(url_query)?.into_request()?.cost(measure)
}

fn batch_cost(
    measure: Measure,
    url_name: Option<&str>,
    entries: Vec<Json>,
) -> Result<RequestCost, Refusal> {
    if entries.is_empty() {
        return Err(Refusal::NoRequest);
    }
    if entries.len() > MAX_BATCH {
        return Err(Refusal::LongBatch);
    }
    let mut all = RequestCost::default();
    let mut tokens_left = MAX_TOKENS;
    for (index, entry) in entries.into_iter().enumerate() {
        let counted = match entry {
            Json::Object(members) => Request::new(members)
                .and_then(|request| request.named(url_name))
                .and_then(|request| request.count(measure, tokens_left)),
            _ => Err(Refusal::NoRequest),
        };
        let in_batch = |why| Refusal::InBatch { number: index + 1, why: Box::new(why) };
        let Counted { cost, tokens } = counted.map_err(in_batch)?;
        tokens_left = tokens_left.saturating_sub(tokens);
        all.units = all.units.saturating_add(cost.units);
        all.unknown = all.unknown.saturating_add(cost.unknown);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
