//! The forms of CEL that limits here can say: comparisons of one thing with texts, joined by `&&`.

/// What a predicate or a counter looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Term {
    Method,
    /// Without the query.
    UrlPath,
    /// With the query.
    Path,
    Host,
    Header(String),
    /// A property of `auth.identity`.
    Identity(String),
    RemoteAddress,
    /// With the port.
    SourceAddress,
}

/// A comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// With one of these texts.
    Is(Term, Vec<String>),
    IsNot(Term, String),
    Begins(Term, String),
    Ends(Term, String),
    /// It is never true.
    Never,
}

/// How deep parentheses are read.
const MAX_DEPTH: usize = 8;
/// How long a predicate may be.
const MAX_LENGTH: usize = 4096;

/// The comparisons of a predicate, all of which must hold. None: it says something else.
pub(super) fn tests(text: &str) -> Option<Vec<Test>> {
    if text.len() > MAX_LENGTH { None } else { parsed(text, 0) }
}

fn parsed(text: &str, depth: usize) -> Option<Vec<Test>> {
    let text = without_parentheses(text);
    if depth > MAX_DEPTH {
        return None;
    }
    if let [_, _, ..] = split(text, "||")?.as_slice() {
        let mut methods = Vec::new();
        for part in split(text, "||")? {
            match parsed(part, depth + 1)?.as_slice() {
                [Test::Is(Term::Method, own)] => methods.extend(own.iter().cloned()),
                _ => return None,
            }
        }
        return Some(vec![Test::Is(Term::Method, methods)]);
    }
    let parts = split(text, "&&")?;
    if let [one] = parts.as_slice() {
        return Some(vec![comparison(one)?]);
    }
    let mut all = Vec::new();
    for part in parts {
        all.extend(parsed(part, depth + 1)?);
    }
    Some(all)
}

fn comparison(text: &str) -> Option<Test> {
    if let [left, right] = split(text, "==")?.as_slice() {
        let addresses = ["source.id", "source.address"];
        if addresses.contains(left) && addresses.contains(right) && left != right {
            return Some(Test::Never);
        }
        return match (term(left), term(right)) {
            (Some(own), None) => Some(Test::Is(own, vec![literal(right)?])),
            (None, Some(own)) => Some(Test::Is(own, vec![literal(left)?])),
            _ => None,
        };
    }
    if let [left, right] = split(text, "!=")?.as_slice() {
        return Some(Test::IsNot(term(left)?, literal(right)?));
    }
    if let [left, right] = split(text, " in ")?.as_slice() {
        let list = right.strip_prefix('[')?.strip_suffix(']')?;
        let values = split(list, ",")?.into_iter().map(literal).collect::<Option<Vec<String>>>()?;
        return Some(Test::Is(term(left)?, values));
    }
    let called = |name: &str| {
        let (own, argument) = text.split_once(name)?;
        Some((term(own)?, literal(argument.strip_suffix(')')?)?))
    };
    if let Some((own, value)) = called(".startsWith(") {
        return Some(Test::Begins(own, value));
    }
    let (own, value) = called(".endsWith(")?;
    Some(Test::Ends(own, value))
}

/// What an expression looks at.
pub(super) fn term(text: &str) -> Option<Term> {
    let text = text.trim();
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    Some(match text {
        "request.method" => Term::Method,
        "request.url_path" => Term::UrlPath,
        "request.path" => Term::Path,
        "request.host" => Term::Host,
        "source.remote_address" => Term::RemoteAddress,
        "source.address" => Term::SourceAddress,
        _ => {
            if let Some(name) = text.strip_prefix("auth.identity.") {
                return is_name(name).then(|| Term::Identity(name.to_owned()));
            }
            let name = text.strip_prefix("request.headers[")?.strip_suffix(']')?;
            Term::Header(literal(name).filter(|name| is_name(name))?.to_ascii_lowercase())
        }
    })
}

/// A text in quotes, without escapes.
fn literal(text: &str) -> Option<String> {
    let text = text.trim();
    let quote = text.chars().next().filter(|own| "'\"".contains(*own))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inner.contains([quote, '\\'])).then(|| inner.to_owned())
}

/// The parts between separators that stand in no quotes and parentheses. None: these do not end.
fn split<'t>(text: &'t str, separator: &str) -> Option<Vec<&'t str>> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(own), _) if own == letter => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth = depth.checked_sub(1)?,
            (None, _) if depth == 0 && at >= start && text.get(at..)?.starts_with(separator) => {
                parts.push(text.get(start..at)?.trim());
                start = at + separator.len();
            }
            (None, _) => {}
        }
    }
    parts.push(text.get(start..)?.trim());
    (quote.is_none() && depth == 0).then_some(parts)
}

fn without_parentheses(text: &str) -> &str {
    let mut text = text.trim();
    while let Some(inner) = text.strip_prefix('(').and_then(|own| own.strip_suffix(')')) {
        if split(inner, "&&").is_none() {
            break;
        }
        text = inner.trim();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicates_of_simple_forms_are_read() {
        let is = |own: Term, values: &[&str]| {
            Test::Is(own, values.iter().map(|own| (*own).to_owned()).collect())
        };
        let header = || Term::Header("x-a".to_owned());
        for (text, expected) in [
            ("request.method == 'POST'", vec![is(Term::Method, &["POST"])]),
            ("\"GET\" == request.method", vec![is(Term::Method, &["GET"])]),
            ("request.method in ['A', 'B']", vec![is(Term::Method, &["A", "B"])]),
            (
                "(request.method == 'A' || request.method == 'B') && request.headers['X-A'] != \"c && d\"",
                vec![is(Term::Method, &["A", "B"]), Test::IsNot(header(), "c && d".to_owned())],
            ),
            (
                "request.url_path.startsWith('/admin')",
                vec![Test::Begins(Term::UrlPath, "/admin".to_owned())],
            ),
            ("request.host.endsWith('.a')", vec![Test::Ends(Term::Host, ".a".to_owned())]),
            ("source.id == source.address", vec![Test::Never]),
            (
                "auth.identity.group == 'admin'",
                vec![is(Term::Identity("group".to_owned()), &["admin"])],
            ),
        ] {
            assert_eq!(tests(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn everything_else_is_not_read() {
        for text in [
            "",
            "true",
            "!request.path.startsWith('/x')",
            "request.method == 'A' || request.path == '/a'",
            "request.method == 'A' || request.method == 'B' && request.path == '/a'",
            "has(request.headers.x)",
            "request.path == '/a\\'b'",
            "request.path == '/a' + 'b'",
            "request.headers['x'].startsWith('a') == true",
            "request.auth.claims[\"g\"].split(\",\").exists(g, g == \"free\")",
            "request.method == 'A",
            "((request.method == 'A')",
            "request.size > 3",
            "request.path.matches('/a')",
        ] {
            assert_eq!(tests(text), None, "{text}");
        }
        assert_eq!(tests(&"(".repeat(100_000)), None);
    }
}
