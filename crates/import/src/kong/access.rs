//! Who may use a route: authentication, groups, addresses, and whatever else refuses.

use tollgate_yaml::canonical_network;

use super::{
    file::{Consumer, File},
    identity::{Auth, Identity},
    limit::KINDS,
    others,
    plugins::{Asked, Plugin},
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
        let has_keys = names.iter().any(|(at, _)| at.is_none());
        let mut holders = self.file.consumers.iter().filter(|own| !own.keys.is_empty());
        if has_keys && !holders.all(|own| is_in(Some(own), acl)) {
            let why = "only some holders of keys pass: write tokens for these routes, or keep them in \
                       another policy with a file of their keys";
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
            "ip-restriction" => self.addresses(plugin, access),
            "request-size-limiting" => self.size(plugin, access),
            "cors" => self.cors(plugin, access),
            "request-transformer" | "request-transformer-advanced" => self.remove(plugin, access),
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

    fn addresses(&mut self, plugin: &Plugin<'d>, access: &mut Access) -> Result<(), String> {
        let unknown = plugin.config.unknown("allow deny whitelist blacklist status message");
        let list = |names: [&str; 2]| -> Option<Vec<String>> {
            let texts = names.iter().flat_map(|name| plugin.config.texts(name));
            texts.map(|text| network(&text)).collect()
        };
        let allow = list(["allow", "whitelist"]);
        let (Some(allow), Some(deny), []) = (allow, list(["deny", "blacklist"]), &*unknown) else {
            return Err("not all of it are networks".to_owned());
        };
        if allow.is_empty() && deny.is_empty() {
            return Err("it has no network".to_owned());
        }
        let here =
            "`allow` and `deny` of its routes, by the client's address (`trusted_proxies`); 403";
        self.report.same(plugin.section.place(), plugin.words(self.file), here);
        (access.allow, access.deny) = (allow, deny);
        Ok(())
    }

    fn size(&mut self, plugin: &Plugin<'d>, access: &mut Access) -> Result<(), String> {
        let unit = match plugin.config.text("size_unit").as_deref() {
            Some("bytes") => 1,
            Some("kilobytes") => 1 << 10,
            _ => 1 << 20,
        };
        let size = plugin.config.text("allowed_payload_size").unwrap_or_else(|| "128".to_owned());
        let size: u64 = size.parse().map_err(|_| "its size is no whole number".to_owned())?;
        let bytes = size.saturating_mul(unit);
        let here = format!("max_body: {bytes}, also of bodies without a length: 413");
        self.report.same(plugin.section.place(), plugin.words(self.file), here);
        access.max_body = Some(bytes);
        Ok(())
    }

    fn cors(&mut self, plugin: &Plugin<'d>, access: &mut Access) -> Result<(), String> {
        let config = &plugin.config;
        let mut origins: Vec<String> = Vec::new();
        for own in config.texts("origins").iter().map(|own| as_browsers_write(own)) {
            if !origins.contains(&own) {
                origins.push(own);
            }
        }
        if origins.is_empty() {
            origins.push("*".to_owned());
        }
        let is_any = origins.iter().any(|origin| origin == "*");
        let is_origin = |own: &String| {
            let host = own.split_once("://").map_or("", |(_, host)| host);
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte);
            !host.is_empty() && host.bytes().all(is_name)
        };
        let credentials = config.is_true("credentials");
        let words = plugin.words(self.file);
        if is_any == credentials && is_any || !(is_any || origins.iter().all(is_origin)) {
            let here = "its origins have no counterpart (expressions, or all with credentials): the \
                        upstream decides who may read responses, and preflights are requests";
            self.report.left_out(plugin.section.place(), words, here);
            return Ok(());
        }
        let preflight = if config.is_true("preflight_continue") { "check" } else { "answer" };
        let origins = if is_any { vec!["*".to_owned()] } else { origins };
        let mut cors =
            Flow::fields([("origins", Flow::list(origins)), ("preflight", preflight.into())]);
        if credentials {
            cors = cors.with("credentials", true);
        }
        if preflight == "answer" {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            let is_served = |own: &&str| {
                !own.is_empty() && own.bytes().all(is_name) && !["TRACE", "CONNECT"].contains(own)
            };
            for name in ["methods", "headers"] {
                let texts = config.texts(name).join(",");
                let list: Vec<&str> = texts.split(',').map(str::trim).filter(is_served).collect();
                if !list.is_empty() {
                    cors = cors.with(name, Flow::list(list));
                }
            }
            let age = config.text("max_age").and_then(|age| age.parse::<u64>().ok());
            if let Some(age) = age {
                cors = cors.with("max_age", format!("{}s", age.min(86_400)));
            }
        }
        let here = "cors of its routes; without exposed_headers beyond those of limits";
        self.report.nearly(plugin.section.place(), words, here);
        access.cors = Some(cors);
        Ok(())
    }

    /// What is taken out of requests; the rest of a transformer is only named.
    fn remove(&mut self, plugin: &Plugin<'d>, access: &mut Access) -> Result<(), String> {
        let replace = plugin.config.section("replace");
        if plugin.config.has("http_method") || replace.is_some_and(|own| own.node("uri").is_some())
        {
            return Err("requests go to other paths or methods".to_owned());
        }
        let removed = plugin.config.section("remove").map(|own| own.texts("headers"));
        for name in removed.unwrap_or_default() {
            let name = name.to_ascii_lowercase();
            if !access.remove.contains(&name) && name != "host" {
                access.remove.push(name);
            }
        }
        let here = "`request_headers` of its routes removes what it removes; what it adds, renames or \
                    replaces is not here, so write it into `set`";
        self.report.left_out(plugin.section.place(), plugin.words(self.file), here);
        Ok(())
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

/// An origin without the port that browsers leave out.
fn as_browsers_write(origin: &str) -> String {
    let origin = origin.to_ascii_lowercase();
    let usual = if origin.starts_with("https:") { ":443" } else { ":80" };
    origin.strip_suffix(usual).unwrap_or(&origin).to_owned()
}

/// Whether a consumer passes the groups of an acl.
fn is_in(consumer: Option<&Consumer<'_>>, acl: &Plugin<'_>) -> bool {
    let list = |names: [&str; 2]| names.map(|name| acl.config.texts(name)).concat();
    let (allow, deny) = (list(["allow", "whitelist"]), list(["deny", "blacklist"]));
    let acls = consumer.map(|own| own.acls.as_slice()).unwrap_or_default();
    let is_one = |groups: &[String]| acls.iter().any(|group| groups.contains(group));
    if deny.is_empty() { is_one(&allow) } else { !is_one(&deny) }
}

/// An address or a network as a route has it.
fn network(text: &str) -> Option<String> {
    let network: ipnet::IpNet = match text.parse::<std::net::IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => text.parse().ok()?,
    };
    Some(canonical_network(network.trunc()).to_string())
}
