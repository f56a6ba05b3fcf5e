//! Which fields end here, by their names.

use tollgate_identity::ForwardedField;
use tollgate_policy::is_reserved;

//= rfc9110#section-7.6.1
//# intermediaries SHOULD remove or replace fields that are known to require removal before
//# forwarding
//= rfc9113#section-8.2.2
//# An intermediary transforming an HTTP/1.x message to HTTP/2 MUST remove connection-specific
//# header fields
pub(super) fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
    )
}

/// How a name that this proxy gives a meaning to is spelled in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelled {
    Exactly,
    /// Names that CGI maps to one variable.
    Alike,
}

/// Whether a client's field ends here. `trusted` is the field that a trusted proxy maintains, and
/// `is_identity_field` says in which fields this proxy names the caller.
pub(crate) fn ends_here(
    name: &str,
    trusted: Option<ForwardedField>,
    is_identity_field: impl Fn(&str, Spelled) -> bool,
) -> bool {
    match variable(name) {
        Variable::Plain => is_dropped(name, trusted) || is_identity_field(name, Spelled::Exactly),
        Variable::Ambiguous => true,
        Variable::Like(name) => {
            is_dropped(&name, trusted) || is_identity_field(&name, Spelled::Alike)
        }
    }
}

/// Whether a client's field ends at Envoy, which asks about the request that it forwards. `trusted`
/// and `is_identity_field` are as for [`ends_here`].
pub(crate) fn ends_at_envoy(
    name: &str,
    trusted: Option<ForwardedField>,
    is_identity_field: impl Fn(&str, Spelled) -> bool,
) -> bool {
    let is_dropped = |name: &str| match name {
        // Those that Envoy writes, sees to or keeps itself.
        "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-client-cert" => false,
        "x-request-id" | "expect" => false,
        _ if name.starts_with("x-envoy-") || is_hop_by_hop(name) => false,
        // This proxy writes it anew; Envoy leaves it as it is.
        "x-forwarded-host" => trusted.is_none(),
        _ => is_dropped(name, trusted),
    };
    match variable(name) {
        Variable::Plain => is_dropped(name) || is_identity_field(name, Spelled::Exactly),
        Variable::Ambiguous => true,
        Variable::Like(name) => is_dropped(&name) || is_identity_field(&name, Spelled::Alike),
    }
}

/// Fields of which a request that another proxy forwards may have no alias: one that servers which
/// make variables of names take for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unaliased {
    /// Those in which a proxy names the caller, or its address.
    OfIdentity,
    /// Those, and all that no client's request brings to a server.
    AllThatEndHere,
}

/// Whether servers that make a variable of its name take a client's field for one of these.
pub(crate) fn is_alias(
    name: &str,
    of: Unaliased,
    is_identity_field: impl Fn(&str, Spelled) -> bool,
) -> bool {
    let is_own = |name: &str| {
        is_reserved(name)
            || name.starts_with("x-forwarded-")
            || is_identity_field(name, Spelled::Alike)
            || of == Unaliased::AllThatEndHere && is_dropped(name, None)
    };
    match variable(name) {
        Variable::Plain => false,
        Variable::Ambiguous => is_own(&dashed(name)),
        Variable::Like(name) => is_own(&name),
    }
}

fn is_dropped(name: &str, trusted: Option<ForwardedField>) -> bool {
    match name {
        "x-forwarded-host" | "x-original-url" | "x-rewrite-url" => true,
        // The gate says which request this is, also where it keeps a trusted proxy's word.
        "x-request-id" => true,
        // A proxy that maintains one of the two may pass on the other as a client wrote it.
        "x-forwarded-for" => trusted != Some(ForwardedField::XForwardedFor),
        "forwarded" => trusted != Some(ForwardedField::Forwarded),
        // CGI programs take it for the address of a proxy to send their own requests to.
        "proxy" => true,
        // Answered here: the body is asked for once there is somewhere to send it.
        "expect" => true,
        _ if is_of_a_proxy(name) => trusted.is_none(),
        _ => is_hop_by_hop(name) || is_reserved(name),
    }
}

/// Names as a list, and as a question.
macro_rules! names_of_proxies {
    ($($name:literal),+ $(,)?) => {
        /// Fields in which proxies and content delivery networks send the client's address, how it
        /// connected or who it is, or from which servers read that.
        pub const NAMES_OF_PROXIES: &[&str] = &[$($name),+];

        fn is_named(name: &str) -> bool {
            matches!(name, $($name)|+)
        }
    };
}

names_of_proxies! {
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded",
    "x-original-forwarded-for",
    "x-originating-ip",
    "x-remote-ip",
    "x-remote-addr",
    "x-envoy-external-address",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-nf-client-connection-ip",
    "x-vercel-forwarded-for",
    "x-proxyuser-ip",
    "x-true-client-ip",
    "x-host",
    "remote-user",
    "client-cert",
    "client-cert-chain",
    "x-client-cert",
    "x-client-dn",
    "ssl-client-cert",
    "x-remote-user",
    "x-webauth-user",
    "client-ip",
    "remote-addr",
    "forwarded-for",
    "proxy-client-ip",
    "wl-proxy-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "cloudfront-viewer-address",
    "do-connecting-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "incap-client-ip",
}

/// Beginnings of more such names, each with ends that are in use: for proxies that cannot remove
/// fields by the beginning of a name.
pub const FAMILIES_OF_PROXIES: [(&str, &[&str]); 3] = [
    ("x-auth-request-", &["access-token", "email", "groups", "preferred-username", "user"]),
    (
        "x-forwarded-",
        &[
            "access-token",
            "by",
            "client-cert",
            "email",
            "groups",
            "prefix",
            "preferred-username",
            "scheme",
            "ssl",
            "user",
        ],
    ),
    (
        "x-ssl-",
        &[
            "cert",
            "cipher",
            "client-cert",
            "client-cn",
            "client-dn",
            "client-fingerprint",
            "client-i-dn",
            "client-issuer",
            "client-s-dn",
            "client-serial",
            "client-subject",
            "client-verify",
            "issuer",
            "protocol",
            "subject",
        ],
    ),
];

/// Whether proxies and content delivery networks send the client's address, how it connected or who
/// it is in a field of this name, or servers read that from it.
pub(super) fn is_of_a_proxy(name: &str) -> bool {
    is_named(name) || FAMILIES_OF_PROXIES.iter().any(|(begin, _)| name.starts_with(begin))
}

/// What a field comes to in servers that make a variable of its name (RFC 3875 section 4.1.18).
enum Variable {
    /// That of no other name.
    Plain,
    /// That of a name with `-`: such a server would take `x_tollgate_tier` for ours.
    Ambiguous,
    /// In some servers, which make an underscore of all but letters and digits, that of this name.
    /// Such names are in use: S3 has `x-amz-meta-a.b`.
    Like(String),
}

fn variable(name: &str) -> Variable {
    // Names are in lower case.
    if name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'-' | b'0'..=b'9')) {
        return Variable::Plain;
    }
    match name.contains('_') {
        true => Variable::Ambiguous,
        false => Variable::Like(dashed(name)),
    }
}

/// With `-` in place of each mark.
fn dashed(name: &str) -> String {
    name.replace(|mark: char| !mark.is_ascii_alphanumeric(), "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_come_to_the_same_variable_end_together() {
        let is_identity_field = |name: &str| name == "x-user";
        for (name, expected) in [
            ("x-user", true),
            ("x_user", true),
            ("x.user", true),
            ("x~user", true),
            ("x-tollgate.tier", true),
            ("x.real.ip", true),
            ("x.forwarded.for", true),
            ("x_anything", true),
            ("x-amz-meta-a.b", false),
            ("x-users", false),
            ("accept", false),
        ] {
            assert_eq!(
                ends_here(name, None, |name, _| is_identity_field(name)),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn trusted_proxy_says_where_a_request_comes_from() {
        for (name, expected) in [
            ("x-real-ip", false),
            ("fly-client-ip", false),
            ("x-forwarded-proto", false),
            ("x-forwarded-for", false),
            ("forwarded", true),
            ("x-forwarded-host", true),
            ("x_real_ip", true),
            ("x-user", true),
        ] {
            let trusted = Some(ForwardedField::XForwardedFor);
            assert_eq!(ends_here(name, trusted, |name, _| name == "x-user"), expected, "{name}");
            assert!(ends_here(name, None, |name, _| name == "x-user"), "{name}");
        }
    }
}
