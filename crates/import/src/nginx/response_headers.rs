//! Header fields that a location adds to responses, or takes out of them.

use super::{Importer, directive::Directive, levels::Levels};
use crate::{Finding, flow::Flow, words};

/// Fields that describe the message, or that only the proxy writes.
const NOT_WRITTEN: &str = "\
    connection content-encoding content-length content-type date keep-alive proxy-authenticate \
    proxy-connection te trailer transfer-encoding upgrade";

impl<'c> Importer<'c> {
    /// The `response_headers` of a route, if there is something to write.
    pub(super) fn response_headers(&mut self, levels: &Levels<'c>) -> Option<Flow> {
        let mut set: Vec<(String, Flow)> = Vec::new();
        let mut taken: Vec<&Directive> = Vec::new();
        let (of_cors, own) = split(levels.nearest(&["add_header"]));
        if let Some(first) = of_cors.first() {
            let (place, there) = (first.place.to_string(), said(&of_cors));
            self.grouped(Finding::left_out(place, there, CORS));
        }
        for directive in own {
            let name = directive.arg(0).to_ascii_lowercase();
            let value = levels.filled(directive.arg(1));
            match refused(&name, &value) {
                Some(why) => self.left_out(directive, why),
                None if value.is_empty() => {}
                None if set.iter().any(|(known, _)| *known == name) => {
                    self.left_out(
                        directive,
                        "a field is set once: this one is set to another value",
                    );
                }
                None => {
                    set.push((name, value.into()));
                    taken.push(directive);
                }
            }
        }
        if let Some(first) = taken.first() {
            self.grouped(Finding::nearly(
                first.place.to_string(),
                said(&taken),
                "`response_headers` of the routes: they replace those of the upstream, whatever \
                 the status of its response; what Tollgate answers itself, such as refusals, lacks \
                 them, as nginx's without `always`",
            ));
        }
        let mut remove = Vec::new();
        for directive in levels.nearest(&["proxy_hide_header"]) {
            let name = directive.arg(0).to_ascii_lowercase();
            if is_written(&name) {
                self.grouped(directive.same("`response_headers: { remove: […] }` of the routes"));
                let is_known =
                    remove.contains(&name) || set.iter().any(|(known, _)| *known == name);
                remove.extend((!is_known).then_some(name));
            } else {
                self.left_out(directive, "no policy takes this field out");
            }
        }
        set.sort_by(|one, other| one.0.cmp(&other.0));
        let edits = Flow::fields([]).with_fields("set", set).with_list("remove", remove);
        (!edits.is_empty()).then_some(edits)
    }
}

/// What to write for the fields of CORS.
const CORS: &str = "\
    write `cors: { origins: […] }` of the policy or the route, with the origins whose pages may \
    read responses: until then the upstream decides";

/// The fields of CORS, if one of them is made of variables, and all others.
fn split(own: Vec<&Directive>) -> (Vec<&Directive>, Vec<&Directive>) {
    let is_of_cors = |own: &&Directive| {
        own.arg(0).get(..15).is_some_and(|name| name.eq_ignore_ascii_case("access-control-"))
    };
    let (of_cors, others): (Vec<_>, Vec<_>) = own.iter().copied().partition(is_of_cors);
    if of_cors.iter().any(|own| own.arg(1).contains('$')) {
        (of_cors, others)
    } else {
        (vec![], own)
    }
}

fn said(all: &[&Directive]) -> String {
    let names: Vec<&str> = all.iter().map(|own| own.arg(0)).collect();
    format!("add_header {}", names.join(", "))
}

/// Why a field is not set.
fn refused(name: &str, value: &str) -> Option<&'static str> {
    let is_plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && value.trim() == value;
    match () {
        () if value.contains('$') || !is_plain => {
            Some("its value is made of variables: have the upstream write the field")
        }
        () if !is_written(name) => Some("no policy writes this field: the upstream's is passed on"),
        () => None,
    }
}

/// Whether a policy may write this field of responses.
fn is_written(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty()
        && name.bytes().all(is_token)
        && !words::has(NOT_WRITTEN, name)
        && !words::begin("x-tollgate- x-ratelimit- ratelimit", name)
}
