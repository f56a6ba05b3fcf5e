//! Costs: what a request is charged, and whether that can ever fit.

use http::Method;
use tollgate_yaml::{Check, Node, Span, Spanned, Value, suggest, warning::Rule};

use super::{
    Compiler,
    reach::{Charged, Reach},
    routes::RouteContext,
};
use crate::{
    Allowances, Cost, KeyPart, Limit, MessageCosts, Per, Reserve,
    file::{RawLimit, RawRoute},
};

/// The fields of a cost that the response reports; everything else in a mapping is a method.
const BY_RESPONSE: [&str; 8] = [
    "graphql",
    "reserve",
    "from_response_header",
    "from_response",
    "weights",
    "stream_usage",
    "abandoned",
    "stop_upstream",
];

/// The field of a cost that messages of the Model Context Protocol have.
const MCP: &str = "mcp";

impl Compiler<'_> {
    /// What a limit says that a request costs.
    pub(super) fn limit_cost(&mut self, raw: &RawLimit, per: &Per) -> Option<Cost> {
        let Some(node) = &raw.cost else {
            let reserve = per.parts.iter().any(KeyPart::is_in_messages);
            let reserve = reserve.then(|| Box::new(Reserve::Messages(MessageCosts::ONE)));
            return Some(Cost { reserve, ..Cost::ONE });
        };
        let cost = self.cost(node)?;
        if let (Some(_), Some(count_when)) = (&cost.source, &raw.count_when) {
            self.refuse(
                count_when.span,
                "`count_when` beside a cost that the response tells",
                "keep one",
            );
        }
        Some(cost)
    }

    pub(super) fn cost(&mut self, node: &Node) -> Option<Cost> {
        let Value::Mapping(entries) = &node.value else {
            return Some(Cost { default: self.count(node)?, ..Cost::ONE });
        };
        let is_by_response =
            |(key, _): &(Spanned<String>, Node)| suggest(&key.value, BY_RESPONSE).is_some();
        match entries.as_slice() {
            [(key, costs)] if key.value == MCP => self.cost_by_message(costs),
            _ if entries.iter().any(is_by_response) => self.reported_cost(node),
            _ => self.cost_by_method(entries),
        }
    }

    /// What each message of the Model Context Protocol costs.
    fn cost_by_message(&mut self, node: &Node) -> Option<Cost> {
        let mut costs = MessageCosts::ONE;
        for (key, node) in self.mapping(node)? {
            match key.as_str() {
                "default" => costs.default = self.count(node)?,
                "tools" => {
                    for (tool, node) in self.mapping(node)? {
                        costs.tools.push((tool.as_str().into(), self.count(node)?));
                    }
                }
                method => {
                    self.check_message_method(key);
                    costs.methods.push((method.into(), self.count(node)?));
                }
            }
        }
        let default = costs.highest();
        Some(Cost { default, reserve: Some(Box::new(Reserve::Messages(costs))), ..Cost::ONE })
    }

    fn mapping<'n>(&mut self, node: &'n Node) -> Option<&'n [(Spanned<String>, Node)]> {
        if let Value::Mapping(entries) = &node.value {
            return Some(entries);
        }
        let message = format!("expected a mapping, found {}", node.value.kind());
        self.note(node, message, "write units for each, such as { tools/call: 1, default: 0 }");
        None
    }

    /// A method without a slash is most likely the name of a tool.
    fn check_message_method(&mut self, method: &Spanned<String>) {
        const ALONE: [&str; 2] = ["initialize", "ping"];
        if !method.value.contains('/') && !ALONE.contains(&method.as_str()) {
            let message = format!("`{}` is no method of the Model Context Protocol", method.value);
            let help = "write one such as tools/call, `default`, or the tool below `tools`";
            self.refuse(method.span, message, help);
        }
    }

    /// What is charged where the cost is never reported: no less than was reserved, or hanging up
    /// would pay.
    pub(super) fn abandoned(&mut self, node: &Node, reserve: u32) -> Option<u32> {
        let units = self.count(node)?;
        if units < reserve {
            let message = format!("less than the reserve, which is {reserve}");
            self.note(node.span, message, format!("write {reserve} or more"));
            return None;
        }
        Some(units)
    }

    fn cost_by_method(&mut self, entries: &[(Spanned<String>, Node)]) -> Option<Cost> {
        let mut cost = Cost::ONE;
        let mut complete = true;
        for (key, node) in entries {
            let units = self.count(node);
            let method = match key.as_str() {
                "default" => None,
                _ => Some(self.method(key)),
            };
            match (method, units) {
                (None, Some(units)) => cost.default = units,
                (Some(Some(method)), Some(units)) => cost.by_method.push((method, units)),
                _ => complete = false,
            }
        }
        complete.then_some(cost)
    }

    /// Refuses a cost that can never fit, and one that nothing counts.
    pub(super) fn check_costs(
        &mut self,
        raw: &RawRoute,
        charged: &Charged<'_>,
        context: &RouteContext<'_>,
    ) {
        let cost = charged.cost;
        let limits: Vec<(&Spanned<String>, Option<&Limit>)> =
            raw.limits.iter().map(|name| (name, context.limit(name))).collect();
        let place = raw.cost.as_ref().map(|cost| cost.span);
        if let Some(place) = place
            && limits.iter().all(|(_, limit)| limit.is_some_and(Limit::counts_leases))
        {
            self.refuse(place, "a cost on a route without a limit that counts it", "remove it");
        }
        for (name, limit) in limits {
            let Some(limit) = limit.filter(|limit| !limit.counts_leases()) else { continue };
            let units = highest(cost.unwrap_or(&limit.cost), charged.methods);
            let fit = Fit::of(units, limit, charged.reach, context);
            self.check_fit(&fit, limit, place.unwrap_or(name.span));
            let is_by_response = cost.is_some_and(|cost| cost.source.is_some());
            if let (true, Some(_), Some(place)) = (is_by_response, limit.count_when, place) {
                let limit = &limit.name;
                self.refuse(
                    place,
                    format!("limit `{limit}` counts by status, not by what the response says"),
                    "write a number, or another limit",
                );
            }
        }
    }

    fn check_fit(&mut self, fit: &Fit, limit: &Limit, place: Span) {
        let message = |who: &str| {
            let cost = fit.cost;
            format!("a cost of {cost} never fits limit `{}`: {who}", limit.name)
        };
        if let Some(nobody) = &fit.nobody {
            self.refuse(place, message(nobody), "lower the cost or raise the limit");
        } else if !fit.some.is_empty() {
            let help = "lower the cost or raise the limit: such requests are always denied";
            self.warn(Rule::UnpayableCost, place, message(&fit.some.join(", ")), help);
        }
    }
}

/// For whom a cost is more than a limit ever has room for.
struct Fit {
    cost: u32,
    /// For all: the one with the least.
    nobody: Option<String>,
    /// For these.
    some: Vec<String>,
}

impl Fit {
    fn of(cost: u32, limit: &Limit, reach: &Reach<'_>, context: &RouteContext<'_>) -> Fit {
        let mut fit = Fit { cost, nobody: None, some: Vec::new() };
        for (rates, is_candidate) in [(&limit.rates, false), (&limit.candidate, true)] {
            let tiers = rates.iter().zip(context.tiers.names()).enumerate();
            let (short, enough): (Vec<Room<'_>>, Vec<Room<'_>>) = tiers
                .filter(|(tier, _)| reach.has_tier(*tier))
                .filter_map(|(_, (allowances, tier))| Some(Room { tier, units: room(allowances)? }))
                .partition(|room| room.units < cost);
            let said = |room: &Room<'_>| match is_candidate {
                true => format!("its candidate has {}", room.units),
                false => format!("tier {} has {}", room.tier, room.units),
            };
            match short.iter().min_by_key(|room| room.units) {
                Some(least) if enough.is_empty() => fit.nobody = fit.nobody.or(Some(said(least))),
                _ => fit.some.extend(short.iter().map(said)),
            }
        }
        let overrides = limit.overrides.0.iter().filter(|own| reach.has_caller_of(own));
        let short = overrides.filter_map(|own| {
            let units = room(&own.allowances).filter(|units| *units < cost)?;
            Some(format!("{own} has {units}"))
        });
        fit.some.extend(short);
        fit.some.dedup();
        fit
    }
}

/// How much a tier has room for.
struct Room<'t> {
    tier: &'t str,
    units: u32,
}

/// The highest cost of a request with one of `methods`; empty: any.
pub(super) fn highest(cost: &Cost, methods: &[Method]) -> u32 {
    let listed = cost.by_method.iter().map(|(_, units)| *units);
    let highest = match methods {
        [] => listed.chain([cost.default]).max(),
        _ => methods.iter().map(|method| cost.of(method)).max(),
    };
    highest.unwrap_or(cost.default)
}

/// The most that a charge may be; nothing fits into zero, and is not meant to.
fn room(allowances: &Allowances) -> Option<u32> {
    let capacities = allowances.iter().map(|allowance| allowance.quota.capacity());
    match allowances.is_empty() {
        true => Some(u32::MAX),
        false => capacities.filter(|capacity| *capacity != 0).min(),
    }
}
