//! What single plugins do to a route: addresses, sizes, origins and header fields. An error says
//! why its routes are closed.

use tollgate_yaml::canonical_network;

use super::{
    super::file::{File, Plugin},
    Access,
};
use crate::{flow::Flow, report::Report};

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
    let unit = match plugin.config.text("size_unit").as_deref() {
        Some("bytes") => 1,
        Some("kilobytes") => 1 << 10,
        _ => 1 << 20,
    };
    let size = plugin.config.text("allowed_payload_size").unwrap_or_else(|| "128".to_owned());
    let size: u64 = size.parse().map_err(|_| "its size is no whole number".to_owned())?;
    let bytes = size.saturating_mul(unit);
    let here = format!("max_body: {bytes}, also of bodies without a length: 413");
    report.same(plugin.section.place(), plugin.words(file), here);
    access.max_body = Some(bytes);
    Ok(())
}

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
    let is_origin = |own: &String| {
        let host = own.split_once("://").map_or("", |(_, host)| host);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte);
        !host.is_empty() && host.bytes().all(is_name)
    };
    let credentials = config.is_true("credentials");
    let words = plugin.words(file);
    if is_any == credentials && is_any || !(is_any || origins.iter().all(is_origin)) {
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
    report.nearly(plugin.section.place(), words, here);
    access.cors = Some(cors);
    Ok(())
}

/// What is taken out of requests; the rest of a transformer is only named.
pub(super) fn remove(
    plugin: &Plugin<'_>,
    (file, access): (&File<'_>, &mut Access),
    report: &mut Report,
) -> Result<(), String> {
    let replace = plugin.config.section("replace");
    if plugin.config.has("http_method") || replace.is_some_and(|own| own.node("uri").is_some()) {
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
