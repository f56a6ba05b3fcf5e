//! Locations as patterns of paths: texts that paths begin with, and a small part of regular
//! expressions.

/// How a location says which paths it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `= /a`
    Exact,
    /// `^~ /a`
    Final,
    /// `/a`
    Prefix,
    /// `~ a`, `~* a`
    Regex { ignores_case: bool },
    /// `@a`
    Named,
}

/// Patterns of a regular expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Patterns {
    pub(super) paths: Vec<String>,
    /// Whether they take paths that it does not.
    pub(super) is_wider: bool,
    /// Whether they end at some depth of folders, and it does not.
    pub(super) is_bounded: bool,
}

/// Folders that an expression without a beginning is looked for in.
pub(super) const DEPTH: usize = 6;
/// Patterns that an expression may become.
const MAX_PATTERNS: usize = 200;
/// Groups within groups.
const MAX_GROUPS: usize = 8;

/// The kind of a location, and its text.
pub(super) fn location(args: &[String]) -> (Kind, &str) {
    let (mark, text) = match args {
        [mark, text, ..] => (mark.as_str(), text.as_str()),
        [text] => {
            let mark = ["=", "^~", "~*", "~"]
                .into_iter()
                .find(|mark| text.starts_with(mark))
                .unwrap_or("");
            (mark, text.get(mark.len()..).unwrap_or_default())
        }
        [] => ("", ""),
    };
    let kind = match mark {
        "=" => Kind::Exact,
        "^~" => Kind::Final,
        "~" => Kind::Regex { ignores_case: false },
        "~*" => Kind::Regex { ignores_case: true },
        _ if text.starts_with('@') => Kind::Named,
        _ => Kind::Prefix,
    };
    (kind, text)
}

/// The pattern for a path.
pub(super) fn exact(text: &str) -> String {
    text.bytes().map(encoded).collect()
}

/// The pattern for all paths that begin so: a text, and not a segment.
pub(super) fn prefix(text: &str) -> String {
    let path = exact(text);
    if path.ends_with('/') { format!("{path}**") } else { format!("{path}*/**") }
}

fn encoded(byte: u8) -> String {
    match byte {
        0..=31 | 127.. => format!("%{byte:02X}"),
        _ if b"*{}% ?#\"<>^`|\\".contains(&byte) => format!("%{byte:02X}"),
        _ => char::from(byte).to_string(),
    }
}

/// A part of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Atom {
    Text(char),
    /// Any text within a segment.
    Segment,
    /// Any text.
    Any,
    Begin,
    End,
}

/// The patterns of a regular expression. None: it says more than patterns can.
pub(super) fn regex(expression: &str) -> Option<Patterns> {
    let mut reader = Reader { rest: expression, is_wider: false };
    let choices = reader.choices(0)?;
    if !reader.rest.is_empty() {
        return None;
    }
    let mut patterns = Patterns { is_wider: reader.is_wider, ..Patterns::default() };
    for choice in choices {
        patterns.add(&choice)?;
    }
    (patterns.paths.len() <= MAX_PATTERNS).then_some(patterns)
}

impl Patterns {
    fn add(&mut self, pieces: &[Atom]) -> Option<()> {
        let (is_begun, pieces) =
            pieces.strip_prefix(&[Atom::Begin]).map_or((false, pieces), |rest| (true, rest));
        let (is_ended, pieces) =
            pieces.strip_suffix(&[Atom::End]).map_or((false, pieces), |rest| (true, rest));
        let (is_begun, pieces) =
            pieces.strip_prefix(&[Atom::Any]).map_or((is_begun, pieces), |rest| (false, rest));
        let (is_ended, pieces) =
            pieces.strip_suffix(&[Atom::Any]).map_or((is_ended, pieces), |rest| (false, rest));
        if pieces.iter().any(|piece| matches!(piece, Atom::Begin | Atom::End)) {
            return None;
        }
        if is_begun && !matches!(pieces.first(), Some(Atom::Text('/'))) {
            // No path begins so.
            return if matches!(pieces.first(), Some(Atom::Text(_))) { Some(()) } else { None };
        }
        let mut gaps = pieces.iter().enumerate().filter(|(_, piece)| **piece == Atom::Any);
        let gap = gaps.next().map(|(at, _)| at);
        if gaps.next().is_some() || gap.is_some() && !is_begun {
            return None;
        }
        let folders = if gap.is_some() || !is_begun { DEPTH } else { 0 };
        self.is_bounded |= folders > 0;
        for folders in 0..=folders {
            let mut path = String::new();
            if !is_begun {
                path.push_str(&"/*".repeat(folders));
                path.push_str(if matches!(pieces.first(), Some(Atom::Text('/'))) {
                    ""
                } else {
                    "/*"
                });
            }
            for piece in pieces {
                match piece {
                    Atom::Text(letter) => path.extend(letter.to_string().bytes().map(encoded)),
                    Atom::Segment => path.push('*'),
                    _ => path.push_str(&format!("{}*", "*/".repeat(folders))),
                }
            }
            let is_folder = path.ends_with('/');
            match (is_ended, is_folder) {
                (true, _) if path.len() > 1 => path.truncate(path.trim_end_matches('/').len()),
                (true, _) => {}
                (false, true) => path.push_str("**"),
                (false, false) if path.ends_with('*') => path.push_str("/**"),
                (false, false) => path.push_str("*/**"),
            }
            let segments = path.trim_end_matches("/**").split('/');
            if segments.clone().any(|segment| segment.matches('*').count() > 1)
                || path.contains("//")
            {
                return None;
            }
            if !self.paths.contains(&path) {
                self.paths.push(path);
            }
        }
        Some(())
    }
}

struct Reader<'e> {
    rest: &'e str,
    is_wider: bool,
}

impl Reader<'_> {
    /// What `|` separates, each with all that may be left out of it written out.
    fn choices(&mut self, depth: usize) -> Option<Vec<Vec<Atom>>> {
        if depth > MAX_GROUPS {
            return None;
        }
        let mut choices = Vec::new();
        let mut current = vec![Vec::new()];
        loop {
            if self.rest.is_empty() || self.rest.starts_with(')') {
                choices.append(&mut current);
                return (choices.len() <= MAX_PATTERNS).then_some(choices);
            }
            if self.skip("|") {
                choices.append(&mut current);
                current = vec![Vec::new()];
                continue;
            }
            let mut options = self.item(depth)?;
            if self.skip("?") {
                options.push(Vec::new());
            } else if self.rest.starts_with(['*', '+', '{']) {
                return None;
            }
            if current.len() * options.len() > MAX_PATTERNS {
                return None;
            }
            current = current
                .iter()
                .flat_map(|before| options.iter().map(move |after| [&before[..], after].concat()))
                .collect();
        }
    }

    /// One item: a letter, a class or a group.
    fn item(&mut self, depth: usize) -> Option<Vec<Vec<Atom>>> {
        let of = |piece| Some(vec![vec![piece]]);
        if self.skip("(?:") || !self.rest.starts_with("(?") && self.skip("(") {
            let inner = self.choices(depth + 1)?;
            return self.skip(")").then_some(inner);
        }
        for (written, piece) in [
            ("[^/]+", Atom::Segment),
            ("[^/]*", Atom::Segment),
            (".*", Atom::Any),
            (".+", Atom::Any),
        ] {
            if self.skip(written) {
                self.skip("?");
                // `/a/.+` is not for `/a/`.
                self.is_wider |= written == ".+";
                return of(piece);
            }
        }
        if self.rest.starts_with('[') {
            let (class, after) = self.rest.split_once(']')?;
            let letters = class.strip_prefix('[').unwrap_or_default();
            let is_list = letters.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if is_list && !after.starts_with(['+', '*', '{']) {
                self.rest = after;
                return Some(letters.chars().map(|letter| vec![Atom::Text(letter)]).collect());
            }
            let has_slash = class.contains(['/', '\\', '^', '\n']);
            (self.rest, self.is_wider) = (after, true);
            let _ = self.skip("+") || self.skip("*") || self.skip_count();
            return if has_slash { None } else { of(Atom::Segment) };
        }
        if self.skip("\\d") || self.skip("\\w") {
            self.is_wider = true;
            let _ = self.skip("+") || self.skip("*") || self.skip_count();
            return of(Atom::Segment);
        }
        let mut letters = self.rest.chars();
        let (piece, after) = match letters.next()? {
            '^' => (Atom::Begin, letters.as_str()),
            '$' => (Atom::End, letters.as_str()),
            // Any letter: most often a point is meant.
            '.' => {
                self.is_wider = true;
                (Atom::Segment, letters.as_str())
            }
            '\\' => {
                let letter = letters.next().filter(|letter| !letter.is_ascii_alphanumeric())?;
                (Atom::Text(letter), letters.as_str())
            }
            '*' | '+' | '?' | '{' | ')' | '(' => return None,
            letter => (Atom::Text(letter), letters.as_str()),
        };
        self.rest = after;
        of(piece)
    }

    fn skip(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_count(&mut self) -> bool {
        let count = self.rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        self.rest = count.map_or(self.rest, |(_, after)| after);
        count.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_have_a_kind_and_a_text() {
        let of = |text: &str| {
            let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let (kind, text) = location(&args);
            (kind, text.to_owned())
        };
        assert_eq!(of("=/x"), (Kind::Exact, "/x".to_owned()));
        assert_eq!(of("~* \\.php$"), (Kind::Regex { ignores_case: true }, "\\.php$".to_owned()));
        assert_eq!(of("^~/x"), (Kind::Final, "/x".to_owned()));
        assert_eq!(of("@app").0, Kind::Named);
        assert_eq!(
            (prefix("/"), prefix("/api"), prefix("/a b/")),
            ("/**".into(), "/api*/**".into(), "/a%20b/**".into())
        );
    }

    #[test]
    fn some_expressions_are_patterns() {
        for (expression, expected, is_wider) in [
            ("^/api/auth/login$", "/api/auth/login", false),
            ("^/(a|b)/", "/a/** /b/**", false),
            ("^/api", "/api*/**", false),
            ("^/a/[^/]+/b$", "/a/*/b", false),
            ("^/v1/(auth/)?login$", "/v1/auth/login /v1/login", false),
            ("^/tu($|/.*)", "/tu /tu/**", false),
            ("^(/x/.*|robots\\.txt)$", "/x/**", false),
            ("^/static/(d|e)(/.*)?$", "/static/d/** /static/d /static/e/** /static/e", false),
            ("^/api/v./new$", "/api/v*/new", true),
            ("^/in[ci]$", "/inc /ini", false),
            ("^/users/[0-9]+$", "/users/*", true),
            ("^/u/\\d{2}/x", "/u/*/x*/**", true),
        ] {
            let patterns = regex(expression).unwrap_or_else(|| panic!("{expression}"));
            assert_eq!(
                (&*patterns.paths.join(" "), patterns.is_wider),
                (expected, is_wider),
                "{expression}"
            );
        }
        let hidden = regex("/\\.").unwrap();
        assert_eq!(hidden.paths[..2], ["/.*/**", "/*/.*/**"]);
        assert!(hidden.is_bounded);
        assert_eq!(regex("\\.php$").unwrap().paths[..2], ["/*.php", "/*/*.php"]);
        assert_eq!(regex("^/iso/.*\\.sig$").unwrap().paths[..2], ["/iso/*.sig", "/iso/*/*.sig"]);
        for expression in
            ["(?i)a", "a(?=b)", "\\.(php|git)", "^/a+", "^/(a", "^/x/[^.]+$", "(^/feeds/|a$)b"]
        {
            assert_eq!(regex(expression), None, "{expression}");
        }
    }
}
