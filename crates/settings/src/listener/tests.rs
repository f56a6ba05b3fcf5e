use rcgen::{
    CertificateParams, CertificateRevocationListParams, DnType, Issuer, KeyIdMethod, KeyPair,
    SerialNumber,
};
use tollgate_clock::Clock;
use tollgate_yaml::{Sources, warning::OnSettings};

use super::*;
use crate::{
    Settings,
    tests::{FILE, rendered},
};

/// One of version 1, as `openssl ca` writes it without `crlnumber`.
const VERSION_1: &str = "\
-----BEGIN X509 CRL-----
MIHMMHUCAQEwCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEVGVzdBcNMjYxMTIyMTkz
MDI2WhcNMjYxMTI5MTkzMDI2WjA1MDMCFEjSqNLR1PTGUzmnyTvjKinpiBoEFw0y
NjExMjIxOTMwMjVaMAwwCgYDVR0VBAMKAQEwCgYIKoZIzj0EAwIDRwAwRAIgPL6E
H1F2jqx5ZIa5QiXkztaj6jhgXmD09xcZgigYVCQCIE1b0H5AXZEHjFz8nro/pG15
e3DaVRcYiRYgq2SMPYhv
-----END X509 CRL-----
";

/// Certificates for `api.example.com` beside the settings: `good` and `other` with their keys, and
/// `old`, whose time is over. Each has a CRL, of which that of `old` is out of date.
fn sources() -> Sources {
    let broken = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    let mut sources = Sources::system()
        .with_file("config/text", "nothing")
        .with_file("config/version_1.crl", VERSION_1)
        .with_file("config/broken.crl", broken);
    for name in ["good", "other", "old"] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["api.example.com".into()]).unwrap();
        if name == "old" {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        let key_pem = key.serialize_pem();
        let year = if name == "old" { 2021 } else { 2090 };
        let crl = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let crl = crl.signed_by(&Issuer::new(params, key)).unwrap();
        sources = sources
            .with_file(format!("config/{name}.crl"), crl.pem().unwrap())
            .with_file(format!("config/{name}.pem"), certificate.pem())
            .with_file(format!("config/{name}.key"), key_pem);
    }
    sources
}

/// Reads settings with these listeners, which begin on line 2.
fn parse(listeners: &str) -> Result<Settings, Vec<String>> {
    let text = format!("version: 1\nlisteners: [{listeners}]\n");
    Settings::parse(Path::new(FILE), &text, &sources()).map_err(|problems| rendered(&problems))
}

fn good(listener: &str) -> ListenerSettings {
    let settings = parse(listener).unwrap_or_else(|problems| panic!("{listener}: {problems:?}"));
    settings.listeners[0].clone()
}

#[test]
fn listener_is_plain_http_of_both_versions_unless_it_says_otherwise() {
    let plain = good("{ address: 127.0.0.1:80 }");
    assert_eq!(plain, ListenerSettings::plain(ListenAddress::Tcp(([127, 0, 0, 1], 80).into())));
    let protocols = |list: &str| good(&format!("{{ address: \"[::]:80\", protocols: {list} }}"));
    assert_eq!(protocols("[h2]").protocols, Protocols::Http2);
    assert_eq!(protocols("[http1]").protocols, Protocols::Http1);
    assert_eq!(protocols("[http1, h2]").protocols, Protocols::Both);
}

#[test]
fn unix_socket_is_beside_the_settings_or_where_they_say() {
    let socket = good("{ address: unix:run/a.sock, mode: \"0600\", peers: trusted }");
    assert_eq!(socket.address, ListenAddress::Unix("config/run/a.sock".into()));
    assert_eq!((socket.mode, socket.trusts_local_peers), (0o600, true));
    let socket = good("{ address: \"unix:/run/a.sock\" }");
    assert_eq!(socket.address.to_string(), "unix:/run/a.sock");
    assert_eq!((socket.mode, socket.trusts_local_peers), (0o660, false));
}

#[test]
fn hsts_is_written_as_browsers_read_it() {
    let hsts = |fields: &str| {
        let tls = "tls: { certificates: [{ certificate_file: good.pem, key_file: good.key }] }";
        let listener = good(&format!("{{ address: 127.0.0.1:80, {tls}, hsts: {{ {fields} }} }}"));
        listener.hsts.unwrap().to_str().unwrap().to_owned()
    };
    assert_eq!(hsts("max_age: 365d"), "max-age=31536000");
    assert_eq!(hsts("max_age: 0s, include_subdomains: true"), "max-age=0; includeSubDomains");
    assert_eq!(
        hsts("max_age: 2y, include_subdomains: true, preload: true"),
        "max-age=63115200; includeSubDomains; preload"
    );
}

#[test]
fn certificate_whose_time_is_over_is_a_warning() {
    let settings = parse(
        "{ address: 127.0.0.1:80, tls: { certificates: [{ certificate_file: old.pem, key_file: \
         old.key }] } }",
    );
    let warnings = settings.unwrap_or_else(|problems| panic!("{problems:?}")).warnings;
    let warnings = rendered(warnings.iter().map(|warning| &warning.problem));
    assert_eq!(warnings, ["2:80 the certificate in `old.pem` has expired: renew it"]);
}

#[test]
fn clients_are_asked_for_certificates_where_a_listener_names_their_authorities() {
    const PLAIN: &str = "{ address: 127.0.0.1:80 }";
    const TLS: &str = "{ address: 127.0.0.1:443, tls: { certificates: [{ certificate_file: \
                       good.pem, key_file: good.key }] } }";
    let asking = TLS.replace(" }] }", " }], client_ca_file: good.pem }");
    for (listeners, asks) in [
        (PLAIN.to_owned(), false),
        (TLS.to_owned(), false),
        (format!("{PLAIN}, {asking}"), true),
        (asking.replace(": good.pem }", ": good.pem, client_certificate: optional }"), true),
    ] {
        let settings = parse(&listeners).unwrap_or_else(|problems| panic!("{problems:?}"));
        let is_met = settings.meet(&OnSettings::NoClientCertificates);
        assert_eq!(is_met, !asks, "{listeners}");
    }
}

/// What `check` warns of, of a listener whose clients are to be signed by `good`.
fn warned_of_lists(fields: &str) -> Vec<String> {
    let settings = parse(&format!(
        "{{ address: 127.0.0.1:80, tls: {{ certificates: [{{ certificate_file: good.pem, key_file: \
         good.key }}], client_ca_file: good.pem, {fields} }} }}"
    ));
    let warnings = settings.unwrap_or_else(|problems| panic!("{problems:?}")).warnings;
    let now = Clock::System.now();
    let warnings = warnings.iter().filter(|warning| warning.holds(now, |_| false));
    warnings.map(|warning| warning.problem.message().to_owned()).collect()
}

#[test]
fn list_that_is_out_of_date_or_missing_is_a_warning() {
    assert_eq!(warned_of_lists("crl_file: good.crl"), [""; 0]);
    assert_eq!(
        warned_of_lists("crl_file: other.crl"),
        ["no CRL of `CN=good` in `other.crl`: its clients are refused"]
    );
    assert_eq!(warned_of_lists("crl_file: other.crl, crl_missing: accept"), [""; 0]);
    assert_eq!(
        warned_of_lists("crl_file: old.crl, crl_missing: accept"),
        ["the CRL of `CN=old` in `old.crl` is out of date"]
    );
}

#[test]
fn certificates_are_no_reason_to_restart() {
    let tls = |name: &str| {
        parse(&format!(
            "{{ address: 127.0.0.1:80, tls: {{ certificates: [{{ certificate_file: {name}.pem, \
             key_file: {name}.key }}] }} }}"
        ))
        .unwrap_or_else(|problems| panic!("{problems:?}"))
    };
    let running = tls("good");
    let newer = tls("other");
    assert_eq!(newer.needing_restart(&running), [""; 0]);
    let renewed: Vec<String> =
        newer.renew_certificates(&running).map(|(address, _)| address.to_string()).collect();
    assert_eq!(renewed, ["127.0.0.1:80"]);
    let plain =
        parse("{ address: 127.0.0.1:80 }").unwrap_or_else(|problems| panic!("{problems:?}"));
    assert_eq!(plain.needing_restart(&running), ["listeners"]);
    assert_eq!(plain.renew_certificates(&running).count(), 0);
}

#[test]
fn mistakes_are_reported_with_what_to_write() {
    let pair = "{ certificate_file: good.pem, key_file: good.key }";
    let mut wrong = Vec::new();
    for (fields, expected) in [
        ("address: localhost", "`localhost` is not an address to listen on"),
        ("address: \"unix:\"", "not the path of a socket"),
        ("address: \"unix:/run/\"", "not the path of a socket"),
        ("address: A, protocols: [h3]", "unknown value `h3`: did you mean `h2`?"),
        ("address: A, protocols: []", "no protocol: write [http1, h2]"),
        ("address: A, mode: \"0600\"", "only a Unix socket has this: remove it"),
        ("address: A, peers: trusted", "only a Unix socket has this: remove it"),
        ("address: unix:a, mode: \"999\"", "`999` is not a file mode"),
        (
            "address: A, proxy_protocol: { trusted: [] }",
            "an empty list: no connection would be accepted: write the addresses",
        ),
        ("address: A, proxy_protocol: { trusted: [a] }", "`a` is neither an address nor a network"),
        ("address: A, proxy_protocol: {}", "missing field `trusted`"),
        ("address: A, redirect: http", "unknown value `http`: did you mean `https`?"),
        ("address: A, redirect: { status: 303 }", "303 is not the status of a redirect"),
        ("address: A, redirect: { port: 0 }", "0 is out of range: write 1 to 65535"),
        ("address: A, redirect: { prot: 1 }", "unknown field `prot`"),
        ("address: A, hsts: { max_age: 1y }", "browsers ignore `hsts` without TLS"),
        ("address: A, tls: T, hsts: { max_age: 11y }", "`11y` is out of range"),
        ("address: A, tls: T, hsts: { max_age: 1y, preload: true }", "browsers do not accept this"),
        ("address: A, tls: T, redirect: https", "a listener with `tls` does not need `redirect`"),
        ("address: A, tls: { certificates: [] }", "TLS without a certificate"),
        ("address: A, tls: { certificates: [PAIR], min_version: \"1.1\" }", "unknown value `1.1`"),
        (
            "address: A, tls: { certificates: [PAIR], client_certificate: optional }",
            "`client_certificate` needs `client_ca_file`: add `client_ca_file`",
        ),
        (
            "address: A, tls: { certificates: [PAIR], client_ca_file: text }",
            "no certificate in `text`",
        ),
        ("address: A, tls: { certificates: [PAIR], client_ca_file: gone }", "cannot read `gone`"),
        (
            "address: A, tls: { certificates: [PAIR], crl_file: good.crl }",
            "`crl_file` needs `client_ca_file`: add `client_ca_file`, or remove this",
        ),
        (
            "address: A, tls: { certificates: [PAIR], client_ca_file: good.pem, crl_expired: accept }",
            "`crl_expired` needs `crl_file`: add `crl_file`, or remove this",
        ),
        (
            "address: A, tls: { certificates: [PAIR], crl_missing: accept }",
            "`crl_missing` needs `crl_file`",
        ),
        (
            "address: A, tls: { certificates: [PAIR], client_ca_file: good.pem, crl_file: good.crl, crl_missing: deny }",
            "unknown value `deny`",
        ),
        (
            "address: A, tls: { certificates: [PAIR], client_ca_file: good.pem, crl_file: text }",
            "no CRL in `text`: name a file with CRLs in PEM form",
        ),
        (
            "address: A, tls: { certificates: [PAIR], client_ca_file: good.pem, crl_file: broken.crl }",
            "a CRL in `broken.crl` cannot be read: name a file with CRLs in PEM form",
        ),
        (
            "address: A, tls: { certificates: [PAIR], client_ca_file: good.pem, crl_file: version_1.crl }",
            "cannot check certificates by `version_1.crl`: provided CRL could not be parsed: \
             ParseError: use whole lists of version 2",
        ),
        (
            "address: A, tls: { certificates: [PAIR], client_ca_file: good.pem, crl_file: gone }",
            "cannot read `gone`",
        ),
        (
            "address: A, tls: { certificates: [{ certificate_file: good.pem, key_file: other.key }] }",
            "`other.key` is not the key of `good.pem`: name the key that the certificate was made for",
        ),
        (
            "address: A, tls: { certificates: [{ certificate_file: text, key_file: good.key }] }",
            "no certificate in `text`",
        ),
        (
            "address: A, tls: { certificates: [{ certificate_file: good.pem, key_file: text }] }",
            "no private key in `text`",
        ),
    ] {
        let fields = fields
            .replace(": T,", &format!(": {{ certificates: [{pair}] }},"))
            .replace("PAIR", pair)
            .replace(": A", ": 127.0.0.1:80");
        let problems = parse(&format!("{{ {fields} }}")).err().unwrap_or_default();
        let message =
            problems.first().and_then(|problem| problem.strip_prefix("2:")?.split_once(' '));
        if problems.len() != 1 || !message.is_some_and(|(_, message)| message.starts_with(expected))
        {
            wrong.push((fields, problems));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn shipped_examples_are_good() {
    let shipped = include_str!("../../../../config/tollgate.yaml");
    let (_, example) = shipped.split_once("\n# listeners:\n").unwrap();
    let lines = example.lines().map_while(|line| line.strip_prefix("# "));
    let example: String = lines.map(|line| format!("{line}\n")).collect();
    let example = [("site", "good"), ("clients", "other")]
        .iter()
        .fold(example, |example, (file, other)| example.replace(file, other));
    let text = format!("version: 1\nlisteners:\n{example}");
    let settings = Settings::parse(Path::new(FILE), &text, &sources());
    let settings = settings.unwrap_or_else(|problems| panic!("{}", problems[0]));
    assert_eq!(settings.listeners.len(), 4);
}

#[test]
fn address_is_listened_at_once() {
    let twice = |address: &str| {
        parse(&format!("{{ address: \"{address}\" }}, {{ address: \"{address}\" }}")).err()
    };
    assert_eq!(twice("127.0.0.1:0"), None);
    for address in ["127.0.0.1:80", "unix:a"] {
        let problems = twice(address).unwrap_or_default();
        assert!(
            problems[0].contains(&format!("a second listener at `{address}`: keep one")),
            "{problems:?}"
        );
    }
}
