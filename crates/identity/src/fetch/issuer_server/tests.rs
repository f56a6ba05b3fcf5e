use super::*;

/// The certificate of an authority, in PEM.
pub(in crate::fetch) fn authority() -> String {
    rcgen::generate_simple_self_signed(vec!["authority.example".into()]).unwrap().cert.pem()
}

fn parse(url: &str, allow_http: bool) -> Result<String, IssuerServerError> {
    IssuerServer::parse(url, allow_http, None, Duration::from_secs(5))
        .map(|server| server.to_string())
}

#[test]
fn only_https_or_this_machine_is_allowed() {
    for url in [
        "https://id.example.com/keys",
        "https://id.example.com:8443/keys",
        "https://192.0.2.1/keys",
        "https://[2001:db8::1]:8443/keys",
        "http://localhost:8080/keys",
        "http://LOCALHOST/keys",
        "http://127.0.0.1:1/keys",
        "http://127.8.9.1/keys",
        "http://[::1]:80/keys",
    ] {
        assert_eq!(parse(url, false).as_deref(), Ok(url));
    }
    for url in [
        "http://id.example.com/keys",
        "http://10.0.0.1/keys",
        "http://localhost.example.com/keys",
        "http://127.0.0.1.example.com/keys",
        "http://0.0.0.0/keys",
        "http://[::]/keys",
    ] {
        assert_eq!(parse(url, false), Err(IssuerServerError::NotHttps), "{url}");
        assert_eq!(parse(url, true).as_deref(), Ok(url));
    }
}

#[test]
fn other_urls_are_refused() {
    use IssuerServerError::*;
    for (url, expected) in [
        ("", NotUrl),
        ("id.example.com/keys", NotUrl),
        ("id.example.com", NotUrl),
        ("/keys", NotUrl),
        ("https:/keys", NotUrl),
        ("https:///keys", NotUrl),
        ("https://id.example.com/a b", NotUrl),
        ("https://id.example.com/\u{e9}", NotUrl),
        ("https://user:password@id.example.com/", User),
        ("https://@id.example.com/", User),
        ("https://id.example.com/keys#part", Fragment),
        ("https://id.example.com:0/", Host),
        ("https://id.example.com:/", Host),
        ("https://-id..example.com/", Host),
        ("file://id.example.com/keys", NotHttps),
        ("ftp://localhost/keys", NotHttps),
    ] {
        assert_eq!(parse(url, false), Err(expected), "{url}");
    }
    // Either the parser or the check of the port may refuse it.
    assert!(parse("https://id.example.com:65536/", false).is_err());
}

#[test]
fn printed_endpoint_has_no_query() {
    let server = IssuerServer::parse("https://a.example/k?key=s3cret", false, None, Duration::MAX);
    let server = server.unwrap();
    assert_eq!(
        format!("{server} {server:?}"),
        "https://a.example/k IssuerServer(https://a.example/k)"
    );
}

#[test]
fn referred_url_is_no_less_safe_than_the_document() {
    let secure = "https://b.example/keys";
    let plain = "http://b.example/keys";
    let here = "http://127.0.0.1:9000/keys";
    for (from, allow_http, allowed, refused) in [
        ("https://a.example/", false, vec![secure], vec![plain, here]),
        ("https://a.example/", true, vec![secure], vec![plain, here]),
        ("http://localhost/", false, vec![secure, here], vec![plain]),
        ("http://a.example/", true, vec![secure, here, plain], vec![]),
    ] {
        let from = IssuerServer::parse(from, allow_http, None, Duration::MAX).unwrap();
        for url in allowed {
            assert_eq!(from.beside(url).unwrap().to_string(), url, "{from}");
        }
        for url in refused {
            assert_eq!(from.beside(url), Err(IssuerServerError::NotHttps), "{from} {url}");
        }
    }
}

#[test]
fn authorities_are_certificates() {
    let parse = |pem: &str| {
        let pem = pem.as_bytes().into();
        IssuerServer::parse("https://a.example/", false, Some(pem), Duration::MAX).map(|_| ())
    };
    assert_eq!(parse(&authority()), Ok(()));
    assert_eq!(parse(&(authority() + &authority())), Ok(()));
    let garbled = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
    for (pem, expected) in [
        ("", IssuerServerError::NoAuthority),
        ("no PEM at all", IssuerServerError::NoAuthority),
        (garbled, IssuerServerError::Authority),
    ] {
        assert_eq!(parse(pem), Err(expected), "{pem}");
        assert!(expected.is_about_authorities());
    }
}
