//! `headers`: fields of requests and responses that are set and removed.

use crate::{flow::Flow, report::Report, section::Section, words};

/// Changes of the fields of requests and responses.
#[derive(Debug, Default)]
pub(super) struct Headers {
    request: Edits,
    response: Edits,
}

/// Changes of header fields.
#[derive(Debug, Default)]
struct Edits {
    set: Vec<(String, String)>,
    remove: Vec<String>,
}

/// What is left out, by the beginnings of names, and what to write instead.
const LEFT_OUT: [(&str, &str); 4] = [
    ("accesscontrol", "write `cors` with `preflight: answer`; until then the servers decide"),
    ("sts", "write `hsts` at the listener of the settings"),
    ("forcests", "write `hsts` at the listener of the settings"),
    ("", "no counterpart"),
];

/// Options of `headers` that write one field of responses, with this value or with their own.
const SECURITY: [(&str, &str, &str); 9] = [
    // The first one wins, as in Traefik.
    ("customFrameOptionsValue", "x-frame-options", ""),
    ("frameDeny", "x-frame-options", "DENY"),
    ("contentTypeNosniff", "x-content-type-options", "nosniff"),
    ("customBrowserXSSValue", "x-xss-protection", ""),
    ("browserXssFilter", "x-xss-protection", "1; mode=block"),
    ("contentSecurityPolicy", "content-security-policy", ""),
    ("contentSecurityPolicyReportOnly", "content-security-policy-report-only", ""),
    ("referrerPolicy", "referrer-policy", ""),
    ("permissionsPolicy", "permissions-policy", ""),
];

impl Headers {
    /// Takes a middleware over. The error says why nothing passes.
    pub(super) fn take(
        &mut self,
        there: &str,
        own: Section<'_>,
        report: &mut Report,
    ) -> Result<(), String> {
        if own.node("allowedHosts").is_some() {
            return Err(
                "`allowedHosts` refuses other hosts: write them as `host` of the routes".to_owned()
            );
        }
        for (field, is_request) in
            [("customRequestHeaders", true), ("customResponseHeaders", false)]
        {
            let fields = own.section(field);
            for (name, node) in fields.as_ref().map_or(&[][..], Section::entries) {
                let (name, value) =
                    (name.to_ascii_lowercase(), own.scalar(node).unwrap_or_default());
                let edits = if is_request { &mut self.request } else { &mut self.response };
                if let Err(why) = edits.take(&name, &value, is_request) {
                    report.left_out(own.place_of(node), format!("{there}: {field} {name}"), why);
                }
            }
        }
        for (option, header, value) in SECURITY {
            let said = own.text(option).filter(|value| value != "false" && !value.is_empty());
            let value = said.map(|own| if value.is_empty() { own } else { value.to_owned() });
            let taken = value.map_or(Ok(()), |value| self.response.take(header, &value, false));
            if let Err(why) = taken {
                report.left_out(own.place(), format!("{there}: {option}"), why);
            }
        }
        report.same(own.place(), there, "request_headers and response_headers");
        let read = "customRequestHeaders customResponseHeaders addVaryHeader isDevelopment";
        let is_other =
            |name: &&str| !SECURITY.iter().any(|(option, ..)| option.eq_ignore_ascii_case(name));
        let mut others: Vec<&str> = own.others(read).filter(is_other).collect();
        // What belongs together is in one row.
        for (start, here) in LEFT_OUT {
            let (names, rest): (Vec<&str>, _) =
                others.into_iter().partition(|name| name.to_ascii_lowercase().starts_with(start));
            others = rest;
            if !names.is_empty() {
                report.left_out(own.place(), format!("{there}: {}", names.join(", ")), here);
            }
        }
        Ok(())
    }

    /// The fields of a route.
    pub(super) fn flows(&self) -> impl Iterator<Item = (&'static str, Flow)> {
        let both = [("request_headers", &self.request), ("response_headers", &self.response)];
        both.into_iter().filter_map(|(name, edits)| Some((name, edits.flow()?)))
    }
}

/// The names of the fields of requests that are written, in small letters.
pub(super) fn request_names(own: Section<'_>) -> Vec<String> {
    let section = own.section("customRequestHeaders");
    let entries = section.as_ref().map_or(&[][..], Section::entries);
    entries.iter().map(|(name, _)| name.to_ascii_lowercase()).collect()
}

impl Edits {
    /// Takes a field over; an empty value removes it. The error never has the value.
    fn take(&mut self, name: &str, value: &str, is_request: bool) -> Result<(), String> {
        let is_value =
            value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && value.trim() == value;
        if is_request && name.contains('_') && value.is_empty() {
            // Such fields never get through.
            return Ok(());
        }
        let is_ours = is_fixed(name) || (is_request && name.contains('_'));
        if is_ours || !is_value || (name == "host" && value.is_empty()) {
            return Err("a policy cannot write this field".to_owned());
        }
        if is_request && !value.is_empty() && tollgate_yaml::names_credential(name) {
            return Err(format!(
                "its value may be a credential: write `request_headers: {{ set: {{ {name}: \
                 \"${{VARIABLE}}\" }} }}`"
            ));
        }
        if self.set.iter().any(|(own, _)| own == name) || self.remove.iter().any(|own| own == name)
        {
            return Ok(());
        }
        match value.is_empty() {
            true => self.remove.push(name.to_owned()),
            false => self.set.push((name.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    fn flow(&self) -> Option<Flow> {
        let set = self.set.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        let flow = Flow::fields([])
            .with_fields("set", set.collect())
            .with_list("remove", self.remove.iter().cloned());
        (!flow.is_empty()).then_some(flow)
    }
}

/// Fields that belong to the connection: no limit counts by them, and no route writes them.
pub(super) fn is_fixed(header: &str) -> bool {
    const OF_CONNECTION: &str = "\
        connection content-length expect http2-settings keep-alive proxy-authenticate \
        proxy-authorization proxy-connection te trailer transfer-encoding upgrade";
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^`|~".contains(&byte);
    header.is_empty()
        || !header.bytes().all(is_token)
        || words::has(OF_CONNECTION, header)
        || ["x-tollgate-", "x-ratelimit-", "ratelimit"].iter().any(|own| header.starts_with(own))
}
