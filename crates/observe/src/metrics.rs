//! What workers count of requests, for `GET /metrics`.
//!
//! Each worker counts in memory of its own, so that no cache line moves from one core to another;
//! a reader adds the workers' numbers up. What is counted is named by words of the policy only,
//! never by what a client sends: the number of series is known when a policy is loaded.

mod count;
mod histogram;
mod limit;
mod meter;
mod method;
mod policy;
mod redis_protocol;
mod route;
mod shards;

pub use self::{
    count::Count,
    histogram::{Histogram, HistogramTotal},
    limit::{LimitCounters, LimitDecision},
    meter::{RequestMeter, Totals},
    method::MethodLabel,
    policy::{ADDED_SECONDS, LimitSeries, PolicyCounters, PolicySeries},
    redis_protocol::{CommandCounts, CommandTotals},
    route::{REQUEST_SECONDS, RequestTotal, RouteCounters},
    shards::Shards,
};
