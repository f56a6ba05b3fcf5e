//! What of a router's conditions a route's `match` can say.

use super::{
    middleware::network,
    rule::{Alternative, Condition},
};
use crate::flow::Flow;

/// A `match`, and what of the conditions is not in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Matching {
    /// None: any.
    pub(super) host: Option<String>,
    /// A pattern.
    pub(super) path: String,
    /// None: any.
    pub(super) method: Option<String>,
    pub(super) from: Option<String>,
    /// How the match differs from the conditions.
    pub(super) differences: Vec<String>,
    /// Conditions without a counterpart: without them the match is wider.
    pub(super) unwritten: Vec<String>,
    /// Conditions that must not hold.
    pub(super) negated: Vec<Condition>,
    /// It is for requests that the route below must not get.
    pub(super) is_guard: bool,
    /// No request is this.
    pub(super) is_never: bool,
}

/// The path of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathCondition {
    Exact(String),
    Prefix(String),
}

impl Matching {
    pub(super) fn of(alternative: &Alternative, is_old: bool) -> Matching {
        let mut matching = Matching::default();
        let mut path = None;
        for condition in alternative {
            if condition.is_negated {
                matching.negated.push(condition.clone());
                continue;
            }
            let value = condition.arguments.first().map_or("", String::as_str);
            match condition.name {
                "Host" | "HostHeader" => matching.take_host(condition, value),
                "HostRegexp" => matching.take_host_expression(condition, value, is_old),
                "Path" if is_old && value.contains('{') => matching.take_pattern(condition, ""),
                "PathPrefix" if is_old && value.contains('{') => {
                    matching.take_pattern(condition, "/**");
                }
                "Path" | "PathPrefix" | "PathRegexp" => match path_condition(condition.name, value)
                {
                    Some(more) => match narrower(path.take(), more) {
                        Some(both) => path = Some(both),
                        None => matching.is_never = true,
                    },
                    None => matching.leave(condition),
                },
                "Method" => matching.take_method(value),
                "ClientIP" if matching.from.is_none() => match network(value) {
                    Some(network) => {
                        let difference = "`from` is the client's address, by `trusted_proxies` of \
                                          the settings; ClientIP is the connection's";
                        matching.differences.push(difference.to_owned());
                        matching.from = Some(network);
                    }
                    None => matching.leave(condition),
                },
                _ => matching.leave(condition),
            }
        }
        matching.finish_path(path);
        matching
    }

    fn leave(&mut self, condition: &Condition) {
        self.unwritten.push(condition.to_string());
    }

    fn take_host(&mut self, condition: &Condition, value: &str) {
        let host = value.trim_end_matches('.').to_ascii_lowercase();
        let is_name = |name: &str| {
            !name.is_empty()
                && name.split('.').all(|label| !label.is_empty())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        match host.strip_prefix("*.") {
            _ if host == "*" => {}
            Some(name) if is_name(name) => {
                let difference = format!("`{host}` is all names below it; `*` is one label there");
                self.differences.push(difference);
                self.narrow_host(host);
            }
            None if is_name(&host) => self.narrow_host(host),
            _ => self.leave(condition),
        }
    }

    fn narrow_host(&mut self, host: String) {
        self.is_never |= self.host.as_ref().is_some_and(|own| *own != host);
        self.host = Some(host);
    }

    /// The few expressions that stand for any host, or for any below one.
    fn take_host_expression(&mut self, condition: &Condition, value: &str, is_old: bool) {
        let expression = match (is_old, value.strip_prefix('{')) {
            (true, Some(rest)) => match rest.split_once('}') {
                Some((named, tail)) => {
                    let own = named.split_once(':').map_or("[^.]+", |(_, expression)| expression);
                    format!("^{own}{}$", tail.replace('.', "\\."))
                }
                None => value.to_owned(),
            },
            _ => value.to_owned(),
        };
        if [".*", ".+", "^.*$", "^.+$", "^.*", "^.+"].contains(&expression.as_str()) {
            return;
        }
        let inner = expression.strip_prefix('^').and_then(|rest| rest.strip_suffix('$'));
        let labels = [r"[^.]+\.", r".+\.", r"[^\.]+\."];
        let below = inner.and_then(|inner| labels.iter().find_map(|any| inner.strip_prefix(any)));
        let name = below.map(|name| name.replace(r"\.", "."));
        match name.filter(|_| self.host.is_none()) {
            Some(name) if !name.contains('*') => {
                let host = Condition { arguments: vec![format!("*.{name}")], ..condition.clone() };
                self.take_host(condition, host.arguments.first().map_or("", String::as_str));
            }
            _ => self.leave(condition),
        }
    }

    /// A path with `{name}` of version 2.
    fn take_pattern(&mut self, condition: &Condition, behind: &str) {
        let value = condition.arguments.first().map_or("", String::as_str);
        match old_pattern(value) {
            Some(pattern) if self.path.is_empty() => {
                let behind = if pattern.ends_with("/**") { "" } else { behind };
                self.path = format!("{pattern}{behind}");
            }
            _ => self.leave(condition),
        }
    }

    fn take_method(&mut self, value: &str) {
        let method = value.to_ascii_uppercase();
        let is_forwarded = !matches!(method.as_str(), "CONNECT" | "TRACE" | "");
        self.is_never |= !is_forwarded || self.method.as_ref().is_some_and(|own| *own != method);
        if method == "GET" {
            self.differences.push("GET is for HEAD, too".to_owned());
        }
        self.method = Some(method);
    }

    fn finish_path(&mut self, path: Option<PathCondition>) {
        let Some(path) = path else {
            if self.path.is_empty() {
                self.path = "/**".to_owned();
            }
            return;
        };
        let (text, behind) = match &path {
            PathCondition::Exact(text) => (text, ""),
            PathCondition::Prefix(text) if text.ends_with('/') => (text, "/**"),
            PathCondition::Prefix(text) => (text, "*/**"),
        };
        let trimmed = text.trim_end_matches('/');
        let pattern = match (literal(trimmed), &path) {
            (Some(_), PathCondition::Exact(_)) if trimmed.is_empty() => "/".to_owned(),
            (Some(literal), _) => format!("{literal}{behind}"),
            (None, _) => {
                self.unwritten.push(format!("the path `{text}`"));
                "/**".to_owned()
            }
        };
        if trimmed.is_empty() {
        } else if path == PathCondition::Exact(text.clone()) {
            self.differences
                .push("a slash at the end of a path makes no difference here".to_owned());
        } else if text.ends_with('/') {
            self.differences.push(format!("`{pattern}` is `{trimmed}`, too"));
        }
        match self.path.is_empty() {
            true => self.path = pattern,
            false => self.unwritten.push(format!("the path `{text}`")),
        }
    }

    /// The fields of `match`.
    pub(super) fn flow(&self) -> Flow {
        let mut flow = Flow::fields([]);
        if let Some(host) = &self.host {
            flow = flow.with("host", host.as_str());
        }
        flow = flow.with("path", self.path.as_str());
        if let Some(method) = &self.method {
            flow = flow.with("methods", Flow::list([method.as_str()]));
        }
        match &self.from {
            Some(from) => flow.with("from", Flow::list([from.as_str()])),
            None => flow,
        }
    }

    /// A path that the pattern takes, and one below it or beside it.
    pub(super) fn samples(&self) -> [String; 2] {
        let stem = self.path.strip_suffix("/**").unwrap_or(&self.path).replace('*', "x");
        let stem = if self.path.contains("*/**") { stem.trim_end_matches('x') } else { &stem };
        let is_open = self.path.ends_with("/**");
        let below =
            if is_open { format!("{}/sample", stem.trim_end_matches('/')) } else { String::new() };
        let stem = if stem.is_empty() { "/" } else { stem };
        [stem.to_owned(), if is_open { below } else { stem.to_owned() }]
    }

    /// A host that it takes.
    pub(super) fn sample_host(&self) -> Option<String> {
        self.host.as_ref().map(|host| host.replace('*', "any"))
    }

    /// Whether it takes all requests with this host and path, or may take some.
    pub(super) fn may_take(&self, host: Option<&str>, path: &str) -> bool {
        let is_host = match (&self.host, host) {
            (None, _) | (_, None) => true,
            (Some(own), Some(host)) => match own.strip_prefix('*') {
                Some(suffix) => host.ends_with(suffix),
                None => own == host,
            },
        };
        is_host && takes(&self.path, path)
    }

    /// Whether it may take a request that is like those of the other.
    pub(super) fn may_share(&self, other: &Matching) -> bool {
        let host = other.sample_host();
        other.samples().iter().any(|path| self.may_take(host.as_deref(), path))
    }

    /// Whether it takes all that a condition is about, among the requests of `other`.
    pub(super) fn takes_all_of(&self, condition: &Condition, other: &Matching) -> bool {
        let about =
            Matching::of(&vec![Condition { is_negated: false, ..condition.clone() }], false);
        about.unwritten.is_empty()
            && (self.host.is_none() || self.host == about.host || self.host == other.host)
            && (self.path == "/**" || self.path == about.path)
            && (self.method.is_none() || self.method == about.method)
            && (self.from.is_none() || self.from == about.from)
            && self.unwritten.is_empty()
            && self.negated.is_empty()
    }
}

/// Whether a pattern takes a path.
pub(crate) fn takes(pattern: &str, path: &str) -> bool {
    let (pattern, is_open) = match pattern.strip_suffix("/**") {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let segments = |path: &str| -> Vec<String> {
        path.split('/').filter(|own| !own.is_empty()).map(str::to_owned).collect()
    };
    let (patterns, paths) = (segments(pattern), segments(path));
    let is_one = |(pattern, segment): (&String, &String)| match pattern.split_once('*') {
        Some((start, end)) => segment.starts_with(start) && segment.ends_with(end),
        None => pattern == segment,
    };
    (paths.len() == patterns.len() || (is_open && paths.len() > patterns.len()))
        && patterns.iter().zip(&paths).all(is_one)
}

/// What a condition says of the path. None: it has no counterpart.
fn path_condition(name: &str, value: &str) -> Option<PathCondition> {
    let is_plain =
        |text: &str| !text.contains(['\\', '.', '+', '*', '?', '(', '[', '{', '|', '^', '$']);
    match name {
        "Path" => Some(PathCondition::Exact(value.to_owned())),
        "PathPrefix" => Some(PathCondition::Prefix(value.to_owned())),
        _ => {
            let text = value.strip_prefix('^')?;
            match text.strip_suffix('$') {
                Some(text) if is_plain(text) => Some(PathCondition::Exact(text.to_owned())),
                None if is_plain(text) => Some(PathCondition::Prefix(text.to_owned())),
                _ => None,
            }
        }
    }
}

/// The narrower of two conditions. None: no path is both.
fn narrower(one: Option<PathCondition>, other: PathCondition) -> Option<PathCondition> {
    use PathCondition::{Exact, Prefix};
    let Some(one) = one else { return Some(other) };
    match (&one, &other) {
        (Exact(own), Exact(more)) => (own == more).then_some(one),
        (Exact(own) | Prefix(own), Prefix(more)) if own.starts_with(more.as_str()) => Some(one),
        (Prefix(own), Exact(more) | Prefix(more)) if more.starts_with(own.as_str()) => Some(other),
        _ => None,
    }
}

/// A path of version 2 with `{name}` as a pattern.
fn old_pattern(path: &str) -> Option<String> {
    let mut pattern = String::new();
    for segment in path.strip_prefix('/')?.trim_end_matches('/').split('/') {
        let part = match segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            None => literal(segment)?,
            Some(named) if named.contains(['{', '}']) => return None,
            Some(named) => match named.split_once(':') {
                None | Some((_, "[^/]+")) => "*".to_owned(),
                Some((_, ".*" | ".+")) => "**".to_owned(),
                Some(_) => return None,
            },
        };
        pattern = format!("{pattern}/{part}");
    }
    let is_rest_last = pattern.find("/**").is_none_or(|at| at + 3 == pattern.len());
    is_rest_last.then_some(pattern)
}

/// A path as a pattern has it. None: no request's path looks like this here.
pub(crate) fn literal(path: &str) -> Option<String> {
    let is_normal = (path.is_empty() || path.starts_with('/') || !path.contains('/'))
        && !path.contains("//")
        && !path.split('/').any(|segment| matches!(segment, "." | ".."))
        && !path.contains(['%', '?', '#', '\\', ';'])
        && !path.contains(|letter: char| letter.is_control());
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"*{}".contains(byte);
    let encoded = |byte: u8| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    is_normal.then(|| path.bytes().map(encoded).collect())
}

#[cfg(test)]
mod tests {
    use super::super::rule::alternatives;
    use super::*;

    fn matching(rule: &str, is_old: bool) -> Matching {
        Matching::of(&alternatives(rule, is_old).unwrap()[0], is_old)
    }

    #[test]
    fn conditions_become_a_match() {
        for (rule, is_old, expected) in [
            ("Host(`A.example.`)", false, "{ host: a.example, path: /** }"),
            ("Host(`*.a`) && Path(`/`)", false, "{ host: \"*.a\", path: / }"),
            ("Host(`*`)", false, "{ path: /** }"),
            ("HostRegexp(`.+`)", false, "{ path: /** }"),
            (r"HostRegexp(`^[^.]+\.a\.b$`)", false, "{ host: \"*.a.b\", path: /** }"),
            ("HostRegexp(`{sub:.+}.a.b`)", true, "{ host: \"*.a.b\", path: /** }"),
            ("Path(`/p/`)", false, "{ path: /p }"),
            ("PathPrefix(`/`)", false, "{ path: /** }"),
            ("PathPrefix(`/p`)", false, "{ path: /p*/** }"),
            ("PathPrefix(`/p/`)", false, "{ path: /p/** }"),
            ("PathPrefix(`/a b/{x}`)", false, "{ path: /a%20b/%7Bx%7D*/** }"),
            ("PathPrefix(`/p`) && Path(`/p/x`)", false, "{ path: /p/x }"),
            ("PathPrefix(`/p/x`) && PathPrefix(`/p`)", false, "{ path: /p/x*/** }"),
            ("PathRegexp(`^/p/`)", false, "{ path: /p/** }"),
            ("Path(`/a/{id}`)", true, "{ path: /a/* }"),
            ("PathPrefix(`/a/{id}`)", true, "{ path: /a/*/** }"),
            ("Path(`/a/{rest:.*}`)", true, "{ path: /a/** }"),
            (
                "Method(`get`) && ClientIP(`10.0.0.0/8`)",
                false,
                "{ path: /**, methods: [GET], from: [10.0.0.0/8] }",
            ),
        ] {
            let matching = matching(rule, is_old);
            assert_eq!(matching.flow().to_string(), expected, "{rule}");
            assert!(matching.unwritten.is_empty() && !matching.is_never, "{rule}");
        }
    }

    #[test]
    fn conditions_without_a_counterpart_are_left() {
        for (rule, is_old) in [
            ("Header(`a`, `b`)", false),
            ("Query(`a`)", false),
            ("HostRegexp(`a.+`)", false),
            ("HostRegexp(`{sub:[a-z]+}.a`)", true),
            ("PathRegexp(`/p`)", false),
            ("PathRegexp(`^/p.*`)", false),
            ("Path(`/a//b`)", false),
            ("Path(`/a/{id:[0-9]+}`)", true),
            ("ClientIP(`10.0.0.1`) && ClientIP(`10.0.0.2`)", false),
        ] {
            assert_eq!(matching(rule, is_old).unwritten.len(), 1, "{rule}");
        }
        for rule in [
            "Host(`a`) && Host(`b`)",
            "Path(`/a`) && PathPrefix(`/b`)",
            "Method(`GET`) && Method(`POST`)",
            "Method(`TRACE`)",
        ] {
            assert!(matching(rule, false).is_never, "{rule}");
        }
    }

    #[test]
    fn samples_are_taken_by_their_own_match() {
        for rule in [
            "Path(`/`)",
            "Path(`/p`)",
            "PathPrefix(`/p`)",
            "PathPrefix(`/p/`)",
            "PathPrefix(`/`)",
            "PathPrefix(`/a*`)",
        ] {
            let matching = matching(rule, false);
            for sample in matching.samples() {
                assert!(matching.may_take(None, &sample), "{rule}: {sample}");
            }
        }
    }
}
