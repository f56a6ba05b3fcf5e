//! The order in which routes are tried, and what of their conditions a `match` can say.

use std::cmp::Reverse;

use tollgate_yaml::Value;

use super::{
    file::Route,
    identity::is_template,
    paths::{self, Pattern},
};
use crate::{flow::Flow, section::Section};

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
    let (hosts, paths) = (section.texts("hosts"), section.texts("paths"));
    let has_names = !hosts.is_empty() && !hosts.iter().any(|host| host.contains('*'));
    let headers = section.section("headers").map_or(0, |own| own.names().count());
    let mut found = Vec::new();
    for path in options(&paths) {
        let rank = match (&expression, path.map_or(0, str::len)) {
            (Some(_), _) => (usize::MAX, false, 0, false, number("priority"), 0),
            (_, _) if path.is_some_and(|path| paths::is_expression(path, route.is_old)) => {
                (said.len(), has_names, headers, true, number("regex_priority"), 0)
            }
            (_, length) => (said.len(), has_names, headers, false, 0, length),
        };
        for host in options(&hosts) {
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

/// Each of some, or any.
fn options(texts: &[String]) -> Vec<Option<&str>> {
    match texts {
        [] => vec![None],
        texts => texts.iter().map(|text| Some(text.as_str())).collect(),
    }
}

impl Matching {
    fn take_path(&mut self, path: Option<&str>, is_old: bool) {
        let Some(path) = path else { return };
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
        for comparison in expression.split("&&").map(str::trim) {
            let value = |start: &str| {
                let rest = comparison.strip_prefix(start)?.trim_start();
                rest.strip_prefix('"')?.strip_suffix('"').filter(|own| !own.contains(['"', '\\']))
            };
            let path = value("http.path ==").and_then(paths::exact);
            if let Some(path) =
                path.or(value("http.path ^=").and_then(|own| paths::pattern(own, false)))
            {
                self.path = path;
            } else if let Some(host) = value("http.host ==") {
                self.take_host(Some(host));
            } else if let Some(method) = value("http.method ==") {
                self.methods.push(method.to_owned());
            } else {
                self.unwritten.push("`expression`".to_owned());
            }
        }
    }

    fn take_host(&mut self, host: Option<&str>) {
        let Some(written) = host else { return };
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
        let methods =
            section.texts("methods").into_iter().map(|method| method.to_ascii_uppercase());
        let is_served = |method: &String| method != "TRACE" && method != "CONNECT";
        let all: Vec<String> = methods.collect();
        self.methods.extend(all.iter().filter(|method| is_served(method)).cloned());
        if !all.is_empty() && self.methods.is_empty() {
            self.unwritten.push("`methods`".to_owned());
        }
        let has = |name: &str| self.methods.iter().any(|method| method == name);
        if has("GET") && !has("HEAD") {
            self.differences.push("GET is for HEAD, too".to_owned());
        }
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
