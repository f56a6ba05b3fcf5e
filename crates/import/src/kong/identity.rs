//! Who asks: credentials of consumers as issuers of tokens and as API keys.
//!
//! No secret is read: the policy says where its reader has to put it.

pub(super) use super::values::is_template;
use super::{
    file::{File, Plugin},
    tiers::Tiers,
    values::{is_free_field, tell_of_templates},
};
use crate::{flow::Flow, names::Names, report::Report};

/// The file of API keys, beside the policy.
const KEYS: &str = "kong-keys.yaml";
/// Algorithms by secrets, with the bytes that a secret has at least; and those by public keys.
const SECRETS: [(&str, u8); 3] = [("HS256", 32), ("HS384", 48), ("HS512", 64)];
const PUBLIC: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
/// How many consumers a paragraph names.
const SHOWN: usize = 20;

/// All credentials that are in force on some route.
#[derive(Default)]
pub(super) struct Identity {
    names: Names,
    /// None: no route takes tokens.
    issuers: Option<Vec<Issuer>>,
    /// The header of API keys. None: no route takes them.
    header: Option<String>,
    /// Where tokens may be, beside `Authorization`.
    places: Vec<(&'static str, String)>,
}

/// A credential for tokens.
struct Issuer {
    name: String,
    consumer: usize,
    /// What its tokens have as `iss`.
    key: String,
    flow: Flow,
}

/// What any plugin demands of tokens.
struct Demands {
    /// The longest lifetime of a token, in seconds.
    longest: Option<u64>,
    needs_nbf: bool,
}

impl Demands {
    /// An issuer with them.
    fn add_to(&self, issuer: Flow) -> Flow {
        let lifetime = self.longest.map(|seconds| format!("{seconds}s"));
        // Without a value: whatever it is.
        let claims = Flow::fields([("nbf", Flow::Word("null".to_owned()))]);
        issuer
            .with_some("max_lifetime", lifetime)
            .with_some("required_claims", self.needs_nbf.then_some(claims))
    }
}

impl Identity {
    /// Whether credentials come in a header field, in lower case; then no route may remove it.
    pub(super) fn has_field(&self, name: &str) -> bool {
        let mut places = self.places.iter();
        self.header.as_deref() == Some(name)
            || places.any(|(kind, own)| *kind == "header" && own.eq_ignore_ascii_case(name))
    }

    /// The issuers of a route with `jwt`, by their consumers. The error says why it is closed.
    pub(super) fn tokens<'d>(
        &mut self,
        plugin: &Plugin<'d>,
        file: &File<'d>,
        report: &mut Report,
    ) -> Result<Vec<(usize, String)>, String> {
        let config = &plugin.config;
        if let Some(claim) = config.text("key_claim_name").filter(|claim| claim != "iss") {
            return Err(format!(
                "tokens name their key by `{claim}` and not by `iss`: write an issuer, see \
                 \"Tokens without iss\""
            ));
        }
        let parameters = config.texts("uri_param_names");
        let query = if config.has("uri_param_names") { parameters } else { vec!["jwt".to_owned()] };
        let headers = config.texts("header_names").into_iter();
        let is_field = |name: &String| !name.eq_ignore_ascii_case("authorization");
        self.place("query", query, plugin, report);
        self.place("cookie", config.texts("cookie_names"), plugin, report);
        self.place("header", headers.filter(is_field).collect(), plugin, report);
        let is_other = |own: &&Plugin<'d>| own.is_enabled && own.kind == plugin.kind;
        let others = file.plugins.iter().filter(is_other);
        let is_base64 = plugin.config.is_true("secret_is_base64");
        if others.clone().any(|own| own.config.is_true("secret_is_base64") != is_base64) {
            return Err("plugins differ in `secret_is_base64`: write its issuers".to_owned());
        }
        let mut verified = others.clone().flat_map(|own| own.config.texts("claims_to_verify"));
        let needs_nbf = verified.any(|claim| claim != "exp");
        if needs_nbf && !config.texts("claims_to_verify").iter().any(|claim| claim != "exp") {
            let here = "tokens need `nbf`, as other plugins verify it: stricter";
            report.nearly(plugin.section.place(), plugin.words(file), here);
        }
        tell_of_templates(plugin, file, &[("secret_is_base64", "`false`")], report);
        if self.issuers.is_none() {
            let seconds = others.filter_map(|own| own.config.text("maximum_expiration"));
            let longest =
                seconds.map(|text| text.parse().map_err(|_| text)).filter(|own| *own != Ok(0));
            let longest: Result<Vec<u64>, String> = longest.collect();
            let longest = longest.map_err(|_| "`maximum_expiration` is no whole number")?;
            let own = Demands { longest: longest.into_iter().min(), needs_nbf };
            self.issuers = Some(self.read(file, (is_base64, &own), report));
        }
        let issuers = self.issuers.iter().flatten();
        Ok(issuers.map(|own| (own.consumer, own.name.clone())).collect())
    }

    /// Where a credential may be: a policy has one place of each kind.
    fn place(
        &mut self,
        kind: &'static str,
        names: Vec<String>,
        plugin: &Plugin<'_>,
        report: &mut Report,
    ) {
        for name in names {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            let is_name = match kind {
                "header" => is_free_field(&name.to_ascii_lowercase()),
                _ => !name.is_empty() && name.bytes().all(is_plain),
            };
            match self.places.iter().find(|(own, _)| *own == kind) {
                None if is_name => self.places.push((kind, name)),
                None => {
                    let there = format!("tokens in {kind} {name}");
                    let here = "not read: no name that a policy can have";
                    report.left_out(plugin.section.place(), there, here);
                }
                Some((_, own)) if *own == name => {}
                Some((_, own)) => {
                    let here = format!("not read: a policy has one {kind} of tokens, {own}");
                    let there = format!("tokens in {kind} {name}");
                    report.left_out(plugin.section.place(), there, here);
                }
            }
        }
    }

    /// The issuers of all consumers.
    fn read(
        &mut self,
        file: &File<'_>,
        (is_base64, demands): (bool, &Demands),
        report: &mut Report,
    ) -> Vec<Issuer> {
        // What routes call other sources.
        for name in ["api_keys", "introspection", "any", "none"] {
            self.names.take(name);
        }
        let mut issuers: Vec<Issuer> = Vec::new();
        for (consumer, own) in file.consumers.iter().enumerate() {
            for section in &own.tokens {
                let there = format!("jwt_secret of consumer {}", own.own.name);
                let algorithm = section.text("algorithm").unwrap_or_else(|| "HS256".to_owned());
                let key = section.text("key").filter(|key| {
                    let is_known = !key.is_empty() && !is_template(key);
                    is_known && !issuers.iter().any(|other| other.key == *key)
                });
                let name = self.names.take(&own.own.name);
                let (Some(key), Some(source)) = (key, source(&name, &algorithm, is_base64)) else {
                    let here = "no issuer here: its `key` is missing, filled in or there already, \
                                or its algorithm is not known: its tokens are 401";
                    report.left_out(section.place(), there, here);
                    continue;
                };
                let (field, value, what) = source;
                report.ask(format!("give {what} of {there} ({}).", section.place()));
                let here = format!(
                    "issuer {name}, with its key from `{value}`: a caller, so a consumer with N \
                     credentials has N counters"
                );
                report.nearly(section.place(), there, here);
                let flow = demands.add_to(Flow::fields([
                    ("name", name.as_str().into()),
                    ("issuer", key.as_str().into()),
                    (field, value.into()),
                    ("algorithms", Flow::list([algorithm])),
                    ("any_audience", true.into()),
                ]));
                issuers.push(Issuer { name, consumer, key, flow });
            }
        }
        issuers
    }

    /// The source of a route with `key-auth`.
    pub(super) fn keys(&mut self, plugin: &Plugin<'_>, report: &mut Report) -> &'static str {
        let names = plugin.config.texts("key_names");
        // Fields with an underscore never get through here.
        let usable = names.iter().map(|name| name.to_ascii_lowercase().replace('_', "-"));
        let header = usable.into_iter().find(|name| is_free_field(name));
        let header = header.unwrap_or_else(|| "apikey".to_owned());
        let own = self.header.get_or_insert_with(|| header.clone());
        if *own != header || names.iter().any(|name| !name.eq_ignore_ascii_case(own)) {
            let there = format!("key-auth: key_names {}", names.join(", "));
            let here = format!("header `{own}` alone: keys elsewhere are not read: stricter");
            report.nearly(plugin.section.place(), there, here);
        }
        "api_keys"
    }

    /// The section of the policy.
    pub(super) fn section(
        &self,
        file: &File<'_>,
        tiers: &Tiers,
        report: &mut Report,
    ) -> Option<Flow> {
        let mut fields = Flow::fields([]);
        let mut callers = Vec::new();
        let issuers = self.issuers.as_deref().unwrap_or_default();
        if !issuers.is_empty() {
            let list = issuers.iter().map(|own| own.flow.clone()).collect();
            let values: Vec<(usize, String)> =
                issuers.iter().map(|own| (own.consumer, own.key.clone())).collect();
            callers.push(tiers.caller("token", "jwt.iss", &values));
            fields = fields.with("jwt", Flow::List(list));
        }
        if let Some(header) = &self.header {
            let keys = Flow::fields([("file", KEYS.into()), ("header", header.as_str().into())]);
            fields = fields.with("api_keys", keys);
            let own = file.consumers.iter().enumerate();
            let own = own.filter(|(_, own)| !own.keys.is_empty() && !own.own.name.is_empty());
            let values: Vec<(usize, String)> =
                own.map(|(at, own)| (at, own.own.name.clone())).collect();
            ask_for_keys(&values, report);
            callers.push(tiers.caller("consumer", "api_key.owner", &values));
        }
        if !issuers.is_empty() {
            let mut token = Flow::fields([("forward", true.into())]);
            for (kind, name) in &self.places {
                let is_for_keys = *kind == "header"
                    && self.header.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(name));
                if is_for_keys {
                    let here = "not read: API keys come in this header";
                    report.left_out("all authentication", format!("tokens in header {name}"), here);
                    continue;
                }
                token = token.with(kind, name.as_str());
            }
            fields = fields.with("token", token);
        }
        let is_some = !callers.is_empty();
        fields = fields.with("callers", Flow::List(callers));
        // Issuers differ in `iss`, so one name is one consumer.
        if issuers.len() > 1 || (!issuers.is_empty() && self.header.is_some()) {
            fields = fields.with("shared_subjects", true);
        }
        is_some.then_some(fields)
    }

    /// A token for tests, of a consumer without limits of its own.
    pub(super) fn sample(&self, names: &[String], tiers: &Tiers) -> Option<Flow> {
        let is_usual = |own: &&Issuer| names.contains(&own.name) && tiers.is_standard(own.consumer);
        let own = self.issuers.iter().flatten().find(is_usual)?;
        Some(Flow::fields([("iss", own.key.as_str().into()), ("sub", "test".into())]))
    }
}

/// Where the key of an issuer is: the field, its value, and what its reader has to put there.
fn source(name: &str, algorithm: &str, is_base64: bool) -> Option<(&'static str, String, String)> {
    let secret = SECRETS.iter().find(|(own, _)| *own == algorithm);
    let variable = format!("KONG_JWT_{}", name.to_ascii_uppercase().replace('-', "_"));
    let (pem, file) = (format!("kong-{name}.pem"), format!("kong-{name}.secret"));
    let beside = |file: &str| format!("the file `{file}`, beside the policy,");
    match (secret, is_base64) {
        (Some(_), true) => {
            let what = format!("{} the decoded `secret`", beside(&file));
            Some(("secret_file", file, what))
        }
        (Some((_, bytes)), false) => {
            let what = format!(
                "the environment variable `{variable}` the `secret`, of {bytes} bytes or more,"
            );
            Some(("secret_env", variable, what))
        }
        (None, _) => PUBLIC.contains(&algorithm).then(|| {
            let what = format!("{} the `rsa_public_key`", beside(&pem));
            ("public_key_file", pem, what)
        }),
    }
}

/// Says how to make keys for consumers.
fn ask_for_keys(consumers: &[(usize, String)], report: &mut Report) {
    let mut ids = Names::default();
    let commands = consumers.iter().take(SHOWN).map(|(_, name)| {
        let (id, owner) = (ids.take(name), shell_quoted(name));
        let owner = owner.unwrap_or_else(|| "NAME".to_owned());
        format!("\n    tollgate key --id {id} --owner {owner} --append {KEYS}")
    });
    let more = match consumers.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("\n    and so on for {more} more consumers"),
    };
    let mut commands = commands.collect::<String>();
    if commands.is_empty() {
        commands = format!("\n    tollgate key --id NAME --owner NAME --append {KEYS}");
    }
    report.ask(format!(
        "make a key for each consumer, beside the policy, and give it to its client. Keys of Kong \
         do not have the form `ID.SECRET`, so they are not carried over:{commands}{more}"
    ));
}

/// A name in the quotes of a shell; none if it has what a comment of one line has not.
fn shell_quoted(name: &str) -> Option<String> {
    let is_plain = !name.contains(char::is_control);
    is_plain.then(|| format!("'{}'", name.replace('\'', "'\\''")))
}
