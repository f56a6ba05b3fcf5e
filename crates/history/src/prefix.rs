//! What other programs put in front of a server's lines as they carry them: syslog, the container
//! runtimes of Kubernetes, and Docker Compose.

use super::{
    draft::address,
    instant::{self, MONTHS},
};

/// What is behind such a prefix; all, if there is none.
///
/// `front` is the start of a line, up to where a client cannot have written anything yet.
pub(super) fn without_prefix(front: &str) -> &str {
    // No line has one whose first word is an address: nearly all lines of most logs.
    if front.split(' ').next().is_some_and(|word| address(word).is_some()) {
        return front;
    }
    match container(front).or_else(|| compose(front)).or_else(|| syslog(front)) {
        // One program may carry what another one has carried.
        Some(rest) => without_prefix(rest),
        None => front,
    }
}

/// The JSON of a line, behind such a prefix or the name of the program that syslog has
/// (`haproxy[1]: `); none: the line is no JSON, or something else is in front.
pub(super) fn json(line: &str) -> Option<&str> {
    if line.starts_with('{') {
        return Some(line);
    }
    let (front, json) = line.split_at_checked(line.find('{')?)?;
    let is_tag = front.strip_suffix(": ").is_some_and(|tag| !tag.contains(' '));
    (is_tag || without_prefix(front).is_empty()).then_some(json)
}

/// Whether a word can be a client: an address, a name of a host, or what servers write for a socket
/// (`unix:`).
pub(super) fn is_client(word: &str) -> bool {
    is_name(word) || word == "unix:" || address(word).is_some()
}

/// Whether a word can be a virtual host, perhaps with a port.
pub(super) fn is_host(word: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && !port.is_empty();
    let name =
        word.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(word, |(name, _)| name);
    is_name(name) || address(word).is_some()
}

/// Whether a word has no other characters than names have, which includes the hyphen for none.
fn is_name(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte) || byte >= 0x80;
    !word.is_empty() && word.bytes().all(is_part)
}

/// `2026-11-21T08:41:00.1Z stdout F `, as the Container Runtime Interface has it.
fn container(front: &str) -> Option<&str> {
    let mut words = front.splitn(4, ' ');
    let (time, stream, tag) = (words.next()?, words.next()?, words.next()?);
    let is_one = instant::iso(time).is_some()
        && matches!(stream, "stdout" | "stderr")
        && matches!(tag, "F" | "P");
    words.next().filter(|_| is_one)
}

/// `web-1  | `, as Docker Compose puts the name of a service in front.
fn compose(front: &str) -> Option<&str> {
    let (name, rest) = front.split_once(" | ")?;
    let is_one = !name.trim_end().contains(' ');
    is_one.then(|| rest.trim_start())
}

/// `<190>Nov 21 08:41:00 web1 nginx: `, with or without a priority, with a time of either kind; and
/// `<190>1 2026-11-21T08:41:00Z web1 nginx 77 - - `, as RFC 5424 has it.
fn syslog(front: &str) -> Option<&str> {
    let priority = front.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let rest = priority.map_or(front, |(_, rest)| rest);
    if let Some(rest) = rest.strip_prefix("1 ") {
        // Time, host, program, process, kind, and data, which is a hyphen as nobody configures any.
        let mut words = rest.splitn(7, ' ');
        let time = words.next()?;
        let message = words.nth(5).map(|message| message.trim_start_matches('\u{feff}'));
        return message.filter(|_| time == "-" || instant::iso(time).is_some());
    }
    let first = rest.split(' ').next()?;
    let is_time = MONTHS.contains(&first) || instant::iso(first).is_some();
    let (_, rest) = rest.split_once(": ").filter(|_| is_time)?;
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_taken_off() {
        for front in [
            "192.0.2.1 - ann",
            "a.example - ann: b | c",
            "www.example.com:443 2001:db8::1 - -",
            "- - -",
        ] {
            assert_eq!(without_prefix(front), front);
        }
        for prefix in [
            "<190>Nov 21 08:41:00 web1 nginx: ",
            "Nov  1 08:41:00 web1 nginx[77]: ",
            "<190>Nov 21 08:41:00 nginx: ",
            "2026-11-21T08:41:00.123456+01:00 web1 nginx: ",
            "<190>1 2026-11-21T08:41:00Z web1 nginx 77 - - ",
            "2026-11-21T08:41:00.1Z stdout F ",
            "web-1  | ",
            "<190>1 2026-11-21T08:41:00Z web1 nginx 77 - - \u{feff}",
            "<190>Nov 21 08:41:00 web1 nginx: web-1  | ",
        ] {
            assert_eq!(without_prefix(&format!("{prefix}192.0.2.1 - ann")), "192.0.2.1 - ann");
            assert_eq!(json(&format!("{prefix}{{}}")), Some("{}"), "{prefix}");
        }
    }

    #[test]
    fn json_behind_something_else_is_none() {
        assert_eq!(json("haproxy[1]: {}"), Some("{}"));
        for line in ["a {}", "192.0.2.1:1 [21/Nov/2026:08:41:00.000] in b/s {a}", "", "x"] {
            assert_eq!(json(line), None, "{line}");
        }
    }

    #[test]
    fn clients_are_addresses_or_names() {
        for (word, expected) in [
            ("192.0.2.1", true),
            ("2001:db8::1", true),
            ("[2001:db8::1]:80", true),
            ("crawler_1.example", true),
            ("unix:", true),
            ("-", true),
            ("<190>Nov", false),
            ("|", false),
            ("nginx:", false),
            ("", false),
        ] {
            assert_eq!(is_client(word), expected, "{word}");
        }
        for (word, expected) in [
            ("a.example:80", true),
            ("_", true),
            ("192.0.2.1:80", true),
            ("nginx:", false),
            ("[x]", false),
        ] {
            assert_eq!(is_host(word), expected, "{word}");
        }
    }
}
