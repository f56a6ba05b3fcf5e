//! The list of requirements, as `tests/standards` has it.
//!
//! A file begins with `# RFC 9112: HTTP/1.1`; a line `## 6.3 Message Body Length` begins a section, and
//! `>` quotes a requirement, over several lines if need be. Below it may be one reason, a `note:`, and
//! `shown by: FILE TEST`. What goes over several lines is indented from the second on.

use std::fs;

use crate::docs::root;

/// A standard.
#[derive(Debug)]
pub(super) struct Standard {
    /// As citations name it: `rfc9112`.
    pub(super) id: String,
    /// `RFC 9112: HTTP/1.1`.
    pub(super) title: String,
    pub(super) sections: Vec<Section>,
}

#[derive(Debug)]
pub(super) struct Section {
    pub(super) number: String,
    pub(super) requirements: Vec<Requirement>,
}

/// What a standard requires of this proxy, or seems to.
#[derive(Debug)]
pub(super) struct Requirement {
    /// A few of its words, on one line.
    pub(super) quotation: String,
    /// Where it is in the list.
    pub(super) line: usize,
    /// Why no code here meets it; none: some does, and cites it.
    pub(super) reason: Option<Reason>,
    /// What is to be said of how it is met.
    pub(super) note: Option<String>,
    pub(super) shown_by: Vec<NamedTest>,
}

/// A test that shows what is said of a requirement.
#[derive(Debug)]
pub(super) struct NamedTest {
    pub(super) file: String,
    pub(super) name: String,
}

#[derive(Debug)]
pub(super) struct Reason {
    pub(super) kind: Kind,
    pub(super) text: String,
}

/// Why no code here meets a requirement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// This dependency does.
    Library(String),
    /// What it is about is handed on as it came.
    GoesThrough,
    /// What it is about never happens here.
    NeverArises,
    /// It is for another party.
    NotOurs,
    /// It is broken on purpose.
    Differs,
    /// It should be met.
    NotMet,
}

/// How a reason begins, for who has to write one.
pub(super) const REASONS: &str = "`by LIBRARY:`, `goes through:`, `does not arise:`, `not ours:`, \
                                  `we differ:` or `not met:`";

/// The words of the standards, and the level of each. One that contains another comes before it.
const LEVELS: [&str; 6] =
    ["MUST NOT", "MUST", "SHOULD NOT", "SHOULD", "NOT RECOMMENDED", "RECOMMENDED"];

impl Requirement {
    /// The first of these words in its quotation.
    pub(super) fn level(&self) -> Option<&'static str> {
        let found = LEVELS.iter().filter_map(|level| Some((self.quotation.find(level)?, *level)));
        found.reduce(|first, next| if next.0 < first.0 { next } else { first }).map(|it| it.1)
    }
}

impl Kind {
    /// As it is written, in the list and on the page.
    pub(super) fn words(&self) -> String {
        match self {
            Kind::Library(name) => format!("by {name}"),
            Kind::GoesThrough => "goes through".to_owned(),
            Kind::NeverArises => "does not arise".to_owned(),
            Kind::NotOurs => "not ours".to_owned(),
            Kind::Differs => "we differ".to_owned(),
            Kind::NotMet => "not met".to_owned(),
        }
    }

    fn of(words: &str) -> Option<Kind> {
        let others =
            [Kind::GoesThrough, Kind::NeverArises, Kind::NotOurs, Kind::Differs, Kind::NotMet];
        match words.strip_prefix("by ") {
            Some(name) => Some(Kind::Library(name.to_owned())),
            None => others.into_iter().find(|kind| kind.words() == words),
        }
    }
}

/// All standards, by the names of their files, but HTTP first.
pub(super) fn standards() -> Vec<Standard> {
    let folder = root().join("tests/standards");
    let mut standards: Vec<Standard> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let id = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&path).unwrap();
            read(&id, &text).unwrap_or_else(|fault| panic!("{fault}"))
        })
        .collect();
    standards.sort_by_key(|own| (!own.title.contains("HTTP"), own.id.clone()));
    standards
}

/// Reads a list.
///
/// # Errors
/// The line that is wrong, and what is expected.
fn read(id: &str, text: &str) -> Result<Standard, String> {
    let mut title = None;
    let mut sections: Vec<Section> = Vec::new();
    // The line before is part of a quotation.
    let mut is_quoting = false;
    for (index, line) in text.lines().enumerate() {
        let wrong = |expected: &str| format!("tests/standards/{id}.txt:{}: {expected}", index + 1);
        let was_quoting = std::mem::take(&mut is_quoting);
        if let Some(rest) = line.strip_prefix("## ") {
            let number = rest.split(' ').next().unwrap_or_default().to_owned();
            sections.push(Section { number, requirements: Vec::new() });
        } else if let Some(rest) = line.strip_prefix("# ") {
            title = Some(rest.to_owned());
        } else if let Some(words) = line.strip_prefix("> ") {
            is_quoting = true;
            let section =
                sections.last_mut().ok_or_else(|| wrong("a section has to begin first"))?;
            match section.requirements.last_mut().filter(|_| was_quoting) {
                Some(own) => own.quotation = format!("{} {words}", own.quotation),
                None => section.requirements.push(Requirement {
                    quotation: words.to_owned(),
                    line: index + 1,
                    reason: None,
                    note: None,
                    shown_by: Vec::new(),
                }),
            }
        } else if !line.is_empty() {
            let own = sections.last_mut().and_then(|section| section.requirements.last_mut());
            let own = own.ok_or_else(|| wrong("a requirement has to be quoted first"))?;
            own.take(line).map_err(|expected| wrong(&expected))?;
        }
    }
    let title = title.ok_or_else(|| format!("tests/standards/{id}.txt has no title"))?;
    Ok(Standard { id: id.to_owned(), title, sections })
}

impl Requirement {
    /// Takes a line below the quotation.
    fn take(&mut self, line: &str) -> Result<(), String> {
        if let Some(more) = line.strip_prefix("  ") {
            let text = match (&mut self.note, &mut self.reason) {
                (Some(note), _) => note,
                (None, Some(reason)) => &mut reason.text,
                (None, None) => return Err("nothing goes on here".to_owned()),
            };
            text.push(' ');
            text.push_str(more);
            return Ok(());
        }
        let (words, text) = line.split_once(": ").unwrap_or((line, ""));
        match words {
            "note" if self.note.is_none() => self.note = Some(text.to_owned()),
            "shown by" => {
                let (file, name) = text.split_once(' ').ok_or("write `shown by: FILE TEST`")?;
                let (file, name) = (file.to_owned(), name.to_owned());
                self.shown_by.push(NamedTest { file, name });
            }
            _ => match Kind::of(words).filter(|_| self.reason.is_none() && !text.is_empty()) {
                Some(kind) => self.reason = Some(Reason { kind, text: text.to_owned() }),
                None => {
                    return Err(format!("write one reason, {REASONS}, a `note:` or `shown by:`"));
                }
            },
        }
        Ok(())
    }
}

#[test]
fn level_is_the_first_word_of_a_standard() {
    for (quotation, level) in [
        ("A client MUST NOT ask, and it MUST wait", Some("MUST NOT")),
        ("A server MUST answer; it SHOULD hurry", Some("MUST")),
        ("It SHOULD NOT, and it MUST", Some("SHOULD NOT")),
        ("It is RECOMMENDED", Some("RECOMMENDED")),
        ("It must", None),
    ] {
        let quotation = quotation.to_owned();
        let own =
            Requirement { quotation, line: 1, reason: None, note: None, shown_by: Vec::new() };
        assert_eq!(own.level(), level, "{own:?}");
    }
}

#[test]
fn faults_of_a_list_are_told() {
    for (text, fault) in [
        ("## 1 A\n> It MUST\n", "tests/standards/rfc1.txt has no title"),
        ("# A\n> It MUST\n", "tests/standards/rfc1.txt:2: a section"),
        ("# A\n## 1 A\nnot met: b\n", "tests/standards/rfc1.txt:3: a requirement"),
        ("# A\n## 1 A\n> It MUST\nforgotten: b\n", "tests/standards/rfc1.txt:4: write one reason"),
        (
            "# A\n## 1 A\n> It MUST\nnot met: b\nnot met: c\n",
            "tests/standards/rfc1.txt:5: write one",
        ),
        ("# A\n## 1 A\n> It MUST\nshown by: a.rs\n", "tests/standards/rfc1.txt:4: write `shown"),
        ("# A\n## 1 A\n> It MUST\n  b\n", "tests/standards/rfc1.txt:4: nothing goes on"),
    ] {
        let said = read("rfc1", text).unwrap_err();
        assert!(said.starts_with(fault), "{text:?}: {said}");
    }
}
