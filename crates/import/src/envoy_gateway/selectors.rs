//! The selectors of a rule: which requests it counts.

use crate::{
    gateway::{
        field::Field,
        limit::{Methods, Scope},
        pattern::Pattern,
    },
    network::network,
};

/// The selectors of a rule as a scope.
#[derive(Default)]
pub(super) struct Selected {
    pub(super) scope: Scope,
    pub(super) notes: Vec<String>,
    /// What has no counterpart.
    pub(super) missing: Vec<&'static str>,
}

/// Which requests a rule counts. Of several selectors, Envoy Gateway takes headers and query
/// parameters together, any of the methods, and of paths and networks the last.
pub(super) fn selected(field: Field<'_>) -> Selected {
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
        selected.notes.push(
            "of several selectors Envoy Gateway itself takes any method, the last path and the \
             last network, and so does this"
                .to_owned(),
        );
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
        notes.push(format!(
            "clients choose `{}`: `unverified_keys` of the settings bounds how many values count, \
             and there nothing does",
            key(header)
        ));
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
    let Some(network) = network(text) else {
        own.complain("this is no network", "write one such as `10.0.0.0/8`");
        return;
    };
    let (bits, is_v4) = (network.prefix_len(), network.addr().is_ipv4());
    let is_distinct = own.text_at(&["type"]) == Some("Distinct");
    let is_inverted = own.is_true(&["invert"]);
    let value = ("client.ip".to_owned(), text.to_owned());
    let Selected { scope, notes, .. } = selected;
    match (is_distinct, is_inverted) {
        (true, true) => {
            scope.per.push(value.0.clone());
            scope.not.push(value);
        }
        (true, false) if bits == 0 => {
            scope.per.push(value.0);
            let other = if is_v4 { "IPv6" } else { "IPv4" };
            notes.push(format!("{other} clients are limited as well"));
        }
        (true, false) => scope.is.push(value),
        (false, false) if (is_v4 && bits >= 8) || (!is_v4 && bits >= 32) => {
            let prefix = if is_v4 { &mut scope.ipv4_prefix } else { &mut scope.ipv6_prefix };
            *prefix = Some(bits);
            scope.is.push(value);
        }
        (false, _) => scope.from = Some((text.to_owned(), !is_inverted)),
    }
}
