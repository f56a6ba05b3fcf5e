//! What a router's middlewares make of its routes.

use super::{
    chain::Flat,
    files::Configuration,
    headers::{self, Headers},
    limit::{self, Limit},
    source::{self, Around, Trust, Written},
};
use crate::{flow::Flow, report::Report, section::Section};

/// What the middlewares do together.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) limits: Vec<Limit>,
    /// Why no request may pass until the reader has written something.
    pub(super) closed: Vec<String>,
    pub(super) allow: Vec<String>,
    /// Whether the routes are for a redirect to https and nothing else.
    pub(super) is_redirect: bool,
    pub(super) strip: Vec<String>,
    /// Fields of a route.
    pub(super) fields: Vec<(&'static str, Flow)>,
    headers: Headers,
    written: Written,
}

/// What is known of where a router listens.
pub(super) struct Listener<'a> {
    pub(super) trust: &'a Trust,
    pub(super) has_tls: bool,
}

impl Effects {
    /// Those of the middlewares of these names, in their order.
    pub(super) fn of(
        names: &[String],
        place: &str,
        listener: &Listener<'_>,
        configuration: &Configuration<'_>,
        report: &mut Report,
    ) -> Effects {
        let mut reader = Reader { effects: Effects::default(), listener, report };
        let flat = Flat::of(names, configuration);
        for why in &flat.problems {
            reader.close(place, "its middlewares", why);
        }
        for (name, section) in flat.found {
            reader.take(&name, section);
        }
        reader.effects
    }

    /// Whether anything of it keeps requests out.
    pub(super) fn refuses(&self) -> bool {
        !self.limits.is_empty() || !self.closed.is_empty() || !self.allow.is_empty()
    }

    /// The fields of a route with a path of this pattern.
    pub(super) fn route_fields(&self, pattern: &str) -> Vec<(&'static str, Flow)> {
        let mut fields = self.fields.clone();
        let stem = pattern.trim_end_matches("/**").trim_end_matches('*');
        let is_open = pattern.ends_with("*/**") || pattern == "/**";
        let of_route = |prefix: &&String| {
            let below = stem.strip_prefix(prefix.as_str());
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
                || (is_open && prefix.starts_with(stem))
        };
        if let Some(prefix) = self.strip.iter().find(of_route) {
            fields.insert(0, ("strip_prefix", prefix.as_str().into()));
        }
        fields.extend(self.headers.flows());
        fields
    }
}

/// The middlewares of a router on the way to their effects.
struct Reader<'a> {
    effects: Effects,
    listener: &'a Listener<'a>,
    report: &'a mut Report,
}

impl Reader<'_> {
    fn close(&mut self, place: &str, there: &str, why: &str) {
        self.report.left_out(
            place,
            there,
            format!("{why}: the routes of its routers are closed (deny)"),
        );
        self.effects.closed.push(format!("{there}: {why}"));
    }

    fn take(&mut self, name: &str, section: Section<'_>) {
        let place = section.place();
        let mut kinds = section.entries().iter();
        let (Some((kind, node)), None) = (kinds.next(), kinds.next()) else {
            let why = "a middleware has exactly one type: Traefik serves none of its routers";
            return self.close(&place, &format!("middleware {name}"), why);
        };
        let own = section.of(node);
        let kind = kind.value.to_ascii_lowercase();
        let there = format!("{kind} {name}");
        let result = match kind.as_str() {
            "ratelimit" | "inflightreq" => self.take_limit(name, &kind, own),
            "ipallowlist" | "ipwhitelist" => self.take_list(&there, own),
            "forwardauth" => self.take_forward_auth(&there, own),
            "basicauth" | "digestauth" => {
                self.effects
                    .written
                    .verified
                    .extend(own.text("headerField").map(|name| name.to_lowercase()));
                Err("there are no passwords here, so write `identity` and `auth`".to_owned())
            }
            "plugin" => {
                self.effects.written.unknown = Some(format!("the plugin {name}"));
                Err("a plugin may refuse requests, and cannot be carried over".to_owned())
            }
            "replacepath" | "replacepathregex" | "stripprefixregex" => {
                Err("it makes another path of each, which cannot be written here, and the servers \
                     would get other paths"
                    .to_owned())
            }
            "stripprefix" => {
                self.take_strip(&there, own);
                Ok(())
            }
            "addprefix" => self.take_add(&there, own),
            "headers" => {
                self.effects.written.constant.extend(headers::request_names(own));
                self.effects.headers.take(&there, own, self.report)
            }
            "buffering" => self.take_buffering(&there, own),
            "redirectscheme" => {
                self.take_redirect(&there, own);
                Ok(())
            }
            _ => {
                self.name_other(&kind, &there, own);
                Ok(())
            }
        };
        if let Err(why) = result {
            self.close(&place, &there, &why);
        }
    }

    fn take_limit(&mut self, name: &str, kind: &str, own: Section<'_>) -> Result<(), String> {
        let is_file = !name.ends_with("@kubernetescrd");
        let around = Around { trust: self.listener.trust, written: &self.effects.written, is_file };
        let limit = match kind {
            "ratelimit" => limit::rate_limit(name, own, &around, self.report),
            _ => limit::in_flight(name, own, &around, self.report),
        }?;
        let Some(limit) = limit else { return Ok(()) };
        match self.effects.limits.iter().any(|known| known.name == limit.name) {
            false => self.effects.limits.push(limit),
            true if limit.is_shared => self.report.left_out(
                own.place(),
                format!("rateLimit {name}: twice on a router, with redis"),
                "each request is charged once, there twice: looser",
            ),
            // Two buckets in memory that are always alike.
            true => {}
        }
        Ok(())
    }

    fn take_list(&mut self, there: &str, own: Section<'_>) -> Result<(), String> {
        let ranges = own.texts("sourceRange");
        let networks: Option<Vec<String>> = ranges.iter().map(|range| network(range)).collect();
        let Some(networks) = networks.filter(|networks| !networks.is_empty()) else {
            return Err(
                "`sourceRange` is empty or has something that is no network: Traefik serves none \
                 of its routers"
                    .to_owned(),
            );
        };
        own.knows("sourceRange ipStrategy rejectStatusCode")?;
        if let Some(strategy) = own.section("ipStrategy")
            && !source::address(strategy, self.listener.trust, self.report)?.is_known
        {
            return Err(
                "the entry point trusts no peer, so there is no address and Traefik refuses \
                 everybody"
                    .to_owned(),
            );
        }
        if !self.effects.allow.is_empty() {
            return Err("a route has one list, and this router two".to_owned());
        }
        let status = own.number("rejectStatusCode")?.unwrap_or(403);
        if status != 403 {
            self.report.nearly(own.place(), format!("{there}: rejectStatusCode {status}"), "403");
        }
        if !self.effects.limits.is_empty() {
            let here =
                "a refused request charges no limit, there those before it: looser for these";
            self.report.nearly(own.place(), format!("{there}: behind a limit"), here);
        }
        self.report.same(own.place(), there, format!("allow: [{}]", networks.join(", ")));
        self.effects.allow = networks;
        Ok(())
    }

    fn take_forward_auth(&mut self, there: &str, own: Section<'_>) -> Result<(), String> {
        if own.text("address").is_some_and(|address| address.ends_with("/decide/forward")) {
            let here =
                "it asks Tollgate, whose policy stays as it is: put this one and that together";
            self.report.nearly(own.place(), there, here);
            return Ok(());
        }
        let names = own.texts("authResponseHeaders").into_iter().chain(own.text("headerField"));
        self.effects.written.verified.extend(names.map(|name| name.to_ascii_lowercase()));
        if own.node("authResponseHeadersRegex").is_some() {
            self.effects.written.unknown = Some(there.to_owned());
        }
        Err("nothing here asks a server whether a request may pass; if it checks tokens, write \
             `identity.jwt` and `auth: required`"
            .to_owned())
    }

    fn take_strip(&mut self, there: &str, own: Section<'_>) {
        let prefixes = own.texts("prefixes");
        let trimmed = prefixes.iter().map(|prefix| prefix.trim_end_matches('/').to_owned());
        self.effects.strip = trimmed.filter(|prefix| is_prefix(prefix)).collect();
        self.report.nearly(
            own.place(),
            format!("{there}: {}", prefixes.join(", ")),
            "strip_prefix: whole segments; there of a text, so that `/px` of `/p` becomes `x`. Of \
             several, the one of the route's path",
        );
    }

    fn take_add(&mut self, there: &str, own: Section<'_>) -> Result<(), String> {
        let prefix = own.text("prefix").unwrap_or_default();
        let prefix = prefix.trim_end_matches('/');
        if self.effects.fields.iter().any(|(name, _)| *name == "add_prefix") || !is_prefix(prefix) {
            return Err("the prefix cannot be written".to_owned());
        }
        self.report.same(own.place(), there, format!("add_prefix: {prefix}"));
        self.effects.fields.insert(0, ("add_prefix", prefix.into()));
        Ok(())
    }

    fn take_buffering(&mut self, there: &str, own: Section<'_>) -> Result<(), String> {
        let known = "maxRequestBodyBytes memRequestBodyBytes memResponseBodyBytes";
        if let Some(name) = own.others(known).next() {
            self.report.left_out(own.place(), format!("{there}: {name}"), "no counterpart");
        }
        if let Some(bytes) = own.number("maxRequestBodyBytes")?.filter(|bytes| *bytes > 0) {
            self.report.same(own.place(), there, format!("max_body: {bytes}"));
            self.effects.fields.retain(|(name, _)| *name != "max_body");
            self.effects.fields.push(("max_body", (bytes as u64).into()));
        }
        Ok(())
    }

    fn take_redirect(&mut self, there: &str, own: Section<'_>) {
        if self.listener.has_tls {
            return self.report.same(own.place(), there, "nothing: its routers have TLS");
        }
        self.effects.is_redirect = true;
        let here = "a listener of the settings: no route";
        self.report.nearly(own.place(), there, here);
        self.report.ask("write `redirect: https` at the plain listener of the settings.");
    }

    /// Middlewares that change neither what is limited nor who may pass.
    fn name_other(&mut self, kind: &str, there: &str, own: Section<'_>) {
        let here = match kind {
            "retry" => "`retries` of the upstream; before a limit, each try is charged there",
            "circuitbreaker" => "`ejection` of the upstream",
            "compress" => "responses are not compressed here",
            "errors" => "the servers' own responses; denials have their own body and status here",
            "redirectregex" => {
                "no redirect: the requests go to the servers, with the router's limits"
            }
            "passtlsclientcert" => {
                self.effects.written.unknown = Some(there.to_owned());
                "client certificates are callers here: `identity.callers`"
            }
            "contenttype" | "grpcweb" | "encodedcharacters" => "no counterpart",
            _ => return self.close(&own.place(), there, "it is not known"),
        };
        self.report.left_out(own.place(), there, here);
    }
}

/// Whether it is whole segments without anything that a path may not have as itself.
fn is_prefix(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let mut segments = text.strip_prefix('/').unwrap_or_default().split('/');
    text.bytes().all(is_plain) && segments.all(|own| !matches!(own, "" | "." | ".."))
}

/// A network in its normal form, or an address, if it is one.
pub(super) fn network(text: &str) -> Option<String> {
    let network = crate::network::network(text.trim())?;
    Some(if text.contains('/') { network.trunc().to_string() } else { network.addr().to_string() })
}

#[cfg(test)]
mod tests {
    use super::network;

    #[test]
    fn networks_are_written_in_their_normal_form() {
        for (text, expected) in [
            ("10.1.2.3", Some("10.1.2.3")),
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("2001:db8::1/32", Some("2001:db8::/32")),
            ("::/0", Some("::/0")),
            ("10.0.0.0/33", None),
            ("example", None),
            ("", None),
        ] {
            assert_eq!(network(text).as_deref(), expected, "{text}");
        }
    }
}
