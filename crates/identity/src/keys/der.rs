//! The key inside a certificate, a SubjectPublicKeyInfo or a PKCS#8 file.
//!
//! The parts around the key are read by `x509-parser`. The key itself is not interpreted here: its
//! bytes go to AWS-LC, which checks them. Bytes that follow the outermost element are ignored.

use std::borrow::Cow;

use x509_parser::{
    asn1_rs::{Any, FromDer, Sequence},
    certificate::X509CertificateParser,
    nom::Parser,
    x509::SubjectPublicKeyInfo,
};

/// The SubjectPublicKeyInfo of an X.509 certificate (RFC 5280 section 4.1).
///
/// Neither the dates nor the signature nor the extensions are checked: the policy names this
/// certificate, so its key is trusted whatever else the certificate says.
pub(super) fn certificate_public_key(der: &[u8]) -> Option<&[u8]> {
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    let (_, certificate) = parser.parse(der).ok()?;
    Some(certificate.tbs_certificate.subject_pki.raw)
}

/// The key inside a SubjectPublicKeyInfo (RFC 5280 section 4.1).
pub(super) fn public_key_bits(der: &[u8]) -> Option<Cow<'_, [u8]>> {
    let (_, info) = SubjectPublicKeyInfo::from_der(der).ok()?;
    let bits = info.subject_public_key;
    // Keys are whole bytes, so no bit of the last byte is unused.
    (bits.unused_bits == 0).then_some(bits.data)
}

/// The key inside a PKCS#8 PrivateKeyInfo (RFC 5208 section 5).
pub(crate) fn pkcs8_private_key(der: &[u8]) -> Option<&[u8]> {
    let key = Sequence::from_der_and_then(der, |fields| {
        let (fields, _version) = Any::from_der(fields)?;
        let (fields, _algorithm) = Any::from_der(fields)?;
        <&[u8]>::from_der(fields)
    });
    Some(key.ok()?.1)
}

#[cfg(test)]
pub(crate) mod tests {
    use aws_lc_rs::{
        encoding::AsDer,
        signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
    };
    use proptest::prelude::*;
    use rcgen::{CertificateParams, CustomExtension, KeyPair, date_time_ymd};

    use super::*;

    /// A DER element.
    pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
        let length = match (high, low) {
            (0, ..0x80) => vec![low],
            (0, _) => vec![0x81, low],
            _ => vec![0x82, high, low],
        };
        [&[tag], length.as_slice(), content].concat()
    }

    /// A certificate that has expired, with an extension that no parser knows, and its public key.
    fn expired_certificate() -> (Vec<u8>, Vec<u8>) {
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(2020, 1, 1);
        let unknown = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 1], vec![0xff]);
        params.custom_extensions.push(unknown);
        let certificate = params.self_signed(&pair).unwrap();
        (certificate.der().to_vec(), rcgen::PublicKeyData::subject_public_key_info(&pair))
    }

    #[test]
    fn certificate_has_a_key_whatever_else_it_says() {
        let (certificate, public_key) = expired_certificate();
        assert_eq!(certificate_public_key(&certificate), Some(&*public_key));
        let with_trailing_bytes = [certificate.as_slice(), &[0, 1, 2]].concat();
        assert_eq!(certificate_public_key(&with_trailing_bytes), Some(&*public_key));
        for length in 0..certificate.len() {
            assert_eq!(certificate_public_key(&certificate[..length]), None, "{length} bytes");
        }
        assert_eq!(certificate_public_key(&public_key), None, "a public key is no certificate");
    }

    #[test]
    fn public_key_is_whole_bytes() {
        let point = [4, 1, 2, 3];
        let algorithm = element(0x30, &element(0x06, &[0x2a, 0x03]));
        let info = |unused_bits: u8| {
            let bits = element(0x03, &[&[unused_bits], point.as_slice()].concat());
            element(0x30, &[algorithm.clone(), bits].concat())
        };
        assert_eq!(public_key_bits(&info(0)).as_deref(), Some(point.as_slice()));
        assert_eq!(public_key_bits(&info(1)), None);
        assert_eq!(public_key_bits(&point), None, "a bare point has nothing around it");
        assert_eq!(public_key_bits(&algorithm), None);
    }

    #[test]
    fn pkcs8_key_may_be_followed_by_attributes() {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let pkcs8 = pair.to_pkcs8v1().unwrap();
        let key = pkcs8_private_key(pkcs8.as_ref()).unwrap();
        assert!(key.starts_with(&[0x30]), "SEC 1 has a sequence");
        let info: aws_lc_rs::encoding::PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        assert_eq!(pkcs8_private_key(info.as_ref()), None);
        let version = element(0x02, &[0]);
        let fields = [version, element(0x30, &[]), element(0x04, &[7, 7])].concat();
        assert_eq!(pkcs8_private_key(&element(0x30, &fields)), Some(&[7, 7][..]));
        let fields = [fields, element(0xa0, &[])].concat();
        assert_eq!(pkcs8_private_key(&element(0x30, &fields)), Some(&[7, 7][..]));
    }

    proptest! {
        #[test]
        fn prop_der_of_any_bytes_never_panics(der in proptest::collection::vec(any::<u8>(), 0..80)) {
            certificate_public_key(&der);
            pkcs8_private_key(&der);
            public_key_bits(&der);
        }
    }
}
