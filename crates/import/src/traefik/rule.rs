//! Rules of routers: `Host(`a`) && (PathPrefix(`/b`) || !Method(`GET`))`, as alternatives of which
//! each is a list of conditions that all hold.

use std::fmt;

/// The longest rule that is read, the deepest nesting, and the most alternatives.
const MAX_BYTES: usize = 16 * 1024;
const MAX_DEPTH: usize = 32;
const MAX_ALTERNATIVES: usize = 64;

/// What conditions there are, and whether all versions of the syntax have them.
const NAMES: &str = "\
    Host HostHeader HostRegexp Path PathPrefix PathRegexp Method Header Headers HeaderRegexp \
    HeadersRegexp Query QueryRegexp ClientIP";
/// Those of the second version alone.
const OLD: [&str; 3] = ["HostHeader", "Headers", "HeadersRegexp"];

/// A condition, such as ``Host(`a`)``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) name: &'static str,
    pub(super) arguments: Vec<String>,
    pub(super) is_negated: bool,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_negated { "!" } else { "" };
        write!(f, "{sign}{}(`{}`)", self.name, self.arguments.join("`, `"))
    }
}

/// Conditions that all hold.
pub(super) type Alternative = Vec<Condition>;

/// The alternatives of a rule; `is_old` is for the syntax of version 2, in which a condition takes
/// several values. Otherwise the reason why it is none, or is too large.
pub(super) fn alternatives(rule: &str, is_old: bool) -> Result<Vec<Alternative>, String> {
    if rule.len() > MAX_BYTES {
        return Err(format!("the rule is longer than {MAX_BYTES} bytes"));
    }
    let mut parser = Parser { rest: rule, is_old, depth: 0 };
    let alternatives = parser.any(false)?;
    match parser.peek() {
        None => Ok(alternatives),
        Some(_) => Err(format!("the rule goes on with `{}`", start_of(parser.rest))),
    }
}

/// Whether a rule has a condition that only version 2 has.
pub(super) fn is_old(rule: &str) -> bool {
    alternatives(rule, true)
        .is_ok_and(|all| all.iter().flatten().any(|condition| OLD.contains(&condition.name)))
}

struct Parser<'r> {
    rest: &'r str,
    is_old: bool,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn takes(&mut self, token: &str) -> bool {
        self.peek();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Parts with `||` between them. What is negated is written by De Morgan's laws.
    fn any(&mut self, is_negated: bool) -> Result<Vec<Alternative>, String> {
        let mut found = self.all(is_negated)?;
        while self.takes("||") {
            let more = self.all(is_negated)?;
            found = joined(found, more, is_negated)?;
        }
        Ok(found)
    }

    fn all(&mut self, is_negated: bool) -> Result<Vec<Alternative>, String> {
        let mut found = self.one(is_negated)?;
        while self.takes("&&") {
            let more = self.one(is_negated)?;
            found = joined(found, more, !is_negated)?;
        }
        Ok(found)
    }

    fn one(&mut self, mut is_negated: bool) -> Result<Vec<Alternative>, String> {
        while self.takes("!") {
            is_negated = !is_negated;
        }
        if !self.takes("(") {
            return self.condition(is_negated);
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("the rule has more than {MAX_DEPTH} levels of parentheses"));
        }
        let found = self.any(is_negated)?;
        self.depth -= 1;
        match self.takes(")") {
            true => Ok(found),
            false => Err(format!("a `)` is missing before `{}`", start_of(self.rest))),
        }
    }

    fn condition(&mut self, is_negated: bool) -> Result<Vec<Alternative>, String> {
        self.peek();
        let end = self.rest.find(|letter: char| !letter.is_ascii_alphanumeric());
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let Some(name) = NAMES.split_ascii_whitespace().find(|name| is_form_of(name, word)) else {
            return Err(format!("`{}` is no condition", start_of(self.rest)));
        };
        self.rest = rest;
        let mut arguments = Vec::new();
        if !self.takes("(") {
            return Err(format!("`{name}` has no values"));
        }
        while !self.takes(")") {
            if !arguments.is_empty() && !self.takes(",") {
                return Err(format!("a `)` is missing behind `{name}`"));
            }
            arguments.push(self.text()?);
        }
        let is_of_version = self.is_old || !OLD.contains(&name);
        let condition = |arguments| vec![Condition { name, arguments, is_negated }];
        let takes = match name {
            "Header" | "HeaderRegexp" | "Headers" | "HeadersRegexp" => 2..=2,
            "Query" | "QueryRegexp" => 1..=2,
            _ => 1..=1,
        };
        if self.is_old && takes == (1..=1) && !arguments.is_empty() {
            let each = arguments.into_iter().map(|argument| condition(vec![argument]));
            let mut each = each.map(|condition| Ok(vec![condition]));
            let first = each.next().unwrap_or_else(|| Ok(Vec::new()));
            return each
                .fold(first, |found, one: Result<_, String>| joined(found?, one?, is_negated));
        }
        let is_enough = takes.contains(&arguments.len()) || (self.is_old && arguments.len() > 1);
        match is_of_version && is_enough {
            true => Ok(vec![condition(arguments)]),
            false => Err(format!("`{name}` has other values than its version takes")),
        }
    }

    /// A text of Go, in backticks or in quotes.
    fn text(&mut self) -> Result<String, String> {
        let unended = || "a text has no end".to_owned();
        if self.takes("`") {
            let (text, rest) = self.rest.split_once('`').ok_or_else(unended)?;
            self.rest = rest;
            return Ok(text.to_owned());
        }
        if !self.takes("\"") {
            return Err(format!("`{}` is no text in backticks", start_of(self.rest)));
        }
        let mut text = String::new();
        let mut letters = self.rest.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = self.rest.get(at + 1..).unwrap_or_default();
                    return Ok(text);
                }
                '\\' => match letters.next() {
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    _ => return Err("a text has an escape: write it in backticks".to_owned()),
                },
                letter => text.push(letter),
            }
        }
        Err(unended())
    }
}

/// The alternatives of either (`||`), or of both together (`&&`).
fn joined(
    one: Vec<Alternative>,
    other: Vec<Alternative>,
    is_and: bool,
) -> Result<Vec<Alternative>, String> {
    let size = if is_and { one.len() * other.len() } else { one.len() + other.len() };
    if size > MAX_ALTERNATIVES {
        return Err(format!("the rule has more than {MAX_ALTERNATIVES} alternatives"));
    }
    if !is_and {
        return Ok(one.into_iter().chain(other).collect());
    }
    let with = |own: &Alternative, more: &Alternative| own.iter().chain(more).cloned().collect();
    Ok(one.iter().flat_map(|own| other.iter().map(move |more| with(own, more))).collect())
}

/// Traefik takes a name as it is, in small letters, in capitals, or as a title.
fn is_form_of(name: &str, word: &str) -> bool {
    let title = |(at, letter): (usize, char)| match at {
        0 => letter.to_ascii_uppercase(),
        _ => letter.to_ascii_lowercase(),
    };
    word == name
        || word == name.to_ascii_lowercase()
        || word == name.to_ascii_uppercase()
        || word.chars().eq(name.char_indices().map(title))
}

fn start_of(text: &str) -> String {
    match text.is_empty() {
        true => "the end".to_owned(),
        false => text.chars().take(20).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rule: &str, is_old: bool) -> Result<String, String> {
        let condition = |condition: &Condition| {
            let sign = if condition.is_negated { "!" } else { "" };
            format!("{sign}{}({})", condition.name, condition.arguments.join(","))
        };
        let alternative =
            |all: &Alternative| all.iter().map(condition).collect::<Vec<_>>().join(" ");
        let alternatives = alternatives(rule, is_old)?;
        Ok(alternatives.iter().map(alternative).collect::<Vec<_>>().join(" | "))
    }

    #[test]
    fn rules_are_alternatives_of_conditions() {
        for (rule, expected) in [
            ("Host(`a`)", "Host(a)"),
            ("host(\"a\\\"b\") && PATHPREFIX(`/c`)", "Host(a\"b) PathPrefix(/c)"),
            ("Host(`a`) || Host(`b`) && Path(`/c`)", "Host(a) | Host(b) Path(/c)"),
            ("(Host(`a`) || Host(`b`)) && Path(`/c`)", "Host(a) Path(/c) | Host(b) Path(/c)"),
            ("!(Host(`a`) || Path(`/b`))", "!Host(a) !Path(/b)"),
            ("!(Host(`a`) && !Path(`/b`))", "!Host(a) | Path(/b)"),
            ("!!Host(`a`)", "Host(a)"),
            ("Header(`k`, `v`) && Query(`q`)", "Header(k,v) Query(q)"),
        ] {
            assert_eq!(written(rule, false).as_deref(), Ok(expected), "{rule}");
        }
    }

    #[test]
    fn version_2_takes_several_values() {
        for (rule, expected) in [
            ("Host(`a`, `b`)", "Host(a) | Host(b)"),
            ("!Host(`a`, `b`)", "!Host(a) !Host(b)"),
            ("Headers(`k`, `v`)", "Headers(k,v)"),
        ] {
            assert_eq!(written(rule, true).as_deref(), Ok(expected), "{rule}");
            assert!(written(rule, false).is_err(), "{rule}");
        }
        assert!(is_old("Path(`/`) && HostHeader(`a`)") && !is_old("Host(`a`)"));
    }

    #[test]
    fn what_is_no_rule_is_refused_in_bounded_time() {
        let wide = ["(Host(`a`) || Host(`b`))"; 7].join(" && ");
        let deep = "(".repeat(100_000);
        for rule in [
            "",
            "Host",
            "Host()",
            "Host(`a",
            "Host(\"a",
            "Host(a)",
            "Host(`a`) &",
            "Host(`a`) Path(`/`)",
            "(Host(`a`)",
            "hOST(`a`)",
            "Nothing(`a`)",
            "Host(\"\\x41\")",
            &wide,
            &deep,
            &deep[..1000],
        ] {
            assert!(written(rule, false).is_err(), "{rule}");
        }
    }
}
