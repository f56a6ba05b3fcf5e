//! What a limit is counted per: the table of sources of keys, and values of them that overrides
//! name.

use std::fmt;

use http::{HeaderName, header};
use ipnet::IpNet;
use tollgate_keyword::{Keyword, keywords};
use tollgate_yaml::names_credential;

use super::{BodyMember, CallerName, HostPattern, PathPattern, networks::in_words};

/// The field with the session of a request of the Model Context Protocol.
pub static MCP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Makes [`KeyPart`] of the table, so that the parser, the schema and the names of overrides know
/// all sources.
macro_rules! sources {
    (
        words { $($(#[$doc:meta])* $word:ident = $keyword:literal, $chooser:ident;)* }
        named { $($(#[$its_doc:meta])* $named:ident($name:ty) = $prefix:literal, $its_chooser:ident;)* }
    ) => {
        /// One thing that a limit is counted per.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum KeyPart {
            $($(#[$doc])* $word,)*
            $($(#[$its_doc])* $named($name),)*
        }

        /// A source that is written before a name: `header.x-tenant`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum NamedKey {
            $($(#[$its_doc])* $named,)*
        }

        keywords! { NamedKey { $($named = $prefix),* } }

        impl KeyPart {
            /// The sources that are a single word; the others are [`NamedKey`]s.
            pub const KEYWORDS: [(&'static str, KeyPart); [$($keyword),*].len()] =
                [$(($keyword, KeyPart::$word)),*];

            /// Who chooses its values.
            pub fn chooser(&self) -> Chooser {
                match self {
                    $(KeyPart::$word => Chooser::$chooser,)*
                    $(KeyPart::$named(_) => Chooser::$its_chooser,)*
                }
            }

            /// The name behind the word, if there is one.
            pub fn name(&self) -> Option<&str> {
                match self {
                    $(KeyPart::$word => None,)*
                    $(KeyPart::$named(name) => Some(name.as_ref()),)*
                }
            }

            fn word(&self) -> &'static str {
                match self {
                    $(KeyPart::$word => $keyword,)*
                    $(KeyPart::$named(_) => $prefix,)*
                }
            }
        }
    };
}

sources! {
    words {
        /// Nothing: all requests share one counter.
        All = "all", Nobody;
        /// The caller: (issuer, claim, value) or an address.
        Caller = "caller", Identity;
        /// The client's address, by its prefix.
        ClientIp = "client.ip", Network;
        /// The request's host.
        Host = "host", Hosts;
        /// The request's path in its normal form.
        Path = "path", Paths;
        /// The request's method.
        Method = "method", Methods;
        /// The tool that a message of the Model Context Protocol calls.
        McpTool = "mcp.tool", Calls;
        /// The method of such a message.
        McpMethod = "mcp.method", Calls;
        /// The session that such a request is of: a field of its head.
        McpSession = "mcp.session", Client;
        /// What a program names that charges the limit (`decisions` in the settings). No request
        /// has it.
        Key = "key", Program;
    }
    named {
        /// The path's segment that the route's pattern gives this name.
        PathParameter(Box<str>) = "path", Segments;
        /// A claim of the verified token, by name or dotted path.
        Claim(Box<str>) = "jwt", Issuer;
        /// A request header.
        Header(HeaderName) = "header", Client;
        /// A cookie.
        Cookie(Box<str>) = "cookie", Client;
        /// A member of the JSON in a request's body.
        Body(BodyMember) = "body", Client;
        /// What Envoy's rate limit filter sends as this key of a descriptor. No request has it.
        Descriptor(Box<str>) = "descriptor", Program;
    }
}

/// All sources, for messages.
pub(super) const HELP: &str = "one of: caller, client.ip, host, path, path.<parameter>, method, \
                               all, jwt.<claim>, header.<name>, cookie.<name>, \
                               body.<path>, mcp.tool, mcp.method, mcp.session, key, \
                               descriptor.<key>";

/// Who chooses the values of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chooser {
    /// Nobody: there is one value.
    Nobody,
    /// Who vouches for the caller, or the network that it is in.
    Identity,
    /// The network that the client is in.
    Network,
    /// Who has signed the token.
    Issuer,
    /// A program that charges the limit. No request has it.
    Program,
    /// The client, where routes take requests for any host.
    Hosts,
    /// The client, where routes take requests for more than one path.
    Paths,
    /// The client: what it calls something that the limit protects.
    Segments,
    /// The client: what it calls, of the methods and tools that the upstream has.
    Calls,
    /// The client. There are few methods, but for those that it makes up.
    Methods,
    /// The client, freely. It may put a secret there.
    Client,
}

/// As policies write it.
impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        self.name().map_or(Ok(()), |name| write!(f, ".{name}"))
    }
}

impl KeyPart {
    /// Whether somebody vouches for its values, who is not the client.
    pub fn is_vouched_for(&self) -> bool {
        matches!(self.chooser(), Chooser::Identity | Chooser::Issuer)
    }

    /// Whether a request that takes a route may be without it. A request without a host has a
    /// counter anyway.
    pub fn may_be_missing(&self) -> bool {
        matches!(
            self,
            KeyPart::Caller
                | KeyPart::Claim(_)
                | KeyPart::Header(_)
                | KeyPart::Cookie(_)
                | KeyPart::Body(_)
                | KeyPart::McpTool
                | KeyPart::McpMethod
                | KeyPart::McpSession
        )
    }

    /// Whether its values may be secrets: what clients put into fields, and what Envoy sends as a
    /// key that is called like a credential.
    pub fn may_be_secret(&self) -> bool {
        match self {
            // The configuration of Envoy has its values.
            KeyPart::Descriptor(name) if **name == *"generic_key" => false,
            KeyPart::Descriptor(name) => names_credential(&name.to_ascii_lowercase()),
            _ => self.chooser() == Chooser::Client,
        }
    }

    /// The field of requests that it is read from; none: it is read from no field.
    pub fn field(&self) -> Option<HeaderName> {
        match self {
            KeyPart::Header(name) => Some(name.clone()),
            KeyPart::Cookie(_) => Some(header::COOKIE),
            KeyPart::McpSession => Some(MCP_SESSION_ID.clone()),
            KeyPart::All
            | KeyPart::Caller
            | KeyPart::ClientIp
            | KeyPart::Host
            | KeyPart::Path
            | KeyPart::PathParameter(_)
            | KeyPart::Method
            | KeyPart::Claim(_)
            | KeyPart::Body(_)
            | KeyPart::McpTool
            | KeyPart::McpMethod
            | KeyPart::Key
            | KeyPart::Descriptor(_) => None,
        }
    }

    /// Whether it is in the body of requests.
    pub fn is_in_body(&self) -> bool {
        matches!(self, KeyPart::Body(_)) || self.is_in_messages()
    }

    /// Whether it is in the messages of the Model Context Protocol in such a body.
    pub fn is_in_messages(&self) -> bool {
        matches!(self, KeyPart::McpTool | KeyPart::McpMethod)
    }
}

impl NamedKey {
    /// Other words for the same.
    pub const ALIASES: [(&'static str, NamedKey); 1] = [("claim", NamedKey::Claim)];

    /// The source with this keyword or alias.
    pub fn from_prefix(prefix: &str) -> Option<NamedKey> {
        let alias =
            || Self::ALIASES.iter().find(|(alias, _)| *alias == prefix).map(|(_, kind)| *kind);
        NamedKey::from_keyword(prefix).or_else(alias)
    }
}

/// Something that a request has.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyValue {
    /// Where the request has it.
    pub part: KeyPart,
    /// What it has there.
    pub value: Wanted,
}

/// What a request has to have.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// It is of this caller.
    Caller(CallerName),
    /// It comes from this network.
    Network(IpNet),
    /// It is for such a host.
    Host(HostPattern),
    /// It is for such a path.
    Path(PathPattern),
    /// The claim has this value: a text, a number or a truth value.
    Claim {
        /// The value.
        value: serde_json::Value,
        /// Whose word it is: the position of an issuer. None: the policy knows only one.
        issuer: Option<usize>,
    },
    /// It has this text, once.
    Text(Box<str>),
}

impl KeyValue {
    /// Its text, if that may be a secret.
    pub fn secret(&self) -> Option<&str> {
        match &self.value {
            Wanted::Text(text) if self.part.chooser() == Chooser::Client => Some(text),
            _ => None,
        }
    }
}

/// As it may be shown to people.
impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyValue { part, value } = self;
        if self.secret().is_some() {
            return write!(f, "a value of {part}");
        }
        match value {
            Wanted::Caller(caller) => caller.fmt(f),
            Wanted::Network(network) => write!(f, "{part} {}", in_words(network)),
            Wanted::Host(HostPattern::Exact(host)) => write!(f, "{part} {host}"),
            Wanted::Host(HostPattern::Below(suffix)) => write!(f, "{part} *{suffix}"),
            Wanted::Path(path) => write!(f, "{part} {path}"),
            Wanted::Claim { value: serde_json::Value::String(text), .. } => {
                write!(f, "{part} {text}")
            }
            Wanted::Claim { value, .. } => write!(f, "{part} {value}"),
            Wanted::Text(text) => write!(f, "{part} {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_in_messages() {
        for (word, _) in KeyPart::KEYWORDS {
            assert!(HELP.contains(&format!(" {word},")), "{word}");
        }
        for (prefix, _) in NamedKey::KEYWORDS {
            assert!(HELP.contains(&format!(" {prefix}.<")), "{prefix}");
        }
    }
}
