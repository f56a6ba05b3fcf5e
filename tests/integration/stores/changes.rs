//! Limits that change while their windows are open: what was used stays used.

use tollgate_limit::Retry;

use super::subject::{Home, fixed_windows, one, quotas};

for_each_store! {
    raised_limit_holds_at_once_and_keeps_the_count,
    lowered_limit_denies_and_forgets_nothing,
    raised_limit_moves_no_reset,
}

fn raised_limit_holds_at_once_and_keeps_the_count(home: &Home) {
    let store = home.open();
    for ((name, low), (_, high)) in quotas(2).iter().zip(&quotas(5)) {
        let before = one("alice", name, low);
        let after = one("alice", name, high);
        store.take_times(2, &before);
        store.deny(&before);
        let standing = store.take(&after).standing;
        assert_eq!((standing.used, standing.remaining), (3, 2), "{name}");
    }
}

fn lowered_limit_denies_and_forgets_nothing(home: &Home) {
    let store = home.open();
    for ((name, low), (_, high)) in quotas(2).iter().zip(&quotas(5)) {
        let before = one("alice", name, high);
        let after = one("alice", name, low);
        store.take_times(4, &before);
        let denied = store.deny(&after);
        assert_eq!((denied.used, denied.remaining), (4, 0), "{name}");
        assert!(matches!(denied.retry, Retry::At(at) if at > store.now()), "{name}");
        assert_eq!(store.take(&before).standing.used, 5, "{name}");
    }
}

fn raised_limit_moves_no_reset(home: &Home) {
    let store = home.open();
    for ((name, low), (_, high)) in fixed_windows(2).iter().zip(&fixed_windows(5)) {
        let reset = store.take(&one("alice", name, low)).standing.reset;
        assert_eq!(store.take(&one("alice", name, high)).standing.reset, reset, "{name}");
    }
}
