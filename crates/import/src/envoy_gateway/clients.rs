//! ClientTrafficPolicies: certificates and addresses of clients, and whether they see limits.

use crate::{
    Finding,
    gateway::{
        Listener, Path, Target,
        objects::{Objects, name_rest, targets},
        plan::Plan,
    },
};

/// What ClientTrafficPolicies say of the client's address and of headers. Returns what is closed,
/// as they ask for certificates of clients.
pub(super) fn client_traffic<'r>(
    objects: &Objects<'r>,
    paths: &[Path<'r>],
    plan: &mut Plan<'r>,
) -> Vec<Target<'r>> {
    let mut closed = Vec::new();
    for object in objects.of_kind("ClientTrafficPolicy") {
        let targets = targets(object, objects, &mut plan.report);
        let known = ["targetRef", "targetRefs", "targetSelectors", "headers", "clientIPDetection"];
        name_rest(object, &["spec"], &known, &mut plan.report);
        name_rest(object, &["spec", "headers"], &["disableRateLimitHeaders"], &mut plan.report);
        if let Some(own) = object.at(&["spec", "tls", "clientValidation"]) {
            let message = "certificates of clients are asked for by listeners here: the routes are \
                           closed";
            plan.report.left_out(own.place(), "tls.clientValidation", message);
            plan.report.to_do.push(
                "routes are closed by `deny`, as clients needed certificates there. Ask for them \
                 at the\n\
                 listener (`client_ca_file` in the settings), then remove `deny`."
                    .to_owned(),
            );
            closed.extend(targets.iter().copied());
        }
        if let Some(own) = object.at(&["spec", "clientIPDetection"]) {
            let there = format!("clientIPDetection: {}", own.others(&[]).join(", "));
            let message = "write the networks of the load balancers as `trusted_proxies` into the \
                           settings: until then the client is who connects";
            plan.report.left_out(own.place(), there, message);
            plan.report.to_do.push(
                "write the networks of your load balancers as `trusted_proxies` into \
                 the\nsettings, and no wider ones: whom they hold chooses the address that is \
                 counted."
                    .to_owned(),
            );
        }
        let Some(own) = object.at(&["spec", "headers", "disableRateLimitHeaders"]) else {
            continue;
        };
        if !object.is_true(&["spec", "headers", "disableRateLimitHeaders"]) {
            continue;
        }
        let has = |path: &Path<'r>, listener: &Listener<'r>| {
            targets.iter().any(|target| target.level(path, listener).is_some())
        };
        let is_all = paths.iter().all(|path| path.listeners.iter().all(|own| has(path, own)));
        let there = "disableRateLimitHeaders: true";
        plan.report.add(if is_all {
            plan.headers = "none";
            Finding::same(own.place(), there, "responses: { headers: none }")
        } else {
            let message = "not for all routes in the files, and here headers are on or off for \
                           all: they are on";
            Finding::left_out(own.place(), there, message)
        });
    }
    closed
}
