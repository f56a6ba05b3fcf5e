//! Settings of how much clients may send and hold. Each default is written here, once.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_wire::HeadLimits;
use tollgate_yaml::{Check, Node, Size, Spanned};

use super::Checker;

/// How much clients may send and hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of a request's head.
    pub head: HeadLimits,
    /// Bytes of a request's body that are read before the request is charged, where limits count by
    /// what it says.
    pub body_peek: u64,
    /// Connections at once, of all clients.
    pub connections: usize,
    /// Connections at once of one address, or of one network of 64 bits in IPv6.
    pub connections_per_address: usize,
    /// For an HTTP/2 connection.
    pub http2: Http2Limits,
}

/// The limits of an HTTP/2 connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Limits {
    /// Requests at once.
    pub streams: u32,
    /// Bytes of a request's body that a client may send before the proxy reads them.
    pub stream_window: u32,
    /// The same of all requests of the connection.
    pub connection_window: u32,
    /// Bytes of a head, as RFC 9113 section 6.5.2 counts them.
    pub header_list: u32,
    /// Requests that the client may have given up before they are looked at.
    pub resets: usize,
    /// Requests that may be ended for the client's faults.
    pub local_resets: usize,
}

/// How much clients may send and hold. Sizes are bytes, or have a unit: 64KiB, 1MiB.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "limits section")]
pub(super) struct RawLimits {
    /// A request's head, 1KiB to 1MiB; a larger one is answered with 431. Default: 32KiB.
    #[schemars(with = "Option<Size>")]
    head_bytes: Option<Node>,
    /// Fields of a head, 10 to 1000; more are answered with 431. Default: 100.
    #[schemars(range(min = 10, max = 1000))]
    fields: Option<Spanned<u32>>,
    /// One field of a head, 1KiB to 1MiB; a larger one is answered with 431. Default: 16KiB.
    #[schemars(with = "Option<Size>")]
    field_bytes: Option<Node>,
    /// A request's target, 256 to 32KiB; a longer one is answered with 414. Default: 8KiB.
    #[schemars(with = "Option<Size>")]
    target_bytes: Option<Node>,
    /// Bytes of a request's body that are read before the request is charged, 1KiB to 16MiB, where
    /// limits count by what it says; of a longer body they see nothing. Default: 64KiB.
    #[schemars(with = "Option<Size>")]
    body_peek: Option<Node>,
    /// Connections at once, 1 to 1000000; more are closed as soon as they are made. Default: 20000.
    #[schemars(range(min = 1, max = 1_000_000))]
    connections: Option<Spanned<u32>>,
    /// Connections at once of one address, or of one network of 64 bits in IPv6, 1 to 1000000.
    /// Default: 1000.
    #[schemars(range(min = 1, max = 1_000_000))]
    connections_per_address: Option<Spanned<u32>>,
    /// The limits of an HTTP/2 connection.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "streams": 100 }]))]
    http2: RawHttp2Limits,
}

/// The limits of an HTTP/2 connection.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "http2 section")]
struct RawHttp2Limits {
    /// Requests at once, 1 to 10000. Default: 100.
    #[schemars(range(min = 1, max = 10_000))]
    streams: Option<Spanned<u32>>,
    /// Bytes of a request's body that a client may send before the proxy reads them, 1KiB to 16MiB.
    /// Default: 64KiB.
    #[schemars(with = "Option<Size>")]
    stream_window: Option<Node>,
    /// The same of all requests of the connection, 64KiB to 64MiB. Default: 1MiB.
    #[schemars(with = "Option<Size>")]
    connection_window: Option<Node>,
    /// A request's head as HTTP/2 counts it, with 32 bytes more a field, 1KiB to 1MiB. Default:
    /// 32KiB.
    #[schemars(with = "Option<Size>")]
    header_list: Option<Node>,
    /// Requests that the client may have given up before they are looked at, 1 to 10000; more end
    /// the connection. Default: 20.
    #[schemars(range(min = 1, max = 10_000))]
    resets: Option<Spanned<u32>>,
    /// Requests that may be ended for the client's faults, 1 to 10000; more end the connection.
    /// Default: 100.
    #[schemars(range(min = 1, max = 10_000))]
    local_resets: Option<Spanned<u32>>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head: HeadLimits {
                head_bytes: 32 * KIB,
                fields: 100,
                field_bytes: 16 * KIB,
                //= rfc9110#section-4.1
                //# It is RECOMMENDED that all senders and recipients support, at a minimum, URIs
                //# with lengths of 8000 octets
                //= rfc9112#section-3
                //# It is RECOMMENDED that all HTTP senders and recipients support, at a minimum,
                //# request-line lengths of 8000 octets
                target_bytes: 8 * KIB,
            },
            body_peek: 64 * 1024,
            connections: 20_000,
            connections_per_address: 1_000,
            http2: Http2Limits::default(),
        }
    }
}

impl Default for Http2Limits {
    fn default() -> Self {
        Http2Limits {
            streams: 100,
            stream_window: 64 * 1024,
            connection_window: 1024 * 1024,
            header_list: 32 * 1024,
            resets: 20,
            local_resets: 100,
        }
    }
}

const KIB: usize = 1024;
const HEAD_BYTES: RangeInclusive<u64> = 1024..=1024 * 1024;
const FEW: RangeInclusive<u32> = 1..=10_000;
/// How many connections there may be at once.
pub(super) const CONNECTIONS: RangeInclusive<u32> = 1..=1_000_000;

impl Checker<'_> {
    pub(super) fn limits(&mut self, raw: &RawLimits) -> Limits {
        let default = Limits::default();
        Limits {
            head: self.head_limits(raw, default.head),
            body_peek: self.bytes_or(&raw.body_peek, 1024..=16 << 20, default.body_peek),
            connections: self.count_or(&raw.connections, CONNECTIONS, default.connections),
            connections_per_address: self.count_or(
                &raw.connections_per_address,
                CONNECTIONS,
                default.connections_per_address,
            ),
            http2: self.http2_limits(&raw.http2, default.http2),
        }
    }

    fn head_limits(&mut self, raw: &RawLimits, default: HeadLimits) -> HeadLimits {
        let mut bytes =
            |raw, range, default: usize| self.bytes_or(raw, range, default as u64) as usize;
        HeadLimits {
            head_bytes: bytes(&raw.head_bytes, HEAD_BYTES, default.head_bytes),
            field_bytes: bytes(&raw.field_bytes, HEAD_BYTES, default.field_bytes),
            target_bytes: bytes(&raw.target_bytes, 256..=32 * 1024, default.target_bytes),
            fields: self.count_or(&raw.fields, 10..=1000, default.fields),
        }
    }

    fn http2_limits(&mut self, raw: &RawHttp2Limits, default: Http2Limits) -> Http2Limits {
        const MIB: u64 = 1024 * 1024;
        let mut bytes = |raw, range, default: u32| self.bytes_or(raw, range, default.into()) as u32;
        Http2Limits {
            stream_window: bytes(&raw.stream_window, 1024..=16 * MIB, default.stream_window),
            connection_window: bytes(
                &raw.connection_window,
                64 * 1024..=64 * MIB,
                default.connection_window,
            ),
            header_list: bytes(&raw.header_list, HEAD_BYTES, default.header_list),
            streams: self.number_or(&raw.streams, FEW, default.streams),
            resets: self.count_or(&raw.resets, FEW, default.resets),
            local_resets: self.count_or(&raw.local_resets, FEW, default.local_resets),
        }
    }

    /// A number in `range` that counts something; none written: `default`.
    pub(super) fn count_or(
        &mut self,
        raw: &Option<Spanned<u32>>,
        range: RangeInclusive<u32>,
        default: usize,
    ) -> usize {
        raw.as_ref().and_then(|raw| self.number(raw, range)).map_or(default, |count| count as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::with_section;

    fn limits(fields: &str) -> Result<Limits, Vec<String>> {
        with_section("limits", fields).map(|settings| settings.limits)
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let set = limits(
            "head_bytes: 64KiB, connections: 50, http2: { streams: 7, connection_window: 131072 }",
        );
        let set = set.unwrap();
        assert_eq!((set.head.head_bytes, set.head.fields), (65_536, 100));
        assert_eq!((set.connections, set.connections_per_address), (50, 1000));
        let Http2Limits { streams, connection_window, stream_window, .. } = set.http2;
        assert_eq!((streams, connection_window, stream_window), (7, 131_072, 65_536));
    }

    #[test]
    fn what_is_out_of_range_is_reported_with_its_place() {
        for (fields, expected) in [
            (
                "head_bytes: 12",
                "3:23 `12` is out of range: write a number, or one with KiB, MiB or GiB, 1KiB to 1MiB",
            ),
            ("head_bytes: 32KB", "3:23 `32KB` is not a number of bytes: did you mean 32KiB?"),
            (
                "target_bytes: 1MiB",
                "3:25 `1MiB` is out of range: write a number, or one with KiB, MiB or GiB, 256 to 32KiB",
            ),
            ("fields: 5", "3:19 5 is out of range: write 10 to 1000"),
            ("connections: 0", "3:24 0 is out of range: write 1 to 1000000"),
            ("http2: { streams: 0 }", "3:29 0 is out of range: write 1 to 10000"),
        ] {
            assert_eq!(limits(fields).unwrap_err(), [expected]);
        }
        assert_eq!(limits("fields: 5, http2: { resets: 0 }").unwrap_err().len(), 2);
    }
}
