//! Keys of zones: texts with variables, which are joined; an empty one is not counted.

use ipnet::IpNet;

/// What a zone counts by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    /// Keys of limits, which are all charged.
    pub(super) per: Vec<Per>,
    /// Whether each server has counters of its own, by its first name.
    pub(super) by_server: bool,
    pub(super) condition: Condition,
    /// How it differs.
    pub(super) notes: Vec<String>,
}

/// The `per` of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Per {
    pub(super) parts: Vec<String>,
    /// None: none of the parts can be missing.
    pub(super) on_missing: Option<&'static str>,
}

impl Key {
    /// Whether each client has counters of its own: to count more requests by it refuses nobody
    /// else.
    pub(super) fn is_of_a_client(&self) -> bool {
        let is_client = |part: &String| {
            part == "client.ip" || ["header.", "cookie."].iter().any(|kind| part.starts_with(kind))
        };
        !self.by_server && self.per.iter().all(|per| per.parts.iter().any(is_client))
    }
}

/// Which of the requests that have the key are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Condition {
    #[default]
    All,
    /// By the client's address: the most specific network decides, and is the first one.
    Networks { networks: Vec<(IpNet, bool)>, others: bool },
    /// With these methods alone.
    Methods(Vec<String>),
    /// Not with these methods.
    NotMethods(Vec<String>),
}

impl Condition {
    /// Whether requests with this method may be counted.
    pub(super) fn counts(&self, method: &str) -> bool {
        let has = |own: &[String]| own.iter().any(|own| own == method);
        match self {
            Condition::Methods(own) => has(own),
            Condition::NotMethods(own) => !has(own),
            Condition::All | Condition::Networks { .. } => true,
        }
    }

    /// Whether requests with one of these methods may be counted.
    pub(super) fn counts_any(&self, methods: &[String]) -> bool {
        match self {
            Condition::Methods(own) => own.iter().any(|method| methods.contains(method)),
            Condition::NotMethods(own) => methods.iter().any(|method| !own.contains(method)),
            Condition::All | Condition::Networks { .. } => true,
        }
    }
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Variable(String),
}

/// The pieces of a text: `$name` and `${name}` are variables.
pub(super) fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let (name, after) = match after.strip_prefix('{').and_then(|braced| braced.split_once('}'))
        {
            Some(braced) => braced,
            None => after.split_at(after.find(|letter| !is_of_name(letter)).unwrap_or(after.len())),
        };
        pieces.push(Piece::Variable(name.to_ascii_lowercase()));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    pieces
}

/// A part of a key.
enum Part {
    Key(String, Presence, Option<&'static str>),
    /// The same for all requests.
    Constant,
    Server,
    /// There is no such key, and this is why.
    None(String),
}

#[derive(PartialEq)]
enum Presence {
    Always,
    Sometimes,
}

/// The key that is made of these pieces, without maps.
pub(super) fn base(pieces: &[Piece]) -> Result<Key, String> {
    let mut key = Key::default();
    let mut per = Per::default();
    let (mut is_always_there, mut can_miss, mut missing) = (false, 0, None);
    for piece in pieces {
        let part = match piece {
            Piece::Text(_) => Part::Constant,
            Piece::Variable(name) => part(name),
        };
        match part {
            Part::Constant => is_always_there = true,
            Part::Server => (is_always_there, key.by_server) = (true, true),
            Part::Key(part, presence, note) => {
                is_always_there |= presence == Presence::Always;
                can_miss += usize::from(presence == Presence::Sometimes);
                key.notes.extend(note.map(str::to_owned));
                if !per.parts.contains(&part) {
                    per.parts.push(part);
                }
            }
            Part::None(why) => missing = Some(why),
        }
    }
    if let Some(why) = missing {
        let is_of_a_client = per.parts.iter().any(|part| part == "client.ip");
        if !is_of_a_client {
            return Err(why);
        }
        key.notes.push(format!("{why}: one counter for all its values, which is stricter"));
    }
    per.on_missing =
        match (can_miss, is_always_there) {
            (0, true) => None,
            (1, false) => Some("skip"),
            (_, true) => Some("share"),
            (0, false) => return Err("its key is empty, so it counts nothing".to_owned()),
            (_, false) => return Err(
                "any part of its key may be missing there, and only all of them are not counted"
                    .to_owned(),
            ),
        };
    if per.parts.is_empty() {
        per.parts.push("all".to_owned());
    }
    key.per = vec![per];
    Ok(key)
}

fn part(name: &str) -> Part {
    let key = |key: &str, note| Part::Key(key.to_owned(), Presence::Always, note);
    match name {
        "binary_remote_addr" | "remote_addr" => key("client.ip", None),
        "realip_remote_addr" => key(
            "client.ip",
            Some(
                "it is the connection's address there, and the client's here, if trusted_proxies \
                 name it",
            ),
        ),
        "http_x_forwarded_for"
        | "proxy_add_x_forwarded_for"
        | "http_x_real_ip"
        | "http_cf_connecting_ip"
        | "http_x_client_ip"
        | "http_true_client_ip"
        | "proxy_protocol_addr" => key(
            "client.ip",
            Some(
                "counts by the client's address, which trusted_proxies name: there a client may \
                 write what it likes, here it may not. Write them into the settings",
            ),
        ),
        "server_name" => Part::Server,
        "host" => key("host", None),
        "http_host" => key("host", Some("the host without its port and in lower case: stricter")),
        "uri" | "document_uri" => {
            key("path", Some("the path as the client sent it, before rewrites"))
        }
        "request_uri" => key("path", Some("the path without the query: stricter")),
        "request_method" => key("method", None),
        "scheme" | "server_port" | "server_addr" | "hostname" | "nginx_version" | "pid" => {
            Part::None(format!("`${name}` is no key here"))
        }
        "http_authorization" | "remote_user" => Part::None(format!(
            "`${name}` is what a client says without proof: name callers by `identity`, and count \
             by `caller`"
        )),
        "ssl_client_s_dn" | "ssl_client_fingerprint" | "ssl_client_serial" => Part::None(format!(
            "`${name}` is no key here: count by `caller`, and name callers by their certificates"
        )),
        _ => match (name.strip_prefix("http_"), name.strip_prefix("cookie_")) {
            (Some("forwarded"), _) => Part::None("`$http_forwarded` is no key here".to_owned()),
            (Some(header), _) => {
                Part::Key(format!("header.{}", header.replace('_', "-")), Presence::Sometimes, None)
            }
            (_, Some(cookie)) => Part::Key(format!("cookie.{cookie}"), Presence::Sometimes, None),
            _ => Part::None(format!("`${name}` is no key here")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_joined_and_only_an_empty_one_is_not_counted() {
        for (text, parts, on_missing, notes) in [
            ("$binary_remote_addr", "client.ip", None, 0),
            ("$http_x_api_key", "header.x-api-key", Some("skip"), 0),
            ("$binary_remote_addr${http_x_key}", "client.ip header.x-key", Some("share"), 0),
            ("all", "all", None, 0),
            ("x$cookie_a", "cookie.a", Some("share"), 0),
            ("$binary_remote_addr$arg_q", "client.ip", None, 1),
            ("$host$uri", "host path", None, 1),
            ("$http_x_forwarded_for", "client.ip", None, 1),
            ("$server_name", "all", None, 0),
        ] {
            let key = base(&pieces(text)).unwrap();
            let [per] = &key.per[..] else { panic!("{text}") };
            assert_eq!(
                (&*per.parts.join(" "), per.on_missing, key.notes.len()),
                (parts, on_missing, notes),
                "{text}"
            );
        }
        for text in ["$arg_key", "$http_a$http_b", "", "$connection", "$remote_user", "$uri$arg_q"]
        {
            assert!(base(&pieces(text)).is_err(), "{text}");
        }
        assert!(base(&pieces("$server_name")).unwrap().by_server);
    }
}
