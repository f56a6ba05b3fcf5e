//! Rows for what holds for many paths: hosts, the key of all limits, and canaries.

use super::{
    Import,
    ingress::{Ingress, Path},
    limits::Key,
    site::{Located, Served},
};
use crate::{Finding, Verdict};

impl<'r> Import<'r> {
    /// Rows for what differs on a host as a whole.
    pub(super) fn note_host(&mut self, host: &str, own: &[&Located<'_, 'r>]) {
        let Some(Located { served, path, .. }) = own.first() else { return };
        let place = served.ingress.place(path.span);
        if host.starts_with('*') {
            let here = "hosts of any depth below it; there, of one label";
            self.findings.push(Finding::nearly(&place, format!("host {host}"), here));
        }
        let has_all = own.iter().any(|own| own.path.path == "/");
        if !has_all && !served.limits.names.is_empty() {
            let there = format!("paths of {host} that no rule has");
            let here = "404 here too, but not counted; there, they use the limits of the oldest \
                        Ingress of the host";
            self.findings.push(Finding::nearly(place, there, here));
        }
    }

    pub(super) fn note_variable(&mut self, variable: &str, served: &[Served<'_, 'r>]) {
        let has_limits = served.iter().any(|own| !own.limits.names.is_empty());
        if self.controller.variable.is_none() || !has_limits {
            return;
        }
        let there = format!("limit-conn-zone-variable: {variable}, the key of all limits");
        let (verdict, here) = match variable.trim_start_matches('$') {
            "binary_remote_addr" | "remote_addr" => (Verdict::Same, "`per: client.ip`"),
            name if Key::of(name, true) == Key::Address => (
                Verdict::Nearly,
                "`per: client.ip`: a client cannot choose its counter here. Name your proxies in \
                 `trusted_proxies`",
            ),
            _ => (
                Verdict::Nearly,
                "`per` of the limits; requests without it are not counted, there and here",
            ),
        };
        self.findings.push(Finding { verdict, ..Finding::same("", there, here) });
    }

    pub(super) fn note_canaries(&mut self, canaries: &[&Ingress<'r>], paths: &[Located<'_, 'r>]) {
        for canary in canaries {
            let own = canary.paths();
            let is_main = |path: &Path<'_>| {
                paths.iter().any(|own| own.path.host == path.host && own.path.path == path.path)
            };
            let here = match own.iter().any(is_main) {
                true => {
                    "a canary has no paths, limits or guards of its own, there and here: all \
                     requests go to the main backend. To share them out, give `servers` of that \
                     upstream weights"
                }
                false => "a canary without a main Ingress has no paths, there and here",
            };
            let there = format!("{}: canary", canary.id());
            let place = canary.place(canary.resource.node.span);
            self.findings.push(Finding::left_out(place, there, here));
            for entry in canary.own.iter().filter(|own| own.name.starts_with("limit-")) {
                self.left_out(
                    canary,
                    entry,
                    "the controller ignores limits of a canary: those of its main Ingress hold",
                );
            }
        }
    }
}
