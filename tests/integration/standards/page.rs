//! The page for readers: what is met, by which file, and what is not.

use std::collections::BTreeSet;

use super::{
    STANDARDS, citations_of,
    list::{Kind, Reason, Requirement, Standard},
    requirements,
};

/// How the page begins. The figures and the tables follow.
const BEGINNING: &str = "\
# What the standards require

For those who ask whether Tollgate keeps to the standards of HTTP and of tokens, and where. Each MUST and SHOULD that
concerns it is a row: with the file that meets it, or with the reason why none does. In the words of HTTP, Tollgate is
a *gateway* (a reverse proxy): towards clients it keeps to what is required of an origin server, towards servers to
what is required of a client, and in between to what is required of a proxy.

**Not listed** is what only others can meet: caches (RFC 9111: Tollgate keeps no response), user agents, the resources
of an origin server (ranges, preconditions, what a PUT does), registries, and those who write specifications. RFC 9449
(DPoP) is not built: a token that is bound to a key is taken like any other, and a proof is not looked at.

**A requirement that is met** is cited in the file that its row names, and often shown by a test. The other rows begin
with one of these:

| a row says | and means |
| --- | --- |
| by hyper, by h2, … | that library meets it |
| goes through | what it is about is handed on as it came |
| does not arise | what it is about never happens here |
| not ours | it is for another party |
| we differ | Tollgate does otherwise, on purpose |
| not met | it should be met, and is not yet |

This page is made from the list in [tests/standards](../tests/standards) and the citations in the source;
[CONTRIBUTING](../CONTRIBUTING.md) says how to change it.
";

/// Where the text of a standard is.
const TEXTS: &str = "https://www.rfc-editor.org/rfc/";

/// What the files of the repository that reasons name begin with.
const FOLDERS: [&str; 4] = ["crates/", "docs/", "src/", "tests/"];

/// The whole page.
pub(super) fn page() -> String {
    let mut page = BEGINNING.to_owned();
    page += "\n## How much\n\n";
    page += "| standard | requirements | met here | by a library | goes through, does not arise, not ours | \
             we differ | not met |\n| --- | --- | --- | --- | --- | --- | --- |\n";
    for standard in &*STANDARDS {
        page += &figures(standard);
    }
    page += "\n## Not met\n\n";
    page += &exceptions(&Kind::NotMet);
    page += "\n## Where we differ\n\n";
    page += &exceptions(&Kind::Differs);
    for standard in &*STANDARDS {
        page += &format!("\n## {}\n\n", standard.title);
        page += "| section | | requirement | met by, or why not |\n| --- | --- | --- | --- |\n";
        for section in &standard.sections {
            for own in &section.requirements {
                let state = state(standard, &section.number, own);
                page += &row(standard, &section.number, own, &state);
            }
        }
    }
    page
}

/// A row of the table of figures.
fn figures(standard: &Standard) -> String {
    let own = standard.sections.iter().flat_map(|section| &section.requirements);
    let [mut all, mut met, mut library, mut elsewhere, mut differs, mut not_met] = [0; 6];
    for requirement in own {
        all += 1;
        *match requirement.reason.as_ref().map(|reason| &reason.kind) {
            None => &mut met,
            Some(Kind::Library(_)) => &mut library,
            Some(Kind::GoesThrough | Kind::NeverArises | Kind::NotOurs) => &mut elsewhere,
            Some(Kind::Differs) => &mut differs,
            Some(Kind::NotMet) => &mut not_met,
        } += 1;
    }
    let title = &standard.title;
    format!("| {title} | {all} | {met} | {library} | {elsewhere} | {differs} | {not_met} |\n")
}

/// A table of the requirements of all standards with such a reason.
fn exceptions(kind: &Kind) -> String {
    let mut table = "| section | | requirement | why |\n| --- | --- | --- | --- |\n".to_owned();
    for (standard, section, own) in requirements() {
        if let Some(Reason { text, .. }) = own.reason.as_ref().filter(|own| own.kind == *kind) {
            table += &row(standard, section, own, &sentence(text));
        }
    }
    table
}

fn row(standard: &Standard, section: &str, own: &Requirement, state: &str) -> String {
    let id = &standard.id;
    let number = id.trim_start_matches("rfc");
    let level = own.level().unwrap_or_default();
    let quotation = escaped(&own.quotation);
    format!(
        "| [{number} {section}]({TEXTS}{id}#section-{section}) | {level} | {quotation} | {state} |\n"
    )
}

/// How a requirement is met, or why not.
fn state(standard: &Standard, section: &str, own: &Requirement) -> String {
    let cited = citations_of(standard, section, own);
    let files: BTreeSet<&str> = cited.iter().map(|citation| citation.file.as_str()).collect();
    let mut parts: Vec<String> = Vec::new();
    if let Some(Reason { kind, text }) = &own.reason {
        parts.push(format!("{}: {}", kind.words(), escaped(text)));
    }
    let links: Vec<String> = files.iter().map(|file| link(file, file)).collect();
    if !links.is_empty() {
        parts.push(links.join(", "));
    }
    parts.extend(own.note.as_deref().map(escaped));
    let tests: Vec<String> = own.shown_by.iter().map(|test| link(&test.name, &test.file)).collect();
    if !tests.is_empty() {
        parts.push(format!("Shown by {}", tests.join(", ")));
    }
    parts.join("<br>")
}

/// A link to a file of the repository.
fn link(label: &str, file: &str) -> String {
    format!("[{label}](../{file})")
}

/// Text in a cell of its own.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + &escaped(characters.as_str())
}

/// Text in a cell. The files that it names are links.
fn escaped(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(word).collect();
    words.join(" ")
}

fn word(word: &str) -> String {
    let file = word.trim_matches(|c| "().,;".contains(c));
    let is_file = FOLDERS.iter().any(|folder| file.starts_with(folder));
    match word.split_once(file).filter(|_| is_file) {
        Some((before, after)) => format!("{before}{}{after}", link(file, file)),
        None => plain(word),
    }
}

/// Text in which nothing is Markdown.
fn plain(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if matches!(character, '|' | '*' | '<' | '>' | '[' | ']' | '`') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
