//! Which of several named shards has an owner's counters, alike in every process.

/// What a shard's name contributes to its scores: FNV-1a, which is the same in every process.
pub(super) fn seed(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A shard's score for an owner: the shard with the highest score has the owner's counters
/// (rendezvous hashing, Thaler and Ravishankar 1998). Adding or removing a shard moves only the
/// owners that it gets or had.
///
/// The mixing steps are those of SplitMix64.
pub(super) fn score(seed: u64, owner: u128) -> u64 {
    let mut hash = seed ^ (owner >> 64) as u64;
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xbf58_476d_1ce4_e5b9] {
        hash = (hash ^ (hash >> 30)).wrapping_mul(factor);
    }
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn winner(names: &[&str], owner: u128) -> String {
        let highest = names.iter().max_by_key(|name| score(seed(name), owner));
        (*highest.expect("there is a shard")).to_owned()
    }

    proptest! {
        #[test]
        fn prop_removing_a_shard_moves_only_its_own_owners(owner: u128) {
            let all = winner(&["a", "b", "c", "d"], owner);
            let fewer = winner(&["a", "b", "d"], owner);
            prop_assert!(all == "c" || all == fewer);
        }
    }

    #[test]
    fn shards_have_equal_shares() {
        let names = ["shard-1", "shard-2", "shard-3"];
        let mut counts = std::collections::HashMap::new();
        let hasher = tollgate_limit::KeyHasher::new([7; 16]);
        for number in 0..30_000_u32 {
            let owner = hasher.hash([(b'u', number.to_le_bytes().as_slice())]);
            *counts.entry(winner(&names, owner)).or_insert(0) += 1;
        }
        assert!(counts.values().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn owners_have_the_same_shards_in_every_process() {
        let owners = [1_u128 << 64, 0xDEAD_BEEF << 64, u128::MAX];
        let shards = owners.map(|owner| winner(&["a", "b", "c"], owner));
        assert_eq!(shards, ["a", "a", "a"].map(str::to_owned));
    }
}
