//! Keys: what a limit is counted per.

use http::{HeaderName, HeaderValue};
use ipnet::IpNet;
use tollgate_wire::target::plain_form;
use tollgate_yaml::{Check, Node, Spanned, Value, suggest};

use super::{Compiler, words::Names};
use crate::{
    BodyMember, KeyPart, NamedKey, Per, Wanted, file::RawLimit, key_part::HELP,
    matcher::is_parameter_name,
};

/// What other rate limiters call the same.
const SYNONYMS: [(&[&str], &str); 6] = [
    (
        &[
            "ip",
            "client_ip",
            "client-ip",
            "clientip",
            "remote_addr",
            "remote_ip",
            "remote_address",
            "source_ip",
            "source_address",
            "src_ip",
            "address",
            "client",
            "client.address",
        ],
        "client.ip",
    ),
    (
        &[
            "user",
            "user_id",
            "userid",
            "account",
            "consumer",
            "identity",
            "api_key",
            "apikey",
            "api-key",
            "token",
            "credential",
            "api_key.id",
            "user.id",
        ],
        "caller",
    ),
    (&["sub", "subject", "jwt", "claim"], "jwt.sub"),
    (&["domain", "hostname", "authority", "vhost"], "host"),
    (&["global", "everybody", "everyone", "*", "constant", "none"], "all"),
    (&["url", "uri", "endpoint", "route", "resource", "request_path"], "path"),
];
/// Words that need a name behind them.
const NAMED: [(&[&str], &str); 3] = [
    (&["header", "headers", "request_header"], "header.<name>"),
    (&["cookie", "cookies"], "cookie.<name>"),
    (&["parameter", "param", "path_parameter"], "path.<parameter>"),
];
/// Parts of one key: what a request costs to hash must stay small.
const MAX_PARTS: usize = 8;

impl Compiler<'_> {
    pub(super) fn per(&mut self, raw: &RawLimit, issuers: &Names<'_>) -> Option<Per> {
        let parts = self.key_parts(&raw.per, issuers);
        let on_missing = self.keyword_or_default(raw.on_missing.as_ref());
        let ipv4_prefix = self.prefix(raw.ipv4_prefix.as_ref(), &IPV4);
        let ipv6_prefix = self.prefix(raw.ipv6_prefix.as_ref(), &IPV6);
        let parts = parts?;
        if !parts.contains(&KeyPart::ClientIp) {
            for (prefix, kind) in [(&raw.ipv4_prefix, &IPV4), (&raw.ipv6_prefix, &IPV6)] {
                if let Some(prefix) = prefix {
                    let message = format!("`{}` needs `client.ip` in `per`", kind.field);
                    self.refuse(prefix.span, message, "remove it");
                }
            }
        }
        Some(Per {
            parts,
            on_missing: on_missing?,
            ipv4_prefix: ipv4_prefix?,
            ipv6_prefix: ipv6_prefix?,
        })
    }

    fn key_parts(&mut self, raw: &Node, issuers: &Names<'_>) -> Option<Vec<KeyPart>> {
        let nodes = match &raw.value {
            Value::Sequence(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(raw),
        };
        if nodes.is_empty() {
            self.refuse(raw.span, "an empty list: a limit needs a key to count by", HELP);
            return None;
        }
        if nodes.len() > MAX_PARTS {
            let message = format!("more than {MAX_PARTS} parts in a key");
            self.refuse(raw.span, message, "count by less");
        }
        let mut parts = Vec::new();
        for node in nodes {
            let part = self.key_part(node)?;
            if parts.contains(&part) {
                self.refuse(node.span, "listed twice", "remove one");
            }
            if matches!(part, KeyPart::Claim(_)) && issuers.are_none() {
                self.refuse(
                    node.span,
                    "no request has claims: the policy knows no issuer",
                    "add one under `identity: jwt`, or count by something else",
                );
            }
            let is_of_descriptor = |part: &KeyPart| matches!(part, KeyPart::Descriptor(_));
            if parts.first().is_some_and(|first| is_of_descriptor(first) != is_of_descriptor(&part))
            {
                let message = "a descriptor has nothing of a request: only its own entries";
                self.refuse(node.span, message, "count by `descriptor.<key>` alone, or by none");
            }
            if nodes.len() > 1 && part == KeyPart::Key {
                let message =
                    "`key` goes with nothing else: a program charges such a limit by name";
                self.refuse(node.span, message, "write `per: key`, or remove it");
            }
            if nodes.len() > 1 && part == KeyPart::All {
                let message = "`all` goes with nothing else: it is one counter for all requests";
                self.refuse(node.span, message, "write `per: all`, or remove it");
            }
            parts.push(part);
        }
        Some(parts)
    }

    pub(super) fn key_part(&mut self, node: &Node) -> Option<KeyPart> {
        let Value::String(text) = &node.value else {
            let message = format!("expected text, found {}", node.value.kind());
            self.note(node.span, message, HELP);
            return None;
        };
        if let Some((_, part)) = KeyPart::KEYWORDS.into_iter().find(|(keyword, _)| keyword == text)
        {
            return Some(part);
        }
        let spanned = |name: &str| Spanned { value: name.to_owned(), span: node.span };
        let named = text
            .split_once('.')
            .and_then(|(prefix, name)| Some((NamedKey::from_prefix(prefix)?, name)));
        match named {
            Some((NamedKey::Claim, claim)) if !claim.is_empty() => {
                self.claim_path(claim, node.span).map(KeyPart::Claim)
            }
            Some((NamedKey::Header, name)) => self.key_header(&spanned(name)).map(KeyPart::Header),
            Some((NamedKey::Cookie, name)) => self.cookie_name(&spanned(name)).map(KeyPart::Cookie),
            Some((NamedKey::PathParameter, name)) if is_parameter_name(name) => {
                Some(KeyPart::PathParameter(name.into()))
            }
            Some((NamedKey::Descriptor, key)) if !key.is_empty() => {
                Some(KeyPart::Descriptor(key.into()))
            }
            Some((NamedKey::Body, path)) => self.key_member(&spanned(path)).map(KeyPart::Body),
            Some((NamedKey::Claim | NamedKey::PathParameter | NamedKey::Descriptor, _)) | None => {
                let help = match meant(text) {
                    Some(key) => format!("did you mean `{key}`?"),
                    None => HELP.to_owned(),
                };
                self.note(node.span, format!("`{text}` is not a valid `per` key"), help);
                None
            }
        }
    }

    /// What an override wants of a part of its limit's key.
    pub(super) fn wanted(&mut self, part: &KeyPart, node: &Node, per: &Per) -> Option<Wanted> {
        if let KeyPart::Claim(_) = part {
            return self.claim_value(node).map(|value| Wanted::Claim { value, issuer: None });
        }
        let text = Spanned { value: self.plain_text(node)?, span: node.span };
        let any = || Some(Wanted::Text(text.value.as_str().into()));
        match part {
            KeyPart::All => {
                let message = "the limit has one counter, and no value that this could be for";
                self.refuse(node.span, message, "write the other rate on the limit itself");
                None
            }
            // It is a field, `caller`, and no key.
            KeyPart::Caller | KeyPart::Claim(_) => None,
            KeyPart::ClientIp => self.override_network(&text, per).map(Wanted::Network),
            KeyPart::Host => self.host_pattern(&text).map(Wanted::Host),
            KeyPart::Path => self.path(&text).map(Wanted::Path),
            KeyPart::PathParameter(_) => {
                let value = &text.value;
                // A segment that no request has would never be found.
                let path = self.path(&Spanned { value: format!("/{value}"), span: text.span })?;
                if path.depth() != 1 || !path.is_one_path() || text.value.contains('/') {
                    let message = format!("`{value}` is not one segment of a path");
                    self.note(
                        text.span,
                        message,
                        "write the segment as it is in paths, without slashes and patterns",
                    );
                    return None;
                }
                Some(Wanted::Text(plain_form(value).into()))
            }
            KeyPart::Method => self.method(&text).and_then(|_| any()),
            KeyPart::Header(_) => match HeaderValue::from_str(&text.value) {
                Ok(value) if !value.is_empty() => any(),
                _ => {
                    self.refuse(text.span, "no header has this value", "write it as clients do");
                    None
                }
            },
            KeyPart::Key if text.value.is_empty() => {
                self.refuse(text.span, "an empty key", "write the key that programs name");
                None
            }
            KeyPart::Key
            | KeyPart::Descriptor(_)
            | KeyPart::Cookie(_)
            | KeyPart::Body(_)
            | KeyPart::McpTool
            | KeyPart::McpMethod
            | KeyPart::McpSession => any(),
        }
    }

    /// A network that the limit counts apart from all others: an address stands for all that is
    /// counted with it.
    fn override_network(&mut self, raw: &Spanned<String>, per: &Per) -> Option<IpNet> {
        let network = self.network(raw)?;
        let counted = match network {
            IpNet::V4(_) => per.ipv4_prefix,
            IpNet::V6(_) => per.ipv6_prefix,
        };
        if network.prefix_len() <= counted {
            return Some(network);
        }
        let whole = IpNet::new(network.addr(), counted).ok()?.trunc();
        if network.prefix_len() < network.max_prefix_len() {
            self.refuse(
                raw.span,
                format!("the limit counts all addresses of {whole} as one"),
                format!("write {whole}"),
            );
        }
        Some(whole)
    }

    /// A text; a number or a truth value stands for how it is written.
    fn plain_text(&mut self, node: &Node) -> Option<String> {
        match &node.value {
            Value::Integer(number) => Some(number.to_string()),
            _ => self.text(node).map(str::to_owned),
        }
    }

    fn key_member(&mut self, raw: &Spanned<String>) -> Option<BodyMember> {
        let path = self.json_path(raw)?;
        if !path.is_of_one_value() {
            let message = format!("`body.{path}` may lead to several values");
            self.refuse(raw.span, message, "write an index, such as [0] or [-1], in place of []");
        }
        Some(self.member(path))
    }

    fn key_header(&mut self, raw: &Spanned<String>) -> Option<HeaderName> {
        let name = self.message_header(raw)?;
        let (message, help) = match name.as_str() {
            "host" => ("not every request has the field, but a host", "write host"),
            "x-forwarded-for" | "forwarded" | "x-real-ip" => {
                ("clients write what they like there", "write client.ip")
            }
            other if other.contains('_') => {
                ("fields with an underscore never get through", "write the name of another header")
            }
            _ => return Some(name),
        };
        self.refuse(raw.span, format!("`header.{name}`: {message}"), help);
        None
    }

    fn prefix(&mut self, raw: Option<&Spanned<u8>>, kind: &PrefixKind) -> Option<u8> {
        let Some(raw) = raw else { return Some(kind.default) };
        if !(kind.shortest..=kind.longest).contains(&raw.value) {
            self.note(raw.span, format!("an {} prefix out of range", kind.version), kind.help);
            return None;
        }
        Some(raw.value)
    }
}

/// The key that is probably meant: a name of other rate limiters, or a typing mistake.
fn meant(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    let known = SYNONYMS.iter().chain(&NAMED).find(|(words, _)| words.contains(&&*lower));
    known
        .map(|(_, key)| *key)
        .or_else(|| suggest(text, KeyPart::KEYWORDS.map(|(keyword, _)| keyword)))
}

struct PrefixKind {
    field: &'static str,
    version: &'static str,
    shortest: u8,
    longest: u8,
    default: u8,
    help: &'static str,
}

const IPV4: PrefixKind = PrefixKind {
    field: "ipv4_prefix",
    version: "IPv4",
    shortest: 8,
    longest: 32,
    default: 32,
    help: "write 8 to 32; 32 is one address",
};
const IPV6: PrefixKind = PrefixKind {
    field: "ipv6_prefix",
    version: "IPv6",
    shortest: 32,
    longest: 128,
    default: 64,
    help: "write 32 to 128; 64 is one customer's network",
};
