//! A policy to be, and its text.

use std::fmt::Write;

use crate::{Finding, Imported, Verdict, flow::Flow};

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
        findings.sort_by_key(|finding| finding.verdict);
        Imported { policy: self.text(&findings), findings }
    }

    fn text(&self, findings: &[Finding]) -> String {
        let mut text = format!("# {}\n", self.title);
        for finding in findings.iter().filter(|finding| finding.verdict == Verdict::LeftOut) {
            let Finding { place, there, here, .. } = finding;
            let _ = writeln!(text, "# Left out: {place}: {there}: {here}");
        }
        for paragraph in &self.to_do {
            let _ = writeln!(text, "#\n# To do: {}", paragraph.replace('\n', "\n# "));
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
        let _ = writeln!(text, "  {name}: {value}");
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
}
