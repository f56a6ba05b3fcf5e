//! What nobody uses, and values that say nothing yet.

use super::{File, plugins::is_bool};
use crate::{report::Report, section::Section};

/// Fields of services and routes that are true, false or a number, with what is taken for another
/// value.
const SERVICE: [(&str, &str); 4] = [
    ("enabled", "it is taken to be enabled"),
    ("connect_timeout", "the usual time is taken"),
    ("read_timeout", "the usual time is taken"),
    ("tls_verify", "certificates are verified"),
];
const ROUTE: [(&str, &str); 4] = [
    ("regex_priority", "0 is taken, so another route may be first there"),
    ("priority", "0 is taken, so another route may be first there"),
    ("strip_path", "true is taken"),
    ("preserve_host", "false is taken"),
];

impl File<'_> {
    /// Names what does nothing where it stands, and what is known only when a program has filled
    /// it in.
    pub(super) fn tell_of_rest(&self, report: &mut Report) {
        for own in &self.services {
            tell_of_unread(own.section, &format!("service {}", own.name), &SERVICE, report);
        }
        for own in &self.routes {
            let what = format!("route {}", own.own.name);
            tell_of_unread(own.own.section, &what, &ROUTE, report);
        }
        for (at, own) in self.services.iter().enumerate() {
            if !self.routes.iter().any(|route| route.service == Some(at)) {
                let there = format!("service {}", own.name);
                report.same(own.section.place(), there, "not written: no route has it");
            }
        }
        self.tell_of_upstreams(report);
        let keys = self.consumers.iter().flat_map(|own| &own.keys).collect();
        self.tell_of_credentials("key-auth", keys, report);
        let tokens = self.consumers.iter().flat_map(|own| &own.tokens).collect();
        self.tell_of_credentials("jwt", tokens, report);
    }

    fn tell_of_upstreams(&self, report: &mut Report) {
        let hosts: Vec<String> = self.services.iter().map(|own| host(own.section)).collect();
        // One that is filled in may be that of any upstream.
        let is_sure = !hosts.iter().any(|host| host.contains(['{', '$']));
        for own in self.upstreams.iter().filter(|own| is_sure && !hosts.contains(&own.name)) {
            let there = format!("upstream {}", own.name);
            report.same(own.section.place(), there, "not written: no service goes there");
        }
    }

    fn tell_of_credentials(&self, kind: &str, all: Vec<&Section<'_>>, report: &mut Report) {
        let is_used = self.plugins.iter().any(|own| own.is_enabled && own.kind.starts_with(kind));
        if let Some(first) = all.first().filter(|_| !is_used) {
            let there = format!("{} credentials of consumers for {kind}", all.len());
            report.same(first.place(), there, "not written: no route asks for them");
        }
    }
}

/// Names the fields whose values are neither true, nor false, nor a number.
fn tell_of_unread(section: Section<'_>, what: &str, fields: &[(&str, &str)], report: &mut Report) {
    for (name, taken) in fields.iter().filter(|(name, _)| section.node(name).is_some()) {
        let is_read = section.text(name).is_some_and(|text| is_bool(&text));
        if !is_read && section.number(name).is_err() {
            let here = format!("filled in by a program: {taken}");
            report.left_out(section.place(), format!("{what}: {name}"), here);
        }
    }
}

/// The host of a service, which may be the name of an upstream.
fn host(service: Section<'_>) -> String {
    let Some(url) = service.text("url") else { return service.text("host").unwrap_or_default() };
    let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let is_end = |letter: char| letter == '/' || letter == ':';
    rest.split(is_end).next().unwrap_or_default().to_owned()
}
