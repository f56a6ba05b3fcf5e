//! `RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers-10 has them: the
//! limits, and how the caller stands.
//!
//! Both are lists of structured fields (RFC 9651) with an item for each limit, in the same order.

use std::{fmt::Write, iter};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_clock::Timestamp;
use tollgate_limit::{Retry, Standing};

static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The two fields of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimitFields {
    /// `RateLimit-Policy`, the same for each request of a caller.
    pub policy: HeaderValue,
    /// `RateLimit`.
    pub limit: HeaderValue,
}

/// What the fields say of one limit.
#[derive(Clone, Copy, Debug)]
pub struct RateLimitItem<'n> {
    /// The limit's name: 1 to 64 of `A-Z a-z 0-9 _ -`, so that it needs no escape.
    pub name: &'n str,
    /// Units that can be used: a window, or at once.
    pub limit: u32,
    /// Length of the window; none: the limit is of concurrent requests.
    pub window_secs: Option<u64>,
    /// Names the counter without revealing whose it is.
    pub partition: [u8; 8],
    /// Units left.
    pub remaining: u32,
    /// Seconds until more is available, as [`reset_seconds`] counts them; none if that is unknown.
    pub reset_seconds: Option<u64>,
}

/// Seconds until more is available in a window: until the reset of the other headers. The fields
/// call it `t`.
///
/// A window that denied has more, for this request, when a retry makes sense. `Retry-After` is the
/// longest of these waits, and so never earlier than the end of a window without room. Windows with
/// room go on after it: that their units are for a shorter time would be too permissive.
pub fn reset_seconds(standing: &Standing, now: Timestamp) -> u64 {
    let reset = standing.reported_reset();
    let until = match standing.retry {
        Retry::At(retry) => reset.min(retry),
        Retry::Now | Retry::Never => reset,
    };
    until.as_micros().saturating_sub(now.as_micros()).div_ceil(1_000_000)
}

/// Room for an item with a name of usual length.
const ITEM_BYTES: usize = 80;

impl RateLimitFields {
    /// The fields with these items; none if there are none, since no list may be empty.
    pub fn new<'n>(items: impl IntoIterator<Item = RateLimitItem<'n>>) -> Option<Self> {
        let mut items = items.into_iter();
        let first = items.next()?;
        let room = ITEM_BYTES * (1 + items.size_hint().0);
        let mut policy = String::with_capacity(room);
        let mut limit = String::with_capacity(room);
        for item in iter::once(first).chain(items) {
            item.push_policy(&mut policy);
            item.push_limit(&mut limit);
        }
        Some(RateLimitFields { policy: policy.try_into().ok()?, limit: limit.try_into().ok()? })
    }

    /// Puts them on a response, from which the upstream's own were removed.
    pub fn stamp(self, headers: &mut HeaderMap) {
        headers.append(RATELIMIT_POLICY.clone(), self.policy);
        headers.append(RATELIMIT.clone(), self.limit);
    }
}

impl RateLimitItem<'_> {
    fn push_policy(&self, list: &mut String) {
        self.push_name(list);
        push_integer(list, ";q=", self.limit.into());
        match self.window_secs {
            // A window of no seconds is not allowed, and rounds up.
            Some(seconds) => push_integer(list, ";w=", seconds.max(1)),
            None => list.push_str(";qu=\"concurrent-requests\""),
        }
        self.push_partition(list);
    }

    fn push_limit(&self, list: &mut String) {
        self.push_name(list);
        push_integer(list, ";r=", self.remaining.into());
        if let Some(seconds) = self.reset_seconds {
            push_integer(list, ";t=", seconds);
        }
        self.push_partition(list);
    }

    fn push_name(&self, list: &mut String) {
        list.push_str(if list.is_empty() { "\"" } else { ", \"" });
        list.push_str(self.name);
        list.push('"');
    }

    fn push_partition(&self, list: &mut String) {
        list.push_str(";pk=:");
        STANDARD.encode_string(self.partition, list);
        list.push(':');
    }
}

/// Structured fields have integers of 15 digits (RFC 9651 section 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;

fn push_integer(list: &mut String, key: &str, value: u64) {
    list.push_str(key);
    // Writing to a string does not fail.
    let _ = write!(list, "{}", value.min(MAX_INTEGER));
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};
    use sfv::{BareItem, List, ListEntry, Parser};
    use tollgate_limit::Retry;

    use super::*;

    const CORE: RateLimitItem<'_> = RateLimitItem {
        name: "core",
        limit: 5000,
        window_secs: Some(3600),
        partition: *b"\x70\x7b\x1d\xb1\x16\xbc\xf3\x5e",
        remaining: 50,
        reset_seconds: Some(30),
    };

    #[test]
    fn a_window_has_its_length_and_when_there_is_more() {
        let fields = RateLimitFields::new([CORE]).unwrap();
        assert_eq!(fields.policy, r#""core";q=5000;w=3600;pk=:cHsdsRa8814=:"#);
        assert_eq!(fields.limit, r#""core";r=50;t=30;pk=:cHsdsRa8814=:"#);
    }

    #[test]
    fn concurrency_has_its_unit_and_no_time() {
        let inflight = RateLimitItem {
            name: "in-flight_2",
            limit: 20,
            window_secs: None,
            remaining: 0,
            reset_seconds: None,
            ..CORE
        };
        let fields = RateLimitFields::new([CORE, inflight]).unwrap();
        assert_eq!(
            fields.policy,
            "\"core\";q=5000;w=3600;pk=:cHsdsRa8814=:, \
             \"in-flight_2\";q=20;qu=\"concurrent-requests\";pk=:cHsdsRa8814=:"
        );
        assert_eq!(
            fields.limit,
            "\"core\";r=50;t=30;pk=:cHsdsRa8814=:, \"in-flight_2\";r=0;pk=:cHsdsRa8814=:"
        );
    }

    #[test]
    fn without_limits_there_are_no_fields() {
        assert_eq!(RateLimitFields::new([]), None);
    }

    #[test]
    fn both_fields_are_stamped_once() {
        let mut headers = HeaderMap::new();
        RateLimitFields::new([CORE, CORE]).unwrap().stamp(&mut headers);
        assert_eq!(headers.get_all("RateLimit-Policy").iter().count(), 1);
        assert_eq!(headers.get_all("RateLimit").iter().count(), 1);
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn reset_is_when_one_more_fits_or_else_when_the_limit_is_whole() {
        let now = Timestamp::from_secs(1000);
        let standing = |remaining, retry: Option<u64>| Standing {
            limit: 10,
            remaining,
            used: 10 - remaining,
            reset: Timestamp::from_micros(1_060_000_001),
            next: Timestamp::from_micros(1_005_999_999),
            retry: retry.map_or(Retry::Now, |secs| Retry::At(Timestamp::from_secs(1000 + secs))),
        };
        for (remaining, retry, expected) in [
            (0, None, 6),
            (1, None, 61),
            (0, Some(9), 6),
            (0, Some(5), 5),
            (1, Some(20), 20),
            (1, Some(61), 61),
        ] {
            let found = reset_seconds(&standing(remaining, retry), now);
            assert_eq!(found, expected, "{remaining} left, retry after {retry:?}");
        }
        let never = Standing { retry: Retry::Never, ..standing(1, None) };
        assert_eq!(reset_seconds(&never, now), 61);
        assert_eq!(reset_seconds(&never, Timestamp::from_secs(2000)), 0, "long since");
    }

    /// Names and parameters as a client reads them.
    fn read(field: &HeaderValue) -> Vec<(String, Vec<(String, BareItem)>)> {
        let list: List = Parser::new(field).parse().unwrap();
        let read_entry = |entry| {
            let ListEntry::Item(item) = entry else { panic!("a list in the list") };
            let BareItem::String(name) = item.bare_item else { panic!("the name is no string") };
            let parameters = item.params.into_iter();
            let parameters = parameters.map(|(key, value)| (key.as_str().to_owned(), value));
            (name.as_str().to_owned(), parameters.collect())
        };
        list.into_iter().map(read_entry).collect()
    }

    fn integer(key: &str, value: u64) -> (String, BareItem) {
        let value = i64::try_from(value.min(MAX_INTEGER)).unwrap();
        (key.to_owned(), BareItem::Integer(value.try_into().unwrap()))
    }

    fn partition(item: &RateLimitItem<'_>) -> (String, BareItem) {
        ("pk".to_owned(), BareItem::ByteSequence(item.partition.to_vec()))
    }

    mod arbitrary {
        use super::*;

        fn seconds() -> impl Strategy<Value = u64> {
            prop_oneof![1..100_000_u64, MAX_INTEGER - 1..MAX_INTEGER + 2, any::<u64>()]
        }

        pub(super) fn names() -> impl Strategy<Value = Vec<String>> {
            vec("[A-Za-z0-9_-]{1,64}", 1..8)
        }

        pub(super) fn numbers() -> impl Strategy<Value = RateLimitItem<'static>> {
            let window = option::of(seconds());
            (any::<u32>(), window, any::<[u8; 8]>(), any::<u32>(), option::of(seconds())).prop_map(
                |(limit, window_secs, partition, remaining, reset_seconds)| RateLimitItem {
                    name: "",
                    limit,
                    window_secs: window_secs.map(|seconds| seconds.max(1)),
                    partition,
                    remaining,
                    reset_seconds,
                },
            )
        }
    }

    proptest! {
        #[test]
        fn prop_clients_read_what_was_put_in(
            names in arbitrary::names(), numbers in vec(arbitrary::numbers(), 8)
        ) {
            let items: Vec<RateLimitItem<'_>> =
                names.iter().zip(numbers).map(|(name, item)| RateLimitItem { name, ..item }).collect();
            let fields = RateLimitFields::new(items.iter().copied()).unwrap();

            let policy = items.iter().map(|item| {
                let concurrent = || {
                    let unit: sfv::String = "concurrent-requests".to_owned().try_into().unwrap();
                    ("qu".to_owned(), BareItem::String(unit))
                };
                let window = item.window_secs.map(|seconds| integer("w", seconds));
                let window = window.unwrap_or_else(concurrent);
                let parameters = vec![integer("q", item.limit.into()), window, partition(item)];
                (item.name.to_owned(), parameters)
            });
            prop_assert_eq!(read(&fields.policy), policy.collect::<Vec<_>>());

            let limit = items.iter().map(|item| {
                let mut parameters = vec![integer("r", item.remaining.into())];
                parameters.extend(item.reset_seconds.map(|seconds| integer("t", seconds)));
                parameters.push(partition(item));
                (item.name.to_owned(), parameters)
            });
            prop_assert_eq!(read(&fields.limit), limit.collect::<Vec<_>>());
        }

        #[test]
        fn prop_reset_seconds_are_the_least_wait_in_whole_seconds(
            now: u32, reset: u32, next: u32, remaining in 0..2_u32, retry: Option<u32>
        ) {
            let [now, reset, next] =
                [now, reset, next].map(|micros| Timestamp::from_micros(micros.into()));
            let retry = retry.map(|micros| Timestamp::from_micros(micros.into()));
            let more = if remaining == 0 { next } else { reset };
            let more = retry.map_or(more, |retry| more.min(retry));
            let retry = retry.map_or(Retry::Now, Retry::At);
            let standing = Standing { limit: 1, remaining, used: 0, reset, next, retry };
            let waited = |seconds| now + std::time::Duration::from_secs(seconds);

            let seconds = reset_seconds(&standing, now);
            prop_assert!(waited(seconds) >= more);
            prop_assert!(seconds == 0 || waited(seconds - 1) < more);
        }
    }
}
