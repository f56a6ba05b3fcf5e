//! What common and combined have in front of the time: who asked, and of which host.

use super::{
    draft::{address, known},
    prefix::{is_client, is_host},
};

/// What is in front of the time.
pub(super) struct Front<'l> {
    /// The virtual host, as in Apache's `vhost_combined`.
    pub(super) host: Option<&'l str>,
    pub(super) client: &'l str,
    /// Whether the client is of a list of forwarded addresses.
    pub(super) is_forwarded: bool,
    pub(super) user: &'l str,
}

/// Why a line has none.
pub(super) enum NoFront {
    Shape,
    /// Another program has put something in front.
    Prefix,
}

impl<'l> Front<'l> {
    /// Reads `[host] address - user`, or `[host] list [address] - user`.
    ///
    /// # Errors
    /// [`NoFront`].
    pub(super) fn of(text: &'l str) -> Result<Front<'l>, NoFront> {
        if let Some(front) = Front::with_list(text) {
            return Ok(front);
        }
        let mut words = text.splitn(4, ' ');
        let mut word = || words.next().ok_or(NoFront::Shape);
        let (mut client, second, third) = (word()?, word()?, word()?);
        let (mut host, mut user) = (None, third);
        // `host:port address - user`; a user's name may have spaces, too, so that the second word
        // decides.
        if let Some(fourth) = words.next() {
            if third == "-" && is_host(client) && address(second).is_some() {
                (host, client, user) = (Some(client), second, fourth);
            } else {
                let start = text.len() - third.len() - 1 - fourth.len();
                user = text.get(start..).ok_or(NoFront::Shape)?;
            }
        }
        // A word before the client is not its name.
        let is_behind = host.is_none()
            && address(client).is_none()
            && text.split(' ').skip(1).any(|word| address(word).is_some());
        if is_behind || !is_client(client) {
            return Err(NoFront::Prefix);
        }
        Ok(Front { host, client, is_forwarded: false, user })
    }

    /// `host "client, proxy" peer - user`: the list of `x-forwarded-for` has quotes or not, and
    /// host or peer may be missing.
    fn with_list(text: &'l str) -> Option<Front<'l>> {
        // Nearly all lines of most logs.
        if !text.contains([',', '"']) && text.matches(' ').count() < 3 {
            return None;
        }
        let first = text.split_once(' ');
        let is_name = |word: &str| is_host(word) && address(word).is_none();
        let (host, rest) = match first.filter(|(word, _)| is_name(word)) {
            Some((host, rest)) => (known(host), rest),
            None => (None, text),
        };
        let (list, rest) = list(rest)?;
        let (peer, behind) = rest.split_once(' ')?;
        let is_peer = address(peer).is_some();
        let (_ident, user) = if is_peer { behind } else { rest }.split_once(' ')?;
        let found = first_address(list);
        let client = found.or(is_peer.then_some(peer))?;
        Some(Front { host, client, is_forwarded: found.is_some(), user })
    }
}

/// The list at the start, and what is behind it. One address alone is a list if another one is
/// behind it, or if it has quotes.
fn list(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix('"') {
        // A client may have sent anything.
        return rest.split_once("\" ");
    }
    let mut end = 0;
    loop {
        end += text.get(end..)?.find(' ')?;
        let (list, rest) = (text.get(..end)?, text.get(end + 1..)?);
        if !list.ends_with(',') {
            let is_one = list.contains(',')
                || rest.split_once(' ').is_some_and(|(word, _)| address(word).is_some());
            return (is_one && is_list(list)).then_some((list, rest));
        }
        end += 1;
    }
}

/// The first address of a list.
pub(super) fn first_address(list: &str) -> Option<&str> {
    list.split(',').map(str::trim).find(|word| address(word).is_some())
}

/// Whether these are addresses, or what proxies write for one that they do not know.
fn is_list(text: &str) -> bool {
    text.split(',')
        .map(str::trim)
        .all(|word| matches!(word, "-" | "unknown") || address(word).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_list_are_found_in_front() {
        for (text, expected) in [
            ("192.0.2.1 - ann b", "- 192.0.2.1 ann b"),
            ("a.example:443 192.0.2.1 - ann", "a.example:443 192.0.2.1 ann"),
            ("a.example \"203.0.113.7, 10.0.0.1\" 10.2.1.185 - ann", "a.example 203.0.113.7* ann"),
            ("a.example 203.0.113.7, 10.0.0.1 10.2.1.185 - ann", "a.example 203.0.113.7* ann"),
            ("a.example 203.0.113.7,10.0.0.1 10.2.1.185 - ann", "a.example 203.0.113.7* ann"),
            ("a.example 203.0.113.7 10.2.1.185 - ann", "a.example 203.0.113.7* ann"),
            ("a.example \"-\" 10.2.1.185 - ann", "a.example 10.2.1.185 ann"),
            ("a.example \"x y, 203.0.113.7\" 10.2.1.185 - ann", "a.example 203.0.113.7* ann"),
            ("a.example \"x\" 10.2.1.185 - ann", "a.example 10.2.1.185 ann"),
            ("a.example - 10.2.1.185 - ann", "a.example 10.2.1.185 ann"),
            ("\"unknown, 2001:db8::1\" 10.2.1.185 - ann", "- 2001:db8::1* ann"),
            ("203.0.113.7, 10.0.0.1 - ann", "- 203.0.113.7* ann"),
            ("203.0.113.7, 10.0.0.1 10.2.1.185 - ann", "- 203.0.113.7* ann"),
            ("- 10.2.1.185 - ann", "- 10.2.1.185 ann"),
            ("a, b 10.2.1.185 - ann", "prefix"),
            ("\"-\" - ann", "prefix"),
            ("203.0.113.7 -", "shape"),
        ] {
            let found = match Front::of(text) {
                Ok(Front { host, client, is_forwarded, user }) => format!(
                    "{} {client}{} {user}",
                    host.and_then(known).unwrap_or("-"),
                    if is_forwarded { "*" } else { "" }
                ),
                Err(NoFront::Shape) => "shape".to_owned(),
                Err(NoFront::Prefix) => "prefix".to_owned(),
            };
            assert_eq!(found, expected, "{text}");
        }
    }
}
