//! Each MUST and SHOULD of HTTP and of tokens that concerns this proxy is cited where the code meets
//! it, or has a reason in the list why not; the page for readers says what both say.
//!
//! The list is `tests/standards`, a file a standard. It has a few words of each sentence, which are
//! quoted word for word: in the code, `//= rfc9112#section-6.3` names the section and `//#` lines
//! repeat the words. A requirement without either is forgotten, and one with both is met or not.
//! What the code does is for the other tests to show; here it is only held together.

/// Citations in the source.
mod citations;
/// The requirements, with reasons for those that no code here meets.
mod list;
/// `docs/conformance.md`.
mod page;

use std::{collections::BTreeSet, fs, path::Path, sync::LazyLock};

use self::{
    citations::{Citation, citations},
    list::{Requirement, Standard, standards},
};
use crate::docs::root;

/// The page that is made from the list and the citations.
const PAGE: &str = "docs/conformance.md";

/// What is read once for all tests.
static STANDARDS: LazyLock<Vec<Standard>> = LazyLock::new(standards);
static CITATIONS: LazyLock<Vec<Citation>> = LazyLock::new(citations);

/// Each requirement, with its standard and the number of its section.
fn requirements() -> impl Iterator<Item = (&'static Standard, &'static str, &'static Requirement)> {
    STANDARDS.iter().flat_map(|standard| {
        standard.sections.iter().flat_map(move |section| {
            section.requirements.iter().map(move |own| (standard, section.number.as_str(), own))
        })
    })
}

/// The citations of a requirement.
fn citations_of(standard: &Standard, section: &str, own: &Requirement) -> Vec<&'static Citation> {
    let is_of = |citation: &&Citation| {
        citation.standard == standard.id
            && citation.section == section
            && citation.quotation == own.quotation
    };
    CITATIONS.iter().filter(is_of).collect()
}

#[test]
fn citations_quote_the_list() {
    let quotable: BTreeSet<(&str, &str, &str)> = requirements()
        .map(|(standard, section, own)| (standard.id.as_str(), section, own.quotation.as_str()))
        .collect();
    let is_known = |citation: &&Citation| {
        let Citation { standard, section, quotation, .. } = citation;
        quotable.contains(&(standard.as_str(), section.as_str(), quotation.as_str()))
    };
    let unknown: Vec<String> = CITATIONS
        .iter()
        .filter(|citation| !is_known(citation))
        .map(|Citation { file, line, standard, section, quotation }| {
            format!(
                "{file}:{line}: section {section} in tests/standards/{standard}.txt does not have:\n    \
                 {quotation}\n\
                 Quote one of its entries, word for word, or add this one there."
            )
        })
        .collect();
    assert!(unknown.is_empty(), "{}", unknown.join("\n\n"));
    assert!(CITATIONS.len() > 100, "{} citations", CITATIONS.len());
}

#[test]
fn requirements_are_met_or_have_a_reason() {
    let faults: Vec<String> = requirements()
        .filter_map(|(standard, section, own)| {
            let cited = citations_of(standard, section, own);
            let remedy = match (&own.reason, cited.first(), &own.note) {
                (None, None, _) => format!(
                    "nothing cites this requirement. Write\n    //= {}#section-{section}\n    //# {}\n\
                     where the code meets it, or a reason below it why not: {}",
                    standard.id,
                    own.quotation,
                    list::REASONS
                ),
                (Some(_), Some(Citation { file, line, .. }), _) => format!(
                    "this has a reason why it is not met here, but {file}:{line} cites it. Remove \
                     one of the two; what has to be said of a requirement that is met is a `note:`"
                ),
                (Some(_), None, Some(_)) => "this has a reason and a `note:`: make them one".into(),
                (None, Some(_), _) | (Some(_), None, None) => return None,
            };
            Some(format!("tests/standards/{}.txt:{}: {remedy}", standard.id, own.line))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn requirements_are_quoted_once_and_with_their_word() {
    let mut seen = BTreeSet::new();
    for (standard, section, own) in requirements() {
        let place = format!("tests/standards/{}.txt:{}", standard.id, own.line);
        assert!(own.level().is_some(), "{place}: quote the sentence as far as its MUST or SHOULD");
        assert!(
            seen.insert((&standard.id, section, &own.quotation)),
            "{place}: section {section} has this twice",
        );
    }
    assert!(seen.len() > 300, "{} requirements", seen.len());
}

#[test]
fn tests_that_show_a_requirement_are_there() {
    for (standard, _, own) in requirements() {
        for test in &own.shown_by {
            let text = fs::read_to_string(root().join(&test.file)).unwrap_or_default();
            assert!(
                text.contains(&format!("fn {}(", test.name)),
                "tests/standards/{}.txt:{}: there is no test {} in {}",
                standard.id,
                own.line,
                test.name,
                test.file,
            );
        }
    }
}

#[test]
fn page_says_what_the_list_and_the_citations_say() {
    let made = page::page();
    let page = fs::read_to_string(root().join(PAGE)).unwrap_or_default();
    if page == made {
        return;
    }
    let other = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance.md");
    fs::write(&other, made).unwrap();
    panic!(
        "{PAGE} is not what tests/standards and the citations make. Look at the difference, and\n    \
         cp {} {PAGE}",
        other.display()
    );
}
