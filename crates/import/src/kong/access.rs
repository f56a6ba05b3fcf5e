//! Who may use a route: authentication, groups, addresses, and whatever else refuses.

mod effects;

use super::{
    auth::Auth,
    file::{Asked, Consumer, File, Plugin},
    identity::Identity,
    limit::KINDS,
    others,
    tiers::has_credentials,
    values::{is_flat, is_template},
};
use crate::{flow::Flow, report::Report};

/// What is in force on a route, beside limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) auth: Auth,
    pub(super) allow: Vec<String>,
    pub(super) deny: Vec<String>,
    pub(super) max_body: Option<u64>,
    pub(super) cors: Option<Flow>,
    /// Header fields that are taken out of requests.
    pub(super) remove: Vec<String>,
    /// Why no request may pass.
    pub(super) closed: Vec<String>,
}

/// Fields in which Kong tells the upstream who asks; a client's own never get there.
const CONSUMER_FIELDS: [&str; 7] = [
    "x-consumer-id",
    "x-consumer-custom-id",
    "x-consumer-username",
    "x-consumer-groups",
    "x-credential-identifier",
    "x-anonymous-consumer",
    "x-authenticated-groups",
];
const JWT: &str = "jwt";
const KEYS: &str = "key-auth";
const ACL: &str = "acl";
const TERMINATION: &str = "request-termination";

/// What a plugin that asks who it is lets pass.
struct Way {
    /// Issuers, or `api_keys`, with those who have them.
    names: Vec<(Option<usize>, String)>,
    /// Who asks without credentials. None: nobody may.
    anonymous: Option<usize>,
}

/// Reads the plugins of one route.
pub(super) struct Reader<'r, 'f, 'd> {
    pub(super) file: &'f File<'d>,
    pub(super) asked: Asked<'f, 'd>,
    pub(super) identity: &'r mut Identity,
    pub(super) report: &'r mut Report,
}

impl Access {
    /// Whether some requests are refused.
    pub(super) fn refuses(&self) -> bool {
        self.auth.is_some()
            || self.max_body.is_some()
            || [&self.allow, &self.deny, &self.closed].iter().any(|list| !list.is_empty())
    }
}

impl<'f, 'd> Reader<'_, 'f, 'd> {
    pub(super) fn access(mut self) -> Access {
        let mut access = Access::default();
        self.authenticate(&mut access);
        let mut kinds: Vec<&'f str> = Vec::new();
        for plugin in self.file.plugins.iter().filter(|own| own.is_enabled) {
            if plugin.scope.is_on(self.asked) && !kinds.contains(&plugin.kind.as_str()) {
                kinds.push(&plugin.kind);
            }
        }
        for kind in kinds.into_iter().filter(|kind| !KINDS.contains(kind)) {
            self.take_personal(kind, &mut access);
            if ![JWT, KEYS, ACL].contains(&kind) {
                self.take(kind, &mut access);
            }
        }
        if access.auth.is_some() {
            access.remove.retain(|name| !CONSUMER_FIELDS.contains(&name.as_str()));
            access.remove.extend(CONSUMER_FIELDS.map(str::to_owned));
        }
        access
    }

    fn close(&mut self, plugin: &Plugin<'d>, why: &str, access: &mut Access) {
        let there = plugin.words(self.file);
        let here = format!("{why}: its routes are closed (deny)");
        self.report.left_out(plugin.section.place(), there.clone(), here);
        access.closed.push(format!("{there}: {why}"));
    }

    fn authenticate(&mut self, access: &mut Access) {
        let file = self.file;
        let acl = file.effective(ACL, self.asked).map(|(_, own)| own);
        let mut ways: Vec<Way> = Vec::new();
        let mut last = None;
        for kind in [JWT, KEYS] {
            let Some((_, plugin)) = file.effective(kind, self.asked) else { continue };
            last = Some(plugin);
            match self.way(plugin) {
                Ok(way) => ways.push(way),
                Err(why) => self.close(plugin, &why, access),
            }
        }
        let Some(plugin) = last else {
            if let Some(acl) = acl {
                let why = "without `jwt` or `key-auth` nobody is known to be in a group";
                self.close(acl, why, access);
            }
            return;
        };
        if ways.len() > 1 && ways.iter().any(|way| way.anonymous.is_none()) {
            let why = "both `jwt` and `key-auth` are needed, and a request here has one credential";
            self.close(plugin, why, access);
        }
        let anonymous: Vec<Option<usize>> = ways.iter().map(|way| way.anonymous).collect();
        let mut names: Vec<(Option<usize>, String)> =
            ways.into_iter().flat_map(|way| way.names).collect();
        let may = |at: usize| acl.is_none_or(|acl| is_in(file.consumers.get(at), (acl, file)));
        if let Some(acl) = acl {
            self.tell_of_groups(acl, &names, access);
            names.retain(|(at, _)| at.is_none_or(may));
        }
        if names.is_empty() && access.closed.is_empty() {
            self.close(plugin, "no consumer in the files has a credential that passes", access);
        }
        let is_open = |at: &Option<usize>| at.is_some_and(|at| may(at) && !self.is_terminated(at));
        // The last one that finds no credentials says who it is.
        let last = anonymous.last().copied().flatten();
        let anonymous = last.filter(|_| anonymous.iter().all(is_open));
        let names = names.into_iter().map(|(_, name)| name).collect();
        access.auth = Auth { names, anonymous };
    }

    /// Whether requests of this consumer are answered by Kong itself.
    fn is_terminated(&self, consumer: usize) -> bool {
        let asked = Asked { consumer: self.file.consumer(consumer), ..self.asked };
        let own = self.file.effective(TERMINATION, asked);
        own.is_some_and(|(_, own)| !own.config.has("trigger"))
    }

    /// What an authentication lets pass. The error says why its routes are closed.
    fn way(&mut self, plugin: &Plugin<'d>) -> Result<Way, String> {
        let file = self.file;
        let known = if plugin.kind == JWT { others::JWT_OPTIONS } else { others::KEY_OPTIONS };
        if let Some(name) = plugin.config.unknown(known).first() {
            return Err(format!("`{name}` is no option that is known"));
        }
        let anonymous = plugin.config.text("anonymous").filter(|name| !name.is_empty());
        let found = anonymous.as_ref().and_then(|name| file.consumer_named(name));
        let mut here = Vec::new();
        if anonymous.is_some() {
            here.push(match found {
                Some(_) => {
                    "a bad credential is 401, where Kong takes the request for one without any"
                }
                None => "its `anonymous` is not in the files, so credentials are required",
            });
        }
        if plugin.config.is_false("run_on_preflight") {
            here.push("OPTIONS without credentials is 401, unless `cors` answers it");
        }
        let names = if plugin.kind == JWT {
            here.push("`exp` and `nbf` are always checked; the token goes on to the upstream");
            let issuers = self.identity.tokens(plugin, file, self.report)?;
            issuers.into_iter().map(|(at, name)| (Some(at), name)).collect()
        } else {
            here.push("keys are new ones, in a header alone, and never go on to the upstream");
            vec![(None, self.identity.keys(plugin, self.report).to_owned())]
        };
        let here = format!("`auth` of its routes: {}: stricter", here.join("; "));
        self.report.nearly(plugin.section.place(), plugin.words(file), here);
        let told = "X-Consumer-* and X-Credential-Identifier for the upstream";
        let own =
            "X-Tollgate-Caller and X-Tollgate-Subject; a client's own X-Consumer-* are taken out";
        self.report.nearly("all authentication", told, own);
        Ok(Way { names, anonymous: found })
    }

    /// Groups of tokens are those of issuers. A key is known by its file alone, so either all
    /// holders of keys pass, or the route is closed.
    fn tell_of_groups(
        &mut self,
        acl: &Plugin<'d>,
        names: &[(Option<usize>, String)],
        access: &mut Access,
    ) {
        if let Some(why) = unread(acl) {
            return self.close(acl, &why, access);
        }
        let texts = LISTS.map(|name| acl.config.texts(name));
        let groups = self.file.consumers.iter().flat_map(|own| &own.acls);
        if texts.iter().flatten().chain(groups).any(|group| is_template(group)) {
            return self.close(acl, "a group is filled in by a program", access);
        }
        let has_keys = names.iter().any(|(at, _)| at.is_none());
        let mut holders = self.file.consumers.iter().filter(|own| !own.keys.is_empty()).peekable();
        let is_known = holders.peek().is_some();
        if has_keys && !(is_known && holders.all(|own| is_in(Some(own), (acl, self.file)))) {
            let why = "only some holders of keys pass: write tokens for these routes, or keep \
                       them in another policy with a file of their keys";
            return self.close(acl, why, access);
        }
        let here = match has_keys {
            true => "all consumers with keys pass: whoever gets a key later passes, too",
            false => {
                "`auth` of its routes names the issuers of its groups; others get 401, there 403"
            }
        };
        self.report.nearly(acl.section.place(), acl.words(self.file), here);
    }

    /// What the plugins of one kind do for some consumers only, where these are known.
    fn take_personal(&mut self, kind: &str, access: &mut Access) {
        let file = self.file;
        let all = file.plugins.iter().filter(|_| access.auth.is_some());
        let on =
            |own: &&Plugin<'d>| own.is_enabled && own.kind == kind && own.scope.is_on(self.asked);
        let personal: Vec<&Plugin<'d>> = all.filter(on).filter(|own| own.is_personal()).collect();
        for plugin in personal {
            // Nobody can be it by credentials, and without them it is refused.
            let is_nobody = |at: usize| {
                let own = file.consumers.get(at);
                own.is_some_and(|own| !has_credentials(own)) && self.is_terminated(at)
            };
            let (place, there) = (plugin.section.place(), plugin.words(file));
            if kind == TERMINATION && plugin.scope.consumer.is_some_and(is_nobody) {
                self.report.same(place, there, "`auth: required` of the routes");
            } else if others::refuses(kind) {
                self.close(plugin, "it refuses some consumers only", access);
            } else if effects::moves(plugin) {
                let why = "requests of some consumers go to other paths or methods";
                self.close(plugin, why, access);
            } else {
                let here = match others::words(kind) {
                    (here, false) => here,
                    _ => "what it does for some consumers only is not here",
                };
                self.report.left_out(place, there, here);
            }
        }
    }

    /// Takes what the plugins of one kind do for all.
    fn take(&mut self, kind: &str, access: &mut Access) {
        let file = self.file;
        let Some((_, plugin)) = file.effective(kind, self.asked) else { return };
        let taken = match kind {
            "ip-restriction" => effects::addresses(plugin, (file, access), self.report),
            "request-size-limiting" => effects::size(plugin, (file, access), self.report),
            "cors" => effects::cors(plugin, (file, access), self.report),
            "request-transformer" | "request-transformer-advanced" => {
                effects::remove(plugin, (file, access), self.report)
            }
            TERMINATION if plugin.config.has("trigger") => {
                Err("it refuses some requests".to_owned())
            }
            TERMINATION => Err("Kong answers all requests itself; here they get 403".to_owned()),
            _ => self.other(plugin),
        };
        if let Err(why) = taken {
            self.close(plugin, &why, access);
        }
    }

    fn other(&mut self, plugin: &Plugin<'d>) -> Result<(), String> {
        match others::words(&plugin.kind) {
            (here, true) => Err(here.to_owned()),
            (here, false) => {
                self.report.left_out(plugin.section.place(), plugin.words(self.file), here);
                Ok(())
            }
        }
    }
}

/// The lists of an acl.
const LISTS: [&str; 4] = ["allow", "deny", "whitelist", "blacklist"];

/// Why what an acl says is not known, if it is not.
fn unread(acl: &Plugin<'_>) -> Option<String> {
    let config = &acl.config;
    if let Some(name) = config.unknown(others::ACL_OPTIONS).first() {
        return Some(format!("`{name}` is no option that is known"));
    }
    let is_said = |name: &str| config.has(name) && !config.is_false(name);
    if is_said("always_use_authenticated_groups") {
        return Some("groups that other plugins find are not known here".to_owned());
    }
    if is_said("include_consumer_groups") && !config.is_true("include_consumer_groups") {
        return Some("`include_consumer_groups` is neither true nor false".to_owned());
    }
    let is_read = LISTS.iter().all(|name| is_flat(acl, name));
    (!is_read).then(|| "not all of it are names of groups".to_owned())
}

/// Whether a consumer passes the groups of an acl.
fn is_in(consumer: Option<&Consumer<'_>>, (acl, file): (&Plugin<'_>, &File<'_>)) -> bool {
    let list = |names: [&str; 2]| names.map(|name| acl.config.texts(name)).concat();
    let (allow, deny) = (list(["allow", "whitelist"]), list(["deny", "blacklist"]));
    let Some(consumer) = consumer else { return false };
    let joined = consumer.groups.iter().filter_map(|at| file.groups.get(*at));
    let joined = joined.filter(|_| acl.config.is_true("include_consumer_groups"));
    let groups: Vec<&String> =
        consumer.acls.iter().chain(joined.map(|group| &group.name)).collect();
    let is_one = |list: &[String]| groups.iter().any(|group| list.contains(group));
    let is_allowed = if allow.is_empty() { !deny.is_empty() } else { is_one(&allow) };
    is_allowed && !is_one(&deny)
}
