//! What a request is charged at first, as its body says.

use std::fmt;

use thiserror::Error;
use tollgate_graphql::{Measure, RequestCost};
use tollgate_keyword::Keyword as _;
use tollgate_usage::{
    json::Amount,
    mcp::Message,
    path::Path,
    request::{FoundMembers, Member},
    weights::Weight,
};

use super::{BodyMember, MAX_UNITS, in_units};

/// How the body of a request says what it costs, or may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// By members of its JSON, and by its length.
    Members(MemberReserve),
    /// By the messages of the Model Context Protocol in it.
    Messages(MessageCosts),
    /// By the GraphQL in it, or in the target. One whose text the server has costs the default.
    Query(Measure),
}

/// Units of each message of the Model Context Protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageCosts {
    /// Of calls of these tools.
    pub tools: Vec<(Box<str>, u32)>,
    /// Of these methods.
    pub methods: Vec<(Box<str>, u32)>,
    /// Of all others but those that every client has to send.
    pub default: u32,
}

/// How much a request may cost, as members of its body say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReserve {
    /// The most that the model may make: the first of these members that is there.
    pub bounds: Vec<BodyMember>,
    /// How often it is to make that: factors, where they are there.
    pub copies: Vec<BodyMember>,
    /// Units of a token that the model makes.
    pub output: Weight,
    /// Units of a token of the prompt.
    pub input: Weight,
    /// Tokens of the prompt that a byte of the body is at most; none: the body is not counted.
    pub tokens_per_byte: Option<Weight>,
    /// No more than this is reserved, whatever the body says.
    pub at_most: Option<u32>,
}

/// A member of a body that cannot be counted by.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{path}` in the request's body {why}")]
pub struct UnfitMember {
    /// Where it is.
    pub path: Path,
    /// What is wrong with it.
    pub why: Unfitness,
}

/// Why a member cannot be counted by.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Unfitness {
    /// Two readers may see two values.
    #[error("is there twice, or in other letters")]
    Repeated,
    /// It is below zero.
    #[error("is negative")]
    Negative,
    /// It is something else.
    #[error("is not a whole number")]
    NotWhole,
}

/// Units of a GraphQL request, of which each part whose text is not there costs `default`.
pub fn query_units(cost: RequestCost, default: u32) -> u32 {
    let RequestCost { units, unknown } = cost;
    in_units(units.saturating_add(u64::from(unknown).saturating_mul(default.into())))
}

impl MessageCosts {
    /// One unit a message.
    pub const ONE: MessageCosts =
        MessageCosts { tools: Vec::new(), methods: Vec::new(), default: 1 };

    /// What a message costs.
    pub fn of(&self, message: &Message) -> u32 {
        if message.is_unread {
            return self.highest();
        }
        let Some(method) = message.method.as_deref() else { return 0 };
        let known = |list: &[(Box<str>, u32)], name: &str| {
            list.iter().find(|(own, _)| **own == *name).map(|(_, units)| *units)
        };
        let tool = message.tool().and_then(|tool| known(&self.tools, tool));
        tool.or_else(|| known(&self.methods, method)).unwrap_or_else(|| match is_overhead(method) {
            true => 0,
            false => self.default,
        })
    }

    /// What the dearest message costs.
    pub fn highest(&self) -> u32 {
        let listed = self.tools.iter().chain(&self.methods).map(|(_, units)| *units);
        listed.max().unwrap_or_default().max(self.default)
    }
}

/// Whether every client has to send it before it can call anything, or asks what there is to call.
fn is_overhead(method: &str) -> bool {
    const ALONE: [&str; 4] = ["initialize", "ping", "server/discover", "subscriptions/listen"];
    ALONE.contains(&method) || method.ends_with("/list") || method.starts_with("notifications/")
}

impl MemberReserve {
    /// Units to reserve for a request, which costs `default` where its body does not say. None for
    /// `bytes`: the body is longer than what was read of it.
    ///
    /// # Errors
    /// [`UnfitMember`]: the request is to be refused.
    pub fn units(
        &self,
        default: u32,
        found: Option<&FoundMembers>,
        bytes: Option<u64>,
    ) -> Result<u32, UnfitMember> {
        let input = match (self.tokens_per_byte, bytes) {
            (None, _) => (Weight::ONE, Weight::ONE, 0),
            (Some(per_byte), Some(bytes)) => (per_byte, self.input, bytes),
            // Whatever it is, it may be as long as it likes.
            (Some(_), None) => return Ok(self.at_most.unwrap_or(MAX_UNITS)),
        };
        let output = match found {
            Some(found) => self.output(found)?,
            None => None,
        };
        let output = match output {
            Some(tokens) => (self.output, Weight::ONE, tokens),
            None => (Weight::ONE, Weight::ONE, default.into()),
        };
        let most = self.at_most.unwrap_or(MAX_UNITS);
        Ok(in_units(Weight::sum_of_products([output, input])).min(most))
    }

    /// Units of them that are for the prompt.
    pub fn input_units(&self, bytes: u64) -> u32 {
        let per_byte = self.tokens_per_byte;
        let part = per_byte.map(|per_byte| (per_byte, self.input, bytes));
        in_units(Weight::sum_of_products(part))
    }

    /// The most tokens that a model may make, as a body says; none: it does not.
    fn output(&self, found: &FoundMembers) -> Result<Option<u64>, UnfitMember> {
        let mut bound = None;
        for member in &self.bounds {
            let own = whole_number(found, member)?;
            bound = bound.or(own);
        }
        let mut all = bound;
        for member in &self.copies {
            let copies = whole_number(found, member)?.unwrap_or(1).max(1);
            all = all.map(|all| all.saturating_mul(copies));
        }
        Ok(all)
    }
}

fn whole_number(found: &FoundMembers, member: &BodyMember) -> Result<Option<u64>, UnfitMember> {
    let unfit = |why| Err(UnfitMember { path: member.path.clone(), why });
    if found.is_repeated(member.number) {
        return unfit(Unfitness::Repeated);
    }
    match found.at(member.number) {
        Member::Missing => Ok(None),
        Member::Number(Some(Amount { units, is_whole: true })) => Ok(Some(*units)),
        Member::Number(None) => unfit(Unfitness::Negative),
        Member::Number(Some(_)) | Member::Text(_) | Member::Bool(_) | Member::Other => {
            unfit(Unfitness::NotWhole)
        }
    }
}

/// What makes two of them differ, in words.
impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reserve::Members(members) => members.fmt(f),
            Reserve::Messages(costs) => costs.fmt(f),
            Reserve::Query(measure) => write!(f, "GraphQL {}", measure.keyword()),
        }
    }
}

/// The same of messages.
impl fmt::Display for MessageCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessageCosts { tools, methods, default } = self;
        for (name, units) in tools.iter().chain(methods) {
            write!(f, "{name} {units}, ")?;
        }
        write!(f, "other messages {default}")
    }
}

/// The same of members.
impl fmt::Display for MemberReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemberReserve { bounds, copies: _, output, input, tokens_per_byte, at_most } = self;
        for member in bounds {
            write!(f, "{} ", member.path)?;
        }
        write!(f, "at {output}")?;
        if let Some(per_byte) = tokens_per_byte {
            write!(f, ", {per_byte} a byte at {input}")?;
        }
        if let Some(most) = at_most {
            write!(f, ", {most} at most")?;
        }
        Ok(())
    }
}
