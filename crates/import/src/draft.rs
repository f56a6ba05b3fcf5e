//! A policy to be, and its text.

use std::fmt::Write;

use tollgate_printable::printable;
use tollgate_yaml::Document;

use crate::{
    Finding, Imported, Verdict,
    flow::{Flow, quoted},
};

/// The most limits that a route may charge.
pub(crate) const MAX_LIMITS: usize = 8;
/// A server that there is not, for an upstream that the reader has to write, or of a closed route.
pub(crate) const NOWHERE: &str = "http://127.0.0.1:9";
/// Every address, as `deny` of a route that is closed has them.
pub(crate) const EVERYBODY: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The `refund` of a limit that gives nothing back, as callers with a token would get of a 304.
pub(crate) fn no_refund() -> Flow {
    Flow::fields([("status", Flow::List(Vec::new()))])
}

/// The sections of a policy; those that are empty are not written.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// What it is made of: the first line, as a comment.
    pub(crate) title: String,
    /// What its reader has to write or decide, such as settings: comments, a paragraph each.
    pub(crate) to_do: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) upstreams: Vec<(String, Flow)>,
    pub(crate) identity: Option<Flow>,
    pub(crate) tiers: Option<Flow>,
    pub(crate) limits: Vec<(String, Flow)>,
    pub(crate) overrides: Vec<Flow>,
    pub(crate) exempt: Vec<String>,
    pub(crate) deny: Vec<String>,
    /// The first that matches wins.
    pub(crate) routes: Vec<Flow>,
    pub(crate) paths: Option<Flow>,
    pub(crate) method_override: Option<String>,
    pub(crate) responses: Option<Flow>,
    pub(crate) tests: Vec<Flow>,
}

impl Draft {
    /// The policy, with the findings in the order of the table.
    pub(crate) fn finish(&self, mut findings: Vec<Finding>) -> Imported {
        findings.iter_mut().for_each(keep_in_line);
        findings.sort_by_key(|finding| finding.verdict);
        let policy = self.text(&findings);
        // A file and its number of values are bounded.
        let Err(problem) = Document::parse("policy", &policy) else {
            return Imported { policy, findings };
        };
        let here = "no proxy reads it: give fewer of the files or routes at a time";
        let there = format!("the policy that is made of it: {}", problem.message());
        findings.insert(0, Finding::left_out("the whole", there, here));
        Imported { policy: self.text(&findings), findings }
    }

    fn text(&self, findings: &[Finding]) -> String {
        let mut text = format!("# {}\n", printable(&self.title));
        for finding in findings.iter().filter(|finding| finding.verdict == Verdict::LeftOut) {
            let Finding { place, there, here, .. } = finding;
            let _ = writeln!(text, "# Left out: {place}: {there}: {here}");
        }
        for paragraph in &self.to_do {
            let lines: Vec<_> = paragraph.split('\n').map(printable).collect();
            let _ = writeln!(text, "#\n# To do: {}", lines.join("\n# "));
        }
        text.push_str("version: 1\n");
        line(&mut text, "hosts", list(&self.hosts));
        named(&mut text, "upstreams", &self.upstreams);
        line(&mut text, "identity", self.identity.clone());
        line(&mut text, "tiers", self.tiers.clone());
        line(&mut text, "paths", self.paths.clone());
        line(&mut text, "method_override", self.method_override.clone().map(Flow::Text));
        line(&mut text, "responses", self.responses.clone());
        line(&mut text, "exempt", list(&self.exempt));
        line(&mut text, "deny", list(&self.deny));
        named(&mut text, "limits", &self.limits);
        items(&mut text, "overrides", &self.overrides);
        items(&mut text, "routes", &self.routes);
        items(&mut text, "tests", &self.tests);
        text
    }
}

/// A row is one line, of the table and of the comments, whatever names there are in the files.
fn keep_in_line(finding: &mut Finding) {
    for text in [&mut finding.place, &mut finding.there, &mut finding.here] {
        *text = printable(text).into_owned();
    }
}

fn list(texts: &[String]) -> Option<Flow> {
    (!texts.is_empty()).then(|| Flow::list(texts.iter().cloned()))
}

fn line(text: &mut String, name: &str, value: Option<Flow>) {
    if let Some(value) = value {
        let _ = writeln!(text, "{name}: {value}");
    }
}

fn named(text: &mut String, name: &str, entries: &[(String, Flow)]) {
    if !entries.is_empty() {
        let _ = writeln!(text, "\n{name}:");
    }
    for (name, value) in entries {
        let _ = writeln!(text, "  {}: {value}", quoted(name));
    }
}

fn items(text: &mut String, name: &str, items: &[Flow]) {
    if !items.is_empty() {
        let _ = writeln!(text, "\n{name}:");
    }
    for item in items {
        let _ = writeln!(text, "  - {item}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_stands_at_the_top_and_sections_follow() {
        let draft = Draft {
            title: "From site.conf.".to_owned(),
            to_do: vec!["write trusted_proxies\ninto the settings.".to_owned()],
            hosts: vec!["*.example.com".to_owned()],
            upstreams: vec![(
                "app".to_owned(),
                Flow::fields([("servers", Flow::list(["http://[::1]:1"]))]),
            )],
            limits: vec![("api".to_owned(), Flow::fields([("rate", "5/second".into())]))],
            routes: vec![Flow::fields([("limits", Flow::list(["api"]))])],
            ..Draft::default()
        };
        let imported = draft.finish(vec![
            Finding::same("a:1", "x", "y"),
            Finding::left_out("a:2", "limit_rate 5k", "no counterpart"),
        ]);
        assert_eq!(imported.findings[0].place, "a:2");
        let expected = "\
# From site.conf.
# Left out: a:2: limit_rate 5k: no counterpart
#
# To do: write trusted_proxies
# into the settings.
version: 1
hosts: [\"*.example.com\"]

upstreams:
  app: { servers: [\"http://[::1]:1\"] }

limits:
  api: { rate: 5/second }

routes:
  - { limits: [api] }
";
        assert_eq!(imported.policy, expected);
    }

    #[test]
    fn names_of_the_files_write_nothing_into_the_policy() {
        let name = "bob\nexempt: [0.0.0.0/0]\r#\u{2028}\u{85}";
        let draft = Draft {
            title: format!("From {name}"),
            to_do: vec![format!("make a key of {name}")],
            upstreams: vec![("null".to_owned(), Flow::fields([("servers", Flow::list(["a"]))]))],
            ..Draft::default()
        };
        let imported = draft.finish(vec![Finding::left_out(name, name, name)]);
        let document = Document::parse("a", &imported.policy).unwrap();
        let tollgate_yaml::Value::Mapping(fields) = &document.root().value else { panic!() };
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.value.as_str()).collect();
        assert_eq!(names, ["version", "upstreams"], "{}", imported.policy);
        assert!(imported.policy.contains("  \"null\": {"));
        let row = &imported.findings[0];
        assert!(![&row.place, &row.there, &row.here].iter().any(|own| own.contains(['\n', '\r'])));
    }

    #[test]
    fn policy_that_is_too_large_is_said() {
        let route = Flow::fields([("limits", Flow::list(["api"; 1000]))]);
        let draft = Draft { routes: vec![route; 120], ..Draft::default() };
        let imported = draft.finish(vec![Finding::left_out("a:2", "x", "y")]);
        assert!(imported.findings[0].here.contains("fewer of the files"));
        assert!(imported.policy.contains("# Left out: the whole: the policy"));
    }
}
