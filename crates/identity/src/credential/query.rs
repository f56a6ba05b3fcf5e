//! Parameters of a query, found by their decoded names, since most servers decode a name that is
//! percent-encoded.

use std::borrow::Cow;

use tollgate_wire::query::{Parameter, filtered, parameters};

/// The decoded values of the parameters with this name.
pub(super) fn values<'q>(query: &'q str, name: &str) -> impl Iterator<Item = Cow<'q, [u8]>> {
    parameters(query).filter(|own| own.is_called(name)).map(Parameter::value)
}

/// The names of the parameters with this name, as they are written.
pub(super) fn spellings<'q>(query: &'q str, name: &str) -> impl Iterator<Item = &'q str> {
    parameters(query).filter(|own| own.is_called(name)).map(Parameter::written_name)
}

/// Whether the query has a parameter that only some servers take for the one with this name.
pub(super) fn may_hide(query: &str, name: &str) -> bool {
    parameters(query).any(|own| !own.is_called(name) && may_be(own, name))
}

/// The query without the parameters that some server takes for the one with this name. The other
/// parameters are unchanged.
pub(super) fn without<'q>(query: &'q str, name: &str) -> Cow<'q, str> {
    filtered(query, |own| !may_be(*own, name))
}

fn may_be(parameter: Parameter<'_>, name: &str) -> bool {
    parameter.is_like(name) || parameter.after_semicolons().any(|own| own.is_like(name))
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
            ("%74oken=a&Token=b&[token]=c&a;token=d&b", "b"),
            ("token&tokens=1", "tokens=1"),
            ("a=token", "a=token"),
            ("", ""),
            ("&&", "&&"),
        ] {
            assert_eq!(without(query, "token"), expected, "{query}");
        }
    }
}
