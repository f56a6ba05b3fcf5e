//! Parameters of a query (`a=1&b=2`), and which names servers take for the same one.

use std::borrow::Cow;

/// A parameter of a query, as it is written.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'q>(&'q str);

/// The parameters of a query.
pub fn parameters(query: &str) -> impl Iterator<Item = Parameter<'_>> {
    query.split('&').map(Parameter)
}

/// The query without the parameters that are not `kept`. The others are unchanged.
pub fn filtered<'q>(query: &'q str, kept: impl Fn(&Parameter<'_>) -> bool) -> Cow<'q, str> {
    if parameters(query).all(|parameter| kept(&parameter)) {
        return Cow::Borrowed(query);
    }
    let kept: Vec<&str> = parameters(query).filter(kept).map(Parameter::text).collect();
    Cow::Owned(kept.join("&"))
}

impl<'q> Parameter<'q> {
    /// As it is written.
    pub fn text(self) -> &'q str {
        self.0
    }

    /// Its name as it is written.
    pub fn written_name(self) -> &'q str {
        self.parts().0
    }

    /// Its value, decoded.
    pub fn value(self) -> Cow<'q, [u8]> {
        form_decoded(self.parts().1)
    }

    fn parts(self) -> (&'q str, &'q str) {
        self.0.split_once('=').unwrap_or((self.0, ""))
    }

    /// Whether this is its name, decoded.
    pub fn is_called(self, name: &str) -> bool {
        *form_decoded(self.written_name()) == *name.as_bytes()
    }

    /// Whether some server takes its name for this one. PHP passes over spaces in front, reads up
    /// to a NUL or a bracket, and takes dots, spaces and a bracket that is not closed for `_`;
    /// `qs`, which Express uses, and Rack take `[name]` for `name`, and Rack passes over brackets
    /// of both kinds in front; ASP.NET ignores the case.
    pub fn is_like(self, name: &str) -> bool {
        let own = form_decoded(self.written_name());
        let own = own.trim_ascii_start();
        let start = own.iter().position(|byte| !b"[]".contains(byte)).unwrap_or(own.len());
        let own = own.get(start..).unwrap_or_default();
        let until = |ends: &[u8]| own.split(|byte| ends.contains(byte)).next().unwrap_or_default();
        [until(b"[]\0"), until(b"]\0")].into_iter().any(|own| is_variant(own, name.as_bytes()))
    }

    /// The parameters in it for servers that also end them at a semicolon, as HTML 4.01 recommends
    /// (appendix B.2.2): those after the first.
    pub fn after_semicolons(self) -> impl Iterator<Item = Parameter<'q>> {
        self.0.split(';').skip(1).map(Parameter)
    }
}

fn is_variant(own: &[u8], name: &[u8]) -> bool {
    let folded = |byte: &u8| match byte {
        b'.' | b' ' | b'[' => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    own.iter().map(folded).eq(name.iter().map(folded))
}

/// A name or a value of a form (WHATWG URL section 5.1). What is no escape stays as it is.
fn form_decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'%');
        let escaped = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                decoded.push(if *first == b'+' { b' ' } else { *first });
                rest = after;
            }
        }
    }
    Cow::Owned(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(query: &str) -> Parameter<'_> {
        parameters(query).next().unwrap()
    }

    #[test]
    fn names_that_servers_take_for_the_same_are_alike() {
        for query in [
            "access_token=a",
            "ACCESS_Token=a",
            "acces%73_token=a",
            "access.token=a",
            "access+token=a",
            "access[token=a",
            "++access_token=a",
            "access_token[]=a",
            "access_token%5B0%5D=a",
            "access_token%00x=a",
            "[access_token]=a",
            "[]access_token=a",
            "%5Baccess_token%5D[]=a",
            "access_token",
        ] {
            assert!(only(query).is_like("access_token"), "{query}");
        }
        for query in
            ["access-token=a", "access_tokens=a", "a=access_token", "[a]access_token=a", ""]
        {
            assert!(!only(query).is_like("access_token"), "{query}");
        }
        assert!(only("a.b=1").is_like("a_b") && only("a_b=1").is_like("A.b"));
    }

    #[test]
    fn plus_and_escapes_are_decoded_once_and_what_is_no_escape_stays() {
        for (text, expected) in [("a+b", "a b"), ("%2561", "%61"), ("%zz%4", "%zz%4"), ("", "")] {
            assert_eq!(*form_decoded(text), *expected.as_bytes(), "{text}");
        }
    }
}
