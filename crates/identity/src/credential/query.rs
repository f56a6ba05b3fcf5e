//! Parameters of a query (`a=1&b=2`), found by their decoded names, since most servers decode a
//! name that is percent-encoded.

use std::borrow::Cow;

/// The decoded values of the parameters with this name.
pub(super) fn values<'q>(query: &'q str, name: &str) -> impl Iterator<Item = Cow<'q, [u8]>> {
    query.split('&').filter_map(move |pair| value(pair, name))
}

/// Whether the query has a parameter with this name only for servers that also end parameters at a
/// semicolon, as HTML 4.01 recommends (appendix B.2.2).
pub(super) fn may_hide(query: &str, name: &str) -> bool {
    let hides = |pair: &str| pair.split(';').skip(1).any(|part| value(part, name).is_some());
    memchr::memchr(b';', query.as_bytes()).is_some() && query.split('&').any(hides)
}

/// The query without the parameters with this name. The other parameters are unchanged.
pub(super) fn without<'q>(query: &'q str, name: &str) -> Cow<'q, str> {
    if values(query, name).next().is_none() {
        return Cow::Borrowed(query);
    }
    let kept: Vec<&str> = query.split('&').filter(|pair| value(pair, name).is_none()).collect();
    Cow::Owned(kept.join("&"))
}

fn value<'q>(pair: &'q str, name: &str) -> Option<Cow<'q, [u8]>> {
    let (key, value) = form_urlencoded::parse(pair.as_bytes()).next()?;
    (key == name).then(|| match value {
        Cow::Borrowed(value) => Cow::Borrowed(value.as_bytes()),
        Cow::Owned(value) => Cow::Owned(value.into_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_removed_by_name_and_the_others_are_unchanged() {
        for (query, expected) in [
            ("token=a", ""),
            ("a=1&token=a&b=%20+", "a=1&b=%20+"),
            ("token=a&token=b&c", "c"),
            ("%74oken=a&Token=b", "Token=b"),
            ("token&tokens=1", "tokens=1"),
            ("a=token", "a=token"),
            ("", ""),
            ("&&", "&&"),
        ] {
            assert_eq!(without(query, "token"), expected, "{query}");
        }
    }
}
