//! The links between the pages: each leads to a file that is there, and to a heading in it.

use std::{collections::BTreeMap, path::Path};

use super::{Page, root};

/// The text without blocks of code.
fn prose(markdown: &str) -> String {
    let mut is_fenced = false;
    let mut prose = String::new();
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced && !line.starts_with("    ") {
            prose += line;
            prose.push('\n');
        }
    }
    prose
}

/// The targets of a page's links.
fn links(markdown: &str) -> Vec<String> {
    let prose = prose(markdown);
    let after = prose.split("](").skip(1);
    after.filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(markdown: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let prose = prose(markdown);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let is_kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
            let anchor: String = title.chars().filter(is_kept).collect();
            let anchor = anchor.replace(' ', "-");
            let times = seen.entry(anchor.clone()).or_default();
            *times += 1;
            match *times {
                1 => anchor,
                times => format!("{anchor}-{}", times - 1),
            }
        })
        .collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut followed = 0;
    for page in Page::all() {
        for link in links(&page.text) {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => root().join(&page.path),
                path => root().join(&page.path).parent().unwrap().join(path),
            };
            followed += 1;
            assert!(target.exists(), "{}: there is no {path}", page.path);
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                assert!(
                    anchors(&text).iter().any(|known| known == anchor),
                    "{}: {link}: no heading has this anchor",
                    page.path
                );
            }
        }
    }
    assert!(followed > 50, "{followed} links");
}

#[test]
fn every_page_can_be_reached_from_the_readme() {
    let pages = Page::all();
    let mut reached = vec!["README.md".to_owned()];
    let mut at = 0;
    while let Some(path) = reached.get(at).cloned() {
        at += 1;
        let Some(page) = pages.iter().find(|page| page.path == path) else { continue };
        for link in links(&page.text) {
            let file = link.split('#').next().unwrap_or_default();
            let folder = Path::new(&path).parent().unwrap();
            let file = folder.join(file).to_str().unwrap().replace("docs/../", "");
            if !reached.contains(&file) {
                reached.push(file);
            }
        }
    }
    for page in &pages {
        let is_in_a_listed_folder = page.path.starts_with("docs/design/");
        assert!(
            is_in_a_listed_folder || reached.contains(&page.path),
            "no link leads to {}",
            page.path
        );
    }
}

/// Pages for those who change the code name its files; one that was moved or renamed is found here.
#[test]
fn files_of_the_source_that_pages_name_are_there() {
    let pages = ["docs/architecture.md", "CONTRIBUTING.md", "SECURITY.md"].map(Page::read);
    let notes = Page::all().into_iter().filter(|page| page.path.starts_with("docs/design/"));
    let mut named = 0;
    for page in pages.into_iter().chain(notes) {
        let spans = page.text.split('`').skip(1).step_by(2);
        let files = spans.filter(|span| {
            (span.ends_with(".rs") || span.ends_with('/')) && !span.contains(['{', ' ', 'N', '<'])
        });
        for file in files {
            assert!(root().join(file).exists(), "{}: there is no {file}", page.path);
            named += 1;
        }
    }
    assert!(named > 40, "{named} files are named");
}
