//! The keys of the tables: the key of a counter, whose first bits are replaced by a [`Tag`].

use super::{
    room::{Tag, tag},
    table::TAG_BITS,
};
use crate::limit::Charge;

/// The key of a charge's counter with its tag.
pub(super) fn tagged_key(charge: &Charge<'_>) -> u128 {
    let tag = u128::from(tag(charge.origin));
    charge.key.entry << TAG_BITS >> TAG_BITS | tag << (u128::BITS - TAG_BITS)
}

/// The tag of the counter with this key.
pub(super) fn tag_of(key: u128) -> Tag {
    (key >> (u128::BITS - TAG_BITS)) as Tag
}
