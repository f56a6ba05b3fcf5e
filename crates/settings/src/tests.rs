//! What settings come to, and values of a wrong type.

mod mistakes;

use super::*;

pub(crate) const FILE: &str = "config/tollgate.yaml";

fn parse(text: &str) -> Result<Settings, Vec<Problem>> {
    Settings::parse(Path::new(FILE), text, &Sources::system())
}

/// A settings file with these lines in its store section, the first of them on line 4.
pub(crate) fn settings(store: &str) -> String {
    let store: String = store.lines().map(|line| format!("  {line}\n")).collect();
    let store = if store.is_empty() { "  {}\n" } else { &store };
    format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\nstore:\n{store}")
}

pub(crate) fn store(store: &str, sources: &Sources) -> Result<StoreSettings, Vec<Problem>> {
    let settings = Settings::parse(Path::new(FILE), &settings(store), sources)?;
    Ok(settings.store)
}

/// Each problem as `line:column message: help`.
pub(crate) fn rendered<'p>(problems: impl IntoIterator<Item = &'p Problem>) -> Vec<String> {
    let rendered = problems.into_iter().map(|problem| {
        let line = problem.line();
        let column = problem.column();
        format!("{line}:{column} {}: {}", problem.message(), problem.help())
    });
    rendered.collect()
}

/// Settings with these fields in a section, on line 3.
pub(crate) fn with_section(section: &str, fields: &str) -> Result<Settings, Vec<String>> {
    let text =
        format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\n{section}: {{ {fields} }}\n");
    parse(&text).map_err(|problems| rendered(&problems))
}

#[test]
fn defaults_need_only_a_listener() {
    let settings = parse("version: 1\nlisteners: [{ address: 127.0.0.1:0 }]\n").unwrap();
    assert_eq!(settings.policies, Path::new("config/policies"));
    assert_eq!(settings.access_log, Some(AccessLogSettings::default()));
    assert_eq!(settings.events, Format::Text);
    assert!(settings.workers >= 1);
}

#[test]
fn every_mistake_is_reported_with_its_place() {
    let problems = parse(
        "version: 2\nlisteners: [{ address: localhost }]\nworkers: 0\ntrusted_proxies: [10.0.0.0/40]\n\
         store: { redis: { url: http://localhost } }\naccess_log: { format: jsn }\nsize: 1\ntracing: { sample: 2 }\n",
    )
    .unwrap_err();
    let lines: Vec<usize> = problems.iter().map(Problem::line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(problems[5].help(), "did you mean `json`?");
    assert_eq!(problems[7].message(), "not a share of traces");
}
