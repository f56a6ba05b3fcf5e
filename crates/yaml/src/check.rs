//! Checking what was decoded, with one wording for what policies and settings have in common.

use std::{fmt, net::IpAddr, ops::RangeInclusive, path::Path, time::Duration};

use ipnet::IpNet;
use serde::de::DeserializeOwned;
use tollgate_keyword::Keyword;

use super::{
    Choice, Document, Doubts, Later, Node, Problem, Size, Sources, Span, Spanned, Value,
    duration::{DurationError, duration_in_words, parse_duration_within},
    network::canonical_network,
    suggest::advice,
    warning::{Rule, Warning},
};

/// A document that is being checked, and what was found in it.
pub struct Inspection<'d> {
    /// The document.
    pub document: &'d Document,
    /// Where the files and variables that it names are read from.
    pub sources: &'d Sources,
    /// The folder that paths in it start from.
    pub folder: &'d Path,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
    /// What is most likely not intended.
    pub warnings: Vec<Warning>,
    /// Where decoding has found something already.
    pub doubts: Doubts,
}

impl<'d> Inspection<'d> {
    /// Of the document in `file`, whose decoding has found these problems.
    pub fn new(
        document: &'d Document,
        file: &'d Path,
        sources: &'d Sources,
        problems: Vec<Problem>,
    ) -> Self {
        Inspection {
            document,
            sources,
            folder: file.parent().unwrap_or(Path::new("")),
            doubts: document.doubts(&problems),
            problems,
            warnings: Vec::new(),
        }
    }

    /// What was made of the document.
    ///
    /// # Errors
    /// Every problem, in the order of their places.
    pub fn conclude<T>(mut self, made: Option<T>) -> Result<T, Vec<Problem>> {
        match made {
            Some(made) if self.problems.is_empty() => Ok(made),
            _ => {
                self.problems.sort();
                self.problems.dedup();
                Err(self.problems)
            }
        }
    }
}

/// Checks the values of a document. Whatever is refused is a problem of the [`Inspection`], so what
/// is returned in its place is never used, but to find more problems.
pub trait Check<'d> {
    /// The document, and what was found so far.
    fn inspection(&mut self) -> &mut Inspection<'d>;

    /// Notes a problem, unless it may only follow from what decoding found.
    fn refuse(
        &mut self,
        place: impl Into<Span>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let span = place.into();
        if !self.inspection().doubts.cover(span) {
            self.note(span, message, help);
        }
    }

    /// Notes a problem that what is written has in itself. Nothing is said of what stands for the
    /// value of a variable that is not set.
    fn note(
        &mut self,
        place: impl Into<Span>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let Inspection { document, problems, .. } = self.inspection();
        let span = place.into();
        if !span.is_stand_in() && !document.is_unset(span) {
            problems.push(document.problem(span, message, help));
        }
    }

    /// Notes a warning that always holds. Nothing is logged here: what is checked may never be put
    /// in force.
    fn warn(
        &mut self,
        rule: Rule,
        place: impl Into<Span>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let Inspection { document, warnings, .. } = self.inspection();
        warnings.push(Warning::new(rule, document.problem(place.into(), message, help)));
    }

    /// The warnings, in the order of the file.
    fn take_warnings(&mut self) -> Vec<Warning> {
        let mut warnings = std::mem::take(&mut self.inspection().warnings);
        warnings.sort_by(|one, other| one.problem.cmp(&other.problem));
        warnings
    }

    /// The version of the file's format, of which there is one.
    fn version(&mut self, raw: &Spanned<u32>) {
        if raw.value != 1 {
            self.note(raw, format!("version {} is not known", raw.value), "write 1");
        }
    }

    /// A part of the document whose type depends on the kind of its value.
    fn decode<T: DeserializeOwned>(&mut self, node: &Node, later: &[Later]) -> Option<T> {
        let Inspection { document, problems, doubts, .. } = self.inspection();
        let mut found = Vec::new();
        let decoded = document.decode_node(node, later, &mut found);
        doubts.extend(document.doubts(&found));
        problems.extend(found);
        decoded
    }

    /// A time in `range`.
    fn time(&mut self, raw: &Spanned<String>, range: RangeInclusive<Duration>) -> Option<Duration> {
        let message = match parse_duration_within(&raw.value, &range) {
            Ok(time) => return Some(time),
            Err(DurationError::OutOfRange) => format!("`{}` is out of range", raw.value),
            Err(DurationError::Malformed) => format!("`{}` is not a time", raw.value),
        };
        let [start, end] = [range.start(), range.end()].map(|time| duration_in_words(*time));
        let help = match *range.start() == ABOVE_ZERO {
            true => format!("write a number and a unit, above 0 and up to {end}"),
            false => format!("write a number and a unit, {start} to {end}"),
        };
        self.note(raw, message, help);
        None
    }

    /// A time in `range`; none written: `default`.
    fn time_or(
        &mut self,
        raw: &Option<Spanned<String>>,
        range: RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        raw.as_ref().and_then(|raw| self.time(raw, range)).unwrap_or(default)
    }

    /// A number in `range`.
    fn number<N: Copy + PartialOrd + fmt::Display>(
        &mut self,
        raw: &Spanned<N>,
        range: RangeInclusive<N>,
    ) -> Option<N> {
        if range.contains(&raw.value) {
            return Some(raw.value);
        }
        let help = format!("write {} to {}", range.start(), range.end());
        self.note(raw, format!("{} is out of range", raw.value), help);
        None
    }

    /// A number in `range`; none written: `default`.
    fn number_or<N: Copy + PartialOrd + fmt::Display>(
        &mut self,
        raw: &Option<Spanned<N>>,
        range: RangeInclusive<N>,
        default: N,
    ) -> N {
        raw.as_ref().and_then(|raw| self.number(raw, range)).unwrap_or(default)
    }

    /// A number of bytes in `range`: `1048576`, `10MiB`.
    fn bytes(&mut self, node: &Node, range: RangeInclusive<u64>) -> Option<u64> {
        let text = match &node.value {
            Value::Integer(number) => number.to_string(),
            Value::String(text) => text.clone(),
            other => other.kind().to_owned(),
        };
        let parsed = Size::parse(&node.value);
        let message = match parsed {
            Some(bytes) if range.contains(&bytes) => return Some(bytes),
            Some(_) => format!("`{text}` is out of range"),
            None => format!("`{text}` is not a number of bytes"),
        };
        let which = match *range.end() {
            u64::MAX => "such as 10MiB".to_owned(),
            end => format!("{} to {}", Size::in_words(*range.start()), Size::in_words(end)),
        };
        let help = match Size::meant_by(&text).filter(|_| parsed.is_none()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("write a number, or one with KiB, MiB or GiB, {which}"),
        };
        self.note(node, message, help);
        None
    }

    /// A number of bytes in `range`; none written: `default`.
    fn bytes_or(&mut self, raw: &Option<Node>, range: RangeInclusive<u64>, default: u64) -> u64 {
        raw.as_ref().and_then(|node| self.bytes(node, range)).unwrap_or(default)
    }

    /// The variant that a keyword names.
    fn keyword<T: Keyword>(&mut self, raw: &Spanned<Choice<T>>) -> Option<T> {
        let text = raw.value.as_ref();
        let found = T::from_keyword(text);
        if found.is_none() {
            let keywords: Vec<&str> = T::KEYWORDS.iter().map(|(keyword, _)| *keyword).collect();
            self.note(raw, format!("unknown value `{text}`"), advice(text, &keywords));
        }
        found
    }

    /// The variant that a keyword names; none written: the default.
    fn keyword_or_default<T: Keyword + Default>(
        &mut self,
        raw: Option<&Spanned<Choice<T>>>,
    ) -> Option<T> {
        raw.map_or_else(|| Some(T::default()), |raw| self.keyword(raw))
    }

    /// A network, or an address, which is a network of one.
    fn network(&mut self, raw: &Spanned<String>) -> Option<IpNet> {
        let network = self.try_network(raw);
        if network.is_none() {
            let message = format!("`{}` is neither an address nor a network", raw.value);
            self.note(raw, message, "write one such as 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32");
        }
        network
    }

    /// The same, where a text that is no network may be something else.
    fn try_network(&mut self, raw: &Spanned<String>) -> Option<IpNet> {
        if let Ok(address) = raw.value.parse::<IpAddr>() {
            return Some(address.to_canonical().into());
        }
        let network = raw.value.parse::<IpNet>().ok()?;
        let whole = network.trunc();
        if whole != network {
            let message = format!("`{network}` has bits set after its prefix");
            self.note(raw, message, format!("write {whole}"));
        }
        Some(canonical_network(network))
    }

    /// The value of an environment variable; `help` says what it is set to.
    fn variable(&mut self, name: &Spanned<String>, help: &str) -> Option<String> {
        let value = self.inspection().sources.variable(&name.value);
        if value.is_none() {
            self.refuse(name, format!("environment variable `{}` is not set", name.value), help);
        }
        value
    }

    /// Content of a file that the document names.
    fn file(&mut self, path: &Spanned<String>, max_bytes: u64) -> Option<Vec<u8>> {
        let Inspection { sources, folder, .. } = self.inspection();
        match sources.read(&folder.join(&path.value), max_bytes) {
            Ok(content) => Some(content),
            Err(error) => {
                let message = format!("cannot read `{}`: {error}", path.value);
                self.note(path, message, "write a path from this file's folder");
                None
            }
        }
    }

    /// The files of a certificate and of its key, which go together.
    fn certificate_and_key<'r>(
        &mut self,
        certificate: &'r Option<Spanned<String>>,
        key: &'r Option<Spanned<String>>,
    ) -> Option<(&'r Spanned<String>, &'r Spanned<String>)> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => return Some((certificate, key)),
            (Some(certificate), None) => {
                self.refuse(certificate, "a certificate without its key", "add `key_file`");
            }
            (None, Some(key)) => {
                self.refuse(key, "a key without its certificate", "add `certificate_file`");
            }
            (None, None) => {}
        }
        None
    }

    /// Warns of a secret in a file that other users can read.
    fn warn_if_open_to_all(&mut self, path: &Spanned<String>) {
        let Inspection { sources, folder, .. } = self.inspection();
        if sources.is_open_to_all(&folder.join(&path.value)) {
            let message = format!("everybody on this machine can read `{}`", path.value);
            let help = "it contains a secret: run `chmod o-r` on it";
            self.warn(Rule::ReadableSecret, path, message, help);
        }
    }
}

/// The least time that is one: the start of a range in which 0 is not.
pub const ABOVE_ZERO: Duration = Duration::from_nanos(1);

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Door {
        Open,
        Closed,
    }

    tollgate_keyword::keywords! { Door { Open = "open", Closed = "closed" } }

    #[derive(Deserialize)]
    struct File {
        door: Option<Spanned<Choice<Door>>>,
        time: Option<Spanned<String>>,
        number: Option<Spanned<u32>>,
        bytes: Option<Node>,
        network: Option<Spanned<String>>,
    }

    struct Checker<'d>(Inspection<'d>);

    impl<'d> Check<'d> for Checker<'d> {
        fn inspection(&mut self) -> &mut Inspection<'d> {
            &mut self.0
        }
    }

    /// What is found by `check` in a file of one field, and what is said about it.
    fn found<T>(
        text: &str,
        check: impl FnOnce(&mut Checker<'_>, File) -> Option<T>,
    ) -> Result<T, Vec<String>> {
        let document = Document::parse("f", text).unwrap();
        let mut problems = Vec::new();
        let file: File = document.decode(&[], &mut problems).unwrap();
        let sources = Sources::system();
        let inspection = Inspection::new(&document, Path::new("f"), &sources, problems);
        let mut checker = Checker(inspection);
        let found = check(&mut checker, file);
        let said = |problem: &Problem| format!("{}: {}", problem.message(), problem.help());
        checker.0.conclude(found).map_err(|problems| problems.iter().map(said).collect())
    }

    #[test]
    fn keyword_names_its_variant_and_the_variant_its_keyword() {
        let door = |text: &str| found(text, |checker, file| checker.keyword(&file.door?));
        assert_eq!(door("door: closed"), Ok(Door::Closed));
        for (keyword, variant) in Door::KEYWORDS {
            assert_eq!(variant.keyword(), *keyword);
            assert_eq!(Door::from_keyword(keyword), Some(*variant));
        }
        for (text, expected) in [
            ("door: ajar", "unknown value `ajar`: one of: open, closed"),
            ("door: close", "unknown value `close`: did you mean `closed`?"),
        ] {
            assert_eq!(door(text), Err(vec![expected.to_owned()]));
        }
    }

    #[test]
    fn times_are_refused_with_their_range() {
        let hour = Duration::from_secs(3600);
        for (written, start, expected) in [
            ("1h", ABOVE_ZERO, Ok(hour)),
            (
                "soon",
                Duration::ZERO,
                Err("`soon` is not a time: write a number and a unit, 0s to 1h"),
            ),
            (
                "0s",
                ABOVE_ZERO,
                Err("`0s` is out of range: write a number and a unit, above 0 and up to 1h"),
            ),
            (
                "2h",
                Duration::from_millis(1500),
                Err("`2h` is out of range: write a number and a unit, 1500ms to 1h"),
            ),
        ] {
            let time = found(&format!("time: {written}"), |checker, file| {
                checker.time(&file.time?, start..=hour)
            });
            assert_eq!(time, expected.map_err(|said| vec![said.to_owned()]));
        }
    }

    #[test]
    fn numbers_and_sizes_are_refused_with_their_range() {
        let number = |text: &str| found(text, |checker, file| checker.number(&file.number?, 1..=5));
        assert_eq!(number("number: 5"), Ok(5));
        assert_eq!(number("number: 6"), Err(vec!["6 is out of range: write 1 to 5".to_owned()]));
        let bytes = |text: &str, most| {
            found(text, |checker, file| checker.bytes(&file.bytes?, 1024..=most))
        };
        assert_eq!(bytes("bytes: 4KiB", 1 << 40), Ok(4096));
        for (text, most, expected) in [
            (
                "bytes: 1GiB",
                1 << 20,
                "`1GiB` is out of range: write a number, or one with KiB, MiB or GiB, 1KiB to 1MiB",
            ),
            ("bytes: 4KB", 1 << 20, "`4KB` is not a number of bytes: did you mean 4KiB?"),
            (
                "bytes: many",
                u64::MAX,
                "`many` is not a number of bytes: write a number, or one with KiB, MiB or GiB, such \
                 as 10MiB",
            ),
        ] {
            assert_eq!(bytes(text, most), Err(vec![expected.to_owned()]));
        }
    }

    #[test]
    fn networks_are_canonical_and_have_no_bits_behind_their_prefix() {
        let network = |text: &str| {
            found(&format!("network: {text}"), |checker, file| checker.network(&file.network?))
        };
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1/32"),
            ("::ffff:192.0.2.1", "192.0.2.1/32"),
            ("\"::ffff:10.0.0.0/104\"", "10.0.0.0/8"),
            ("2001:db8::/32", "2001:db8::/32"),
        ] {
            assert_eq!(network(text), Ok(expected.parse().unwrap()));
        }
        for (text, expected) in [
            ("10.1.2.3/8", "`10.1.2.3/8` has bits set after its prefix: write 10.0.0.0/8"),
            (
                "proxy.internal",
                "`proxy.internal` is neither an address nor a network: write one such as \
                 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32",
            ),
        ] {
            assert_eq!(network(text), Err(vec![expected.to_owned()]));
        }
    }
}
