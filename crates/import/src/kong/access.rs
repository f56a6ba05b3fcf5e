//! Who may use a route: authentication, groups, addresses, and whatever else refuses.

mod effects;

use super::{
    auth::Auth,
    file::{Asked, Consumer, File, Plugin},
    identity::{Identity, is_template},
    limit::KINDS,
    others,
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
const TOLD: [&str; 7] = [
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
        for kind in kinds {
            if ![JWT, KEYS, "acl"].contains(&kind) && !KINDS.contains(&kind) {
                self.take(kind, &mut access);
            }
        }
        if access.auth.is_some() {
            access.remove.extend(TOLD.map(str::to_owned));
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
        let acl = file.effective("acl", self.asked).map(|(_, own)| own);
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
        let may = |at: usize| acl.is_none_or(|acl| is_in(file.consumers.get(at), acl));
        if let Some(acl) = acl {
            self.tell_of_groups(acl, &names, access);
            names.retain(|(at, _)| at.is_none_or(may));
        }
        if names.is_empty() && access.closed.is_empty() {
            self.close(plugin, "no consumer in the files has a credential that passes", access);
        }
        let is_open = |at: &Option<usize>| at.is_some_and(|at| may(at) && !self.is_terminated(at));
        let is_optional = !anonymous.is_empty() && anonymous.iter().all(is_open);
        let names = names.into_iter().map(|(_, name)| name).collect();
        access.auth = Auth { names, is_optional };
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
        let texts = ["allow", "deny", "whitelist", "blacklist"].map(|name| acl.config.texts(name));
        let groups = self.file.consumers.iter().flat_map(|own| &own.acls);
        if texts.iter().flatten().chain(groups).any(|group| is_template(group)) {
            return self.close(acl, "a group is filled in by a program", access);
        }
        let has_keys = names.iter().any(|(at, _)| at.is_none());
        let mut holders = self.file.consumers.iter().filter(|own| !own.keys.is_empty()).peekable();
        let is_known = holders.peek().is_some();
        if has_keys && !(is_known && holders.all(|own| is_in(Some(own), acl))) {
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

    /// Takes what the plugins of one kind do.
    fn take(&mut self, kind: &str, access: &mut Access) {
        let file = self.file;
        let all = file.plugins.iter();
        let on =
            |own: &&Plugin<'d>| own.is_enabled && own.kind == kind && own.scope.is_on(self.asked);
        let personal: Vec<&Plugin<'d>> = all.filter(on).filter(|own| own.is_personal()).collect();
        let is_asked = access.auth.is_some() && others::refuses(kind);
        for plugin in personal.into_iter().filter(|_| is_asked) {
            let is_way = |at: usize| file.is_anonymous(at) && self.is_terminated(at);
            match kind == TERMINATION && plugin.scope.consumer.is_some_and(is_way) {
                true => self.report.same(
                    plugin.section.place(),
                    plugin.words(file),
                    "`auth: required` of the routes",
                ),
                false => self.close(plugin, "it refuses some consumers only", access),
            }
        }
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

/// Whether a consumer passes the groups of an acl.
fn is_in(consumer: Option<&Consumer<'_>>, acl: &Plugin<'_>) -> bool {
    let list = |names: [&str; 2]| names.map(|name| acl.config.texts(name)).concat();
    let (allow, deny) = (list(["allow", "whitelist"]), list(["deny", "blacklist"]));
    let acls = consumer.map(|own| own.acls.as_slice()).unwrap_or_default();
    let is_one = |groups: &[String]| acls.iter().any(|group| groups.contains(group));
    if deny.is_empty() { is_one(&allow) } else { !is_one(&deny) }
}
