//! What is in the files: dynamic configurations, static ones, and objects of Kubernetes.

use tollgate_yaml::Problem;

use super::source::Trust;
use crate::{
    manifest::{Resource, namespace_of},
    report::Report,
    section::Section,
};

/// What stands behind the name of an object of Kubernetes: its provider.
const CRD: &str = "@kubernetescrd";

/// All files together.
#[derive(Default)]
pub(super) struct Configuration<'d> {
    pub(super) routers: Vec<Router<'d>>,
    middlewares: Vec<Middleware<'d>>,
    services: Vec<(String, Section<'d>)>,
    /// None: there is no static configuration.
    pub(super) entry_points: Option<Vec<(String, Section<'d>)>>,
    /// Whether rules are of version 2 unless they say otherwise.
    is_old: bool,
    /// TLS options that ask for client certificates.
    client_auth: Vec<String>,
}

/// A middleware; one of Kubernetes has a namespace.
struct Middleware<'d> {
    name: String,
    namespace: Option<String>,
    section: Section<'d>,
}

/// A router, or a route of an IngressRoute.
pub(super) struct Router<'d> {
    pub(super) name: String,
    pub(super) place: String,
    pub(super) rule: String,
    /// As Traefik has it: the length of the rule, if the router says none.
    pub(super) priority: i64,
    /// Empty: all.
    pub(super) entry_points: Vec<String>,
    pub(super) middlewares: Vec<String>,
    pub(super) target: Target<'d>,
    pub(super) is_old: bool,
    /// None: it has no TLS.
    pub(super) tls_options: Option<String>,
    /// Why no request may pass.
    pub(super) closed: Vec<String>,
}

/// Where a router's requests go.
pub(super) enum Target<'d> {
    /// A service of a file.
    Named(String),
    /// Services of Kubernetes, with the namespace of those that name none.
    Kubernetes(String, Vec<Section<'d>>),
}

impl<'d> Configuration<'d> {
    pub(super) fn of(resources: &'d [Resource], report: &mut Report) -> Result<Self, Vec<Problem>> {
        let mut configuration = Configuration::default();
        let mut problems = Vec::new();
        for resource in resources {
            let root = Section::root(&resource.document).of(&resource.node);
            match (resource.kind.as_str(), resource.api_version.as_str()) {
                ("", _) => configuration.take_file(root, report, &mut problems),
                (kind, "traefik.io/v1alpha1" | "traefik.containo.us/v1alpha1") => {
                    configuration.take_object(kind, resource, root, report);
                }
                ("Ingress" | "HTTPRoute" | "GRPCRoute", _) => report.left_out(
                    resource.place(&resource.node),
                    format!("{} {}", resource.kind, resource.name),
                    "only IngressRoutes are read: its requests get 404",
                ),
                // Others are often in the same file.
                _ => {}
            }
        }
        if problems.is_empty() { Ok(configuration) } else { Err(problems) }
    }

    /// A file of the file provider, a static configuration, or both in one.
    fn take_file(&mut self, root: Section<'d>, report: &mut Report, problems: &mut Vec<Problem>) {
        let has = |name: &str| root.node(name).is_some();
        if let Some(core) = root.section("core") {
            self.is_old |=
                core.text("defaultRuleSyntax").is_some_and(|text| text.eq_ignore_ascii_case("v2"));
        }
        if has("entryPoints") || has("providers") {
            let entry_points = self.entry_points.get_or_insert_default();
            entry_points.extend(root.each("entryPoints").map(|(name, own)| (name.to_owned(), own)));
        } else if !["http", "tcp", "udp", "tls"].into_iter().any(has) {
            let (message, help) = match has("services") {
                true => (
                    "labels of containers are not read",
                    "give the dynamic configuration of the file provider, or write their routers \
                     and middlewares as one: `http: { routers: ... }`",
                ),
                false => (
                    "neither `http` nor `entryPoints`: it is no configuration of Traefik",
                    "give the files of the file provider, or manifests with IngressRoutes",
                ),
            };
            problems.push(Problem::whole_file(&root.place(), message, help));
        }
        for other in ["tcp", "udp"].into_iter().filter(|name| has(name)) {
            report.left_out(root.place(), other, "only HTTP is limited here");
        }
        for (name, options) in root.section("tls").iter().flat_map(|tls| tls.each("options")) {
            self.take_tls_options(name.to_owned(), options);
        }
        let Some(http) = root.section("http") else { return };
        for (name, own) in http.each("middlewares") {
            let middleware = Middleware { name: name.to_owned(), namespace: None, section: own };
            self.add_middleware(middleware, report);
        }
        for (name, own) in http.each("services") {
            self.services.push((name.to_owned(), own));
        }
        for (name, own) in http.each("routers") {
            self.take_router(name, own, report);
        }
    }

    fn take_router(&mut self, name: &str, own: Section<'d>, report: &mut Report) {
        if self.routers.iter().any(|router| router.name == name) {
            let here = "the one that comes first is imported, as Traefik does";
            return report.nearly(own.place(), format!("router {name}: another one"), here);
        }
        let known = "entryPoints middlewares service rule ruleSyntax priority tls observability";
        let mut closed: Vec<String> = Vec::new();
        if own.node("parentRefs").is_some() {
            closed.push("`parentRefs`: what the router above it asks for is not read".to_owned());
        } else if let Some(name) = own.others(known).next() {
            closed.push(format!("`{name}` is no option that is known: Traefik refuses the file"));
        }
        let middlewares = own.texts("middlewares");
        let rule = own.text("rule").unwrap_or_default();
        let syntax = own.text("ruleSyntax");
        let router = Router {
            name: name.to_owned(),
            place: own.place(),
            priority: priority(own, &rule, &mut closed),
            entry_points: own.texts("entryPoints"),
            middlewares: middlewares.iter().map(|name| in_file(name)).collect(),
            target: Target::Named(in_file(&own.text("service").unwrap_or_default())),
            is_old: syntax.map_or(self.is_old, |syntax| syntax.eq_ignore_ascii_case("v2")),
            tls_options: own
                .section("tls")
                .map(|tls| in_file(&tls.text("options").unwrap_or(standard()))),
            rule,
            closed,
        };
        self.routers.push(router);
    }

    fn take_object(
        &mut self,
        kind: &str,
        resource: &'d Resource,
        root: Section<'d>,
        report: &mut Report,
    ) {
        let spec = root.section("spec").unwrap_or(root);
        let namespace = namespace_of(&resource.namespace);
        let name = format!("{namespace}-{}{CRD}", resource.name);
        match kind {
            "Middleware" => {
                let namespace = Some(namespace.to_owned());
                self.add_middleware(Middleware { name, namespace, section: spec }, report);
            }
            // One of this name is for all routers that name none, in whichever namespace it is.
            "TLSOption" if resource.name == standard() => self.take_tls_options(standard(), spec),
            "TLSOption" => self.take_tls_options(name, spec),
            "IngressRoute" => {
                let is_old = resource.api_version.contains("containo.us") || self.is_old;
                self.take_ingress_route(&resource.name, namespace, (spec, is_old), report);
            }
            // Certificates, and how servers are reached: a service that needs one is named there.
            "TLSStore" | "ServersTransport" | "ServersTransportTCP" | "TraefikService" => {}
            _ => report.left_out(
                root.place(),
                format!("{kind} {}", resource.name),
                "only HTTP is limited here",
            ),
        }
    }

    fn take_ingress_route(
        &mut self,
        name: &str,
        namespace: &str,
        (spec, is_old): (Section<'d>, bool),
        report: &mut Report,
    ) {
        let routes: Vec<Section<'d>> = spec.items("routes").collect();
        let matches: Vec<String> =
            routes.iter().map(|own| own.text("match").unwrap_or_default()).collect();
        for (at, (own, rule)) in routes.iter().zip(&matches).enumerate() {
            if rule.is_empty() || matches.iter().skip(at + 1).any(|later| later == rule) {
                let there = format!("IngressRoute {name}: a route without a match of its own");
                report.nearly(own.place(), there, "none, as in Traefik");
                continue;
            }
            let mut closed: Vec<String> = Vec::new();
            if spec.node("parentRefs").is_some() {
                closed
                    .push("`parentRefs`: what the router above it asks for is not read".to_owned());
            }
            let syntax = own.text("syntax");
            let middlewares = own.items("middlewares").map(|own| reference(own, namespace));
            let number = if routes.len() > 1 { format!("-{}", at + 1) } else { String::new() };
            let router = Router {
                name: format!("{name}{number}"),
                place: own.place(),
                priority: priority(*own, rule, &mut closed),
                entry_points: spec.texts("entryPoints"),
                middlewares: middlewares.collect(),
                target: Target::Kubernetes(namespace.to_owned(), own.items("services").collect()),
                is_old: syntax.map_or(is_old, |syntax| syntax.eq_ignore_ascii_case("v2")),
                tls_options: spec.section("tls").map(|tls| match tls.section("options") {
                    Some(options) => reference(options, namespace),
                    None => standard(),
                }),
                rule: rule.clone(),
                closed,
            };
            self.routers.push(router);
        }
    }

    /// Whether clients of a router must show certificates.
    pub(super) fn asks_for_certificates(&self, router: &Router<'_>) -> bool {
        let options = router.tls_options.as_ref();
        options.is_some_and(|options| self.client_auth.contains(options))
    }

    fn take_tls_options(&mut self, name: String, options: Section<'d>) {
        if options.node("clientAuth").is_some() {
            self.client_auth.push(name);
        }
    }

    fn add_middleware(&mut self, own: Middleware<'d>, report: &mut Report) {
        if self.middleware(&own.name).is_none() {
            return self.middlewares.push(own);
        }
        let here = "the one that comes first is imported, as Traefik does";
        report.nearly(own.section.place(), format!("middleware {}: another one", own.name), here);
    }

    pub(super) fn middleware(&self, name: &str) -> Option<Section<'d>> {
        self.middlewares.iter().find(|own| own.name == name).map(|own| own.section)
    }

    pub(super) fn service(&self, name: &str) -> Option<Section<'d>> {
        self.services.iter().find(|(own, _)| own == name).map(|(_, section)| *section)
    }

    /// The middlewares that a chain names.
    pub(super) fn references(&self, chain: &str, section: Section<'_>) -> Vec<String> {
        let own = self.middlewares.iter().find(|own| own.name == chain);
        match own.and_then(|own| own.namespace.as_ref()) {
            None => section.texts("middlewares").iter().map(|name| in_file(name)).collect(),
            Some(namespace) => {
                section.items("middlewares").map(|item| reference(item, namespace)).collect()
            }
        }
    }

    /// The middlewares of an entry point, which come before those of its routers.
    pub(super) fn middlewares_of(&self, entry_point: &str) -> Vec<String> {
        let http = self.entry_point(entry_point).and_then(|own| own.section("http"));
        let names = http.map(|http| http.texts("middlewares")).unwrap_or_default();
        names.iter().map(|name| in_file(name)).collect()
    }

    /// Whom an entry point trusts to write `X-Forwarded-For`.
    pub(super) fn trust_of(&self, entry_point: &str) -> Trust {
        let Some(own) = self.entry_point(entry_point) else { return Trust::Unknown };
        let Some(headers) = own.section("forwardedHeaders") else { return Trust::Nobody };
        match headers.texts("trustedIPs") {
            _ if headers.is_true("insecure") => Trust::Everybody,
            peers if peers.is_empty() => Trust::Nobody,
            peers => Trust::These(peers),
        }
    }

    fn entry_point(&self, name: &str) -> Option<Section<'d>> {
        let all = self.entry_points.iter().flatten();
        all.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, section)| *section).next()
    }
}

/// A name as the file provider has it.
fn in_file(name: &str) -> String {
    name.strip_suffix("@file").unwrap_or(name).to_owned()
}

/// The middleware or the options that an object of Kubernetes names.
fn reference(own: Section<'_>, namespace: &str) -> String {
    let name = own.text("name").unwrap_or_default();
    match name.contains('@') {
        true => in_file(&name),
        false => {
            let namespace = own.text("namespace").unwrap_or_else(|| namespace.to_owned());
            format!("{namespace}-{name}{CRD}")
        }
    }
}

/// The TLS options of routers that name none.
fn standard() -> String {
    "default".to_owned()
}

fn priority(own: Section<'_>, rule: &str, closed: &mut Vec<String>) -> i64 {
    match own.number("priority") {
        Ok(priority) => priority.filter(|priority| *priority != 0).unwrap_or(rule.len() as i64),
        Err(why) => {
            closed.push(why);
            rule.len() as i64
        }
    }
}
