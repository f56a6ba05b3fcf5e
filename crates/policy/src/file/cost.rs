//! The raw structs of costs that the response tells.

use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use serde_json::json;
use tollgate_graphql::Measure;
use tollgate_usage::tokens::Vendor;
use tollgate_yaml::{Choice, Node, Spanned};

use super::shape::{self, count, shapes};
use crate::cost::StreamUsage;

/// A cost that the response tells.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "cost section")]
#[schemars(extend(
    "anyOf" = [
        { "required": ["from_response_header"] },
        { "required": ["from_response"] },
        { "required": ["graphql"] },
    ],
    "not" = { "anyOf": [
        { "required": ["from_response_header", "from_response"] },
        { "required": ["graphql", "reserve"] },
    ] },
    "dependentRequired" = { "default": ["graphql"] },
))]
pub(crate) struct RawReportedCost {
    /// What a GraphQL request costs, told from its text before it is executed. `points`: GitHub's
    /// score; `nodes`: how many nodes its connections may have. A cost that the response tells
    /// replaces it.
    pub(crate) graphql: Option<Spanned<Choice<Measure>>>,
    /// For `graphql`: units of a request whose text only the server has (a persisted query).
    /// Default: 1.
    #[schemars(with = "Option<shape::Count>")]
    pub(crate) default: Option<Node>,
    /// What is charged until the response tells: a number, or what the body of the request says, `{
    /// from_request: [max_tokens], plus_body: 0.25, default: 2000, at_most: 32_000 }`. Default: 1.
    #[schemars(with = "Option<ReserveShape>")]
    pub(crate) reserve: Option<Node>,
    /// The response header with the cost. Clients do not see it.
    #[schemars(extend("examples" = ["x-query-cost"]))]
    pub(crate) from_response_header: Option<Spanned<String>>,
    /// In place of `from_response_header`: what of the response has the cost. `{ usage: auto }`:
    /// the tokens of a language model; `{ json: usage.total }`: a number in its JSON;
    /// `response_bytes`, `request_bytes`, `upstream_time`, or one of them with its unit, `{
    /// response_bytes: { unit: 1KiB } }`.
    #[schemars(with = "Option<CostSourceShape>")]
    pub(crate) from_response: Option<Node>,
    /// For `usage`: units of a token, by its kind. Default: 1 each.
    pub(crate) weights: Option<Spanned<RawWeights>>,
    /// For `usage`: what becomes of streams that do not tell what they have used, as OpenAI's do
    /// not unless the request asks for it. `estimate`: that is estimated from their length.
    /// `require`: a request that does not ask is refused. `inject`: it is asked for in its place.
    /// Default: estimate.
    pub(crate) stream_usage: Option<Spanned<Choice<StreamUsage>>>,
    /// What is charged if the client hangs up and the response never tells: not less than the
    /// reserve. Default: the highest cost that responses on this route reported in the last hour or
    /// two, else the reserve; of `usage`, what was seen of the response.
    #[schemars(with = "Option<shape::Count>")]
    pub(crate) abandoned: Option<Node>,
    /// For `usage` and `json`: whether the upstream is left at once when the client hangs up. Left
    /// out: the rest of the response is read, within bounds, for the cost in it. Default: false.
    pub(crate) stop_upstream: Option<Spanned<bool>>,
}

impl RawReportedCost {
    /// Whether no response is to tell it.
    pub(crate) fn is_told_by_query_alone(&self) -> bool {
        self.from_response.is_none() && self.from_response_header.is_none()
    }
}

/// Units of a token, by its kind.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "weights section")]
pub(crate) struct RawWeights {
    /// Of a token of the prompt. Default: 1.
    #[schemars(with = "Option<WeightShape>")]
    pub(crate) input: Option<Node>,
    /// Of one that is read from a cache. Default: 1.
    #[schemars(with = "Option<WeightShape>")]
    pub(crate) cached: Option<Node>,
    /// Of one that is written into a cache. Default: 1.
    #[schemars(with = "Option<WeightShape>")]
    pub(crate) cache_write: Option<Node>,
    /// Of one that the model makes. Default: 1.
    #[schemars(with = "Option<WeightShape>")]
    pub(crate) output: Option<Node>,
}

/// What is reserved, as the body of the request says.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "reserve section")]
pub(crate) struct RawReserve {
    /// Members of the body with the most tokens that the model may make: the first that is there
    /// counts, times `n` or `candidateCount`, times `weights.output`.
    #[serde(default)]
    #[schemars(extend("examples" = [["max_completion_tokens", "max_tokens"]]))]
    pub(crate) from_request: Vec<Spanned<String>>,
    /// Tokens that a byte of the body may be: they are added, times `weights.input`. A quarter is
    /// plenty for English. Left out: the body's length does not count.
    #[schemars(with = "Option<WeightShape>")]
    pub(crate) plus_body: Option<Node>,
    /// Units in place of `from_request` where none of it is there. Default: 1.
    #[schemars(with = "Option<shape::Count>")]
    pub(crate) default: Option<Node>,
    /// No more units than this are reserved; what a request costs beyond them, it may exceed the
    /// limit by. Left out: whatever the body asks for.
    #[schemars(with = "Option<shape::Count>")]
    pub(crate) at_most: Option<Node>,
}

/// What of a response has its cost, with what that needs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "from_response section")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(crate) struct RawCostSource {
    /// A vendor's numbers of tokens: `openai`, `anthropic`, `gemini`, or whichever are there.
    pub(crate) usage: Option<Spanned<Choice<Vendor>>>,
    /// A number in a response of JSON: a path such as `usage.total`, `results[0].cost` or
    /// `[-1].cost`, or several, of which the first that is there counts.
    #[schemars(with = "Option<PathsShape>")]
    pub(crate) json: Option<Node>,
    /// Bytes of the response's body.
    pub(crate) response_bytes: Option<Spanned<RawUnit>>,
    /// Bytes of the request's body.
    pub(crate) request_bytes: Option<Spanned<RawUnit>>,
    /// Time from the end of the request's head to the end of the response.
    pub(crate) upstream_time: Option<Spanned<RawUnit>>,
}

/// How much is a unit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "unit section")]
pub(crate) struct RawUnit {
    /// A number of bytes, such as 1KiB, or a time, such as 1ms. What is begun counts.
    #[schemars(with = "shape::HeaderText", extend("examples" = ["1KiB"]))]
    pub(crate) unit: Node,
}

shapes! {
    /// What a request costs: a number, one by method, or what the response reports.
    Cost = "cost", |generator| {
        let reported = generator.subschema_for::<RawReportedCost>();
        let messages = generator.subschema_for::<MessageCostsShape>();
        json_schema!({
            "anyOf": [
                count(),
                {
                    "description": "What the response reports.",
                    "$ref": reported.get("$ref"),
                },
                {
                    "type": "object",
                    "description": "What each message of the Model Context Protocol costs.",
                    "properties": {
                        "mcp": { "description": "Units of each message.", "$ref": messages.get("$ref") },
                    },
                    "required": ["mcp"],
                    "additionalProperties": false,
                },
                {
                    "type": "object",
                    "description": "A number for each method, in capitals; `default` is for the others.",
                    "propertyNames": { "pattern": "^(default|[^a-z]+)$" },
                    "additionalProperties": count(),
                },
            ],
        })
    };

    /// Units of messages of the Model Context Protocol, by tool and by method.
    MessageCostsShape = "mcp section", |_generator| {
        let count = count();
        json_schema!({
            "type": "object",
            "properties": {
                "tools": {
                    "description": "Units of calls of these tools.",
                    "type": "object",
                    "additionalProperties": count,
                },
                "default": {
                    "description": "Units of all other messages but those that every client has to send. Default: 1.",
                    "anyOf": [count],
                },
            },
            "patternProperties": { "^(initialize|ping|.*/.*)$": count },
            "additionalProperties": false,
        })
    };

    /// A number, or what the body of the request says.
    ReserveShape = "reserve", |generator| {
        let section = generator.subschema_for::<RawReserve>();
        json_schema!({ "anyOf": [count(), section] })
    };

    /// What of a response has its cost.
    CostSourceShape = "from_response", |generator| {
        let section = generator.subschema_for::<RawCostSource>();
        json_schema!({ "anyOf": [{ "type": "string", "enum": MEASURED }, section] })
    };

    /// A path, or several.
    PathsShape = "paths", |_generator| {
        let path = json!({ "type": "string", "minLength": 1 });
        json_schema!({
            "anyOf": [path, { "type": "array", "items": path, "minItems": 1, "maxItems": 8 }],
        })
    };

    /// A factor.
    WeightShape = "weight", |_generator| json_schema!({
        "type": ["number", "string"],
        "minimum": 0,
        "maximum": 1_000_000,
        "pattern": r"^[0-9]+(\.[0-9]{1,6})?$",
    });
}

/// What is measured of each response, in units of its own.
const MEASURED: [&str; 3] = ["response_bytes", "request_bytes", "upstream_time"];
