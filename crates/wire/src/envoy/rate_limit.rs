//! `envoy.service.ratelimit.v3`: have these descriptors room for so many hits?

use prost::{Enumeration, Message};

use super::common::HeaderValue;

/// What Envoy asks.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitRequest {
    /// Whose limits.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What is counted.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// Hits of those that do not say; 0: one.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// Something that is counted: pairs of a key and a value, in their order.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    /// The pairs.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// Hits; 0: none, its limits are only looked at.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Whether the hits are given back.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// A pair of a descriptor.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    /// Its key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// What Envoy gets.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitResponse {
    /// Whether all descriptors have room.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// One for each descriptor, in their order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Fields that the response to the client gets.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
}

/// Whether there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Envoy lets the request through.
    Unknown = 0,
    /// There is room.
    Ok = 1,
    /// There is no room.
    OverLimit = 2,
}

impl Code {
    /// As it is written in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Code::Unknown => "UNKNOWN",
            Code::Ok => "OK",
            Code::OverLimit => "OVER_LIMIT",
        }
    }
}

/// How the limit of a descriptor stands.
#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    /// Whether it has room.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// None: there is no limit, or its window is no unit.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// Hits left.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// Time until the window ends.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// A rate.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimit {
    /// Hits.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// In this time.
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    /// The limit's name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Lengths of windows that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Unit {
    /// None of these.
    Unknown = 0,
    /// 1 s.
    Second = 1,
    /// 60 s.
    Minute = 2,
    /// 3,600 s.
    Hour = 3,
    /// 86,400 s.
    Day = 4,
}

impl Unit {
    /// The unit of so many seconds.
    pub fn of_seconds(seconds: u64) -> Option<Unit> {
        match seconds {
            1 => Some(Unit::Second),
            60 => Some(Unit::Minute),
            3600 => Some(Unit::Hour),
            86_400 => Some(Unit::Day),
            _ => None,
        }
    }

    /// As it is written in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Unknown => "UNKNOWN",
            Unit::Second => "SECOND",
            Unit::Minute => "MINUTE",
            Unit::Hour => "HOUR",
            Unit::Day => "DAY",
        }
    }
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}
