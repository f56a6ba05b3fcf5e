//! Values of options: those that a program fills in, lists, and names of header fields.

use tollgate_yaml::Value;

use super::file::{File, Plugin};
use crate::{report::Report, words};

/// Fields about a connection, and one that is answered here: no policy names them.
const CONNECTION: &str = "connection content-length expect http2-settings keep-alive \
    proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding upgrade";
/// Fields that say something of the request itself, so they can have no credentials.
const TAKEN: &str = "authorization content-type cookie forwarded host x-request-id";

/// Whether a value is filled in by a program before Kong reads it, or by Kong itself.
pub(super) fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("${") || text.starts_with("{vault://") || {
        let variable = text.strip_prefix('$').unwrap_or_default();
        variable.starts_with(|letter: char| letter.is_ascii_uppercase())
    }
}

/// Whether a policy may name a header field, in lower case. Those with an underscore never get
/// through.
pub(super) fn is_field(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty()
        && name.bytes().all(is_plain)
        && !words::has(CONNECTION, name)
        && !words::begin("x-tollgate- x-ratelimit- ratelimit", name)
}

/// Whether a header field, in lower case, may be for credentials.
pub(super) fn is_free_field(name: &str) -> bool {
    is_field(name) && !words::has(TAKEN, name) && !name.starts_with("x-forwarded-")
}

/// Names the options that a program fills in, each with what is taken instead.
pub(super) fn tell_of_templates<'d>(
    plugin: &Plugin<'d>,
    file: &File<'d>,
    options: &[(&str, &str)],
    report: &mut Report,
) {
    for (name, taken) in options {
        if plugin.config.text(name).is_some_and(|text| is_template(&text)) {
            let there = format!("{}: {name}", plugin.words(file));
            let here = format!("filled in by a program: {taken} is taken");
            report.left_out(plugin.section.place(), there, here);
        }
    }
}

/// Whether an option is texts or numbers alone, so that `texts` has all of it.
pub(super) fn is_flat(plugin: &Plugin<'_>, name: &str) -> bool {
    let Some(node) = plugin.config.0.iter().find_map(|own| own.node(name)) else { return true };
    let length = match &node.value {
        Value::Sequence(items) => items.len(),
        _ => 1,
    };
    plugin.config.texts(name).len() == length
}
