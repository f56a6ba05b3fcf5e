//! Refuses requests to the admin listener that a web page may have sent. The listener has no
//! passwords: it trusts every client that can connect, and so a page in the browser of such a
//! client must not be able to use it.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, Method, Uri, header};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Suspicion {
    /// A page of another site may have its name lead here (DNS rebinding); an address cannot be
    /// made to, nor a name without a dot, as containers have them: no site is called so.
    #[error("ask for this by an IP address or a name without a dot, such as localhost")]
    Name,
    /// Only a browser says on behalf of which page it asks.
    #[error("a page in a browser must not ask for this")]
    Origin,
}

/// Refuses what a page in a browser might have sent.
pub(super) fn check(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Suspicion> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (uri.host(), hosts.next(), hosts.next()) {
        (Some(host), _, None) => Some(host),
        (None, Some(host), None) => host.to_str().ok().map(without_port),
        (None, None, None) | (_, _, Some(_)) => None,
    };
    if !host.is_some_and(is_local) {
        return Err(Suspicion::Name);
    }
    if *method == Method::POST && headers.contains_key(header::ORIGIN) {
        return Err(Suspicion::Origin);
    }
    Ok(())
}

/// `127.0.0.1:9901` and `[::1]:9901` without the port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    }
}

fn is_local(host: &str) -> bool {
    let ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_label = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match ipv6 {
        Some(ipv6) => ipv6.parse::<Ipv6Addr>().is_ok(),
        None => {
            let is_name = !host.is_empty() && host.bytes().all(is_label);
            is_name || host.parse::<Ipv4Addr>().is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn checked(uri: &str, hosts: &[&'static str]) -> Result<(), Suspicion> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, HeaderValue::from_static(host));
        }
        check(&Method::GET, &uri.parse().unwrap(), &headers)
    }

    #[test]
    fn only_addresses_and_names_without_a_dot_are_hosts() {
        for host in [
            "127.0.0.1",
            "10.1.2.3:9901",
            "[::1]:9901",
            "[::1]",
            "localhost:1",
            "LOCALHOST",
            "tollgate:9901",
            "tollgate_1",
        ] {
            assert_eq!(checked("/status", &[host]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:80",
            "127.0.0.1.evil.example",
            "",
            "[::1",
            "a.",
        ] {
            assert_eq!(checked("/status", &[host]), Err(Suspicion::Name), "{host}");
        }
        assert_eq!(checked("/status", &[]), Err(Suspicion::Name));
        assert_eq!(checked("/status", &["127.0.0.1", "127.0.0.1"]), Err(Suspicion::Name));
    }

    #[test]
    fn target_with_a_host_counts_more_than_the_field() {
        assert_eq!(checked("http://127.0.0.1/status", &["evil.example"]), Ok(()));
        assert_eq!(checked("http://evil.example/", &["127.0.0.1"]), Err(Suspicion::Name));
    }

    #[test]
    fn pages_may_not_post() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        let uri = Uri::from_static("/reload");
        assert_eq!(check(&Method::POST, &uri, &headers), Ok(()));
        headers.insert(header::ORIGIN, HeaderValue::from_static("http://localhost"));
        assert_eq!(check(&Method::POST, &uri, &headers), Err(Suspicion::Origin));
        assert_eq!(check(&Method::GET, &uri, &headers), Ok(()));
    }
}
