//! What a route changes about messages: their path, their header fields, how large they may be and
//! what they may switch to.

use http::{HeaderName, HeaderValue, header};
use tollgate_wire::target::{EncodedSlash, normalize_path, plain_form};
use tollgate_yaml::{Check, Entries, Node, Spanned, Value};

use super::Compiler;
use crate::{
    HeaderEdits, PathPattern, PathRewrite,
    file::{RawHeaderEdits, RawRoute},
};

/// Whether edits are of requests or of responses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    Request,
    Response,
}

impl Compiler<'_> {
    /// How a route rewrites the path of its requests. `path` is none if it is not sound.
    pub(super) fn path_rewrite(
        &mut self,
        raw: &RawRoute,
        path: Option<&PathPattern>,
    ) -> Option<PathRewrite> {
        let [strip, add] = [&raw.strip_prefix, &raw.add_prefix].map(|raw| match raw {
            None => Some(None),
            Some(raw) => self.path_prefix(raw).map(Some),
        });
        if let (Some(raw), Some(Some(prefix)), Some(path)) = (&raw.strip_prefix, &strip, path) {
            let below = PathPattern::parse(&format!("{prefix}/**"));
            if below.is_ok_and(|below| below.overlap(path).is_none()) {
                let message = format!("no path of this route begins with `{prefix}`");
                self.refuse(raw.span, message, "write what the paths of `match` begin with");
            }
        }
        let strip = strip?.map(|strip| plain_form(&strip).into());
        Some(PathRewrite { strip, add: add? })
    }

    /// Whole segments, as they are in a path of normal form.
    fn path_prefix(&mut self, raw: &Spanned<String>) -> Option<Box<str>> {
        const HELP: &str = "write one such as /v1";
        let text = raw.value.as_str();
        let normal = normalize_path(text, EncodedSlash::Reject);
        let message = if !text.starts_with('/') {
            "a prefix starts with `/`".to_owned()
        } else if text.ends_with('/') {
            "a prefix does not end with `/`".into()
        } else if text.contains(['*', '{', '}', '?', '#']) {
            "a prefix is text, and no pattern".into()
        } else {
            match normal {
                Ok(normal) if normal == text => return Some(text.into()),
                Ok(normal) => format!("a path never looks like this: it is matched as `{normal}`"),
                Err(error) => error.to_string(),
            }
        };
        self.refuse(raw.span, message, HELP);
        None
    }

    /// What is changed about requests and about responses. `own` are the headers that say who is
    /// calling.
    pub(super) fn route_edits(
        &mut self,
        raw: &RawRoute,
        own: &[HeaderName],
    ) -> (HeaderEdits, HeaderEdits) {
        let mut edits = |raw: &Option<RawHeaderEdits>, kind| match raw {
            None => HeaderEdits::default(),
            Some(raw) => self.header_edits(raw, kind, own),
        };
        (
            edits(&raw.request_headers, MessageKind::Request),
            edits(&raw.response_headers, MessageKind::Response),
        )
    }

    /// Those that are sound.
    fn header_edits(
        &mut self,
        raw: &RawHeaderEdits,
        kind: MessageKind,
        own: &[HeaderName],
    ) -> HeaderEdits {
        let mut edits = HeaderEdits::default();
        for written in &raw.remove {
            let Some(name) = self.edited_header(written, kind, own) else { continue };
            if kind == MessageKind::Request && name == header::HOST {
                self.refuse(written.span, "a request needs a host", "write another with `set`");
            }
            self.refuse_header_twice(written, &name, edits.remove.iter());
            edits.remove.push(name);
        }
        edits.set = self.fields(&raw.set, kind, own);
        for (name, _) in &edits.set {
            if let Some(again) =
                raw.remove.iter().find(|raw| raw.eq_ignore_ascii_case(name.as_str()))
            {
                self.refuse(again.span, format!("`{name}` is removed and set"), "remove one");
            }
        }
        edits.add = self.fields(&raw.add, kind, own);
        for (written, _) in raw.add.iter() {
            if kind == MessageKind::Request && written.value.eq_ignore_ascii_case("host") {
                self.refuse(written.span, "a request has one host", "write it with `set`");
            }
        }
        edits
    }

    fn fields(
        &mut self,
        raw: &Entries<Node>,
        kind: MessageKind,
        own: &[HeaderName],
    ) -> Vec<(HeaderName, HeaderValue)> {
        let mut fields: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for (written, node) in raw {
            let name = self.edited_header(written, kind, own);
            let value = self.header_text(node);
            let (Some(name), Some(mut value)) = (name, value) else { continue };
            // It may be a credential for the upstream, so nothing shows it.
            if kind == MessageKind::Request && name != header::HOST {
                value.set_sensitive(true);
            }
            self.refuse_header_twice(written, &name, fields.iter().map(|(name, _)| name));
            if kind == MessageKind::Request && name == header::HOST {
                let text = value.to_str().unwrap_or_default().to_owned();
                self.host_field(&Spanned { value: text, span: node.span });
            }
            fields.push((name, value));
        }
        fields
    }

    /// The name of a field that is neither the connection's nor this proxy's to write.
    fn edited_header(
        &mut self,
        raw: &Spanned<String>,
        kind: MessageKind,
        own: &[HeaderName],
    ) -> Option<HeaderName> {
        let name = self.message_header(raw)?;
        let (message, help) = match kind {
            MessageKind::Request if own.contains(&name) => (
                format!("`{name}` is for the caller's identity"),
                "write the name of another header",
            ),
            MessageKind::Request if name.as_str().contains('_') => {
                ("fields with an underscore never get through".to_owned(), "write it with `-`")
            }
            MessageKind::Request if name == header::EXPECT => {
                ("`expect` is answered by this proxy".to_owned(), "remove it")
            }
            _ => return Some(name),
        };
        self.refuse(raw.span, message, help);
        None
    }

    fn refuse_header_twice<'n>(
        &mut self,
        raw: &Spanned<String>,
        name: &HeaderName,
        mut earlier: impl Iterator<Item = &'n HeaderName>,
    ) {
        if earlier.any(|other| other == name) {
            self.refuse(raw.span, format!("`{name}` appears twice"), "remove one");
        }
    }

    /// The value of a field. Problems do not quote it: it may be a password.
    fn header_text(&mut self, node: &Node) -> Option<HeaderValue> {
        let text = match &node.value {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            other => {
                let message = format!("expected text, found {}", other.kind());
                self.note(node.span, message, "put it in quotes if it is meant as text");
                return None;
            }
        };
        match HeaderValue::from_str(&text) {
            Ok(mut value) if text.trim() == text => {
                // What came from the environment is not shown by anything.
                value.set_sensitive(self.inspection.document.source(node.span).contains("${"));
                Some(value)
            }
            _ => {
                let help = "write printable ASCII without spaces at its ends";
                self.refuse(node.span, "this cannot be the value of a header", help);
                None
            }
        }
    }

    /// Protocols that requests may switch to, in lower case.
    pub(super) fn upgrades(&mut self, raw: &RawRoute) -> Vec<Box<str>> {
        let Some(written) = &raw.upgrades else { return vec!["websocket".into()] };
        let mut upgrades: Vec<Box<str>> = Vec::new();
        for raw in written {
            let protocol = raw.value.to_ascii_lowercase();
            let name = protocol.split('/').next().unwrap_or_default();
            let is_token =
                |part: &str| !part.is_empty() && HeaderName::from_bytes(part.as_bytes()).is_ok();
            if protocol.split('/').count() > 2 || !protocol.split('/').all(is_token) {
                let message = format!("`{}` is not a protocol", raw.value);
                self.note(raw.span, message, "write one such as websocket");
            } else if matches!(name, "http" | "h2" | "h2c" | "h3" | "tls") {
                let message = format!("`{}` would carry requests past all limits", raw.value);
                self.refuse(raw.span, message, "remove it; HTTP/2 needs no upgrade");
            } else if upgrades.iter().any(|other| **other == *protocol) {
                self.refuse(raw.span, format!("`{protocol}` appears twice"), "remove one");
            }
            upgrades.push(protocol.into());
        }
        upgrades
    }
}
