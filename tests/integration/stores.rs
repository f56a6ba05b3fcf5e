//! The conformance suite: whatever keeps the counters, the limiter behaves alike. A behaviour is
//! written once and holds for every store. Time moves only when a test moves it.

/// Makes a test of each behaviour for each store: `memory::…`, `disk::…`, `cold::…`, `single::…`,
/// `sharded::…` and `cluster::…`.
macro_rules! for_each_store {
    ($($behaviour:ident),* $(,)?) => {
        for_each_store! { @ memory disk cold single sharded cluster: ($($behaviour),*) }
    };
    (@ $($store:ident)*: $behaviours:tt) => {
        $(for_each_store! { $store $behaviours })*
    };
    ($store:ident ($($behaviour:ident),*)) => {
        mod $store {
            $(
                #[test]
                fn $behaviour() {
                    super::$behaviour(&crate::stores::subject::Home::$store());
                }
            )*
        }
    };
}

mod abandoned;
mod adjustments;
mod all_or_nothing;
mod budgets;
mod changes;
mod clocks;
mod counting;
mod histories;
mod parallel;
mod resets;
mod subject;
