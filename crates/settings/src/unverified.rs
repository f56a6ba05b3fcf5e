//! Settings of counters by what clients choose: how many there may be. Each default is written here
//! or with [`MemoryBounds`], once.

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_yaml::{Check, Spanned};

use super::{Checker, MemoryBounds};

/// How many counters there may be whose keys clients choose freely: by header, cookie, open host,
/// open path, path parameter or unusual method.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "unverified_keys section")]
pub(super) struct RawUnverifiedKeys {
    /// In the process: so many of a hundred of `memory.max_keys`, 1 to 75. Past it, a request that
    /// needs a new one gets 503. Default: 50.
    #[schemars(range(min = 1, max = 75))]
    percent: Option<Spanned<u32>>,
    /// In the process: those at once that one address has made, or one network of 64 bits in IPv6,
    /// or one verified caller, 1 to 100000000. Past it, its requests that need a new one get 429.
    /// Default: 10000.
    #[schemars(range(min = 1, max = 100_000_000))]
    per_address: Option<Spanned<u32>>,
    /// In Redis: different ones that the same may ask for in a minute, at each proxy, 1 to
    /// 100000000. Past it, its requests that need another get 429. Default: 1000.
    #[schemars(range(min = 1, max = 100_000_000))]
    new_per_minute: Option<Spanned<u32>>,
}

/// How many different counters by what it chooses a client may ask for in a minute.
pub(super) const DEFAULT_NEW_PER_MINUTE: u32 = 1_000;

const MANY: std::ops::RangeInclusive<u32> = 1..=100_000_000;

impl Checker<'_> {
    /// The bounds of all counters in the process, and how many new ones a client may ask for in
    /// Redis in a minute.
    pub(super) fn unverified_keys(
        &mut self,
        max_keys: usize,
        raw: &RawUnverifiedKeys,
    ) -> (MemoryBounds, u32) {
        let default = MemoryBounds::from(max_keys);
        let percent = self.number_or(&raw.percent, 1..=75, default.unverified_percent.into());
        let bounds = MemoryBounds {
            max_keys,
            unverified_percent: percent as u8,
            per_address: self.number_or(&raw.per_address, MANY, default.per_address),
        };
        (bounds, self.number_or(&raw.new_per_minute, MANY, DEFAULT_NEW_PER_MINUTE))
    }
}

#[cfg(test)]
mod tests {
    use tollgate_yaml::Sources;

    use crate::{
        MemoryBounds,
        tests::{rendered, store},
    };

    #[test]
    fn what_is_left_out_has_its_default() {
        let read = |text: &str| store(text, &Sources::system()).unwrap();
        let default = read("memory: { max_keys: 80 }");
        assert_eq!((default.bounds, default.new_per_minute), (MemoryBounds::from(80), 1_000));
        let said = "{ percent: 10, per_address: 7, new_per_minute: 3 }";
        let said = read(&format!("unverified_keys: {said}"));
        let bounds =
            MemoryBounds { unverified_percent: 10, per_address: 7, ..MemoryBounds::DEFAULT };
        assert_eq!((said.bounds, said.new_per_minute), (bounds, 3));
    }

    #[test]
    fn what_is_out_of_range_is_reported_with_its_place() {
        let text = "unverified_keys: { percent: 76, per_address: 0 }";
        let Err(problems) = store(text, &Sources::system()) else { panic!("both are refused") };
        assert_eq!(
            rendered(&problems),
            [
                "4:31 76 is out of range: write 1 to 75",
                "4:48 0 is out of range: write 1 to 100000000",
            ]
        );
    }
}
