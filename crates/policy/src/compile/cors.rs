//! CORS: which origins may read responses, and how preflight requests are handled.

use std::{sync::Arc, time::Duration};

use http::Uri;
use tollgate_wire::target::Host;
use tollgate_yaml::{Check, Node, Span, Spanned};

use super::{
    Compiler,
    words::{DAY, is_off},
};
use crate::{
    Cors, OriginPattern, Origins, Preflight,
    file::{PreflightMode, RawCors},
};

impl Compiler<'_> {
    /// The route's CORS rules, else those of the policy; an inner none: no rules.
    pub(super) fn route_cors(
        &mut self,
        node: Option<&Node>,
        of_policy: Option<&Arc<Cors>>,
    ) -> Option<Option<Arc<Cors>>> {
        match node {
            None => Some(of_policy.cloned()),
            Some(node) if is_off(node) => Some(None),
            Some(node) => {
                let help = "write `{ origins: [\"https://app.example.com\"] }`, or off";
                let raw: RawCors = self.section(node, help)?;
                self.cors(&raw).map(|cors| Some(Arc::new(cors)))
            }
        }
    }

    pub(super) fn cors(&mut self, raw: &RawCors) -> Option<Cors> {
        let origins = self.origins(&raw.origins);
        let credentials = raw.credentials.is_some_and(|credentials| credentials.value);
        if let (Some(Origins::Any), true, Some(place)) = (&origins, credentials, raw.credentials) {
            let message = "`credentials` beside `origins: [\"*\"]`";
            self.refuse(place.span, message, "list the origins that may have them");
        }
        let preflight = self.preflight(raw);
        Some(Cors { origins: origins?, credentials, preflight: preflight? })
    }

    fn origins(&mut self, raw: &Spanned<Vec<Spanned<String>>>) -> Option<Origins> {
        self.refuse_twice(raw.value.iter(), "origin");
        match raw.value.as_slice() {
            [] => {
                let help = "write some, or remove the section";
                self.refuse(raw.span, "a list of no origins", help);
                None
            }
            [only] if only.value == "*" => Some(Origins::Any),
            written => {
                let patterns: Vec<Option<OriginPattern>> =
                    written.iter().map(|origin| self.origin(origin)).collect();
                patterns.into_iter().collect::<Option<Vec<_>>>().map(Origins::Patterns)
            }
        }
    }

    fn origin(&mut self, raw: &Spanned<String>) -> Option<OriginPattern> {
        const HELP: &str = "write one such as https://app.example.com or https://*.example.com: in \
                            lower case, without path and usual port";
        let text = raw.value.as_str();
        let (message, help) = match text {
            "*" => ("`*` beside other origins".to_owned(), "keep either"),
            "null" => {
                let help = "remove it: any page can give itself this origin";
                ("`null` is no origin that can be trusted".into(), help)
            }
            _ => match parse_origin(text) {
                Some(pattern) => return Some(pattern),
                None => (format!("`{text}` is not an origin as browsers write it"), HELP),
            },
        };
        self.refuse(raw.span, message, help);
        None
    }

    fn preflight(&mut self, raw: &RawCors) -> Option<Preflight> {
        let mode = self.keyword_or_default(raw.preflight.as_ref())?;
        if mode != PreflightMode::Answer {
            let place = |span: Option<Span>, name: &'static str| span.map(|span| (span, name));
            let idle = [
                place(raw.methods.as_ref().map(|methods| methods.span), "methods"),
                place(raw.headers.as_ref().map(|headers| headers.span), "headers"),
                place(raw.max_age.as_ref().map(|max_age| max_age.span), "max_age"),
            ];
            for (span, name) in idle.into_iter().flatten() {
                let message = format!("`{name}` needs `preflight: answer`");
                self.refuse(span, message, "write that, or remove it");
            }
        }
        match mode {
            PreflightMode::Check => Some(Preflight::Check),
            PreflightMode::Pass => Some(Preflight::Pass),
            PreflightMode::Answer => self.answer(raw),
        }
    }

    fn answer(&mut self, raw: &RawCors) -> Option<Preflight> {
        fn listed(raw: &Option<Spanned<Vec<Spanned<String>>>>) -> &[Spanned<String>] {
            raw.as_ref().map_or(&[], |listed| &listed.value)
        }
        let methods = listed(&raw.methods);
        let headers = listed(&raw.headers);
        for everything in methods.iter().chain(headers).filter(|word| word.value == "*") {
            let help = "leave the list out: then it is what the page asks for";
            self.refuse(everything.span, "`*` is not taken here", help);
        }
        self.refuse_twice(methods.iter(), "method");
        self.refuse_twice(headers.iter(), "header");
        let methods = methods.iter().map(|method| self.method(method)).collect::<Option<Vec<_>>>();
        let headers =
            headers.iter().map(|header| self.header_name(header)).collect::<Option<Vec<_>>>();
        let max_age = raw.max_age.as_ref().and_then(|raw| {
            let max_age = self.time(raw, Duration::ZERO..=DAY)?;
            if max_age.subsec_nanos() > 0 {
                self.refuse(raw.span, "a part of a second", "write whole seconds, 0s to 24h");
            }
            Some(max_age)
        });
        Some(Preflight::Answer { methods: methods?, headers: headers?, max_age })
    }
}

/// Scheme, host and port and nothing else, as browsers write them: in lower case, and without the
/// port that is usual for the scheme.
fn parse_origin(text: &str) -> Option<OriginPattern> {
    let (scheme, host) = text.split_once("://")?;
    let below = host.strip_prefix("*.");
    let host = Host::parse(below.unwrap_or(host).as_bytes()).ok()?;
    let usual = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    let port = host.port().filter(|port| Some(*port) != usual);
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let scheme = format!("{scheme}://");
    // Whether it is one.
    format!("{scheme}host").parse::<Uri>().ok()?;
    let wildcard = if below.is_some() { "*." } else { "" };
    let name = host.as_str();
    if scheme.contains(|c: char| c.is_ascii_uppercase())
        || format!("{scheme}{wildcard}{name}{port}") != text
    {
        return None;
    }
    Some(match below {
        None => OriginPattern::Exact(text.into()),
        Some(_) => {
            OriginPattern::Below { scheme: scheme.into(), suffix: format!(".{name}{port}").into() }
        }
    })
}
