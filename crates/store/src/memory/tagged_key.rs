//! The keys of the tables: the key of a counter, whose first bits are replaced by a [`Tag`].

use tollgate_limit::Charge;

use super::{
    room::{Tag, tag},
    table::{ALIKE_BITS, TAG_BITS},
};

/// The key of a charge's counter with its tag.
pub(super) fn tagged_key(charge: &Charge<'_>) -> u128 {
    with_tag(charge.key.entry, tag(charge.origin))
}

pub(super) fn with_tag(entry: u128, tag: Tag) -> u128 {
    bare_key(entry) | u128::from(tag) << (u128::BITS - TAG_BITS)
}

/// What a table distinguishes of a key: the same for every tag.
pub(crate) fn bare_key(entry: u128) -> u128 {
    entry << ALIKE_BITS >> ALIKE_BITS
}

/// The tag of the counter with this key.
pub(super) fn tag_of(key: u128) -> Tag {
    (key >> (u128::BITS - TAG_BITS)) as Tag
}
