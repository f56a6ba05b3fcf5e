//! The scripts of the store, put together as it does that
//! (`crates/store/src/redis/script/source.rs`).

use tollgate_limit::AlgorithmKind;

macro_rules! lua {
    ($path:literal) => {
        include_str!(concat!("../../../../crates/store/src/redis/", $path))
    };
}

pub(super) const CHARGE_FIXED_WINDOW: &str = lua!("script/charge_fixed_window.lua");
pub(super) const RESET: &str = lua!("script/reset.lua");
pub(super) const CLAIM: &str = lua!("topology/claim.lua");
pub(super) const ANNOUNCE: &str = lua!("announce.lua");
pub(super) const ANNOUNCE_RESETS: &str = lua!("announce_resets.lua");

/// What scripts on counters end with.
pub(super) const CHARGE: &str = lua!("script/charge.lua");
pub(super) const SETTLE: &str = lua!("script/settle.lua");
pub(super) const SEED: &str = lua!("script/seed.lua");
pub(super) const ADD: &str = lua!("script/add.lua");
pub(super) const READ_STATE: &str = lua!("script/read_state.lua");

/// The script with an ending on counters of these kinds.
pub(super) fn script(ending: &str, kinds: &[AlgorithmKind]) -> String {
    let mut parts = vec![lua!("script/counter.lua").to_owned()];
    for kind in AlgorithmKind::ALL.into_iter().filter(|kind| kinds.contains(kind)) {
        parts.push(algorithm(kind).replace("[KIND]", &format!("[{}]", kind.number())));
    }
    parts.push(ending.to_owned());
    parts.join("\n")
}

/// The same script, for which it is always a certain time.
pub(super) fn at_time(script: &str, micros: u64) -> String {
    let time = format!("{{ '{}', '{}' }}", micros / 1_000_000, micros % 1_000_000);
    script.replace("call('TIME')", &time)
}

fn algorithm(kind: AlgorithmKind) -> &'static str {
    match kind {
        AlgorithmKind::FixedWindow => lua!("script/algorithm/fixed_window.lua"),
        AlgorithmKind::SlidingWindow => lua!("script/algorithm/sliding_window.lua"),
        AlgorithmKind::SlidingLog => lua!("script/algorithm/sliding_log.lua"),
        AlgorithmKind::TokenBucket => lua!("script/algorithm/token_bucket.lua"),
        AlgorithmKind::Gcra => lua!("script/algorithm/gcra.lua"),
        AlgorithmKind::Concurrency => lua!("script/algorithm/concurrency.lua"),
    }
}
