//! Settings of how much clients may send and hold. Each default is written here, once.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_wire::HeadLimits;
use tollgate_yaml::{Node, Size, Spanned};

use super::Checker;

/// How much clients may send and hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of a request's head.
    pub head: HeadLimits,
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
                target_bytes: 8 * KIB,
            },
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
const HEAD_BYTES: RangeInclusive<u32> = 1024..=1024 * 1024;
const HEAD_HELP: &str = "write a size from 1KiB to 1MiB";
const FEW: RangeInclusive<u32> = 1..=10_000;
const FEW_HELP: &str = "write a number from 1 to 10000";
const CONNECTIONS: RangeInclusive<u32> = 1..=1_000_000;
const CONNECTIONS_HELP: &str = "write a number from 1 to 1000000";

impl Checker<'_> {
    pub(super) fn limits(&mut self, raw: &RawLimits) -> Limits {
        let default = Limits::default();
        let connections = self.number(&raw.connections, &CONNECTIONS, CONNECTIONS_HELP);
        let of_an_address =
            self.number(&raw.connections_per_address, &CONNECTIONS, CONNECTIONS_HELP);
        Limits {
            head: self.head_limits(raw, default.head),
            connections: wide(connections).unwrap_or(default.connections),
            connections_per_address: wide(of_an_address).unwrap_or(default.connections_per_address),
            http2: self.http2_limits(&raw.http2, default.http2),
        }
    }

    fn head_limits(&mut self, raw: &RawLimits, default: HeadLimits) -> HeadLimits {
        let fields = self.number(&raw.fields, &(10..=1000), "write a number from 10 to 1000");
        let head = self.size(&raw.head_bytes, &HEAD_BYTES, HEAD_HELP);
        let field = self.size(&raw.field_bytes, &HEAD_BYTES, HEAD_HELP);
        let target =
            self.size(&raw.target_bytes, &(256..=32 * 1024), "write a size from 256 to 32KiB");
        HeadLimits {
            head_bytes: wide(head).unwrap_or(default.head_bytes),
            fields: wide(fields).unwrap_or(default.fields),
            field_bytes: wide(field).unwrap_or(default.field_bytes),
            target_bytes: wide(target).unwrap_or(default.target_bytes),
        }
    }

    fn http2_limits(&mut self, raw: &RawHttp2Limits, default: Http2Limits) -> Http2Limits {
        let streams = self.number(&raw.streams, &FEW, FEW_HELP);
        let resets = self.number(&raw.resets, &FEW, FEW_HELP);
        let local_resets = self.number(&raw.local_resets, &FEW, FEW_HELP);
        let window = self.size(
            &raw.stream_window,
            &(1024..=16 * 1024 * 1024),
            "write a size from 1KiB to 16MiB",
        );
        let of_all = self.size(
            &raw.connection_window,
            &(64 * 1024..=64 * 1024 * 1024),
            "write a size from 64KiB to 64MiB",
        );
        let header_list = self.size(&raw.header_list, &HEAD_BYTES, HEAD_HELP);
        Http2Limits {
            streams: streams.unwrap_or(default.streams),
            stream_window: window.unwrap_or(default.stream_window),
            connection_window: of_all.unwrap_or(default.connection_window),
            header_list: header_list.unwrap_or(default.header_list),
            resets: wide(resets).unwrap_or(default.resets),
            local_resets: wide(local_resets).unwrap_or(default.local_resets),
        }
    }

    /// A number within a range, if one is written.
    pub(super) fn number(
        &mut self,
        raw: &Option<Spanned<u32>>,
        range: &RangeInclusive<u32>,
        help: &str,
    ) -> Option<u32> {
        let raw = raw.as_ref()?;
        if !range.contains(&raw.value) {
            self.refuse(raw, format!("{} is out of range", raw.value), help);
            return None;
        }
        Some(raw.value)
    }

    /// A size within a range, if one is written.
    fn size(&mut self, raw: &Option<Node>, range: &RangeInclusive<u32>, help: &str) -> Option<u32> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        self.bytes(raw, &range, help).and_then(|bytes| u32::try_from(bytes).ok())
    }

    /// A size in bytes, in a range.
    pub(super) fn bytes(
        &mut self,
        raw: &Option<Node>,
        range: &RangeInclusive<u64>,
        help: &str,
    ) -> Option<u64> {
        let raw = raw.as_ref()?;
        let bytes = Size::parse(&raw.value);
        let size = bytes.filter(|bytes| range.contains(bytes));
        if size.is_none() {
            let message = match bytes {
                Some(bytes) => format!("{bytes} bytes is out of range"),
                None => "not a size".into(),
            };
            self.problems.push(self.document.problem(raw.span, message, help));
        }
        size
    }
}

fn wide(number: Option<u32>) -> Option<usize> {
    number.and_then(|number| usize::try_from(number).ok())
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
            ("head_bytes: 12", "3:23 12 bytes is out of range: write a size from 1KiB to 1MiB"),
            ("head_bytes: 32KB", "3:23 not a size: write a size from 1KiB to 1MiB"),
            (
                "target_bytes: 1MiB",
                "3:25 1048576 bytes is out of range: write a size from 256 to 32KiB",
            ),
            ("fields: 5", "3:19 5 is out of range: write a number from 10 to 1000"),
            ("connections: 0", "3:24 0 is out of range: write a number from 1 to 1000000"),
            ("http2: { streams: 0 }", "3:29 0 is out of range: write a number from 1 to 10000"),
        ] {
            assert_eq!(limits(fields).unwrap_err(), [expected]);
        }
        assert_eq!(limits("fields: 5, http2: { resets: 0 }").unwrap_err().len(), 2);
    }
}
