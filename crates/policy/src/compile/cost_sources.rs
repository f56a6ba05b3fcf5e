//! Costs that the response tells, and what is reserved for them.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use tollgate_usage::{
    path::{Path, Paths},
    response::Wanted,
    weights::{Weight, Weights},
};
use tollgate_yaml::{ABOVE_ZERO, Check, Node, Span, Spanned, Value};

use super::Compiler;
use crate::{
    Cost, CostSource, Reserve,
    cost::{BodyCost, BodyMember},
    file::{LATER, RawCostSource, RawReportedCost, RawReserve, RawUnit, RawWeights},
};

/// Members of the requests to vendors that say how often a model is to answer.
const COPIES: [&str; 3] =
    ["n", "generationConfig.candidateCount", "generation_config.candidate_count"];

/// Tokens that a byte is at most where a policy does not say: four bytes a token is what English
/// has.
const TOKENS_PER_BYTE: &str = "0.25";

/// The longest time that may be one unit.
const LONGEST_UNIT: Duration = Duration::from_secs(3600);

/// What may be asked for in a response, in words.
const SOURCES: &str =
    "write `usage: auto`, `json: <path>`, response_bytes, request_bytes or upstream_time";

impl Compiler<'_> {
    pub(super) fn told_cost(&mut self, node: &Node) -> Option<Cost> {
        let raw: RawReportedCost = self.decode(node, LATER)?;
        let weights = self.weights(raw.weights.as_ref());
        let reserve = match &raw.reserve {
            None => Some((1, None)),
            Some(reserve) => self.reserve(reserve, weights.as_ref()),
        };
        let tokens_per_byte =
            reserve.as_ref().and_then(|(_, reserve)| reserve.as_ref()?.tokens_per_byte);
        let source = match (&raw.from_response_header, &raw.from_response) {
            (Some(header), None) => self.message_header(header).map(CostSource::Header),
            (None, Some(source)) => {
                let stream_usage = self.keyword_or_default(raw.stream_usage.as_ref());
                let body = |wanted| {
                    let tokens_per_byte =
                        tokens_per_byte.or_else(|| TOKENS_PER_BYTE.parse().ok())?;
                    let (weights, stream_usage) = (weights?, stream_usage?);
                    let stop_upstream = raw.stop_upstream.as_ref().is_some_and(|stop| stop.value);
                    let body =
                        BodyCost { wanted, weights, stream_usage, tokens_per_byte, stop_upstream };
                    Some(CostSource::Body(Box::new(body)))
                };
                self.cost_source(source, body)
            }
            (Some(header), Some(_)) => {
                self.refuse(header, "a cost from a header and from the response", "keep one");
                None
            }
            (None, None) => {
                let help = "add `from_response: { usage: auto }`, say, or `from_response_header`";
                self.refuse(node, "nothing says where the cost comes from", help);
                None
            }
        };
        self.refuse_what_source_ignores(&raw, source.as_ref()?);
        let (default, reserve) = reserve?;
        let abandoned = match &raw.abandoned {
            None => None,
            Some(node) => Some(self.abandoned(node, default)?),
        };
        Some(Cost {
            by_method: Vec::new(),
            default,
            source: source.map(Arc::new),
            reserve,
            abandoned,
        })
    }

    fn refuse_what_source_ignores(&mut self, raw: &RawReportedCost, source: &CostSource) {
        let body = match source {
            CostSource::Body(body) => Some(&body.wanted),
            _ => None,
        };
        let has_tokens = matches!(body, Some(Wanted::Tokens(_)));
        let fields = [
            ("weights", raw.weights.as_ref().map(Span::from), has_tokens),
            ("stream_usage", raw.stream_usage.as_ref().map(Span::from), has_tokens),
            ("stop_upstream", raw.stop_upstream.as_ref().map(Span::from), body.is_some()),
        ];
        for (field, place, is_read) in fields {
            if let (Some(place), false) = (place, is_read) {
                let message = format!("`{field}` goes with the cost that a response's body tells");
                self.refuse(place, message, "remove it, or write `from_response: { usage: auto }`");
            }
        }
    }

    fn cost_source(
        &mut self,
        node: &Node,
        body: impl Fn(Wanted) -> Option<CostSource>,
    ) -> Option<CostSource> {
        if let Value::String(word) = &node.value {
            return match word.as_str() {
                "response_bytes" => Some(CostSource::ResponseBytes(NonZeroU64::MIN)),
                "request_bytes" => Some(CostSource::RequestBytes(NonZeroU64::MIN)),
                "upstream_time" => Some(CostSource::UpstreamTime(Duration::from_millis(1))),
                _ => {
                    self.note(node, format!("unknown value `{word}`"), SOURCES);
                    None
                }
            };
        }
        let raw: RawCostSource = self.decode(node, LATER)?;
        let RawCostSource { usage, json, response_bytes, request_bytes, upstream_time } = &raw;
        let named = [
            usage.is_some(),
            json.is_some(),
            response_bytes.is_some(),
            request_bytes.is_some(),
            upstream_time.is_some(),
        ];
        if named.into_iter().filter(|is_named| *is_named).count() != 1 {
            self.refuse(node, "a cost comes from one thing", SOURCES);
            return None;
        }
        if let Some(vendor) = usage {
            return body(Wanted::Tokens(self.keyword(vendor)?));
        }
        if let Some(paths) = json {
            return body(Wanted::Number(self.cost_paths(paths)?));
        }
        let [response, request, time] = [response_bytes, request_bytes, upstream_time];
        let bytes = |compiler: &mut Self, raw: &Spanned<RawUnit>| {
            NonZeroU64::new(compiler.bytes(&raw.value.unit, 1..=u64::from(u32::MAX))?)
        };
        match (response, request, time) {
            (Some(raw), ..) => bytes(self, raw).map(CostSource::ResponseBytes),
            (_, Some(raw), _) => bytes(self, raw).map(CostSource::RequestBytes),
            (.., Some(raw)) => {
                let value = self.text(&raw.value.unit)?.to_owned();
                let unit = Spanned { value, span: raw.value.unit.span };
                self.time(&unit, ABOVE_ZERO..=LONGEST_UNIT).map(CostSource::UpstreamTime)
            }
            _ => None,
        }
    }

    fn cost_paths(&mut self, node: &Node) -> Option<Arc<Paths>> {
        let nodes = match &node.value {
            Value::Sequence(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let paths: Option<Vec<Path>> = nodes
            .iter()
            .map(|node| {
                let value = self.text(node)?.to_owned();
                self.json_path(&Spanned { value, span: node.span })
            })
            .collect();
        let paths = paths?;
        if paths.is_empty() {
            self.refuse(node, "no path", "write one such as usage.total");
            return None;
        }
        match Paths::new(&paths) {
            Ok(paths) => Some(Arc::new(paths)),
            Err(error) => {
                self.refuse(node, error.to_string(), "write fewer paths");
                None
            }
        }
    }

    fn json_path(&mut self, raw: &Spanned<String>) -> Option<Path> {
        match raw.value.parse() {
            Ok(path) => Some(path),
            Err(error) => {
                let message = format!("`{}` is no path: {error}", raw.value);
                self.note(raw, message, "write one such as usage.total or results[0].cost");
                None
            }
        }
    }

    fn weights(&mut self, raw: Option<&Spanned<RawWeights>>) -> Option<Weights> {
        let Some(raw) = raw else { return Some(Weights::default()) };
        let RawWeights { input, cached, cache_write, output } = &raw.value;
        let [input, cached, cache_write, output] =
            [input, cached, cache_write, output].map(|node| match node {
                None => Some(Weight::ONE),
                Some(node) => self.weight(node),
            });
        let weights =
            Weights { input: input?, cached: cached?, cache_write: cache_write?, output: output? };
        Some(weights)
    }

    fn weight(&mut self, node: &Node) -> Option<Weight> {
        let text = match &node.value {
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::String(text) => text.clone(),
            other => other.kind().to_owned(),
        };
        let weight = text.parse::<Weight>();
        if let Err(error) = weight {
            self.note(node, format!("`{text}` is {error}"), "write a number such as 1 or 0.25");
        }
        weight.ok()
    }

    /// What is reserved: a number, and what replaces it if the body of the request says something.
    fn reserve(
        &mut self,
        node: &Node,
        weights: Option<&Weights>,
    ) -> Option<(u32, Option<Box<Reserve>>)> {
        if !matches!(node.value, Value::Mapping(_)) {
            return Some((self.count(node)?, None));
        }
        let raw: RawReserve = self.decode(node, LATER)?;
        if raw.from_request.is_empty() && raw.plus_body.is_none() {
            self.refuse(
                node,
                "a reserve that reads nothing of the request",
                "add `from_request` or `plus_body`, or write a number alone",
            );
            return None;
        }
        let default = raw.default.as_ref().map_or(Some(1), |node| self.count(node));
        let at_most = raw.at_most.as_ref().map(|node| self.count(node));
        if let (Some(Some(at_most)), Some(default), Some(node)) = (at_most, default, &raw.at_most)
            && at_most < default
        {
            let message = format!("less than `default`, which is {default}");
            self.refuse(node, message, format!("write {default} or more"));
        }
        let tokens_per_byte = raw.plus_body.as_ref().map(|node| self.weight(node));
        let bounds: Option<Vec<Path>> =
            raw.from_request.iter().map(|path| self.json_path(path)).collect();
        let bounds = bounds?.into_iter().map(|path| self.member(path)).collect();
        let copies = COPIES.iter().filter(|_| !raw.from_request.is_empty());
        let copies: Vec<Path> = copies.filter_map(|path| path.parse().ok()).collect();
        let copies = copies.into_iter().map(|path| self.member(path)).collect();
        let at_most = match at_most {
            None => None,
            Some(at_most) => Some(at_most?),
        };
        let tokens_per_byte = match tokens_per_byte {
            None => None,
            Some(weight) => Some(weight?),
        };
        let Weights { input, output, .. } = *weights?;
        let reserve = Reserve { bounds, copies, output, input, tokens_per_byte, at_most };
        Some((default?, Some(Box::new(reserve))))
    }

    /// A member of the bodies of requests, which is looked for from now on.
    pub(super) fn member(&mut self, path: Path) -> BodyMember {
        let known = self.members.iter().position(|known| *known == path);
        let number = known.unwrap_or(self.members.len());
        if known.is_none() {
            self.members.push(path.clone());
        }
        BodyMember { path, number }
    }
}
