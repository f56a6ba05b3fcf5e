//! Regular expressions of locations as patterns of paths: a small part of what they can say.

use super::{paths::encoded, patterns::covers};

/// Patterns of a regular expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Patterns {
    pub(super) paths: Vec<String>,
    /// Whether they take paths that it does not.
    pub(super) is_wider: bool,
    /// The folders at which they end, if it does not.
    pub(super) depth: Option<usize>,
    /// Patterns of all paths that lie deeper and may be like it.
    pub(super) deeper: Vec<String>,
}

/// Folders that an expression without a beginning is looked for in, and how many patterns that may
/// make.
const DEPTHS: [(usize, usize); 2] = [(12, 60), (6, MAX_PATTERNS)];
/// Patterns that an expression may become.
const MAX_PATTERNS: usize = 200;
/// Groups within groups.
const MAX_GROUPS: usize = 8;

/// The patterns of a regular expression. None: it says more than patterns can.
pub(super) fn regex(expression: &str) -> Option<Patterns> {
    let mut reader = Reader { rest: expression, is_wider: false };
    let choices = reader.choices(0)?;
    if !reader.rest.is_empty() {
        return None;
    }
    let mut all = Vec::new();
    for pieces in &choices {
        all.extend(Choice::of(pieces)?);
    }
    let mut of_depths = DEPTHS.into_iter().map(|(depth, most)| {
        let patterns = Patterns { is_wider: reader.is_wider, ..Patterns::of(&all, depth)? };
        Some(patterns).filter(|patterns| patterns.paths.len() <= most)
    });
    of_depths.find_map(|patterns| patterns)
}

impl Patterns {
    fn of(choices: &[Choice<'_>], depth: usize) -> Option<Self> {
        let mut own = Patterns::default();
        for choice in choices {
            let most = if choice.is_bounded() { depth } else { 0 };
            let mut end = depth + 1;
            for folders in 0..=most {
                let path = choice.path(folders)?;
                if folders > 0 && segments(&path).count() > end {
                    break;
                }
                end = end.max(segments(&path).count());
                add(&mut own.paths, path);
            }
            if most > 0 {
                own.depth = Some(depth);
                add(&mut own.deeper, choice.deeper(end)?);
            }
        }
        Some(own)
    }
}

/// Adds a pattern, unless another one takes all its paths.
fn add(patterns: &mut Vec<String>, pattern: String) {
    if !patterns.iter().any(|other| covers(other, &pattern)) {
        patterns.push(pattern);
    }
}

/// A piece of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Text(char),
    /// Any text within a segment.
    Segment,
    /// Any text.
    Any,
    Begin,
    End,
}

/// One of what `|` separates.
struct Choice<'p> {
    pieces: &'p [Piece],
    is_begun: bool,
    is_ended: bool,
    /// Which piece is any text.
    gap: Option<usize>,
}

impl<'p> Choice<'p> {
    /// None: it says more than patterns can. `Some(None)`: no path is like it.
    fn of(pieces: &'p [Piece]) -> Option<Option<Self>> {
        let (is_begun, pieces) =
            pieces.strip_prefix(&[Piece::Begin]).map_or((false, pieces), |rest| (true, rest));
        let (is_ended, pieces) =
            pieces.strip_suffix(&[Piece::End]).map_or((false, pieces), |rest| (true, rest));
        let (is_begun, pieces) =
            pieces.strip_prefix(&[Piece::Any]).map_or((is_begun, pieces), |rest| (false, rest));
        let (is_ended, pieces) =
            pieces.strip_suffix(&[Piece::Any]).map_or((is_ended, pieces), |rest| (false, rest));
        if pieces.iter().any(|piece| matches!(piece, Piece::Begin | Piece::End)) {
            return None;
        }
        if is_begun && !matches!(pieces.first(), Some(Piece::Text('/'))) {
            return if matches!(pieces.first(), Some(Piece::Text(_))) { Some(None) } else { None };
        }
        let mut gaps = pieces.iter().enumerate().filter(|(_, piece)| **piece == Piece::Any);
        let gap = gaps.next().map(|(at, _)| at);
        if gaps.next().is_some() || gap.is_some() && !is_begun {
            return None;
        }
        Some(Some(Choice { pieces, is_begun, is_ended, gap }))
    }

    /// Whether its patterns have to end at some depth.
    fn is_bounded(&self) -> bool {
        self.gap.is_some() || !self.is_begun
    }

    /// Its pattern, with so many folders more where any text may be.
    fn path(&self, folders: usize) -> Option<String> {
        let mut path = String::new();
        if !self.is_begun {
            path.push_str(&"/*".repeat(folders));
            let is_folder = matches!(self.pieces.first(), Some(Piece::Text('/')));
            path.push_str(if is_folder { "" } else { "/*" });
        }
        for piece in self.pieces {
            match piece {
                Piece::Text(letter) => path.extend(letter.to_string().bytes().map(encoded)),
                Piece::Segment => path.push('*'),
                _ => path.push_str(&format!("{}*", "*/".repeat(folders))),
            }
        }
        let is_folder = path.ends_with('/');
        match (self.is_ended, is_folder) {
            (true, _) if path.len() > 1 => path.truncate(path.trim_end_matches('/').len()),
            (true, _) => {}
            (false, true) => path.push_str("**"),
            (false, false) if path.ends_with('*') => path.push_str("/**"),
            (false, false) => path.push_str("*/**"),
        }
        let is_pattern = segments(&path).all(|segment| segment.matches('*').count() <= 1)
            && !path.contains("//");
        is_pattern.then_some(path)
    }

    /// The pattern of all paths that may be like it and have more than `end` segments.
    fn deeper(&self, end: usize) -> Option<String> {
        let path = self.path(1)?;
        let before = self.pieces.get(..self.gap.unwrap_or_default()).unwrap_or_default();
        let kept = before.iter().filter(|piece| **piece == Piece::Text('/')).count();
        let segments = segments(&path).take(kept).chain(std::iter::repeat("*")).take(end + 1);
        Some(format!("/{}/**", segments.collect::<Vec<_>>().join("/")))
    }
}

/// The segments of a pattern, but for `**`.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.strip_suffix("/**").unwrap_or(path).split('/').skip(1)
}

struct Reader<'e> {
    rest: &'e str,
    is_wider: bool,
}

impl Reader<'_> {
    /// What `|` separates, each with all that may be left out of it written out.
    fn choices(&mut self, depth: usize) -> Option<Vec<Vec<Piece>>> {
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
    fn item(&mut self, depth: usize) -> Option<Vec<Vec<Piece>>> {
        let of = |piece| Some(vec![vec![piece]]);
        if self.skip("(?:") || !self.rest.starts_with("(?") && self.skip("(") {
            let inner = self.choices(depth + 1)?;
            return self.skip(")").then_some(inner);
        }
        for (written, piece) in [
            ("[^/]+", Piece::Segment),
            ("[^/]*", Piece::Segment),
            (".*", Piece::Any),
            (".+", Piece::Any),
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
                return Some(letters.chars().map(|letter| vec![Piece::Text(letter)]).collect());
            }
            let has_slash = class.contains(['/', '\\', '^', '\n']);
            (self.rest, self.is_wider) = (after, true);
            let _ = self.skip("+") || self.skip("*") || self.skip_count();
            return if has_slash { None } else { of(Piece::Segment) };
        }
        if self.skip("\\d") || self.skip("\\w") {
            self.is_wider = true;
            let _ = self.skip("+") || self.skip("*") || self.skip_count();
            return of(Piece::Segment);
        }
        let mut letters = self.rest.chars();
        let (piece, after) = match letters.next()? {
            '^' => (Piece::Begin, letters.as_str()),
            '$' => (Piece::End, letters.as_str()),
            // Any letter: most often a point is meant.
            '.' => {
                self.is_wider = true;
                (Piece::Segment, letters.as_str())
            }
            '\\' => {
                let letter = letters.next().filter(|letter| !letter.is_ascii_alphanumeric())?;
                (Piece::Text(letter), letters.as_str())
            }
            '*' | '+' | '?' | '{' | ')' | '(' => return None,
            letter => (Piece::Text(letter), letters.as_str()),
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
    fn some_expressions_are_patterns() {
        for (expression, expected, is_wider) in [
            ("^/api/auth/login$", "/api/auth/login", false),
            ("^/(a|b)/", "/a/** /b/**", false),
            ("^/api", "/api*/**", false),
            ("^/a/[^/]+/b$", "/a/*/b", false),
            ("^/v1/(auth/)?login$", "/v1/auth/login /v1/login", false),
            ("^/tu($|/.*)", "/tu /tu/**", false),
            ("^(/x/.*|robots\\.txt)$", "/x/**", false),
            ("^/static/(d|e)(/.*)?$", "/static/d/** /static/e/**", false),
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
        assert_eq!((hidden.paths.len(), hidden.depth), (13, Some(12)));
        assert_eq!(regex("\\.php$").unwrap().paths[..2], ["/*.php", "/*/*.php"]);
        assert_eq!(regex("^/iso/.*\\.sig$").unwrap().paths[..2], ["/iso/*.sig", "/iso/*/*.sig"]);
        let many = regex("\\.(a|b|c|d|e|f|g)$").unwrap();
        assert_eq!((many.paths.len(), many.depth), (49, Some(6)));
        for expression in
            ["(?i)a", "a(?=b)", "\\.(php|git)", "^/a+", "^/(a", "^/x/[^.]+$", "(^/feeds/|a$)b"]
        {
            assert_eq!(regex(expression), None, "{expression}");
        }
    }

    #[test]
    fn deeper_patterns_begin_where_the_others_end() {
        for (expression, expected) in [
            ("/\\.", "/*"),
            ("\\.php$", "/*"),
            ("/a/b", "/*"),
            ("^/api/.*/export$", "/api"),
            ("^/api.*\\.sql$", "/api*"),
            ("^/a/.*/b/c", "/a"),
        ] {
            let patterns = regex(expression).unwrap();
            assert_eq!(patterns.deeper, [format!("{expected}{}/**", "/*".repeat(13))]);
            let deepest = patterns.paths.last().unwrap();
            assert_eq!(segments(deepest).count(), 13, "{expression}: {deepest}");
        }
        assert!(regex("^/a/(b|c)$").unwrap().deeper.is_empty());
    }

    #[test]
    fn what_another_alternative_takes_is_no_pattern() {
        let patterns = regex("^/auth/passkey/(register|register/finish)").unwrap();
        assert_eq!(patterns.paths, ["/auth/passkey/register*/**"]);
    }
}
