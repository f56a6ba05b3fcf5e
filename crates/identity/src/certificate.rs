//! The names of a client in its certificate, which the TLS handshake has verified.

use aws_lc_rs::digest;
use tollgate_clock::Timestamp;
use x509_parser::{
    certificate::X509Certificate,
    extensions::GeneralName,
    oid_registry,
    prelude::FromDer,
    x509::{AttributeTypeAndValue, X509Name},
};

use super::caller_text::is_caller_text;

/// The names in a verified client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Its subject in the form of RFC 4514: `CN=robot,O=Example`.
    subject: Option<Box<str>>,
    /// The first of its alternative names that is a URI, or else a DNS name, or else an email
    /// address.
    alternative_name: Option<Box<str>>,
    /// SHA-256 of the name of the authority that signed it.
    issuer: [u8; 32],
}

/// A name in a certificate by which callers can be identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// `client_certificate.subject`
    Subject,
    /// `client_certificate.san`
    AlternativeName,
}

impl ClientCertificate {
    /// Reads a certificate. None: it is malformed, or has expired at `now`. It may have expired
    /// since the handshake that verified it, where a TLS session is resumed.
    pub fn read(der: &[u8], now: Timestamp) -> Option<ClientCertificate> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let expires = certificate.validity().not_after.timestamp();
        let now = i64::try_from(now.as_micros() / 1_000_000).ok()?;
        if expires < now {
            return None;
        }
        let mut issuer = [0; 32];
        let digest = digest::digest(&digest::SHA256, certificate.issuer().as_raw());
        issuer.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
        Some(ClientCertificate {
            subject: subject(certificate.subject()).map(Into::into),
            alternative_name: alternative_name(&certificate).map(Into::into),
            issuer,
        })
    }

    /// One of its names, if it has that and it can name a caller.
    pub fn name(&self, which: CertificateName) -> Option<&str> {
        let name = match which {
            CertificateName::Subject => &self.subject,
            CertificateName::AlternativeName => &self.alternative_name,
        };
        name.as_deref().filter(|name| is_caller_text(name))
    }

    /// Identifies the authority that signed it: with another authority, an equal name is another
    /// caller.
    pub(super) fn issuer(&self) -> &[u8] {
        &self.issuer
    }
}

/// The first instant at which a certificate has expired. None: it is malformed.
pub fn certificate_expiry(der: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    // It is good during its last second, too.
    let last = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    Some(Timestamp::from_secs(last.saturating_add(1)))
}

impl CertificateName {
    /// Its keyword in policies.
    pub fn keyword(self) -> &'static str {
        match self {
            CertificateName::Subject => "subject",
            CertificateName::AlternativeName => "san",
        }
    }
}

fn alternative_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let names = certificate.subject_alternative_name().ok().flatten()?;
    let first = |pick: for<'n> fn(&'n GeneralName<'_>) -> Option<&'n str>| {
        names.value.general_names.iter().find_map(pick)
    };
    let uri = first(|name| if let GeneralName::URI(name) = name { Some(name) } else { None });
    let dns =
        || first(|name| if let GeneralName::DNSName(name) = name { Some(name) } else { None });
    let email =
        || first(|name| if let GeneralName::RFC822Name(name) = name { Some(name) } else { None });
    uri.or_else(dns).or_else(email).map(str::to_owned)
}

/// A name in the form of RFC 4514: the last part first, special characters escaped. None: it is
/// empty, or has a value that is not text.
fn subject(name: &X509Name<'_>) -> Option<String> {
    let mut parts = Vec::new();
    for part in name.iter_rdn() {
        let values: Option<Vec<String>> = part.iter().map(attribute).collect();
        parts.push(values?.join("+"));
    }
    parts.reverse();
    Some(parts.join(",")).filter(|subject| !subject.is_empty())
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let value = escape(attribute.as_str().ok()?);
    let oid = attribute.attr_type();
    // The keywords of RFC 4514 section 3; all other attributes are written by number.
    let keywords = [
        (oid_registry::OID_X509_COMMON_NAME, "CN"),
        (oid_registry::OID_X509_LOCALITY_NAME, "L"),
        (oid_registry::OID_X509_STATE_OR_PROVINCE_NAME, "ST"),
        (oid_registry::OID_X509_ORGANIZATION_NAME, "O"),
        (oid_registry::OID_X509_ORGANIZATIONAL_UNIT, "OU"),
        (oid_registry::OID_X509_COUNTRY_NAME, "C"),
        (oid_registry::OID_X509_STREET_ADDRESS, "STREET"),
        (oid_registry::OID_DOMAIN_COMPONENT, "DC"),
        (oid_registry::OID_USERID, "UID"),
    ];
    let keyword = keywords.iter().find(|(known, _)| known == oid).map(|(_, keyword)| *keyword);
    Some(match keyword {
        Some(keyword) => format!("{keyword}={value}"),
        None => format!("{oid}={value}"),
    })
}

/// A value with the characters escaped that could end it (RFC 4514 section 2.4).
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, character) in value.chars().enumerate() {
        let is_edge =
            (at == 0 && matches!(character, ' ' | '#')) || (at == last && character == ' ');
        if is_edge || matches!(character, '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn read(change: impl FnOnce(&mut CertificateParams)) -> Option<ClientCertificate> {
        let mut params = CertificateParams::default();
        change(&mut params);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        ClientCertificate::read(certificate.der(), Timestamp::from_secs(1_790_000_000))
    }

    fn subject_of(parts: &[(DnType, &str)]) -> Option<Box<str>> {
        let certificate = read(|params| {
            params.distinguished_name = rcgen::DistinguishedName::new();
            for (kind, value) in parts {
                params.distinguished_name.push(kind.clone(), *value);
            }
        });
        certificate.unwrap().subject
    }

    #[test]
    fn no_value_in_a_subject_can_pass_for_another_part() {
        use DnType::{CommonName, OrganizationName};
        for (parts, expected) in [
            (&[][..], None),
            (&[(OrganizationName, "Example"), (CommonName, "robot")], Some("CN=robot,O=Example")),
            (&[(CommonName, "robot,O=Example")], Some("CN=robot\\,O\\=Example")),
            (&[(CommonName, "#1 ")], Some("CN=\\#1\\ ")),
        ] {
            assert_eq!(subject_of(parts).as_deref(), expected);
        }
    }

    #[test]
    fn alternative_name_is_a_uri_or_else_dns_or_else_email() {
        let names = |names: &[SanType]| {
            let certificate = read(|params| params.subject_alt_names = names.to_vec()).unwrap();
            certificate.name(CertificateName::AlternativeName).map(str::to_owned)
        };
        let uri = SanType::URI("spiffe://example.com/robot".try_into().unwrap());
        let dns = SanType::DnsName("robot.example.com".try_into().unwrap());
        let email = SanType::Rfc822Name("robot@example.com".try_into().unwrap());
        let address = SanType::IpAddress([192, 0, 2, 1].into());
        assert_eq!(names(std::slice::from_ref(&address)), None);
        assert_eq!(names(&[address, email.clone()]).as_deref(), Some("robot@example.com"));
        assert_eq!(names(&[email.clone(), dns.clone()]).as_deref(), Some("robot.example.com"));
        assert_eq!(names(&[email, dns, uri]).as_deref(), Some("spiffe://example.com/robot"));
    }

    #[test]
    fn expired_certificate_has_no_name() {
        assert!(read(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1)).is_none());
        assert!(ClientCertificate::read(b"no certificate", Timestamp::from_secs(0)).is_none());
    }
}
