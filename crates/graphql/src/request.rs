//! The requests in a body or in a URL: a text, the variables and the name of an operation.

use std::collections::BTreeMap;

use tollgate_wire::query::{Parameter, parameters};

use crate::{
    Measure, RequestCost, bounds::MAX_TOKENS, document::Document, json::Json, refusal::Refusal,
};

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Request {
    /// None: the request names a text that the server has.
    text: Option<String>,
    operation_name: Option<String>,
    variables: BTreeMap<String, Json>,
}

/// A request that was counted.
pub(crate) struct Counted {
    pub(crate) cost: RequestCost,
    /// How many tokens its text has.
    pub(crate) tokens: usize,
}

/// What a URL, or a form, has of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UrlParameters(Vec<(&'static str, String)>);

const QUERY: &str = "query";
const OPERATION_NAME: &str = "operationName";
const VARIABLES: &str = "variables";

/// The members that say what is executed. The last three name a text that the server has.
/// `extensions` names one too, but by the hash of the text, which servers compare.
const MEMBERS: [&str; 6] = [QUERY, OPERATION_NAME, VARIABLES, "documentId", "doc_id", "id"];

impl Request {
    pub(crate) fn of_text(text: String) -> Request {
        Request { text: Some(text), ..Request::default() }
    }

    /// The request that is this object.
    pub(crate) fn new(members: Vec<(String, Json)>) -> Result<Request, Refusal> {
        let mut values = BTreeMap::new();
        for (name, value) in members {
            let Some(name) = member(&name)? else { continue };
            if values.insert(name, value).is_some() {
                return Err(Refusal::RepeatedMember(name));
            }
        }
        let query = text(values.remove(QUERY), QUERY)?;
        let operation_name = text(values.remove(OPERATION_NAME), OPERATION_NAME)?;
        let variables = variables(values.remove(VARIABLES))?;
        let name = values.iter().find(|(_, value)| **value != Json::Null);
        match (&query, name) {
            (Some(_), Some((name, _))) => Err(Refusal::TextAndName(name)),
            _ => Ok(Request { text: query, operation_name, variables }),
        }
    }

    /// The same, whose URL has this name of an operation.
    pub(crate) fn named(self, url_name: Option<&str>) -> Result<Request, Refusal> {
        let Some(url_name) = url_name else { return Ok(self) };
        match &self.operation_name {
            Some(own) if own != url_name => Err(Refusal::TwoNames),
            _ => Ok(Request { operation_name: Some(url_name.to_owned()), ..self }),
        }
    }

    /// Counts what it costs, if it has no more than so many tokens.
    pub(crate) fn count(&self, measure: Measure, max_tokens: usize) -> Result<Counted, Refusal> {
        let Some(text) = &self.text else {
            return Ok(Counted { cost: RequestCost { units: 0, unknown: 1 }, tokens: 0 });
        };
        let document = Document::parse(text, max_tokens)?;
        let operation = document.operation(self.operation_name.as_deref())?;
        let units = document.cost(measure, operation, &self.variables)?;
        Ok(Counted { cost: RequestCost { units, unknown: 0 }, tokens: document.tokens })
    }

    /// The cost of a request that stands alone.
    pub(crate) fn cost(&self, measure: Measure) -> Result<RequestCost, Refusal> {
        Ok(self.count(measure, MAX_TOKENS)?.cost)
    }
}

impl UrlParameters {
    pub(crate) fn read(url_query: &str) -> Result<UrlParameters, Refusal> {
        let mut all: Vec<(&'static str, String)> = Vec::new();
        for parameter in parameters(url_query) {
            check_spelling(parameter)?;
            let Some(name) = MEMBERS.into_iter().find(|member| parameter.is_called(member)) else {
                continue;
            };
            if all.iter().any(|(other, _)| *other == name) {
                return Err(Refusal::RepeatedMember(name));
            }
            let value =
                str::from_utf8(&parameter.value()).map_err(|_| Refusal::NotUtf8)?.to_owned();
            all.push((name, value));
        }
        Ok(UrlParameters(all))
    }

    /// They are the request.
    pub(crate) fn into_request(self) -> Result<Request, Refusal> {
        let member = |(name, value): (&str, String)| {
            let value = match name {
                VARIABLES if value.is_empty() => Json::Null,
                VARIABLES => Json::parse(value.as_bytes())?,
                _ => Json::Text(value),
            };
            Ok((name.to_owned(), value))
        };
        Request::new(self.0.into_iter().map(member).collect::<Result<_, Refusal>>()?)
    }

    /// They stand beside a body, which is the request.
    pub(crate) fn into_operation_name(self) -> Result<Option<String>, Refusal> {
        match self.0.iter().find(|(name, _)| *name != OPERATION_NAME) {
            Some((name, _)) => Err(Refusal::InUrl(name)),
            None => Ok(self.0.into_iter().map(|(_, value)| value).find(|value| !value.is_empty())),
        }
    }
}

/// Checks that no server takes a parameter for a member that it does not name.
fn check_spelling(parameter: Parameter<'_>) -> Result<(), Refusal> {
    let misspelled = |parameter: Parameter<'_>, is_whole: bool| {
        let mut alike = MEMBERS.into_iter().filter(|member| parameter.is_like(member));
        alike.find(|member| !is_whole || !parameter.is_called(member))
    };
    // What some servers read behind a semicolon is none for the others.
    let behind = parameter.after_semicolons().find_map(|behind| misspelled(behind, false));
    match misspelled(parameter, true).or(behind) {
        Some(member) => Err(Refusal::MisspelledMember(member)),
        None => Ok(()),
    }
}

/// The member that has this name; none: nothing that matters. Some servers read names in any case,
/// and take `variables[n]` for a part of `variables`.
fn member(name: &str) -> Result<Option<&'static str>, Refusal> {
    let stem = name.split('[').next().unwrap_or_default().to_uppercase();
    match MEMBERS.into_iter().find(|member| member.to_uppercase() == stem) {
        Some(member) if member != name => Err(Refusal::MisspelledMember(member)),
        found => Ok(found),
    }
}

/// A text that is not empty: for most servers an empty one is none.
fn text(value: Option<Json>, name: &'static str) -> Result<Option<String>, Refusal> {
    match value {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Text(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        Some(_) => Err(Refusal::MemberType { name, expected: "a text" }),
    }
}

fn variables(value: Option<Json>) -> Result<BTreeMap<String, Json>, Refusal> {
    let members = match value {
        None | Some(Json::Null) => return Ok(BTreeMap::new()),
        Some(Json::Object(members)) => members,
        // Some servers would read the JSON in a text.
        Some(_) => return Err(Refusal::MemberType { name: VARIABLES, expected: "an object" }),
    };
    let mut variables = BTreeMap::new();
    for (name, value) in members {
        if variables.insert(name, value).is_some() {
            return Err(Refusal::RepeatedVariable);
        }
    }
    Ok(variables)
}
