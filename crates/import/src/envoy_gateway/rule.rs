//! A rule of a BackendTrafficPolicy: which requests it counts, and how.

use std::net::IpAddr;

use crate::{
    Finding,
    gateway::{
        field::Field,
        limit::{Counting, Methods, Rate, Scope, network},
        pattern::Pattern,
    },
};

/// Units there, and the windows that they are: those of a month and a year have fixed lengths.
const UNITS: [(&str, &str, u64); 7] = [
    ("Second", "second", 1),
    ("Minute", "minute", 60),
    ("Hour", "hour", 3_600),
    ("Day", "day", 86_400),
    ("Week", "7d", 604_800),
    ("Month", "30d", 2_592_000),
    ("Year", "365d", 31_536_000),
];

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

/// The selectors of a rule as a scope.
#[derive(Default)]
struct Selected {
    scope: Scope,
    notes: Vec<String>,
    /// What has no counterpart.
    missing: Vec<&'static str>,
}

/// The rules of a `rateLimit`: those in force, with what is left out of them in the findings.
pub(super) fn rules<'r>(limits: Field<'r>, findings: &mut Vec<Finding>) -> Vec<Rule<'r>> {
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
            findings.push(Finding::left_out(block.place(), format!("rateLimit.{name}"), message));
            continue;
        }
        let others = block.others(&["rules"]);
        if !others.is_empty() {
            let message = "no counterpart";
            findings.push(Finding::left_out(block.place(), others.join(", "), message));
        }
        let own = block.items(&["rules"]).into_iter().enumerate();
        rules.extend(own.map(|(at, field)| rule(field, at, name == "local", findings)));
    }
    check_local(&rules);
    note_neighbours(&mut rules);
    rules
}

fn rule<'r>(field: Field<'r>, at: usize, is_local: bool, findings: &mut Vec<Finding>) -> Rule<'r> {
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
        selected.notes.push("each Envoy counts by itself there: N of them let N times as much pass; here proxies count together if their store is Redis".to_owned());
    }
    let is_shadow = field.is_true(&["shadowMode"]);
    rest(field, &mut selected, findings);
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
        findings.push(Finding::left_out(place.clone(), words.clone(), message));
        None
    };
    let is_shared = field.is_true(&["shared"]);
    Rule { place, words, at, is_local, is_shared, field, ruled }
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
fn rest(field: Field<'_>, selected: &mut Selected, findings: &mut Vec<Finding>) {
    if field.at(&["limit", "fromMetadata"]).is_some() {
        let message = "the number of `limit` holds for all requests: those to which the metadata \
                       gave less may send more here";
        findings.push(Finding::left_out(field.place(), "limit.fromMetadata", message));
    }
    if field.text_at(&["xRateLimitHeaders"]).is_some() {
        let message = "headers are on or off for all limits here";
        findings.push(Finding::left_out(field.place(), "xRateLimitHeaders of a rule", message));
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

/// Which requests a rule counts. Of several selectors, Envoy Gateway takes headers and query
/// parameters together, any of the methods, and of paths and networks the last.
fn selected(field: Field<'_>) -> Selected {
    let mut selected = Selected::default();
    let (mut headers, mut methods) = (Vec::new(), Vec::new());
    let (mut paths, mut networks) = (Vec::new(), Vec::new());
    let selectors = field.items(&["clientSelectors"]);
    for selector in &selectors {
        headers.extend(selector.items(&["headers"]));
        methods.extend(selector.items(&["methods"]));
        paths.extend(selector.at(&["path"]));
        networks.extend(selector.at(&["sourceCIDR"]));
        if !selector.items(&["queryParams"]).is_empty() {
            selected.missing.push("query parameters");
        }
        if !selector.others(&["headers", "methods", "path", "sourceCIDR", "queryParams"]).is_empty()
        {
            selected.missing.push("selectors that this import does not know");
        }
    }
    if paths.len() > 1 || networks.len() > 1 || (selectors.len() > 1 && methods.len() > 1) {
        selected.notes.push("of several selectors Envoy Gateway itself takes any method, the last path and the last network, and so does this".to_owned());
    }
    select_headers(&headers, &mut selected);
    select_methods(&methods, &mut selected);
    if let Some(path) = paths.last() {
        select_path(*path, &mut selected);
    }
    if let Some(network) = networks.last() {
        select_network(*network, &mut selected);
    }
    selected
}

fn select_headers(headers: &[Field<'_>], selected: &mut Selected) {
    let key = |own: &Field<'_>| {
        format!("header.{}", own.text_at(&["name"]).unwrap_or_default().to_ascii_lowercase())
    };
    let is_of = |own: &Field<'_>, kind: &str| own.text_at(&["type"]).unwrap_or("Exact") == kind;
    let Selected { scope, notes, missing } = selected;
    for header in headers.iter().filter(|own| is_of(own, "Distinct")) {
        if header.is_true(&["invert"]) {
            header
                .complain("Distinct with `invert`: Envoy Gateway refuses the policy", "remove one");
        }
        scope.per.push(key(header));
        notes.push(format!("clients choose `{}`: `unverified_keys` of the settings bounds how many values count, and there nothing does", key(header)));
    }
    for header in headers.iter().filter(|own| !is_of(own, "Distinct")) {
        let value = header.text_at(&["value"]).unwrap_or_default().to_owned();
        match (is_of(header, "Exact"), header.is_true(&["invert"])) {
            (false, _) => missing.push("a header by a regular expression"),
            (true, true) if scope.per.contains(&key(header)) => {
                scope.not.push((key(header), value))
            }
            (true, true) => missing.push("all values of a header but one as one counter"),
            (true, false) => scope.is.push((key(header), value)),
        }
    }
    let is: Vec<&String> = scope.is.iter().map(|(key, _)| key).collect();
    let is_twice = |at: usize| is.iter().skip(at + 1).any(|own| Some(own) == is.get(at));
    if (0..is.len()).any(is_twice) || scope.is.iter().any(|(key, _)| scope.per.contains(key)) {
        missing.push("several conditions on one header");
    }
    // An exemption would come before the condition, and hold for one of its values as well.
    if scope.per.len() > 8 || scope.is.len() > 8 {
        missing.push("more than 8 keys");
    }
}

fn select_methods(methods: &[Field<'_>], selected: &mut Selected) {
    let named = |invert: bool| {
        let own = methods.iter().filter(move |own| own.is_true(&["invert"]) == invert);
        own.filter_map(|own| own.text_at(&["value"])).map(str::to_owned)
    };
    let (own, others): (Vec<String>, Vec<String>) = (named(false).collect(), named(true).collect());
    match (own.as_slice(), others.as_slice()) {
        ([], []) => {}
        (_, []) => selected.scope.methods = Methods::Only(own),
        ([], [one]) => selected.scope.methods = Methods::Except(one.clone()),
        _ => selected.missing.push("several inverted methods"),
    }
}

fn select_path(path: Field<'_>, selected: &mut Selected) {
    let value = path.text_at(&["value"]).unwrap_or("/");
    let pattern = match path.text_at(&["type"]).unwrap_or("PathPrefix") {
        "Exact" => Pattern::exact(value),
        "PathPrefix" => Pattern::below(value),
        _ => {
            selected.missing.push("a path by a regular expression");
            return;
        }
    };
    if path.is_true(&["invert"]) {
        let note = format!("the path {value}, which is exempt there, is limited as well");
        selected.notes.push(note);
        return;
    }
    if matches!(pattern, Pattern::Exact(_)) {
        let note = format!("{value} counts with a query and with a slash at its end as well");
        selected.notes.push(note);
    }
    selected.scope.pattern = Some(pattern);
}

fn select_network(own: Field<'_>, selected: &mut Selected) {
    let Some(text) = own.text_at(&["value"]) else { return };
    let Some((address, bits)) = network(text) else {
        own.complain("this is no network", "write one such as `10.0.0.0/8`");
        return;
    };
    let (is_all, is_v4) = (bits == 0, address.is_ipv4());
    let is_distinct = own.text_at(&["type"]) == Some("Distinct");
    let is_inverted = own.is_true(&["invert"]);
    let value = ("client.ip".to_owned(), text.to_owned());
    let Selected { scope, notes, .. } = selected;
    match (is_distinct, is_inverted) {
        (true, true) => {
            scope.per.push(value.0.clone());
            scope.not.push(value);
        }
        (true, false) if is_all => {
            scope.per.push(value.0);
            let other = if is_v4 { "IPv6" } else { "IPv4" };
            notes.push(format!("{other} clients are limited as well"));
        }
        (true, false) => scope.is.push(value),
        (false, false) if (is_v4 && bits >= 8) || (!is_v4 && bits >= 32) => {
            let prefix = Some(bits);
            match address {
                IpAddr::V4(_) => scope.ipv4_prefix = prefix,
                IpAddr::V6(_) => scope.ipv6_prefix = prefix,
            }
            scope.is.push(value);
        }
        (false, _) => scope.from = Some((text.to_owned(), !is_inverted)),
    }
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
    for rule in rules.iter_mut() {
        let own = network(rule);
        let is_plain = is_plain(rule);
        let Some(ruled) = &mut rule.ruled else { continue };
        if rule.is_local && is_plain && locals > 1 {
            ruled.notes.push("requests that another rule counts are charged to it as well, and there only those that none counts".to_owned());
        }
        if !rule.is_local && globals > 1 {
            ruled.notes.push("a request that another rule denies is not charged here".to_owned());
        }
        let same = networks.iter().filter(|other| own.is_some() && **other == own).count();
        if same > 1 {
            ruled.notes.push("two rules by the same network: Envoy Gateway holds the first alone, and counts each request twice; both hold here as written".to_owned());
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
