//! Routes with their limits, guards and upstreams, in the order in which Kong tries them.

use super::{
    access::{Access, Reader},
    auth::Auth,
    backends::{Backend, Backends},
    file::{Asked, File, Plugin, Route},
    identity::Identity,
    limit::{Charged, KINDS, Limits},
    matching::{Matching, matchings},
    tell_of_rest,
    tiers::Tiers,
    trial::Trial,
};
use crate::{draft::EVERYBODY, flow::Flow, names::Names, report::Report};

/// What routes are made of.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) limits: Limits,
    pub(super) identity: Identity,
    pub(super) backends: Backends,
}

/// A route to be.
struct Planned<'f, 'd> {
    route: &'f Route<'d>,
    matching: Matching,
    access: Access,
    charged: Vec<Charged>,
    backend: Backend,
}

/// Fields of routes that are read, or say nothing of requests.
const KNOWN: &str = "name id tags created_at updated_at service plugins filter_chains protocols \
    methods hosts paths headers snis sources destinations expression priority regex_priority \
    strip_path preserve_host path_handling https_redirect_status_code request_buffering \
    response_buffering ws_id _comment";

/// The routes of a policy, with what its tests try.
pub(super) fn routes<'d>(
    (file, instead): (&File<'d>, Option<&str>),
    tiers: &Tiers,
    parts: &mut Parts,
    report: &mut Report,
) -> (Vec<Flow>, Vec<Trial>) {
    let mut planned: Vec<Planned<'_, 'd>> = Vec::new();
    let mut used = vec![false; file.plugins.len()];
    for at in 0..file.routes.len() {
        let Some(route) = file.routes.get(at).filter(|route| is_served(route, file, report)) else {
            continue;
        };
        let matchings = matchings(route);
        if matchings.is_empty() {
            let here = "no route: it has no condition, so Kong refuses it";
            report.left_out(route.own.section.place(), format!("route {}", route.own.name), here);
        }
        let asked = Asked { route: at, service: route.service, consumer: None };
        let reader = Reader { file, asked, identity: &mut parts.identity, report };
        let mut access = reader.access();
        note_used(&mut used, (file, asked, &access.auth), tiers);
        let charged = parts.limits.charge((file, asked, &access.auth), tiers, report);
        let charged = charged.unwrap_or_else(|why| {
            close(route, &format!("of its limits: {why}"), &mut access, report);
            Vec::new()
        });
        let backend = parts.backends.of(route.service, (file, instead), report);
        if route.is_lost {
            close(route, "its service is not in the files", &mut access, report);
        } else if let Some(why) = &backend.closed {
            close(route, why, &mut access, report);
        }
        let what = format!("route {}", route.own.name);
        tell_of_rest(route.own.section, (&what, "these fields are not known"), KNOWN, report);
        if route.own.section.text("path_handling").as_deref() == Some("v1") {
            let here = "slashes between the two paths are those of v0";
            report.nearly(route.own.section.place(), format!("{what}: path_handling v1"), here);
        }
        let charged = &charged;
        planned.extend(matchings.into_iter().map(|matching| Planned {
            route,
            matching,
            access: access.clone(),
            charged: charged.clone(),
            backend: backend.clone(),
        }));
    }
    keep_fields(&mut planned, &parts.identity, report);
    // Which one of a rank is first is not certain there: here the stricter one is.
    planned.sort_by_key(|own| (own.matching.rank, !own.access.refuses(), own.charged.is_empty()));
    tell_of_unused(file, &used, report);
    written(&planned, report)
}

/// Whether requests of HTTP reach it at all.
fn is_served(route: &Route<'_>, file: &File<'_>, report: &mut Report) -> bool {
    let there = format!("route {}", route.own.name);
    let service = route.service.and_then(|at| file.services.get(at));
    if service.is_some_and(|own| own.section.text("enabled").as_deref() == Some("false")) {
        report.same(route.own.section.place(), there, "no route: its service is not enabled");
        return false;
    }
    let protocols = route.own.section.texts("protocols");
    let is_http = |own: &String| ["http", "https", "grpc", "grpcs", "ws", "wss"].contains(&&**own);
    if !protocols.is_empty() && !protocols.iter().any(is_http) {
        report.left_out(route.own.section.place(), there, "no route: only HTTP is limited here");
        return false;
    }
    let is_plain = |own: &String| ["http", "grpc", "ws"].contains(&&**own);
    if !protocols.is_empty() && !protocols.iter().any(is_plain) {
        let here =
            "taken at all listeners: serve it by TLS alone, see `tls` and `redirect` of listeners";
        report.left_out(route.own.section.place(), format!("{there}: only https"), here);
    }
    let is_any = |own: &String| own == "http" || own == "https";
    if !protocols.is_empty() && !protocols.iter().any(is_any) {
        let here = "looser: any request takes it, and not only gRPC or WebSocket";
        let there = format!("{there}: protocols {}", protocols.join(", "));
        report.left_out(route.own.section.place(), there, here);
    }
    true
}

/// Takes the fields of credentials out of those that are removed: keys never go on.
fn keep_fields(planned: &mut [Planned<'_, '_>], identity: &Identity, report: &mut Report) {
    for own in planned {
        let Planned { route, access, .. } = own;
        access.remove.retain(|name| {
            let is_kept = identity.has_field(name);
            if is_kept {
                let there = format!("route {}: {name} is removed", route.own.name);
                let here = "not removed: it is for credentials; a key never goes on, a token does";
                report.left_out(route.own.section.place(), there, here);
            }
            !is_kept
        });
    }
}

fn close(route: &Route<'_>, why: &str, access: &mut Access, report: &mut Report) {
    let there = format!("route {}", route.own.name);
    let here = format!("{why}: its routes are closed (deny)");
    report.left_out(route.own.section.place(), there.clone(), here);
    access.closed.push(format!("{there}: {why}"));
}

/// Notes the plugins that are in force on a route for some of those who ask.
fn note_used<'d>(
    used: &mut [bool],
    (file, asked, auth): (&File<'d>, Asked<'_, 'd>, &Auth),
    tiers: &Tiers,
) {
    let mut mark = |kind: &str, consumer| {
        let number = file.effective(kind, Asked { consumer, ..asked }).map(|(number, _)| number);
        if let Some(own) = number.and_then(|number| used.get_mut(number)) {
            *own = true;
        }
    };
    for kind in KINDS {
        let known = tiers.consumers(auth).filter(|_| auth.is_some());
        known.chain([None]).for_each(|at| mark(kind, at.and_then(|at| file.consumer(at))));
    }
    let is_other = |own: &&Plugin<'d>| !KINDS.contains(&own.kind.as_str());
    let on = |own: &&Plugin<'d>| own.scope.is_on(asked);
    for own in file.plugins.iter().filter(is_other).filter(on).filter(|own| !own.is_personal()) {
        mark(&own.kind, None);
    }
    for (own, is_used) in file.plugins.iter().zip(used.iter_mut()) {
        *is_used |= auth.is_some() && own.is_personal() && is_other(&own) && on(&own);
    }
}

fn tell_of_unused(file: &File<'_>, used: &[bool], report: &mut Report) {
    for (plugin, is_used) in file.plugins.iter().zip(used) {
        if plugin.is_enabled && !is_used {
            let here = "in force on no route: others replace it, or no route has it";
            report.left_out(plugin.section.place(), plugin.words(file), here);
        }
    }
}

fn written(planned: &[Planned<'_, '_>], report: &mut Report) -> (Vec<Flow>, Vec<Trial>) {
    let (mut routes, mut trials) = (Vec::new(), Vec::<Trial>::new());
    let mut names = Names::default();
    for (at, own) in planned.iter().enumerate() {
        let Planned { route, matching, access, charged, .. } = own;
        let place = route.own.section.place();
        let there = format!("route {}: {}", route.own.name, conditions(matching));
        let behind = planned.get(at + 1..).unwrap_or_default();
        let mut reasons = access.closed.clone();
        if !matching.unwritten.is_empty() {
            let why = format!("{} has no counterpart", matching.unwritten.join(" and "));
            if let Some(falls) = falls(own, behind) {
                report.left_out(place, there, format!("no route, as {why}: {falls}"));
                continue;
            }
            let here = format!(
                "{why}: the route is for all of `{}`, and closed (deny), as the routes below it \
                 may have neither its limits nor what refuses",
                matching.flow()
            );
            report.left_out(place.clone(), there.clone(), here);
            reasons.push(format!("route {}: {why}", route.own.name));
        }
        let is_stripped = route.own.section.text("strip_path").as_deref() != Some("false");
        if is_stripped && matching.path.prefix.is_none() {
            let why = "strip_path takes off what the expression takes, which nothing here does";
            report.left_out(place.clone(), there.clone(), format!("{why}: it is closed (deny)"));
            reasons.push(format!("route {}: {why}", route.own.name));
        }
        for why in &reasons {
            report.ask(format!(
                "routes are closed with `deny`, because of {why}. Write what lets the right \
                 requests through, and remove `deny`."
            ));
        }
        let closed = !reasons.is_empty();
        let above = planned.get(..at).unwrap_or_default();
        let differences = differences(own, above, is_stripped && !closed);
        match (matching.unwritten.is_empty(), differences.is_empty()) {
            (false, _) => {}
            (_, true) => report.same(place, there, format!("match: {}", matching.flow())),
            (_, false) => {
                let here = format!("match: {}: {}", matching.flow(), differences.join("; "));
                report.nearly(place, there, here);
            }
        }
        let name = names.take(&route.own.name);
        trials.push(Trial::of(&name, matching, (access, closed), charged, &trials));
        routes.push(flow(own, (&name, closed), is_stripped));
    }
    (routes, trials)
}

/// How a route differs from what is written there.
fn differences(own: &Planned<'_, '_>, above: &[Planned<'_, '_>], is_stripped: bool) -> Vec<String> {
    let matching = &own.matching;
    let mut found = matching.differences.clone();
    let is_tie = |other: &&Planned<'_, '_>| {
        other.matching.rank == matching.rank
            && other.matching.may_meet(matching)
            && !std::ptr::eq(other.route, own.route)
    };
    let differs = |other: &Planned<'_, '_>| {
        (&other.access, &other.charged) != (&own.access, &own.charged)
            || other.matching.flow() == matching.flow()
    };
    if let Some(other) = above.iter().filter(is_tie).find(|other| differs(other)) {
        found.push(format!(
            "requests may be for route {}, too; which one is first there is not certain, here the \
             one that refuses or limits, or comes first in the files",
            other.route.own.name
        ));
    }
    if is_stripped && matching.path.text.ends_with("*/**") {
        found.push("the prefix is taken off where it is whole segments".to_owned());
    }
    found
}

/// Why its requests may go to the routes behind it, if they may.
fn falls(own: &Planned<'_, '_>, behind: &[Planned<'_, '_>]) -> Option<&'static str> {
    if !own.access.refuses() && own.charged.is_empty() {
        return Some("its requests go to the routes below it, or get 404");
    }
    let is_alike = |other: &Planned<'_, '_>| {
        let guard = Access { cors: own.access.cors.clone(), ..other.access.clone() };
        guard == own.access && other.charged == own.charged
    };
    let is_open = own.access.closed.is_empty();
    (is_open && behind.iter().all(is_alike))
        .then_some("its requests go to the routes below it, which have the same limits, or get 404")
}

/// Its conditions in words.
fn conditions(matching: &Matching) -> String {
    let mut words = vec![matching.flow().to_string()];
    words.extend(matching.unwritten.iter().cloned());
    words.join(" and ")
}

fn flow(own: &Planned<'_, '_>, (name, is_closed): (&str, bool), is_stripped: bool) -> Flow {
    let Planned { route, matching, access, charged, backend } = own;
    let mut flow = Flow::fields([
        ("name", name.into()),
        ("match", matching.flow()),
        ("auth", access.auth.flow()),
    ]);
    if !access.allow.is_empty() {
        flow = flow.with("allow", Flow::list(access.allow.iter().cloned()));
    }
    if is_closed {
        flow = flow.with("deny", Flow::list(EVERYBODY));
    } else if !access.deny.is_empty() {
        flow = flow.with("deny", Flow::list(access.deny.iter().cloned()));
    }
    flow = flow.with("limits", Flow::list(charged.iter().map(|own| own.name.clone())));
    let prefix = matching.path.prefix.as_ref().filter(|own| is_stripped && !own.is_empty());
    for (field, value) in [("strip_prefix", prefix), ("add_prefix", backend.prefix.as_ref())] {
        if let Some(value) = value {
            flow = flow.with(field, value.as_str());
        }
    }
    if let Some(bytes) = access.max_body {
        flow = flow.with("max_body", bytes);
    }
    if let Some(cors) = &access.cors {
        flow = flow.with("cors", cors.clone());
    }
    let mut headers = Flow::fields([]);
    let has_own = !route.own.section.is_true("preserve_host");
    if let Some(host) = backend.host.as_ref().filter(|_| has_own) {
        headers = headers.with("set", Flow::fields([("host", host.as_str().into())]));
    }
    if !access.remove.is_empty() {
        headers = headers.with("remove", Flow::list(access.remove.iter().cloned()));
    }
    if headers != Flow::fields([]) {
        flow = flow.with("request_headers", headers);
    }
    flow.with("upstream", backend.name.as_str())
}
