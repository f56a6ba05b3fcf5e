//! A mapping of a configuration. Its names are compared without regard to case, as Traefik does.

use std::time::Duration;

use tollgate_yaml::{Document, Node, Span, Spanned, Value};

use crate::manifest;

/// A mapping and where it is.
#[derive(Clone, Copy)]
pub(crate) struct Section<'d> {
    document: &'d Document,
    span: Span,
    fields: &'d [(Spanned<String>, Node)],
    /// Whether words such as `no` and `On` are false and true, as in YAML 1.1.
    has_old_words: bool,
}

impl<'d> Section<'d> {
    pub(crate) fn root(document: &'d Document) -> Self {
        let fields = fields(document.root());
        Section { document, span: Span::default(), fields, has_old_words: false }
    }

    /// The same, with all below it, for a program that reads YAML 1.1.
    pub(crate) fn with_old_words(self) -> Self {
        Section { has_old_words: true, ..self }
    }

    /// The mapping at a node; nothing, or something else, is one without fields.
    pub(crate) fn of(&self, node: &'d Node) -> Section<'d> {
        Section { span: node.span, fields: fields(node), ..*self }
    }

    /// Where it is: `site.yaml:12:5`.
    pub(crate) fn place(&self) -> String {
        self.place_of(self.span)
    }

    pub(crate) fn place_of(&self, span: impl Into<Span>) -> String {
        // As its problems have it, but without the line that they show, in which secrets are
        // masked: a file may be one line, and each of its thousands of routes has a place.
        let before = self.document.source(Span { start: 0, end: span.into().start });
        let line = before.matches('\n').count() + 1;
        let begun = before.rsplit('\n').next().unwrap_or_default();
        format!("{}:{line}:{}", self.document.name(), begun.chars().count() + 1)
    }

    pub(crate) fn entries(&self) -> &'d [(Spanned<String>, Node)] {
        self.fields
    }

    /// The names of its fields, without those that are left empty.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'d str> {
        let said = self.fields.iter().filter(|(_, node)| node.value != Value::Null);
        said.map(|(name, _)| name.value.as_str())
    }

    pub(crate) fn node(&self, name: &str) -> Option<&'d Node> {
        let mut fields = self.fields.iter();
        let (_, node) = fields.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        (node.value != Value::Null).then_some(node)
    }

    pub(crate) fn section(&self, name: &str) -> Option<Section<'d>> {
        self.node(name).map(|node| self.of(node))
    }

    /// The entries of a section of named ones.
    pub(crate) fn each(&self, name: &str) -> impl Iterator<Item = (&'d str, Section<'d>)> {
        let own = *self;
        let entries = self.section(name).map_or(&[][..], |section| section.fields);
        entries.iter().map(move |(name, node)| {
            (name.value.as_str(), Section { span: name.span, ..own.of(node) })
        })
    }

    pub(crate) fn items(&self, name: &str) -> impl Iterator<Item = Section<'d>> {
        let own = *self;
        manifest::items(self.node(name)).iter().map(move |node| own.of(node))
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let node = self.node(name)?;
        let text = self.scalar(node)?;
        // What is in quotes is a text.
        let is_word = self.has_old_words && self.document.source(node.span) == text;
        Some(old_word(&text).filter(|_| is_word).map_or(text, |word| word.to_string()))
    }

    /// The texts of a list, or the one that stands for a list.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        match self.node(name) {
            Some(node) if !matches!(node.value, Value::Sequence(_)) => {
                self.scalar(node).into_iter().collect()
            }
            node => manifest::items(node).iter().filter_map(|node| self.scalar(node)).collect(),
        }
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.text(name).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// A whole number, which may be in quotes.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, String> {
        let Some(node) = self.node(name) else { return Ok(None) };
        let number = self.scalar(node).and_then(|text| text.trim().parse().ok());
        number.map(Some).ok_or_else(|| format!("`{name}` is no whole number"))
    }

    /// A duration, in which a number without a unit is seconds. None: negative.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<Option<Duration>>, String> {
        let Some(node) = self.node(name) else { return Ok(None) };
        let duration = self.scalar(node).and_then(|text| go_duration(text.trim()));
        duration.map(Some).ok_or_else(|| format!("`{name}` is no duration"))
    }

    /// The names of its fields that are none of these words.
    pub(crate) fn others(&self, known: &str) -> impl Iterator<Item = &'d str> {
        self.names().filter(move |name| {
            !known.split_ascii_whitespace().any(|known| known.eq_ignore_ascii_case(name))
        })
    }

    /// Refuses fields that are none of these words, as Traefik refuses their file.
    pub(crate) fn knows(&self, names: &str) -> Result<(), String> {
        match self.others(names).next() {
            None => Ok(()),
            Some(name) => Err(format!("`{name}` is no option that is known: Traefik refuses it")),
        }
    }

    pub(crate) fn scalar(&self, node: &Node) -> Option<String> {
        manifest::scalar(self.document, node).map(str::to_owned)
    }
}

fn fields(node: &Node) -> &[(Spanned<String>, Node)] {
    match &node.value {
        Value::Mapping(fields) => fields,
        _ => &[],
    }
}

/// True or false, as YAML 1.1 has them.
fn old_word(text: &str) -> Option<bool> {
    let is_one = |words: [&str; 4]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    let is_true = is_one(["true", "yes", "on", "y"]);
    (is_true || is_one(["false", "no", "off", "n"])).then_some(is_true)
}

/// A duration as Go writes them (`1m30s`, `0.5s`), or seconds. The inner one is none if it is
/// negative; the outer one if it is no duration.
fn go_duration(text: &str) -> Option<Option<Duration>> {
    const UNITS: [(&str, f64); 7] = [
        ("h", 3600e9),
        ("ms", 1e6),
        ("m", 60e9),
        ("s", 1e9),
        ("us", 1e3),
        ("µs", 1e3),
        ("ns", 1.0),
    ];
    if let Ok(seconds) = text.parse::<i64>() {
        return Some(u64::try_from(seconds).ok().map(Duration::from_secs));
    }
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut nanos = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, behind) = rest.split_at(end);
        let (unit, factor) = UNITS.into_iter().find(|(unit, _)| behind.starts_with(unit))?;
        nanos += number.parse::<f64>().ok()? * factor;
        rest = behind.strip_prefix(unit)?;
    }
    if text.is_empty() || nanos >= 9.2e18 {
        return None;
    }
    Some((!is_negative || nanos == 0.0).then(|| Duration::from_nanos(nanos as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go_and_numbers_are_seconds() {
        let millis = |millis| Some(Some(Duration::from_millis(millis)));
        for (text, expected) in [
            ("10", millis(10_000)),
            ("1m", millis(60_000)),
            ("1m30s", millis(90_000)),
            ("500ms", millis(500)),
            ("0.5s", millis(500)),
            ("1h", millis(3_600_000)),
            ("0", millis(0)),
            ("-1s", Some(None)),
            ("-3", Some(None)),
            ("", None),
            ("s", None),
            ("1d", None),
            ("999999999999h", None),
        ] {
            assert_eq!(go_duration(text), expected, "{text}");
        }
    }

    #[test]
    fn names_are_found_in_any_case_and_what_is_empty_is_left_out() {
        let document =
            Document::parse("a.yaml", "rateLimit: { AVERAGE: \"7\", Burst: }\n").unwrap();
        let limit = Section::root(&document).section("ratelimit").unwrap();
        assert_eq!(limit.number("average"), Ok(Some(7)));
        assert_eq!(limit.number("burst"), Ok(None));
        assert_eq!(limit.others("burst").next(), Some("AVERAGE"));
        assert_eq!(limit.place(), "a.yaml:1:12");
        let document = Document::parse("a.yaml", "é: { x: 1 }\r\n日本: { é: { z: 1 } }\n").unwrap();
        let root = Section::root(&document);
        assert_eq!(root.place(), "a.yaml:1:1");
        for (_, own) in root.entries().iter().chain(root.section("日本").unwrap().entries()) {
            let problem = document.problem(own.span, "", "");
            assert_eq!(root.place_of(own.span), problem.place());
        }
    }

    #[test]
    fn words_of_yaml_1_1_are_true_and_false_for_whom_they_are() {
        let text = "{ a: no, b: Off, c: FALSE, d: On, e: \"no\", f: \"${{ x }}\", g: never }\n";
        let document = Document::parse("a.yaml", text).unwrap();
        let new = Section::root(&document);
        let old = new.with_old_words();
        for (name, expected) in [
            ("a", "false"),
            ("b", "false"),
            ("c", "false"),
            ("d", "true"),
            ("e", "no"),
            ("f", "${{ x }}"),
            ("g", "never"),
        ] {
            assert_eq!(old.text(name).as_deref(), Some(expected), "{name}");
        }
        assert_eq!(new.text("a").as_deref(), Some("no"));
        assert!(old.is_true("d") && !new.is_true("d"));
    }
}
