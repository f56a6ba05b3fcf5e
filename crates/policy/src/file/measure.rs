//! The raw struct of a measure: how much, and how it is counted.

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_limit::AlgorithmKind;
use tollgate_yaml::{Choice, Node, Spanned};

use super::{
    keywords::WindowStart,
    shape::{self, shapes},
};

/// Declares a struct that has the fields of a measure between its own. A candidate has nothing
/// else, a limit has them beside other fields: serde cannot flatten one struct into another that
/// denies unknown fields.
macro_rules! with_measure {
    ($(#[$attribute:meta])* $name:ident { $($before:tt)* } { $($after:tt)* }) => {
        $(#[$attribute])*
        pub(crate) struct $name {
            $($before)*

            /// How much in which time: `5000/hour`, a list of up to 4 that all apply, or
            /// `unlimited`; for all, or by tier: `{ anonymous: 60/hour, default: 5000/hour }`.
            #[schemars(with = "Option<shape::Rates>")]
            pub(crate) rate: Option<Node>,
            /// How it is counted. `fixed_window`: a number in each window; `sliding_window`: the
            /// same without bursts at window boundaries; `sliding_log`: exact, storing each
            /// request; `token_bucket`: a bucket that refills; `gcra`: evenly spaced;
            /// `concurrency`: requests at once, with `concurrent`. Default: fixed_window, or
            /// concurrency if there is `concurrent`.
            pub(crate) algorithm: Option<Spanned<Choice<AlgorithmKind>>>,
            /// For `fixed_window`: where windows begin. `first_request`: with the first request;
            /// `epoch`: at multiples of their length since 1970; `calendar`: with the hour, the
            /// day, the month. Default: first_request.
            pub(crate) align: Option<Spanned<Choice<WindowStart>>>,
            /// For `align: calendar`: the time zone, such as Europe/Berlin. Default: UTC.
            #[schemars(extend("examples" = ["Europe/Berlin"]))]
            pub(crate) timezone: Option<Spanned<String>>,
            /// For `gcra`: how many may come at once; for all, or by tier. Default: the number of
            /// the rate.
            #[schemars(with = "Option<shape::Counts>")]
            pub(crate) burst: Option<Node>,
            /// For `token_bucket`: the size of the bucket; for all, or by tier. Default: the number
            /// of the rate. With `refill` it is needed, and may be `unlimited`.
            #[schemars(with = "Option<shape::Units>")]
            pub(crate) capacity: Option<Node>,
            /// For `token_bucket`, in place of `rate`: what is added to the bucket at once, `{
            /// amount: 10, interval: 1s }`. What a rate adds comes evenly.
            #[schemars(with = "Option<super::measure::Refill>")]
            pub(crate) refill: Option<Node>,
            /// For `token_bucket`: whether a request that finds the bucket empty restarts the wait.
            /// Default: false.
            pub(crate) strict: Option<Spanned<bool>>,
            /// In place of `rate`: how many requests at once, or `unlimited`; for all, or by tier.
            #[schemars(with = "Option<shape::Units>")]
            pub(crate) concurrent: Option<Node>,
            /// For `concurrent`: when a request that never ends stops counting, 1s to 24h. Default:
            /// 60s.
            #[schemars(extend("examples" = ["60s"]))]
            pub(crate) lease: Option<Spanned<String>>,
            /// For `concurrent`: when a denied client should retry, in whole seconds, 1s to 1h.
            /// Default: 1s.
            #[schemars(extend("examples" = ["1s"]))]
            pub(crate) retry_after: Option<Spanned<String>>,

            $($after)*
        }
    };
}
pub(super) use with_measure;

with_measure! {
    /// How much, and how it is counted: what a limit, a candidate and an override have in common.
    ///
    /// A value that depends on the caller's tier can be written once for all tiers or by tier, with
    /// `default` for the tiers that are not named: `{ anonymous: 60/hour, default: 5000/hour }`.
    ///
    /// ```yaml
    /// { rate: 5000/hour }                               # fixed_window
    /// { rate: [10/second, 5000/hour] }                  # both at once
    /// { rate: { anonymous: 60/hour, default: 5000/hour } }
    /// { rate: 100_000/month, align: calendar, timezone: Europe/Berlin }
    /// { rate: 30/minute, algorithm: sliding_window }    # or sliding_log
    /// { rate: 30/minute, algorithm: gcra, burst: 10 }
    /// { rate: 10/second, algorithm: token_bucket, capacity: 50 }   # one more each 100 ms
    /// { refill: { amount: 10, interval: 1s }, algorithm: token_bucket, capacity: 50 }
    /// { concurrent: 20, lease: 60s }
    /// ```
    #[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, rename = "candidate")]
    RawMeasure {} {}
}

/// What is added to a bucket.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "refill section")]
pub(crate) struct RawRefill {
    /// How much is added.
    #[schemars(with = "shape::Count")]
    pub(crate) amount: Node,
    /// How often it is added, such as 500ms or 1m.
    #[schemars(extend("examples" = ["1s"]))]
    pub(crate) interval: Spanned<String>,
}

shapes! {
    /// What a bucket gets.
    Refill = "refill", |generator| generator.subschema_for::<RawRefill>();
}
