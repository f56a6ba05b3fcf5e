//! Keywords, names, numbers and times: values that several sections need.

use std::{collections::HashSet, fmt, num::NonZeroU32, time::Duration};

use http::{HeaderName, HeaderValue};
use serde::de::DeserializeOwned;
use tollgate_wire::target::Host;
use tollgate_yaml::{ABOVE_ZERO, Check, Node, Spanned, Value, suggest};

use super::Compiler;
use crate::{file::LATER, is_reserved, rate::parse_count};

/// Names that other sections refer to, by position.
pub(super) struct Names<'n> {
    /// What is named, for messages.
    pub(super) kind: &'static str,
    pub(super) names: Vec<&'n str>,
    /// Whether there are no others: what names something else may be of a wrong type.
    pub(super) is_complete: bool,
}

impl Names<'_> {
    /// Whether there are none, and none of a wrong type.
    pub(super) fn are_none(&self) -> bool {
        self.names.is_empty() && self.is_complete
    }
}

pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// Fields that are about a connection and not about a message (RFC 9110 section 7.6.1), or about a
/// message's extent: nothing else can be read from them.
const CONNECTION_HEADERS: [&str; 11] = [
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Compiler<'_> {
    /// A time above 0 and up to a day; none written: `default`.
    pub(super) fn duration(
        &mut self,
        raw: &Option<Spanned<String>>,
        default: Duration,
    ) -> Duration {
        self.time_or(raw, ABOVE_ZERO..=DAY, default)
    }

    /// A number from 1 to `most`; none written: `default`.
    pub(super) fn positive(
        &mut self,
        raw: &Option<Spanned<u32>>,
        default: NonZeroU32,
        most: u32,
    ) -> NonZeroU32 {
        NonZeroU32::new(self.number_or(raw, 1..=most, default.get())).unwrap_or(default)
    }

    /// A whole number of units, requests or leases: `5000`, `5_000`.
    pub(super) fn count(&mut self, node: &Node) -> Option<u32> {
        let text = match &node.value {
            Value::Integer(number) => number.to_string(),
            Value::String(text) => text.clone(),
            other => other.kind().to_owned(),
        };
        let count = parse_count(&text).ok();
        if count.is_none() {
            let message = format!("`{text}` is not a whole number up to 2147483647");
            self.note(node.span, message, "write a number such as 100 or 5_000");
        }
        count
    }

    pub(super) fn text<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        match &node.value {
            Value::String(text) => Some(text),
            other => {
                let message = format!("expected text, found {}", other.kind());
                self.note(node.span, message, self.inspection.document.help_for_text(node));
                None
            }
        }
    }

    /// A section where `off` is allowed, too; `help` is the advice for other values.
    pub(super) fn section<T: DeserializeOwned>(&mut self, node: &Node, help: &str) -> Option<T> {
        match &node.value {
            Value::Mapping(_) => self.decode(node, LATER),
            other => {
                let found = match other {
                    Value::String(word) => format!("`{word}`"),
                    other => other.kind().to_owned(),
                };
                self.note(node.span, format!("expected a mapping or off, found {found}"), help);
                None
            }
        }
    }

    pub(super) fn resolve(&mut self, raw: &Spanned<String>, names: &Names<'_>) -> Option<usize> {
        let found = names.names.iter().position(|name| *name == raw.value);
        if found.is_none() && names.is_complete {
            let help = match suggest(&raw.value, names.names.iter().copied()) {
                Some(word) => format!("did you mean `{word}`?"),
                None if names.names.is_empty() => format!("the policy has no {}", names.kind),
                None => format!("one of: {}", names.names.join(", ")),
            };
            self.note(raw.span, format!("no {} is called `{}`", names.kind, raw.value), help);
        }
        found
    }

    pub(super) fn refuse_twice<'n, T: AsRef<str> + 'n>(
        &mut self,
        values: impl Iterator<Item = &'n Spanned<T>>,
        kind: impl fmt::Display,
    ) {
        let mut seen = HashSet::new();
        for value in values {
            let text = value.value.as_ref();
            if !seen.insert(text) {
                self.note(value.span, format!("{kind} `{text}` appears twice"), "remove one");
            }
        }
    }

    pub(super) fn check_name(&mut self, name: &Spanned<String>, kind: &str) {
        let is_plain = name.value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        if !is_plain || name.value.is_empty() || name.value.len() > 64 {
            let message = format!("`{}` is not a name for a {kind}", name.value);
            self.note(name.span, message, "use up to 64 letters, digits, `-` and `_`");
        }
    }

    pub(super) fn header_name(&mut self, raw: &Spanned<String>) -> Option<HeaderName> {
        let name = HeaderName::from_bytes(raw.value.as_bytes()).ok();
        if name.is_none() {
            self.note(
                raw.span,
                format!("`{}` is not a header name", raw.value),
                "write one such as x-api-key",
            );
        }
        name
    }

    /// The value of a `Host` field.
    pub(super) fn host_field(&mut self, raw: &Spanned<String>) -> Option<HeaderValue> {
        let value = HeaderValue::from_str(&raw.value).ok();
        let value = value.filter(|_| Host::parse(raw.value.as_bytes()).is_ok());
        if value.is_none() {
            let message = format!("`{}` is not a host", raw.value);
            self.note(raw.span, message, "write one such as api.example.com, without a scheme");
        }
        value
    }

    /// The name of a header that says something about a message, not about its connection.
    pub(super) fn message_header(&mut self, raw: &Spanned<String>) -> Option<HeaderName> {
        let name = self.header_name(raw)?;
        let whose = if CONNECTION_HEADERS.contains(&name.as_str()) {
            "the connection"
        } else if is_reserved(name.as_str()) {
            "this proxy, which takes out what others write there"
        } else {
            return Some(name);
        };
        let message = format!("`{name}` belongs to {whose}");
        self.refuse(raw.span, message, "write the name of another header");
        None
    }

    pub(super) fn cookie_name(&mut self, raw: &Spanned<String>) -> Option<Box<str>> {
        let is_token =
            raw.value.bytes().all(|b| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&b));
        if raw.value.is_empty() || !is_token {
            self.note(
                raw.span,
                format!("`{}` is not the name of a cookie", raw.value),
                "write letters, digits, `-` and `_`",
            );
            return None;
        }
        Some(raw.value.as_str().into())
    }
}

/// Whether something is switched off.
pub(super) fn is_off(node: &Node) -> bool {
    matches!(&node.value, Value::String(word) if word == "off")
}
