//! Any chain of forwarded addresses: a peer that is not trusted is the client itself, and what a
//! client writes is ignored once a trusted proxy has added the address that it saw.

#![no_main]

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header::FORWARDED};
use libfuzzer_sys::fuzz_target;
use tollgate_identity::{ForwardedField, TrustedProxies, client_address};

const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9));

fuzz_target!(|text: &[u8]| {
    let networks = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().expect("a network"));
    let x_forwarded_for = HeaderName::from_static("x-forwarded-for");
    for (field, name, added) in [
        (ForwardedField::XForwardedFor, x_forwarded_for, "203.0.113.9"),
        (ForwardedField::Forwarded, FORWARDED, "for=203.0.113.9"),
    ] {
        let trusted = TrustedProxies::new(networks.to_vec(), field);
        let mut lines = Vec::new();
        for line in text.split(|byte| *byte == b'\n') {
            let Ok(line) = HeaderValue::from_bytes(line) else { return };
            lines.push(line);
        }
        let headers = fields(&name, &lines);
        assert_eq!(client_address(CLIENT, &headers, &trusted), CLIENT);
        let client = client_address(PROXY, &headers, &trusted);
        let is_client = !client.is_unspecified() && client == client.to_canonical();
        assert!(is_client, "{client} is no client address");

        // A proxy adds a line of its own, or goes on in the last one.
        let mut with_line = lines.clone();
        with_line.push(HeaderValue::from_static(added));
        assert_eq!(client_address(PROXY, &fields(&name, &with_line), &trusted), CLIENT);
        let last = lines.pop().unwrap_or_else(|| HeaderValue::from_static(""));
        let longer = [last.as_bytes(), b", ", added.as_bytes()].concat();
        lines.extend(HeaderValue::from_bytes(&longer));
        assert_eq!(client_address(PROXY, &fields(&name, &lines), &trusted), CLIENT);
    }
});

fn fields(name: &HeaderName, lines: &[HeaderValue]) -> HeaderMap {
    lines.iter().map(|line| (name.clone(), line.clone())).collect()
}
