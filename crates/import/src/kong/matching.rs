//! The order in which routes are tried, and what of their conditions a `match` can say.

use std::cmp::Reverse;

use tollgate_yaml::{Node, Value};

use super::{
    file::Route,
    identity::is_template,
    paths::{self, Pattern},
};
use crate::{flow::Flow, gateway::pattern::host_contains, section::Section};

/// One host and one path of a route.
#[derive(Clone, Debug)]
pub(super) struct Matching {
    /// None: any.
    pub(super) host: Option<String>,
    pub(super) path: Pattern,
    /// Empty: any.
    pub(super) methods: Vec<String>,
    /// Conditions without a counterpart: without them the match is wider.
    pub(super) unwritten: Vec<String>,
    pub(super) differences: Vec<String>,
    /// The smallest is tried first.
    pub(super) rank: Rank,
}

/// As the router has it: how many kinds of conditions, hosts without stars, how many headers,
/// regular expressions before texts, their priority, the longest text. Larger is earlier.
pub(super) type Rank = Reverse<(usize, bool, usize, bool, i64, usize)>;

/// Kinds of conditions, and which of them no match has.
const CONDITIONS: [(&str, bool); 7] = [
    ("methods", false),
    ("hosts", false),
    ("paths", false),
    ("headers", true),
    ("snis", true),
    ("sources", true),
    ("destinations", true),
];

/// All matches of a route; none if it has no condition, so that Kong does not take it.
pub(super) fn matchings(route: &Route<'_>) -> Vec<Matching> {
    let section = route.own.section;
    let number = |name: &str| section.number(name).ok().flatten().unwrap_or(0);
    let expression = section.text("expression");
    let is_said = |name: &str| match section.node(name).map(|node| &node.value) {
        Some(Value::Sequence(items)) => !items.is_empty(),
        Some(Value::Mapping(fields)) => !fields.is_empty(),
        node => node.is_some(),
    };
    let said: Vec<_> = CONDITIONS.iter().filter(|(name, _)| is_said(name)).collect();
    if said.is_empty() && expression.is_none() {
        return Vec::new();
    }
    let unwritten = said.iter().filter(|(_, is_unwritten)| *is_unwritten);
    let unwritten: Vec<String> = unwritten.map(|(name, _)| format!("`{name}`")).collect();
    let (hosts, paths) = (options(section, "hosts"), options(section, "paths"));
    let is_name = |host: &Choice| matches!(host, Choice::Text(host) if !host.contains('*'));
    let has_names = hosts.iter().all(is_name);
    let headers = section.section("headers").map_or(0, |own| own.names().count());
    let mut found = Vec::new();
    for path in &paths {
        let rank = match (&expression, path) {
            (Some(_), _) => (usize::MAX, false, 0, false, number("priority"), 0),
            (_, Choice::Text(path)) if paths::is_expression(path, route.is_old) => {
                (said.len(), has_names, headers, true, number("regex_priority"), 0)
            }
            (_, Choice::Text(path)) => (said.len(), has_names, headers, false, 0, path.len()),
            (_, _) => (said.len(), has_names, headers, false, 0, 0),
        };
        for host in &hosts {
            let mut own = Matching {
                host: None,
                path: Pattern::all(),
                methods: Vec::new(),
                unwritten: unwritten.clone(),
                differences: Vec::new(),
                rank: Reverse(rank),
            };
            if let Some(expression) = &expression {
                own.take_expression(expression);
            }
            own.take_path(path, route.is_old);
            own.take_host(host);
            own.take_methods(section);
            found.push(own);
        }
    }
    found
}

/// One of the values of a condition.
enum Choice {
    /// The condition is not said.
    Any,
    Text(String),
    /// Something that is no text, for which Kong refuses the file: it is never any value.
    Other,
}

/// Each of the values of a condition, or any.
fn options(section: Section<'_>, name: &str) -> Vec<Choice> {
    let choice = |node: &Node| section.scalar(node).map_or(Choice::Other, Choice::Text);
    match section.node(name) {
        None => vec![Choice::Any],
        Some(node) => match &node.value {
            Value::Sequence(items) if items.is_empty() => vec![Choice::Any],
            Value::Mapping(fields) if fields.is_empty() => vec![Choice::Any],
            Value::Sequence(items) => items.iter().map(choice).collect(),
            _ => vec![choice(node)],
        },
    }
}

/// A condition that is an item of a list and no text.
fn no_text(name: &str) -> String {
    format!("an item of `{name}` that is no text")
}

/// Whether a text may be a method.
fn is_method(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

impl Matching {
    fn take_path(&mut self, path: &Choice, is_old: bool) {
        let path = match path {
            Choice::Any => return,
            Choice::Text(path) => path,
            Choice::Other => return self.unwritten.push(no_text("paths")),
        };
        match paths::pattern(path, is_old).filter(|_| !is_template(path)) {
            Some(pattern) => {
                self.differences.extend(pattern.difference.map(str::to_owned));
                self.path = pattern;
            }
            None => {
                self.unwritten.push(format!("the path `{path}`"));
                self.path.text = paths::wider(path, is_old);
            }
        }
    }

    /// The comparisons of an expression, of which all must hold.
    fn take_expression(&mut self, expression: &str) {
        let mut has_path = false;
        for comparison in expression.split("&&").map(str::trim) {
            let value = |start: &str| {
                let rest = comparison.strip_prefix(start)?.trim_start();
                rest.strip_prefix('"')?.strip_suffix('"').filter(|own| !own.contains(['"', '\\']))
            };
            let path = |start: &str| value(start).filter(|path| path.starts_with('/'));
            let path = path("http.path ==")
                .and_then(paths::exact)
                .or(path("http.path ^=").and_then(|own| paths::pattern(own, false)));
            let (host, method) = (value("http.host =="), value("http.method =="));
            // Of several comparisons of one field only the first is in the match.
            match (path, host, method) {
                (Some(path), ..) if !has_path => {
                    self.path = path;
                    has_path = true;
                }
                (_, Some(host), _) if self.host.is_none() => {
                    self.take_host(&Choice::Text(host.to_owned()));
                }
                (.., Some(method)) if self.methods.is_empty() && is_method(method) => {
                    self.methods.push(method.to_owned());
                }
                _ => self.unwritten.push("`expression`".to_owned()),
            }
        }
    }

    fn take_host(&mut self, host: &Choice) {
        let written = match host {
            Choice::Any => return,
            Choice::Text(host) => host,
            Choice::Other => return self.unwritten.push(no_text("hosts")),
        };
        let host = written.to_ascii_lowercase();
        let named = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let (name, has_port) = named.map_or((host.as_str(), false), |(name, _)| (name, true));
        let is_name = |name: &str| {
            !name.is_empty()
                && name.split('.').all(|label| !label.is_empty())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        if !is_name(name.strip_prefix("*.").unwrap_or(name)) {
            return self.unwritten.push(format!("the host `{written}`"));
        }
        if has_port {
            self.differences
                .push("requests for the host at any port: there at this one".to_owned());
        }
        self.host = Some(name.to_owned());
    }

    fn take_methods(&mut self, section: Section<'_>) {
        let mut all: Vec<String> = Vec::new();
        for method in options(section, "methods") {
            match method {
                Choice::Any => return self.tell_of_head(),
                Choice::Text(method) if is_method(&method) => {
                    let method = method.to_ascii_uppercase();
                    if !all.contains(&method) {
                        all.push(method);
                    }
                }
                _ => {
                    self.methods.clear();
                    return self
                        .unwritten
                        .push("an item of `methods` that is no method".to_owned());
                }
            }
        }
        let is_served = |method: &&String| *method != "TRACE" && *method != "CONNECT";
        self.methods.extend(all.iter().filter(is_served).cloned());
        if !all.is_empty() && self.methods.is_empty() {
            self.unwritten.push("`methods`".to_owned());
        }
        self.tell_of_head();
    }

    fn tell_of_head(&mut self) {
        let has = |name: &str| self.methods.iter().any(|method| method == name);
        if has("GET") && !has("HEAD") {
            self.differences.push("GET is for HEAD, too".to_owned());
        }
    }

    /// Whether some request may be for both, as far as is known.
    pub(super) fn may_meet(&self, other: &Matching) -> bool {
        let (own, others) = (self.host.as_deref(), other.host.as_deref());
        let is_host = host_contains(own, others) || host_contains(others, own);
        let begin = |own: &Matching| {
            own.path.text.split_once('*').map(|(begin, _)| begin.trim_end_matches('/').len())
        };
        let (one, two) = (self.path.text.as_str(), other.path.text.as_str());
        let is_path = match (begin(self), begin(other)) {
            (None, None) => one == two,
            (one_end, two_end) => {
                let one = one.get(..one_end.unwrap_or(one.len())).unwrap_or(one);
                let two = two.get(..two_end.unwrap_or(two.len())).unwrap_or(two);
                one.starts_with(two) || two.starts_with(one)
            }
        };
        let has_one = |method: &String| other.methods.contains(method);
        let is_any = self.methods.is_empty() || other.methods.is_empty();
        is_host && is_path && (is_any || self.methods.iter().any(has_one))
    }

    /// The fields of `match`.
    pub(super) fn flow(&self) -> Flow {
        let mut flow = Flow::fields([]);
        if let Some(host) = &self.host {
            flow = flow.with("host", host.as_str());
        }
        flow = flow.with("path", self.path.text.as_str());
        match self.methods.is_empty() {
            true => flow,
            false => flow.with("methods", Flow::list(self.methods.iter().cloned())),
        }
    }
}
