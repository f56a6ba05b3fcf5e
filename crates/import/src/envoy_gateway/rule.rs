//! A rule of a BackendTrafficPolicy: which requests it counts, and how.

use super::selectors::{Selected, selected};
use crate::{
    flow::UNITS,
    gateway::{
        field::Field,
        limit::{Counting, Methods, Rate, Scope},
    },
    report::Report,
};

/// What a bucket holds, times its window in milliseconds, must be below this here.
const MAX_BUCKET: u64 = 1 << 52;

/// A rule.
pub(super) struct Rule<'r> {
    pub(super) place: String,
    /// In words, for the table.
    pub(super) words: String,
    /// Its number among the rules of its kind.
    pub(super) at: usize,
    pub(super) is_local: bool,
    pub(super) is_shared: bool,
    field: Field<'r>,
    speed: Speed,
    /// None: it is left out.
    pub(super) ruled: Option<Ruled>,
}

/// What a rule says here.
pub(super) struct Ruled {
    pub(super) scope: Scope,
    pub(super) rates: Vec<Rate>,
    pub(super) counting: Counting,
    pub(super) cost: u64,
    pub(super) is_shadow: bool,
    /// What is different here.
    pub(super) notes: Vec<String>,
}

/// So many requests in so many seconds.
#[derive(Clone, Copy)]
struct Speed {
    requests: u64,
    seconds: u64,
}

impl Speed {
    fn is_slower_than(self, other: Speed) -> bool {
        let times = |one: u64, another: u64| u128::from(one) * u128::from(another);
        times(self.requests, other.seconds) < times(other.requests, self.seconds)
    }
}

/// The rules of a `rateLimit`: those in force, with what is left out of them in the report.
pub(super) fn rules<'r>(limits: Field<'r>, report: &mut Report) -> Vec<Rule<'r>> {
    let kind = limits.text_at(&["type"]);
    let mut rules = Vec::new();
    for (name, of_type) in [("global", "Global"), ("local", "Local")] {
        let Some(block) = limits.at(&[name]) else {
            if kind == Some(of_type) {
                let message = format!("type {of_type} without `{name}`: Envoy Gateway refuses it");
                limits.complain(message, format!("write the rules below `{name}`"));
            }
            continue;
        };
        if kind.is_some_and(|kind| kind != of_type) {
            let message = "not in force there beside another `type`, and not imported";
            report.left_out(block.place(), format!("rateLimit.{name}"), message);
            continue;
        }
        let others = block.others(&["rules"]);
        if !others.is_empty() {
            let message = "no counterpart";
            report.left_out(block.place(), others.join(", "), message);
        }
        let own = block.items(&["rules"]).into_iter().enumerate();
        rules.extend(own.map(|(at, field)| rule(field, at, name == "local", report)));
    }
    check_local(&rules);
    note_neighbours(&mut rules);
    rules
}

fn rule<'r>(field: Field<'r>, at: usize, is_local: bool, report: &mut Report) -> Rule<'r> {
    let mut selected = selected(field);
    let (requests, unit) =
        (field.number_at(&["limit", "requests"]), field.text_at(&["limit", "unit"]));
    let known = UNITS.iter().find(|(name, ..)| Some(*name) == unit);
    let written = requests.and_then(|own| u64::try_from(own).ok()).zip(known);
    if written.is_none() {
        let help =
            "write `limit: { requests: 100, unit: Minute }`, with a unit from Second to Year";
        field.complain("this rule has no limit of so many requests in a unit of time", help);
    }
    let (requests, window) =
        written.map_or((0, "hour"), |(requests, (_, window, _))| (requests, *window));
    let cost = cost(field, is_local, &mut selected);
    let mut rates = vec![Rate { requests, window: window.to_owned() }];
    if cost > requests && requests > 0 {
        selected.notes.push(format!("a request costs {cost} of {requests}: always denied"));
        rates = vec![Rate { requests: 0, window: window.to_owned() }];
    }
    selected.notes.extend(rates.iter().filter_map(Rate::note));
    let seconds = known.map_or(1, |(.., seconds)| *seconds);
    if is_local && requests.saturating_mul(seconds * 1000) >= MAX_BUCKET {
        selected.missing.push("so large a bucket");
    }
    if is_local {
        selected.notes.push(
            "each Envoy counts by itself there: N of them let N times as much pass; here proxies \
             count together if their store is Redis"
                .to_owned(),
        );
    }
    if let (true, Methods::Only(methods)) = (is_local, &selected.scope.methods)
        && methods.len() > 1
    {
        selected.notes.push("not in force there: Envoy 1.40 refuses what Envoy Gateway makes of a local rule with several methods".to_owned());
    }
    let is_shadow = field.is_true(&["shadowMode"]);
    rest(field, &mut selected, report);
    let words = words(field, requests, unit, is_local);
    let place = field.place();
    let ruled = if selected.missing.is_empty() {
        let counting = if is_local { Counting::Bucket } else { Counting::Epoch };
        let Selected { scope, notes, .. } = selected;
        let cost = if cost > requests { cost.min(1) } else { cost };
        Some(Ruled { scope, rates, counting, cost, is_shadow, notes })
    } else {
        let missing = selected.missing.join(", ");
        let mut message = format!("no counterpart of {missing}: this limit is not in force");
        if !is_local {
            message.push_str(
                ". `tollgate import envoy` takes the descriptors that Envoy Gateway makes of it",
            );
        }
        report.left_out(&place, &words, message);
        None
    };
    let is_shared = field.is_true(&["shared"]);
    let speed = Speed { requests, seconds };
    Rule { place, words, at, is_local, is_shared, field, speed, ruled }
}

/// The rule in words: `3 requests per Hour, global, for headers x-user-id`.
fn words(field: Field<'_>, requests: u64, unit: Option<&str>, is_local: bool) -> String {
    let kind = if is_local { "local" } else { "global" };
    let mut words = format!("{requests} requests per {}, {kind}", unit.unwrap_or("hour"));
    if field.is_true(&["shared"]) {
        words.push_str(", shared");
    }
    let mut selectors = Vec::new();
    for selector in field.items(&["clientSelectors"]) {
        for (name, value) in selector.entries(&[]) {
            let is_list = ["headers", "queryParams", "methods"].contains(&name);
            let parts = if is_list { value.items(&[]) } else { vec![value] };
            // Not the values of headers, which may be keys of an API.
            let part = |own: &Field<'_>| {
                let named = own.text_at(&["name"]).or_else(|| own.text_at(&["value"]));
                let but = if own.is_true(&["invert"]) { "all but " } else { "" };
                Some(format!("{but}{}", named?))
            };
            let parts: Vec<String> = parts.iter().filter_map(part).collect();
            selectors.push(format!("{name} {}", parts.join(", ")));
        }
    }
    if selectors.is_empty() { words } else { format!("{words}, for {}", selectors.join(" and ")) }
}

/// What else a rule may say.
fn rest(field: Field<'_>, selected: &mut Selected, report: &mut Report) {
    if field.at(&["limit", "fromMetadata"]).is_some() {
        let message = "the number of `limit` holds for all requests: those to which the metadata \
                       gave less may send more here";
        report.left_out(field.place(), "limit.fromMetadata", message);
    }
    if field.text_at(&["xRateLimitHeaders"]).is_some() {
        let message = "headers are on or off for all limits here";
        report.left_out(field.place(), "xRateLimitHeaders of a rule", message);
    }
    let known =
        ["clientSelectors", "limit", "cost", "shared", "shadowMode", "xRateLimitHeaders", "name"];
    if !field.others(&known).is_empty() {
        selected.missing.push("fields that this import does not know");
    }
}

/// What a request costs.
fn cost(field: Field<'_>, is_local: bool, selected: &mut Selected) -> u64 {
    let mut cost = 1;
    for (part, name) in [("request", "cost.request"), ("response", "cost.response")] {
        let Some(own) = field.at(&["cost", part]) else { continue };
        if is_local {
            selected.notes.push(format!("{name} is not in force there for local limits"));
            continue;
        }
        if own.text_at(&["from"]) != Some("Number") {
            selected.missing.push("a cost from metadata");
            continue;
        }
        let number =
            own.number_at(&["number"]).and_then(|own| u64::try_from(own).ok()).unwrap_or(1);
        match part {
            "request" => cost = number,
            _ => {
                cost += number;
                selected.notes.push(
                    "the cost of the response is charged with the request, and not for denied ones"
                        .to_owned(),
                );
            }
        }
    }
    cost
}

/// What Envoy Gateway refuses of local rules, and what their default bucket means.
fn check_local(rules: &[Rule<'_>]) {
    let unit = |rule: &Rule<'_>| {
        let unit = rule.field.text_at(&["limit", "unit"]);
        UNITS.iter().find(|(name, ..)| Some(*name) == unit).map(|(.., seconds)| *seconds)
    };
    let is_plain = |rule: &Rule<'_>| rule.field.items(&["clientSelectors"]).is_empty();
    let local = || rules.iter().filter(|rule| rule.is_local);
    let mut defaults = local().filter(|rule| is_plain(rule));
    let first = defaults.next();
    if let Some(second) = defaults.next() {
        let help = "leave one local rule without clientSelectors";
        second
            .field
            .complain("another local rule without selectors: Envoy Gateway refuses it", help);
    }
    for rule in local() {
        if let (Some(base), Some(own)) = (first.and_then(unit), unit(rule))
            && own % base != 0
        {
            let message = "its unit is no multiple of that of the rule without selectors: Envoy \
                           Gateway refuses it";
            rule.field.complain(message, "take the same unit");
        }
    }
}

/// What rules beside each other mean.
fn note_neighbours(rules: &mut [Rule<'_>]) {
    let is_plain = |rule: &Rule<'_>| rule.field.items(&["clientSelectors"]).is_empty();
    let locals = rules.iter().filter(|rule| rule.is_local).count();
    let globals = rules.len() - locals;
    let network = |rule: &Rule<'_>| {
        let own = rule.ruled.as_ref().filter(|_| !rule.is_local)?;
        let by_address = own.scope.per == ["client.ip"] && own.scope.is.is_empty();
        by_address.then(|| own.scope.not.clone())
    };
    let networks: Vec<_> = rules.iter().map(network).collect();
    // Envoy charges the slowest bucket first, and stops at the one that denies.
    let is_denier =
        |rule: &&Rule<'_>| rule.is_local && !is_plain(rule) && !rule.field.is_true(&["shadowMode"]);
    let denier = |rule: &Rule<'_>| {
        Some((rule.place.clone(), rule.speed, rule.ruled.as_ref()?.scope.clone()))
    };
    let deniers: Vec<_> = rules.iter().filter(is_denier).filter_map(denier).collect();
    for rule in rules.iter_mut() {
        let own = network(rule);
        let is_plain = is_plain(rule);
        let speed = rule.speed;
        let Some(ruled) = &mut rule.ruled else { continue };
        if rule.is_local && is_plain && locals > 1 {
            ruled.notes.push(
                "requests that another rule counts are charged to it as well, and there only those \
                 that none counts"
                    .to_owned(),
            );
        }
        let own_place = &rule.place;
        let is_faster = |(place, other, scope): &(String, Speed, Scope)| {
            place != own_place && !other.is_slower_than(speed) && scope.may_meet(&ruled.scope)
        };
        if rule.is_local && !is_plain && deniers.iter().any(is_faster) {
            ruled.notes.push("a request that a rule with a higher rate denies is charged to this one there, and not here".to_owned());
        }
        if !rule.is_local && globals > 1 {
            ruled.notes.push("a request that another rule denies is not charged here".to_owned());
        }
        let same = networks.iter().filter(|other| own.is_some() && **other == own).count();
        if same > 1 {
            ruled.notes.push(
                "two rules by the same network: Envoy Gateway holds the first alone, and counts \
                 each request twice; both hold here as written"
                    .to_owned(),
            );
        }
    }
}

/// The scope with claims in place of the headers that are made from them.
pub(super) fn with_claims(scope: &Scope, claims: &[(String, String)]) -> Scope {
    let key = |key: &String| match claims.iter().find(|(header, _)| header == key) {
        Some((_, claim)) => claim.clone(),
        None => key.clone(),
    };
    let values = |own: &[(String, String)]| -> Vec<(String, String)> {
        own.iter().map(|(own, value)| (key(own), value.clone())).collect()
    };
    let per = scope.per.iter().map(key).collect();
    Scope { per, is: values(&scope.is), not: values(&scope.not), ..scope.clone() }
}
