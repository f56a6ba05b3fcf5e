//! The content coding of a body.

/// What has to be undone before a body can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentCoding {
    /// Nothing.
    Identity,
    Gzip,
    /// Something that is not read here, or several codings.
    Other,
}

impl ContentCoding {
    /// What this `Content-Encoding` says; none: there is no such field.
    pub(crate) fn of(field: Option<&str>) -> Self {
        let codings = field.unwrap_or_default().split(',').map(str::trim);
        let is_any = |name: &&str| !name.is_empty() && !name.eq_ignore_ascii_case("identity");
        let mut codings = codings.filter(is_any);
        match (codings.next(), codings.next()) {
            (None, _) => ContentCoding::Identity,
            (Some(only), None) if is_gzip(only) => ContentCoding::Gzip,
            _ => ContentCoding::Other,
        }
    }
}

/// RFC 9110 section 8.4.1.3: the old name means the same.
fn is_gzip(coding: &str) -> bool {
    //= rfc9110#section-8.4.1.3
    //# A recipient SHOULD consider "x-gzip" to be equivalent to "gzip"
    coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip")
}
