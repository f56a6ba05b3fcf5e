//! What a request costs, and what tells that.

mod reserve;

use std::{fmt, num::NonZeroU64, sync::Arc, time::Duration};

use http::{HeaderName, Method};
use tollgate_keyword::{Keyword as _, keywords};
use tollgate_usage::{
    path::Path,
    request::{FoundMembers, Member},
    response::{Report, Used, Wanted},
    usage_object::used_in,
    weights::{Weight, Weights},
};
use tollgate_yaml::duration_in_words;

pub use self::reserve::{
    MemberReserve, MessageCosts, Reserve, UnfitMember, Unfitness, query_units,
};

/// What a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// By method.
    pub by_method: Vec<(Method, u32)>,
    /// Units, for all other methods.
    pub default: u32,
    /// What tells later what the request has really cost; none: nothing.
    pub source: Option<Arc<CostSource>>,
    /// What the body of the request says that it costs, or may cost; none: nothing, it is
    /// `default`.
    pub reserve: Option<Box<Reserve>>,
    /// Units, if the client hangs up and the response never tells; none: the highest recent cost.
    pub abandoned: Option<u32>,
}

/// What tells, after a request was charged, what it has really cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// A field of the response's head.
    Header(HeaderName),
    /// The body of the response.
    Body(Box<BodyCost>),
    /// Bytes of the request's body; so many are a unit.
    RequestBytes(NonZeroU64),
    /// Bytes of the response's body; so many are a unit.
    ResponseBytes(NonZeroU64),
    /// The time from the end of the request's head to the end of the response; so much is a unit.
    UpstreamTime(Duration),
}

/// How the body of a response tells what a request has cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyCost {
    /// What is looked for.
    pub wanted: Wanted,
    /// Units of each kind of token.
    pub weights: Weights,
    /// What becomes of a stream that does not tell.
    pub stream_usage: StreamUsage,
    /// Where requests ask for the usage of a stream; none: that does not matter.
    pub asked: Option<Box<AskedUsage>>,
    /// Tokens that a byte is at most, where nothing tells.
    pub tokens_per_byte: Weight,
    /// Whether the upstream is left at once when the client hangs up in the middle of the body.
    pub stop_upstream: bool,
}

/// What becomes of streams that do not tell what they have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUsage {
    /// It is estimated from what has passed.
    #[default]
    Estimate,
    /// A request that does not ask for it is refused.
    Require,
    /// It is asked for in the place of a request that does not.
    Inject,
}

keywords! { StreamUsage { Estimate = "estimate", Require = "require", Inject = "inject" } }

/// Where a request in the form of OpenAI's Chat Completions asks for the usage of its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedUsage {
    /// Whether it wants a stream.
    pub stream: BodyMember,
    /// Whether it asks for the usage.
    pub include_usage: BodyMember,
    /// What such a request has, and one for Responses does not, whose streams always tell.
    pub prompts: [BodyMember; 2],
}

/// A member of the bodies of requests.
#[derive(Clone, Debug)]
pub struct BodyMember {
    /// Where it is.
    pub path: Path,
    /// Its number among [`Policy::members`](crate::Policy::members).
    pub number: usize,
}

/// Its number says nothing: others may have come before it.
impl PartialEq for BodyMember {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for BodyMember {}

impl AsRef<str> for BodyMember {
    fn as_ref(&self) -> &str {
        self.path.as_str()
    }
}

impl Cost {
    /// One unit.
    pub const ONE: Cost =
        Cost { by_method: Vec::new(), default: 1, source: None, reserve: None, abandoned: None };

    /// What a request with this method costs at first.
    pub fn of(&self, method: &Method) -> u32 {
        // Methods in any case are one method, as for routes.
        let is_it =
            |(listed, _): &&(Method, u32)| listed.as_str().eq_ignore_ascii_case(method.as_str());
        self.by_method.iter().find(is_it).map_or(self.default, |(_, units)| *units)
    }

    /// Whether it depends on the body of the request.
    pub fn looks_into_body(&self) -> bool {
        self.reserve.is_some() || self.asked_usage().is_some()
    }

    /// Where requests ask for the usage of a stream, and what becomes of those that do not.
    pub fn asked_usage(&self) -> Option<(&AskedUsage, StreamUsage)> {
        match self.source.as_deref() {
            Some(CostSource::Body(body)) => Some((body.asked.as_deref()?, body.stream_usage)),
            _ => None,
        }
    }

    /// The field of the response's head that tells what the request has cost, if one does.
    pub fn header(&self) -> Option<&HeaderName> {
        match self.source.as_deref() {
            Some(CostSource::Header(name)) => Some(name),
            _ => None,
        }
    }

    /// How tokens that the response tells are priced, if they are what it costs.
    pub fn by_usage(&self) -> Option<&BodyCost> {
        match self.source.as_deref() {
            Some(CostSource::Body(body)) if matches!(body.wanted, Wanted::Tokens(_)) => Some(body),
            _ => None,
        }
    }
}

/// The most units that a limit can have.
const MAX_UNITS: u32 = i32::MAX as u32;

fn in_units(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(MAX_UNITS).min(MAX_UNITS)
}

impl AskedUsage {
    /// Whether a request wants a stream, and does not ask for its usage.
    ///
    /// # Errors
    /// [`UnfitMember`]: two readers may see two values.
    pub fn is_missing(&self, found: &FoundMembers) -> Result<bool, UnfitMember> {
        let AskedUsage { stream, include_usage, prompts } = self;
        let [chat, text] = prompts;
        for member in [stream, include_usage, chat, text] {
            if found.is_repeated(member.number) {
                return Err(UnfitMember { path: member.path.clone(), why: Unfitness::Repeated });
            }
        }
        let at = |member: &BodyMember| found.at(member.number);
        let is_chat = prompts.iter().any(|prompt| *at(prompt) != Member::Missing);
        let is_stream = !matches!(at(stream), Member::Missing | Member::Bool(false));
        Ok(is_chat && is_stream && *at(include_usage) != Member::Bool(true))
    }
}

impl BodyCost {
    /// Units that a response has cost that says this; none: it does not say.
    pub fn units(&self, report: &Report) -> Option<u32> {
        report.used.map(|used| self.price(used))
    }

    /// Units that a response has cost with this usage, a JSON object in a vendor's form; none: it
    /// is in no form that is looked for.
    pub fn units_of_usage(&self, usage: &str) -> Option<u32> {
        used_in(&self.wanted, usage).map(|used| self.price(used))
    }

    fn price(&self, used: Used) -> u32 {
        in_units(match used {
            Used::Units(units) => units,
            Used::Tokens(tokens) => self.weights.cost(&tokens),
        })
    }

    /// Units of what has passed of a stream that does not say.
    pub fn estimate(&self, delta_bytes: u64) -> u32 {
        let part = (self.tokens_per_byte, self.weights.output, delta_bytes);
        in_units(Weight::sum_of_products([part]))
    }
}

/// Units of a measure of which so much is one: what is begun counts.
pub fn units_of(measured: u64, unit: NonZeroU64) -> u32 {
    in_units(measured.div_ceil(unit.get()))
}

/// The same of what tells a cost.
impl fmt::Display for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CostSource::Header(name) => write!(f, "{name}"),
            CostSource::Body(body) => {
                let Weights { input, cached, cache_write, output } = body.weights;
                let weights = (body.weights != Weights::default()).then(|| {
                    format!(" (input {input}, cached {cached}, cache_write {cache_write}, output {output})")
                });
                match &body.wanted {
                    Wanted::Number(paths) => write!(f, "{paths}"),
                    Wanted::Tokens(vendor) => {
                        write!(f, "{} tokens{}", vendor.keyword(), weights.unwrap_or_default())
                    }
                }
            }
            CostSource::RequestBytes(unit) => write!(f, "the request's bytes by {unit}"),
            CostSource::ResponseBytes(unit) => write!(f, "the response's bytes by {unit}"),
            CostSource::UpstreamTime(unit) => {
                write!(f, "the upstream's time by {}", duration_in_words(*unit))
            }
        }
    }
}

impl CostSource {
    /// What the log and metrics call it.
    pub fn name(&self) -> &'static str {
        match self {
            CostSource::Header(_) => "header",
            CostSource::Body(body) => match &body.wanted {
                Wanted::Number(_) => "json",
                Wanted::Tokens(vendor) => vendor.keyword(),
            },
            CostSource::RequestBytes(_) => "request_bytes",
            CostSource::ResponseBytes(_) => "response_bytes",
            CostSource::UpstreamTime(_) => "upstream_time",
        }
    }
}
