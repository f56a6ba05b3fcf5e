//! The raw structs of limits and overrides.

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_limit::{AlgorithmKind, Fallback};
use tollgate_yaml::{Choice, Node, Spanned};

use super::{
    cost::Cost,
    keywords::{Mode, OnStoreFull, RefundedCallers, WindowStart},
    measure::{RawMeasure, with_measure},
    shape,
};
use crate::OnMissing;

with_measure! {
    /// A limit: what it is counted per, how much and how, and when it counts.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, rename = "limit")]
    RawLimit {
        /// What it is counted per: a key or a list of up to 8 keys. A key is one of `caller`,
        /// `client.ip`, `host`, `path`, `path.<parameter>`, `method`, `jwt.<claim>`,
        /// `header.<name>`, `cookie.<name>`; or `key` alone, which programs name that charge the
        /// limit (`decisions` in the settings).
        #[schemars(with = "shape::Per")]
        pub(crate) per: Node,
        /// For `client.ip`: IPv4 addresses with the same prefix of this length share a counter.
        /// Default: 32, a counter for each address.
        #[schemars(range(min = 8, max = 32))]
        pub(crate) ipv4_prefix: Option<Spanned<u8>>,
        /// For `client.ip`: IPv6 addresses with the same prefix of this length share a counter.
        /// Default: 64, one customer's network.
        #[schemars(range(min = 32, max = 128))]
        pub(crate) ipv6_prefix: Option<Spanned<u8>>,
        /// How a request is treated that lacks one of the keys, such as the header: `skip` does not
        /// count it, `deny` refuses it. Default: skip.
        pub(crate) on_missing: Option<Spanned<Choice<OnMissing>>>,
        /// For keys that programs or Envoy name (`key`, `descriptor.<key>`, `caller` and claims):
        /// whether there are only so many values as they vouch for. `false`: clients may have
        /// chosen them, so that their counters have the room of `unverified_keys` (`store` in the
        /// settings). Default: false.
        pub(crate) verified: Option<Spanned<bool>>,
    }
    {
        /// What a request costs: a number; by method, `{ GET: 1, default: 5 }`; or as the response
        /// reports it, `{ reserve: 10, from_response_header: x-query-cost }`. Default: 1.
        #[schemars(with = "Option<Cost>")]
        pub(crate) cost: Option<Node>,
        /// Which requests are refunded. Default: those answered with 304 that had a valid token. A
        /// 304 is refunded for GET and HEAD with an entity tag or a past date.
        #[schemars(extend("examples" = [{ "status": [304] }]))]
        pub(crate) refund: Option<Spanned<RawRefund>>,
        /// Which responses count: a request is charged when it arrives, and refunded when its
        /// response does not count. Left out: all count.
        #[schemars(extend("examples" = [{ "status": [401] }]))]
        pub(crate) count_when: Option<Spanned<RawCountWhen>>,
        /// `enforce`: requests over the limit are denied. `shadow`: they are counted and reported,
        /// never denied. Default: enforce.
        pub(crate) mode: Option<Spanned<Choice<Mode>>>,
        /// The percentage of callers for which the limit is enforced: always the same ones, as long
        /// as the store's key secret is the same. Default: 100.
        #[schemars(range(min = 0, max = 100))]
        pub(crate) enforce_percent: Option<Spanned<u8>>,
        /// How a request is decided if the store does not answer. `local`: by counters of this
        /// process; `open`: it is admitted; `closed`: it is refused. Default: local.
        pub(crate) on_store_error: Option<Spanned<Choice<Fallback>>>,
        /// How a request is decided if the process has no room for another counter. `open`: it is
        /// admitted; `closed`: it is refused. Default: open while Redis does not answer, and closed
        /// where the store is in the process.
        pub(crate) on_store_full: Option<Spanned<Choice<OnStoreFull>>>,
        /// Another rate, tried out beside this one: what it would deny is counted and reported,
        /// never denied. Fields that it leaves out are those of the limit.
        #[schemars(extend("examples" = [{ "rate": "5000/hour" }]))]
        pub(crate) candidate: Option<Spanned<RawMeasure>>,
    }
}

impl RawLimit {
    /// How much, and how it is counted.
    pub(crate) fn measure(&self) -> RawMeasure {
        RawMeasure {
            algorithm: self.algorithm.clone(),
            rate: self.rate.clone(),
            align: self.align.clone(),
            timezone: self.timezone.clone(),
            burst: self.burst.clone(),
            capacity: self.capacity.clone(),
            refill: self.refill.clone(),
            strict: self.strict,
            concurrent: self.concurrent.clone(),
            lease: self.lease.clone(),
            retry_after: self.retry_after.clone(),
        }
    }
}

/// Which requests are refunded.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "refund section")]
pub(crate) struct RawRefund {
    /// Statuses (`304`) and classes of them (`5xx`) that are refunded. Default: 304. An empty list:
    /// none.
    #[schemars(with = "Option<Vec<shape::Status>>")]
    #[schemars(extend("examples" = [[304]]))]
    pub(crate) status: Option<Vec<Node>>,
    /// Which callers get a refund: `authenticated`, those with a valid token, or `all`. Left out:
    /// 304 for the authenticated, other statuses for all.
    pub(crate) callers: Option<Spanned<Choice<RefundedCallers>>>,
    /// The largest refund in a window: a share, `1%` to `100%`, of what can be used in it. Left
    /// out: unlimited.
    #[schemars(extend("examples" = ["50%"]))]
    pub(crate) at_most: Option<Spanned<String>>,
}

/// Which responses count.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "count_when section")]
pub(crate) struct RawCountWhen {
    /// Statuses (`401`) and classes of them (`4xx`) that count.
    #[schemars(with = "Vec<shape::Status>", length(min = 1))]
    #[schemars(extend("examples" = [[401]]))]
    pub(crate) status: Spanned<Vec<Node>>,
}

/// Another rate for one caller, or for what the limit counts by: `caller: "user:42"`, or
/// `jwt.org: bigcorp`. Of several, all must match a request. Fields that it leaves out are those of
/// the limit for tiers that it does not name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "override")]
#[schemars(extend("patternProperties" = shape::override_keys()))]
pub(crate) struct RawOverride {
    /// The caller: the name of an entry of `callers` and its value, such as `user:42`.
    #[schemars(extend("examples" = ["user:42"]))]
    pub(crate) caller: Option<Spanned<String>>,
    /// The issuer of the claims in `jwt.<claim>`, by name. Needed if there are several.
    #[schemars(length(min = 1))]
    pub(crate) issuer: Option<Spanned<String>>,
    /// The name of the limit.
    #[schemars(length(min = 1))]
    pub(crate) limit: Spanned<String>,
    /// In place of the limit's: `50000/hour`, a list of such, or `unlimited`.
    #[schemars(with = "Option<shape::Rates>")]
    pub(crate) rate: Option<Node>,
    /// In place of the limit's: how many may come at once.
    #[schemars(with = "Option<shape::Counts>")]
    pub(crate) burst: Option<Node>,
    /// In place of the limit's: what the bucket holds.
    #[schemars(with = "Option<shape::Units>")]
    pub(crate) capacity: Option<Node>,
    /// In place of the limit's: how many requests at once.
    #[schemars(with = "Option<shape::Units>")]
    pub(crate) concurrent: Option<Node>,
    /// When it ends: the last day (`2026-12-31`, in UTC), or an instant (`2026-12-31T18:00:00Z`).
    /// Left out: never.
    #[schemars(extend("examples" = ["2026-12-31"]))]
    pub(crate) until: Option<Spanned<String>>,
    /// The reason, for later readers.
    #[schemars(length(min = 1))]
    pub(crate) why: Spanned<String>,
}
