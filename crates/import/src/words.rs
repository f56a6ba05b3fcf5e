//! Lists of names, written as texts with spaces between them.

/// Whether a list has this name.
pub(crate) fn has(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|own| own == name)
}

/// Whether a name begins with one of a list.
pub(crate) fn begin(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|own| name.starts_with(own))
}
