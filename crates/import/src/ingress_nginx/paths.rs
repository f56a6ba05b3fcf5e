//! Paths of Ingresses, which nginx takes literally or as regular expressions, as patterns of
//! routes. Only a small part of regular expressions has patterns that take the same paths.

/// What a path takes behind what it spells out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Nothing.
    Exact,
    /// What is below.
    Segments,
    /// Any text: `/x` takes `/xyz`.
    Text,
}

/// Ends of regular expressions, and the number of the group that holds what follows a slash.
const TAILS: [(&str, End, usize); 12] = [
    ("(/|$)(.*)", End::Segments, 2),
    ("(/|$)", End::Segments, 0),
    ("/()(.*)", End::Segments, 2),
    ("/?(.*)", End::Text, 1),
    ("/?$", End::Exact, 0),
    ("/(.*)", End::Segments, 1),
    ("/(.+)", End::Segments, 1),
    ("/.*", End::Segments, 0),
    ("(/.*)?", End::Text, 0),
    ("(.*)", End::Text, 0),
    (".*", End::Text, 0),
    ("$", End::Exact, 0),
];

/// The most patterns that one regular expression becomes.
const MAX_PATTERNS: usize = 32;

/// How a path is changed before it is forwarded: what is taken off, and what is put in front.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rewrite {
    pub(super) strip: String,
    pub(super) add: String,
}

/// The pattern of a path that nginx takes literally; none: it holds what no path is written with.
pub(super) fn literal_pattern(path: &str, path_type: &str) -> Option<String> {
    let end = match path_type {
        "Exact" => End::Exact,
        "Prefix" => End::Segments,
        _ => End::Text,
    };
    path.chars().all(is_plain).then(|| pattern(path, end))
}

/// The patterns of a regular expression that is matched from the beginning of the path; none: it
/// is beyond what patterns can say.
pub(super) fn regex_patterns(regex: &str) -> Option<Vec<String>> {
    let (body, end, _) = split(regex);
    Some(expanded(body)?.iter().map(|body| pattern(body, end)).collect())
}

/// What a regular expression spells out at its beginning, in whole characters.
pub(super) fn spelt_out(regex: &str) -> String {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let plain: String = regex.chars().take_while(|letter| is_plain(*letter)).collect();
    // What is behind may say that the last character need not be there.
    let is_doubtful =
        regex.get(plain.len()..).is_some_and(|rest| rest.starts_with(['?', '*', '{']));
    let kept = plain.len() - usize::from(is_doubtful && !plain.is_empty());
    pattern(plain.get(..kept).unwrap_or_default(), End::Text)
}

/// What `rewrite-target` does to the paths of an entry, if whole segments are exchanged.
pub(super) fn rewrite(path: &str, target: &str) -> Option<Rewrite> {
    let (body, _, group) = split(path);
    let (add, number) = target.rsplit_once("/$")?;
    let is_literal = |text: &str| text.chars().all(is_plain) && !text.ends_with('/');
    let is_of_group = group > 0 && number.parse() == Ok(group);
    (is_of_group && is_literal(body) && is_literal(add))
        .then(|| Rewrite { strip: body.to_owned(), add: add.to_owned() })
}

/// Paths that a pattern takes.
pub(super) fn sample(pattern: &str) -> Vec<String> {
    let plain = |text: &str| text.replace('*', "a");
    if let Some(base) = pattern.strip_suffix("*/**") {
        return vec![plain(base), format!("{}-a", plain(base)), format!("{}-a/b", plain(base))];
    }
    match pattern.strip_suffix("/**") {
        Some(base) => ["/a", "", "/zz/a"].map(|end| format!("{}{end}", plain(base))).into(),
        None => vec![plain(pattern)],
    }
}

/// Whether a pattern may take a path, in any case of letters.
pub(super) fn takes(pattern: &str, path: &str) -> bool {
    let (pattern, path) = (pattern.to_ascii_lowercase(), path.to_ascii_lowercase());
    if let Some(base) = pattern.strip_suffix("*/**").filter(|base| !base.contains('*')) {
        return path.starts_with(base);
    }
    let mut segments = path.trim_end_matches('/').split('/');
    for own in pattern.trim_end_matches('/').split('/') {
        match (own, segments.next()) {
            ("**", _) => return true,
            (_, None) => return false,
            (own, Some(segment)) if own.contains('*') => {
                let begin = own.split('*').next().unwrap_or_default();
                if !segment.starts_with(begin) {
                    return false;
                }
            }
            (own, Some(segment)) if own != segment => return false,
            _ => {}
        }
    }
    segments.next().is_none()
}

/// A regular expression without its end, that end, and the group of it.
fn split(regex: &str) -> (&str, End, usize) {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let open = regex.strip_suffix('$').filter(|rest| rest.ends_with(".*)") || rest.ends_with(".*"));
    let regex = open.unwrap_or(regex);
    let tail = TAILS.iter().find_map(|(tail, end, group)| {
        let body = regex.strip_suffix(tail)?;
        // An escaped `$` or bracket is text.
        (!body.ends_with('\\')).then_some((body, *end, *group))
    });
    tail.unwrap_or((regex, End::Text, 0))
}

fn pattern(body: &str, end: End) -> String {
    let trimmed = body.trim_end_matches('/');
    match end {
        End::Exact if trimmed.is_empty() => "/".to_owned(),
        End::Exact => trimmed.to_owned(),
        End::Text if !trimmed.is_empty() && trimmed == body && !body.ends_with('*') => {
            format!("{body}*/**")
        }
        End::Text | End::Segments => format!("{trimmed}/**"),
    }
}

/// The texts that a regular expression stands for; `[^/]+` as a segment is `*`.
fn expanded(regex: &str) -> Option<Vec<String>> {
    let mut texts = vec![String::new()];
    let mut rest = regex;
    while let Some(letter) = rest.chars().next() {
        let behind = rest.get(letter.len_utf8()..)?;
        let (choices, behind) = match letter {
            '(' => {
                let (group, behind) = behind.split_once(')')?;
                let group = group.strip_prefix("?:").unwrap_or(group);
                (group.split('|').map(unescaped).collect::<Option<Vec<String>>>()?, behind)
            }
            '[' => {
                let behind = behind.strip_prefix("^/]+")?;
                let is_segment = (behind.is_empty() || behind.starts_with('/'))
                    && texts.iter().all(|text| text.ends_with('/'));
                is_segment.then(|| (vec!["*".to_owned()], behind))?
            }
            '\\' => {
                let escaped = behind.chars().next()?;
                let written = rest.get(..1 + escaped.len_utf8())?;
                (vec![unescaped(written)?], behind.get(escaped.len_utf8()..)?)
            }
            _ => (vec![unescaped(rest.get(..letter.len_utf8())?)?], behind),
        };
        // A quantifier is of what is before it.
        if behind.starts_with(['?', '*', '+', '{']) || texts.len() * choices.len() > MAX_PATTERNS {
            return None;
        }
        let join = |text: &String| choices.iter().map(|own| format!("{text}{own}")).collect();
        texts = texts.iter().flat_map::<Vec<String>, _>(join).collect();
        rest = behind;
    }
    Some(texts)
}

/// A text of a regular expression without operators. A dot is one here.
fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let letter = if letter == '\\' {
            letters.next().filter(|own| own.is_ascii_punctuation())?
        } else {
            letter
        };
        plain.push(Some(letter).filter(|own| is_plain(*own))?);
    }
    Some(plain)
}

/// Whether a character means itself in patterns, in regular expressions (but for the dot), and in
/// paths.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "/-_.~@:,=!&".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_paths_become_patterns_by_their_type() {
        for (path, path_type, expected) in [
            ("/", "Prefix", Some("/**")),
            ("/", "ImplementationSpecific", Some("/**")),
            ("/", "Exact", Some("/")),
            ("/x", "Exact", Some("/x")),
            ("/x", "Prefix", Some("/x/**")),
            ("/x/", "Prefix", Some("/x/**")),
            ("/x", "ImplementationSpecific", Some("/x*/**")),
            ("/x/", "", Some("/x/**")),
            ("/x(/|$)(.*)", "Prefix", None),
            ("/{x}", "Prefix", None),
        ] {
            assert_eq!(literal_pattern(path, path_type).as_deref(), expected, "{path} {path_type}");
        }
    }

    #[test]
    fn few_regular_expressions_have_patterns() {
        for (regex, expected) in [
            ("/x", &["/x*/**"][..]),
            ("/x/", &["/x/**"]),
            ("/x$", &["/x"]),
            ("^/x/?$", &["/x"]),
            ("/x(/|$)(.*)", &["/x/**"]),
            ("/x(/|$)(.*)$", &["/x/**"]),
            ("/x/?(.*)", &["/x*/**"]),
            ("/x(/.*)?", &["/x*/**"]),
            ("/x/(.*)", &["/x/**"]),
            ("/x.*", &["/x*/**"]),
            ("/(.*)", &["/**"]),
            ("/?(.*)", &["/**"]),
            ("/()(.*)", &["/**"]),
            ("/.*", &["/**"]),
            ("/", &["/**"]),
            ("/(a|b)/c", &["/a/c*/**", "/b/c*/**"]),
            ("/(?:a|b)(/|$)(.*)", &["/a/**", "/b/**"]),
            ("/v1\\.0/[^/]+/x$", &["/v1.0/*/x"]),
            ("/x/[^/]+", &["/x/*/**"]),
            ("/v[0-9]+/x", &[]),
            ("/xy?", &[]),
            ("/(a|b)+", &[]),
            ("/(a(b|c))", &[]),
            ("/x[^/]+", &[]),
            ("/a.+", &[]),
            ("/x\\$", &[]),
            ("/\\d", &[]),
            ("/(?!admin).*", &[]),
            ("/{id}", &[]),
        ] {
            assert_eq!(regex_patterns(regex).unwrap_or_default(), expected, "{regex}");
        }
        let many = "/(a|b)".repeat(6);
        assert_eq!(regex_patterns(&many), None);
    }

    #[test]
    fn what_is_spelt_out_takes_all_that_the_expression_may_take() {
        for (regex, expected) in
            [("/v[0-9]+", "/v*/**"), ("/xy?", "/x*/**"), ("^/(a|b)+", "/**"), ("/a.+", "/a.*/**")]
        {
            assert_eq!(spelt_out(regex), expected, "{regex}");
        }
    }

    #[test]
    fn rewrites_exchange_whole_segments() {
        for (path, target, expected) in [
            ("/x(/|$)(.*)", "/$2", Some(("/x", ""))),
            ("/x(/|$)(.*)", "/y/$2", Some(("/x", "/y"))),
            ("/x/(.*)", "/$1", Some(("/x", ""))),
            ("/x/?(.*)", "/$1", Some(("/x", ""))),
            ("/(.*)", "/y/$1", Some(("", "/y"))),
            ("/x(/|$)(.*)", "/$1", None),
            ("/x", "/", None),
            ("/x(.*)", "/$1", None),
            ("/(a|b)/(.*)", "/$1", None),
            ("/x/(.*)", "/$1/$2", None),
            ("/x/(.*)", "/a?b=/$1", None),
        ] {
            let expected = expected
                .map(|(strip, add)| Rewrite { strip: strip.to_owned(), add: add.to_owned() });
            assert_eq!(rewrite(path, target), expected, "{path} {target}");
        }
    }
}
