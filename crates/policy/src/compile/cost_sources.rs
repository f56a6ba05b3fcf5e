//! Costs that the response tells, and what is reserved for them.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use tollgate_graphql::Measure;
use tollgate_usage::{
    path::{Path, Paths},
    response::Wanted,
    tokens::Vendor,
    weights::{Weight, Weights},
};
use tollgate_yaml::{ABOVE_ZERO, Check, Choice, Node, Span, Spanned, Value};

use super::Compiler;
use crate::{
    Cost, CostSource, MemberReserve, Reserve,
    cost::{AskedUsage, BodyCost, BodyMember, StreamUsage},
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
    pub(super) fn reported_cost(&mut self, node: &Node) -> Option<Cost> {
        let raw: RawReportedCost = self.decode(node, LATER)?;
        let weights = self.weights(raw.weights.as_ref());
        let reserve = self.reserve_of(&raw, weights.as_ref());
        let tokens_per_byte = match reserve.as_ref().map(|(_, reserve)| reserve) {
            Some(Some(Reserve::Members(members))) => members.tokens_per_byte,
            _ => None,
        };
        let source = self.source_of(&raw, node, weights, tokens_per_byte);
        match &source {
            Some(source) => self.refuse_what_source_ignores(&raw, Some(source)),
            None if raw.graphql.is_some() && raw.is_told_by_query_alone() => {
                self.refuse_what_source_ignores(&raw, None);
            }
            None => return None,
        }
        let (default, reserve) = reserve?;
        let abandoned = match &raw.abandoned {
            None => None,
            Some(node) => Some(self.abandoned(node, default)?),
        };
        Some(Cost {
            by_method: Vec::new(),
            default,
            source: source.map(Arc::new),
            reserve: reserve.map(Box::new),
            abandoned,
        })
    }

    /// Where OpenAI's requests ask for the usage of a stream.
    fn asked_usage(&mut self) -> Option<Box<AskedUsage>> {
        let mut member = |path: &str| Some(self.member(path.parse().ok()?));
        Some(Box::new(AskedUsage {
            stream: member("stream")?,
            include_usage: member("stream_options.include_usage")?,
            prompts: [member("messages")?, member("prompt")?],
        }))
    }

    /// What is charged at first, and what of the request says that.
    fn reserve_of(
        &mut self,
        raw: &RawReportedCost,
        weights: Option<&Weights>,
    ) -> Option<(u32, Option<Reserve>)> {
        if let (None, Some(default)) = (&raw.graphql, &raw.default) {
            let message = "`default` goes with `graphql` here";
            self.refuse(default, message, "write `reserve: { default: … }`, or `reserve`");
        }
        match (&raw.reserve, &raw.graphql) {
            (None, None) => Some((1, None)),
            (None, Some(measure)) => self.query_reserve(measure, raw.default.as_ref()),
            (Some(reserve), None) => self.reserve(reserve, weights),
            (Some(reserve), Some(_)) => {
                let message = "`reserve` beside `graphql`, which says what is reserved";
                self.refuse(reserve, message, "remove it; `default` is for unknown queries");
                None
            }
        }
    }

    /// What tells the cost later. None: nothing does, or something is wrong with it.
    fn source_of(
        &mut self,
        raw: &RawReportedCost,
        node: &Node,
        weights: Option<Weights>,
        tokens_per_byte: Option<Weight>,
    ) -> Option<CostSource> {
        match (&raw.from_response_header, &raw.from_response) {
            (Some(header), None) => self.message_header(header).map(CostSource::Header),
            (None, Some(source)) => {
                let stream_usage = self.keyword_or_default(raw.stream_usage.as_ref());
                let asked = match stream_usage {
                    Some(StreamUsage::Require | StreamUsage::Inject) => self.asked_usage(),
                    Some(StreamUsage::Estimate) | None => None,
                };
                let body = |wanted| {
                    Some(CostSource::Body(Box::new(BodyCost {
                        wanted,
                        weights: weights?,
                        stream_usage: stream_usage?,
                        asked: asked.clone(),
                        tokens_per_byte: tokens_per_byte
                            .or_else(|| TOKENS_PER_BYTE.parse().ok())?,
                        stop_upstream: raw.stop_upstream.as_ref().is_some_and(|stop| stop.value),
                    })))
                };
                self.cost_source(source, body)
            }
            (Some(header), Some(_)) => {
                self.refuse(header, "a cost from a header and from the response", "keep one");
                None
            }
            (None, None) if raw.graphql.is_some() => None,
            (None, None) => {
                let help = "add `from_response: { usage: auto }`, say, or `from_response_header`";
                self.refuse(node, "nothing says where the cost comes from", help);
                None
            }
        }
    }

    /// What a GraphQL request costs, and one whose text is not there.
    fn query_reserve(
        &mut self,
        measure: &Spanned<Choice<Measure>>,
        default: Option<&Node>,
    ) -> Option<(u32, Option<Reserve>)> {
        let default = default.map_or(Some(1), |node| self.count(node));
        Some((default?, Some(Reserve::Query(self.keyword(measure)?))))
    }

    fn refuse_what_source_ignores(&mut self, raw: &RawReportedCost, source: Option<&CostSource>) {
        let body = match source {
            Some(CostSource::Body(body)) => Some(body),
            _ => None,
        };
        if let (None, Some(abandoned)) = (source, &raw.abandoned) {
            let message = "`abandoned` goes with a cost that the response tells";
            self.refuse(abandoned, message, "remove it, or add `from_response`");
        }
        let wanted = body.map(|body| &body.wanted);
        let has_tokens = matches!(wanted, Some(Wanted::Tokens(_)));
        let fields = [
            ("weights", raw.weights.as_ref().map(Span::from), has_tokens),
            ("stream_usage", raw.stream_usage.as_ref().map(Span::from), has_tokens),
            ("stop_upstream", raw.stop_upstream.as_ref().map(Span::from), body.is_some()),
        ];
        if let (Some(Wanted::Tokens(Vendor::Anthropic | Vendor::Gemini)), Some(stream_usage)) =
            (wanted, &raw.stream_usage)
            && body.is_some_and(|body| body.stream_usage != StreamUsage::Estimate)
        {
            let message = "only OpenAI's requests have to ask for the usage of a stream";
            self.refuse(stream_usage, message, "remove it, or write `estimate`");
        }
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

    pub(super) fn json_path(&mut self, raw: &Spanned<String>) -> Option<Path> {
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
    ) -> Option<(u32, Option<Reserve>)> {
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
        let reserve = MemberReserve { bounds, copies, output, input, tokens_per_byte, at_most };
        Some((default?, Some(Reserve::Members(reserve))))
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
