//! Refuses requests that a web page of another origin may have sent: to the admin listener, and to
//! listeners for decisions. A page in the browser of a client that can connect there must be able
//! neither to read nor to act, with a token or without.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Suspicion {
    /// A page of another site may have its name lead here (DNS rebinding). It cannot have an
    /// address lead elsewhere, but may be at another service behind the same one.
    #[error(
        "ask by this listener's own address or localhost, or add the host to `admin.hosts` or \
         `decisions[].hosts`"
    )]
    Host,
    /// A browser says that a page of another origin has it ask.
    #[error("a page of another origin must not ask for this")]
    Origin,
    /// What a form, or a script that has not asked whether it may, can send too.
    #[error("send `x-tollgate-action: 1` or `content-type: application/json` with a POST")]
    Form,
}

/// The names by which a listener may be asked, beside those that are always good.
#[derive(Clone, Copy)]
pub(crate) struct Hosts<'h> {
    /// In lower case.
    pub(crate) listed: &'h [String],
    /// Whether names without a dot are good too, such as those of containers: no page of the
    /// internet has one.
    pub(crate) takes_local_names: bool,
}

/// A header that says that a request is meant to act; its value does not matter. Forms cannot send
/// it, and a browser lets scripts of another origin send it only if this listener says so, which it
/// never does.
pub(crate) static ACTION: HeaderName = HeaderName::from_static("x-tollgate-action");

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl Hosts<'_> {
    /// Refuses what a page of another origin might have sent. `own` is the address at which the
    /// client has connected, if it has one.
    ///
    /// # Errors
    /// [`Suspicion::Host`], [`Suspicion::Origin`].
    pub(crate) fn check(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        own: Option<IpAddr>,
    ) -> Result<(), Suspicion> {
        let authority = authority(uri, headers).ok_or(Suspicion::Host)?;
        if !self.has(without_port(authority), own) {
            return Err(Suspicion::Host);
        }
        check_page(uri, headers)
    }

    fn has(&self, host: &str, own: Option<IpAddr>) -> bool {
        let host = host.to_ascii_lowercase();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let address: Option<IpAddr> = match bare {
            Some(ipv6) => ipv6.parse().ok().filter(IpAddr::is_ipv6),
            None => host.parse().ok().filter(IpAddr::is_ipv4),
        };
        let address = address.map(|address| address.to_canonical());
        let is_listed = |listed: &String| match listed.parse::<IpAddr>() {
            Ok(listed) => address == Some(listed.to_canonical()),
            Err(_) => *listed == host,
        };
        host == "localhost"
            || address.is_some_and(|address| address.is_loopback())
            || address.is_some() && address == own.map(|own| own.to_canonical())
            || self.takes_local_names && is_local_name(&host)
            || self.listed.iter().any(is_listed)
    }
}

/// Refuses what a browser says that a page of another origin has it send.
///
/// # Errors
/// [`Suspicion::Origin`].
pub(crate) fn check_page(uri: &Uri, headers: &HeaderMap) -> Result<(), Suspicion> {
    let is_harmless = |site: &HeaderValue| site == "same-origin" || site == "none";
    let is_own = |origin: &HeaderValue| {
        authority(uri, headers).is_some_and(|authority| is_origin_of(origin, authority))
    };
    let is_good = headers.get_all(&SEC_FETCH_SITE).iter().all(is_harmless)
        && headers.get_all(header::ORIGIN).iter().all(is_own);
    if is_good { Ok(()) } else { Err(Suspicion::Origin) }
}

/// Refuses a request to act that a form could have sent.
///
/// # Errors
/// [`Suspicion::Form`].
pub(crate) fn check_action(headers: &HeaderMap) -> Result<(), Suspicion> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let is_json = match (types.next(), types.next()) {
        (Some(only), None) => is_json(only),
        _ => false,
    };
    match is_json || headers.contains_key(&ACTION) {
        true => Ok(()),
        false => Err(Suspicion::Form),
    }
}

/// Refuses a program's call whose body is of a type that a form could have sent. Without a type it
/// is no page's: to have a browser send that across origins, it has to say where it is from
/// ([`check_page`]).
///
/// # Errors
/// [`Suspicion::Form`].
pub(crate) fn check_call(headers: &HeaderMap) -> Result<(), Suspicion> {
    match headers.contains_key(header::CONTENT_TYPE) {
        true => check_action(headers),
        false => Ok(()),
    }
}

/// What comes before the parameters says what it is: forms may send `text/plain; application/json`.
fn is_json(content_type: &HeaderValue) -> bool {
    let text = content_type.to_str().unwrap_or_default();
    let kind = text.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// What is asked: the target's authority, if it has one, or else the only `Host`.
fn authority<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<&'r str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (uri.authority(), hosts.next(), hosts.next()) {
        (Some(authority), _, None) => Some(authority.as_str()),
        (None, Some(host), None) => host.to_str().ok(),
        (None, None, None) | (_, _, Some(_)) => None,
    }
}

/// Whether it is the origin of pages that come from `authority`. By TLS too: a proxy in front of
/// this listener may offer it.
fn is_origin_of(origin: &HeaderValue, authority: &str) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let origin = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    origin.is_some_and(|origin| origin.eq_ignore_ascii_case(authority))
}

/// A name of one label, such as a container's (`3fa2b9c1d0e4`), and no number, which browsers take
/// for an address: digits, or hexadecimal ones after `0x`.
fn is_local_name(host: &str) -> bool {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_number = host.bytes().all(|byte| byte.is_ascii_digit()) || host.starts_with("0x");
    host.starts_with(|first: char| first.is_ascii_alphanumeric())
        && host.bytes().all(of_name)
        && !is_number
}

/// `127.0.0.1:9901` and `[::1]:9901` without the port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_asked_by(
        takes_local_names: bool,
        uri: &str,
        headers: &HeaderMap,
    ) -> Result<(), Suspicion> {
        let listed = ["tollgate".into(), "admin.example".into(), "192.0.2.9".into()];
        let hosts = Hosts { listed: &listed, takes_local_names };
        hosts.check(&uri.parse().unwrap(), headers, "10.1.2.3".parse().ok())
    }

    fn fields(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
        let fields = fields.iter();
        fields.map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).fold(
            HeaderMap::new(),
            |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            },
        )
    }

    fn checked(uri: &str, of: &[(HeaderName, &'static str)]) -> Result<(), Suspicion> {
        is_asked_by(false, uri, &fields(of))
    }

    #[test]
    fn loopback_the_own_address_and_listed_hosts_may_be_asked() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:9901",
            "127.9.9.9",
            "[::1]:9901",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "localhost:1",
            "LOCALHOST",
            "10.1.2.3:9901",
            "10.1.2.3",
            "tollgate:9901",
            "Admin.Example",
            "192.0.2.9:80",
        ] {
            assert_eq!(checked("/status", &[(header::HOST, host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:80",
            "127.0.0.1.evil.example",
            "admin.example.evil.example",
            "localhost.",
            "other",
            "10.1.2.4:9901",
            "192.0.2.8",
            "0.0.0.0",
            "[::]",
            "::1",
            "[127.0.0.1]",
            "2130706433",
            "",
            "[::1",
            "a.",
            "evil.example@127.0.0.1",
        ] {
            let asked = checked("/status", &[(header::HOST, host)]);
            assert_eq!(asked, Err(Suspicion::Host), "{host}");
        }
        assert_eq!(checked("/status", &[]), Err(Suspicion::Host));
        let twice = [(header::HOST, "127.0.0.1"), (header::HOST, "127.0.0.1")];
        assert_eq!(checked("/status", &twice), Err(Suspicion::Host));
    }

    #[test]
    fn name_without_a_dot_is_good_where_programs_ask() {
        for (host, expected) in [
            ("tollgate:8090", true),
            ("edge-1", true),
            ("EDGE_1:1", true),
            ("3fa2b9c1d0e4:8090", true),
            ("evil.example", false),
            ("edge.", false),
            ("2130706433", false),
            ("0x7f000001", false),
            ("0X7F000001", false),
            ("017700000001", false),
            ("::1", false),
            ("[a", false),
            ("", false),
        ] {
            let checked = is_asked_by(true, "/v1/charge", &fields(&[(header::HOST, host)]));
            assert_eq!(checked.is_ok(), expected, "{host}");
        }
    }

    #[test]
    fn target_with_a_host_counts_more_than_the_field() {
        let evil = [(header::HOST, "evil.example")];
        assert_eq!(checked("http://127.0.0.1/status", &evil), Ok(()));
        let local = [(header::HOST, "127.0.0.1")];
        assert_eq!(checked("http://evil.example/", &local), Err(Suspicion::Host));
        assert_eq!(checked("http://a@127.0.0.1/", &local), Err(Suspicion::Host));
    }

    #[test]
    fn only_pages_of_its_own_may_ask() {
        let at = |more: &[(HeaderName, &'static str)]| {
            checked("/status", &[&[(header::HOST, "localhost:9901")], more].concat())
        };
        for site in ["same-origin", "none"] {
            assert_eq!(at(&[(SEC_FETCH_SITE.clone(), site)]), Ok(()), "{site}");
        }
        for site in ["cross-site", "same-site", "", "same-origin, cross-site"] {
            let asked = at(&[(SEC_FETCH_SITE.clone(), site)]);
            assert_eq!(asked, Err(Suspicion::Origin), "{site}");
        }
        let two = [(SEC_FETCH_SITE.clone(), "same-origin"), (SEC_FETCH_SITE.clone(), "cross-site")];
        assert_eq!(at(&two), Err(Suspicion::Origin));
        for origin in ["http://localhost:9901", "https://localhost:9901"] {
            assert_eq!(at(&[(header::ORIGIN, origin)]), Ok(()), "{origin}");
        }
        for origin in [
            "http://localhost",
            "http://localhost:9902",
            "http://evil.example",
            "http://127.0.0.1:9901",
            "null",
            "",
            "localhost:9901",
            "http://localhost:9901.evil.example",
        ] {
            let asked = at(&[(header::ORIGIN, origin)]);
            assert_eq!(asked, Err(Suspicion::Origin), "{origin}");
        }
    }

    #[test]
    fn forms_cannot_act() {
        let json = "application/json; charset=utf-8";
        for good in [(ACTION.clone(), "1"), (ACTION.clone(), ""), (header::CONTENT_TYPE, json)] {
            assert_eq!(check_action(&fields(&[good])), Ok(()));
        }
        assert_eq!(check_action(&fields(&[])), Err(Suspicion::Form));
        for form in [
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/plain",
            "text/plain; application/json",
            "application/jsonp",
            "",
        ] {
            let asked = check_action(&fields(&[(header::CONTENT_TYPE, form)]));
            assert_eq!(asked, Err(Suspicion::Form), "{form}");
        }
        let two = [(header::CONTENT_TYPE, "text/plain"), (header::CONTENT_TYPE, json)];
        assert_eq!(check_action(&fields(&two)), Err(Suspicion::Form));
    }
}
