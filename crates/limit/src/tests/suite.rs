//! Properties that every algorithm must have. The tests of each algorithm call them by name.
//!
//! A property is a function of a [`Subject`] and a [`History`]; [`property_tests`] makes
//! tests of those that an algorithm must have:
//!
//! ```ignore
//! suite::property_tests! { any_sliding_window() => [
//!     prop_denial_leaves_the_state_as_it_was,
//!     prop_waiting_until_retry_is_enough_and_less_is_not,
//! ] }
//! ```
//!
//! Histories advance by microseconds up to a few seconds: subjects have windows of about as much,
//! and capacities of about ten.

pub(crate) mod apart;
pub(crate) mod history;
mod model;
pub(crate) mod properties;

use std::{fmt::Debug, time::Duration};

use tollgate_clock::Timestamp;

use crate::{Algorithm, Receipt, Standing};

pub(crate) use self::model::{Model, assert_equals_model, first_instant};

/// An algorithm as the suite sees it.
pub(crate) trait Subject: Algorithm<State: Debug> + Debug + Sized {
    /// Whether an unused key's first charge fixes when it and later ones are forgotten. Then a
    /// refund is compared with a key that was in use before the charge, because a refund does not
    /// remove the anchor that the charge set.
    const ANCHORED: bool = false;

    /// Whether less than the whole of a charge can be given back.
    const DIVISIBLE: bool = true;

    /// After this time, an admitted charge no longer counts.
    fn memory(&self) -> Duration;

    /// The same algorithm with another capacity: another rate of the same limit.
    fn with_capacity(&self, capacity: u32) -> Self;

    /// Charges a key whose memory is not bounded, so that no charge counts for longer because it was
    /// put together with a later one.
    fn take_apart(&self, state: &mut Self::State, cost: u32, now: Timestamp) {
        self.take(state, cost, now);
    }

    /// The steps of reported instants.
    fn time_step(&self) -> Duration {
        Duration::from_micros(1)
    }

    /// How much later than without the charge a cost may fit after a refund.
    fn refund_rounding(&self) -> Duration {
        Duration::ZERO
    }
}

/// Makes a test of each listed property, for all subjects of a strategy. Without a list, it makes
/// tests of all properties.
macro_rules! property_tests {
    ($subjects:expr) => {
        $crate::suite::property_tests! { $subjects => [
            prop_used_and_remaining_make_up_the_limit,
            prop_denial_leaves_the_state_as_it_was,
            prop_waiting_until_retry_is_enough_and_less_is_not,
            prop_cost_above_the_capacity_is_never_admitted,
            prop_limit_is_full_at_reset_and_not_before,
            prop_refund_never_leaves_more_than_had_the_charge_not_been,
            prop_refund_with_no_charge_in_between_is_exact,
            prop_refund_of_a_forgotten_charge_changes_nothing,
            prop_changed_limit_applies_at_once_and_changed_back_restores,
            prop_states_do_not_know_the_limit,
            prop_service_resumes_after_the_clock_went_back_a_day,
            prop_clock_a_little_behind_moves_nothing_back,
            prop_state_that_is_over_decides_as_an_unused_one,
            prop_state_survives_a_snapshot,
            prop_no_input_panics_or_overflows,
            prop_what_was_taken_since_can_be_added,
            prop_sum_of_two_counters_holds_what_either_does,
            prop_join_of_two_counters_holds_the_greater,
            prop_no_instant_before_its_mark_moves_a_state_back,
        ] }
    };
    ($subjects:expr => [$($property:ident),+ $(,)?]) => {
        proptest::proptest! {
            // There are many of these; the differential runs look at more histories.
            #![proptest_config(proptest::prelude::ProptestConfig::with_cases(100))]
            $(
            #[test]
            fn $property(
                subject in $subjects,
                history in $crate::suite::history::any_history(),
            ) {
                $crate::suite::properties::$property(&subject, &history)?;
            }
            )+
        }
    };
}
pub(crate) use property_tests;

/// When histories begin: at the start of every window that is a divisor of ten seconds.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_790_000_000);

/// One decision as a store makes it.
pub(crate) fn decide<A: Algorithm>(
    algorithm: &A,
    state: &mut A::State,
    cost: u32,
    now: Timestamp,
) -> (bool, Standing, Option<Receipt>) {
    if algorithm.admits(state, cost, now) {
        let receipt = (cost > 0).then(|| algorithm.take(state, cost, now));
        return (true, algorithm.standing(state, now), receipt);
    }
    algorithm.on_denied(state, cost, now);
    let retry = algorithm.retry(state, cost, now);
    (false, Standing { retry, ..algorithm.standing(state, now) }, None)
}

/// The instant that lies `ago` before `instant`.
pub(crate) fn before(instant: Timestamp, ago: Duration) -> Timestamp {
    Timestamp::from_micros(instant.saturating_since(Timestamp::default() + ago).as_micros() as u64)
}
