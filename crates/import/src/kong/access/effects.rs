//! What single plugins do to a route: addresses, sizes, origins and header fields. An error says
//! why its routes are closed.

use tollgate_yaml::canonical_network;

use super::{
    super::{
        file::{File, Plugin},
        values::{is_field, is_flat, is_template, tell_of_templates},
    },
    Access,
};
use crate::{flow::Flow, report::Report};

/// The largest number that a policy can have.
const MAX_BODY: u64 = i64::MAX as u64;

pub(super) fn addresses(
    plugin: &Plugin<'_>,
    (file, access): (&File<'_>, &mut Access),
    report: &mut Report,
) -> Result<(), String> {
    let unknown = plugin.config.unknown("allow deny whitelist blacklist status message");
    let list = |names: [&str; 2]| -> Option<Vec<String>> {
        let texts = names.iter().flat_map(|name| plugin.config.texts(name));
        texts.map(|text| network(&text)).collect()
    };
    let allow = list(["allow", "whitelist"]);
    let (Some(allow), Some(deny), []) = (allow, list(["deny", "blacklist"]), &*unknown) else {
        return Err("not all of it are networks".to_owned());
    };
    if !["allow", "whitelist", "deny", "blacklist"].iter().all(|name| is_flat(plugin, name)) {
        return Err("not all of it are networks".to_owned());
    }
    if allow.is_empty() && deny.is_empty() {
        return Err("it has no network".to_owned());
    }
    let here = "`allow` and `deny` of its routes, by the client's address (`trusted_proxies`); 403";
    report.same(plugin.section.place(), plugin.words(file), here);
    (access.allow, access.deny) = (allow, deny);
    Ok(())
}

pub(super) fn size(
    plugin: &Plugin<'_>,
    (file, access): (&File<'_>, &mut Access),
    report: &mut Report,
) -> Result<(), String> {
    let known = "allowed_payload_size size_unit require_content_length";
    if let Some(name) = plugin.config.unknown(known).first() {
        return Err(format!("`{name}` is no option that is known"));
    }
    let unit = match plugin.config.text("size_unit").as_deref() {
        None | Some("megabytes") => 1 << 20,
        Some("kilobytes") => 1 << 10,
        _ => 1,
    };
    tell_of_templates(plugin, file, &[("size_unit", "`bytes`")], report);
    let size = plugin.config.text("allowed_payload_size").unwrap_or_else(|| "128".to_owned());
    let size: u64 = size.parse().map_err(|_| "its size is no whole number".to_owned())?;
    let bytes = size.saturating_mul(unit).min(MAX_BODY);
    let here = format!("max_body: {bytes}, also of bodies without a length: 413");
    report.same(plugin.section.place(), plugin.words(file), here);
    let name = "require_content_length";
    if plugin.config.has(name) && !plugin.config.is_false(name) {
        let there = format!("{}: {name}", plugin.words(file));
        let here = "looser: a request without Content-Length passes, up to `max_body`; there 411";
        report.nearly(plugin.section.place(), there, here);
    }
    access.max_body = Some(bytes);
    Ok(())
}

const CORS_OPTIONS: &str = "origins methods headers exposed_headers credentials max_age \
    preflight_continue private_network allow_origin_absent";
/// Options of cors with what is taken where a program fills them in.
const CORS_TAKEN: [(&str, &str); 3] =
    [("credentials", "`false`"), ("preflight_continue", "`false`"), ("max_age", "none")];

pub(super) fn cors(
    plugin: &Plugin<'_>,
    (file, access): (&File<'_>, &mut Access),
    report: &mut Report,
) -> Result<(), String> {
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
    let credentials = config.is_true("credentials");
    for name in config.unknown(CORS_OPTIONS) {
        let there = format!("{}: {name}", plugin.words(file));
        report.left_out(plugin.section.place(), there, "this option is not known");
    }
    tell_of_templates(plugin, file, &CORS_TAKEN, report);
    let words = plugin.words(file);
    if is_any == credentials && is_any || !(is_any || origins.iter().all(|own| is_origin(own))) {
        let here = "its origins have no counterpart (expressions, or all with credentials): the \
                    upstream decides who may read responses, and preflights are requests";
        report.left_out(plugin.section.place(), words, here);
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
        for name in ["methods", "headers"] {
            let Some(list) = preflight_list(plugin, name) else {
                let here = "not all of its methods and headers are names: the upstream decides who \
                            may read responses, and preflights are requests";
                report.left_out(plugin.section.place(), words, here);
                return Ok(());
            };
            cors = cors.with_list(name, list);
        }
        let age = config.text("max_age").and_then(|age| age.parse::<u64>().ok());
        if let Some(age) = age {
            cors = cors.with("max_age", format!("{}s", age.min(86_400)));
        }
    }
    let here = "cors of its routes; without exposed_headers beyond those of limits";
    report.nearly(plugin.section.place(), words, here);
    access.cors = Some(cors);
    Ok(())
}

/// Whether it is an origin as browsers write it: a scheme, a host and perhaps a port.
fn is_origin(text: &str) -> bool {
    let host = text.split_once("://").map_or("", |(_, host)| host);
    let (host, is_port) = match host.split_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().is_ok()),
        None => (host, true),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_plain);
    is_port && host.split('.').all(is_label)
}

/// What a preflight may ask for, each once; empty: whatever it asks for. None: some of it is no
/// name.
fn preflight_list(plugin: &Plugin<'_>, name: &str) -> Option<Vec<String>> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let texts = plugin.config.texts(name).join(",");
    let mut list: Vec<String> = Vec::new();
    for own in texts.split(',').map(str::trim).filter(|own| !own.is_empty()) {
        let own = match name {
            "methods" => own.to_ascii_uppercase(),
            _ => own.to_ascii_lowercase(),
        };
        match own.as_str() {
            "*" => return Some(Vec::new()),
            "TRACE" | "CONNECT" => {}
            _ if !own.bytes().all(is_plain) => return None,
            _ if list.contains(&own) => {}
            _ => list.push(own),
        }
    }
    is_flat(plugin, name).then_some(list)
}

/// Whether a transformer makes a request one for something else.
pub(super) fn moves(plugin: &Plugin<'_>) -> bool {
    let replace = plugin.config.section("replace");
    plugin.config.has("http_method") || replace.is_some_and(|own| own.node("uri").is_some())
}

/// What is taken out of requests; the rest of a transformer is only named.
pub(super) fn remove(
    plugin: &Plugin<'_>,
    (file, access): (&File<'_>, &mut Access),
    report: &mut Report,
) -> Result<(), String> {
    if moves(plugin) {
        return Err("requests go to other paths or methods".to_owned());
    }
    let removed = plugin.config.section("remove").map(|own| own.texts("headers"));
    for name in removed.unwrap_or_default() {
        let name = name.to_ascii_lowercase();
        if !is_field(&name) || name == "host" {
            // What is no name may have a value behind it, which is not shown.
            let there = format!("{}: an entry of remove.headers", plugin.words(file));
            let is_template = is_template(&name);
            let here = match is_template {
                true => "not removed: it is filled in by a program",
                false => "not removed: no policy names this field, as the proxy writes or drops it",
            };
            report.left_out(plugin.section.place(), there, here);
        } else if !access.remove.contains(&name) {
            access.remove.push(name);
        }
    }
    let here = "`request_headers` of its routes removes what it removes; what it adds, renames or \
                replaces is not here, so write it into `set`";
    report.left_out(plugin.section.place(), plugin.words(file), here);
    Ok(())
}

/// An origin without the port that browsers leave out.
fn as_browsers_write(origin: &str) -> String {
    let origin = origin.to_ascii_lowercase();
    let usual = if origin.starts_with("https:") { ":443" } else { ":80" };
    origin.strip_suffix(usual).unwrap_or(&origin).to_owned()
}

/// An address or a network as a route has it.
fn network(text: &str) -> Option<String> {
    let network: ipnet::IpNet = match text.parse::<std::net::IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => text.parse().ok()?,
    };
    Some(canonical_network(network.trunc()).to_string())
}
