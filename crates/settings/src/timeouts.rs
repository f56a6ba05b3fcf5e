//! Settings of what clients may take their time for. Each default is written here, once.

use std::{num::NonZeroU32, ops::RangeInclusive, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_clock::deadline::LeastRate;
use tollgate_yaml::{Check, Spanned};

use super::Checker;

/// How long clients may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection's first byte, and for a request's head once it has begun.
    pub head: Duration,
    /// For the TLS handshake.
    pub tls_handshake: Duration,
    /// For the next request of an HTTP/1.1 connection.
    pub keep_alive: Duration,
    /// For the next request of an HTTP/2 connection.
    pub http2_idle: Duration,
    /// For the next bytes of a request's body.
    pub request_body: Duration,
    /// For reading anything of a response.
    pub response: Duration,
    /// At which rate a request's body has to come; none: any.
    pub request_body_rate: Option<LeastRate>,
    /// At which rate what there is of a response has to be read; none: any.
    pub response_rate: Option<LeastRate>,
    /// For the next bytes of an upgraded connection, in either direction.
    pub tunnel_idle: Duration,
}

/// How long clients may take.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "timeouts section")]
pub(super) struct RawTimeouts {
    /// For a connection's first byte, which is then closed, and for a request's head once it has
    /// begun, which is then answered with 408; 100ms to 1h. Default: 10s.
    #[schemars(extend("examples" = ["10s"]))]
    head: Option<Spanned<String>>,
    /// For the TLS handshake, 100ms to 1h. Default: 10s.
    #[schemars(extend("examples" = ["10s"]))]
    tls_handshake: Option<Spanned<String>>,
    /// For the next request of an HTTP/1.1 connection, 100ms to 1h. Default: 30s.
    #[schemars(extend("examples" = ["30s"]))]
    keep_alive: Option<Spanned<String>>,
    /// For the next request of an HTTP/2 connection, 100ms to 1h. Default: 60s.
    #[schemars(extend("examples" = ["60s"]))]
    http2_idle: Option<Spanned<String>>,
    /// For the next bytes of a request's body, which is then answered with 408; 100ms to 1h.
    /// Default: 30s.
    #[schemars(extend("examples" = ["30s"]))]
    request_body: Option<Spanned<String>>,
    /// For reading anything of a response, which is then broken off; 100ms to 1h. Default: 30s.
    #[schemars(extend("examples" = ["30s"]))]
    response: Option<Spanned<String>>,
    /// Bytes a second that a request's body has to come at, on average over the time for which the
    /// proxy waits for the client; a slower one is answered with 408; 0 to 1000000, where 0 takes
    /// any. Calls of gRPC to servers in HTTP/2 may be as slow as they like. Default: 240.
    #[schemars(range(min = 0, max = 1_000_000))]
    request_body_rate: Option<Spanned<u32>>,
    /// Bytes a second that a response has to be read at, on average over the time for which some of
    /// it waits for the client; a slower reader is broken off; 0 to 1000000, where 0 takes any.
    /// Default: 240.
    #[schemars(range(min = 0, max = 1_000_000))]
    response_rate: Option<Spanned<u32>>,
    /// How long a client may be waited for beyond that, 100ms to 1h. Bytes earn it again, never
    /// more than this. Default: 30s.
    #[schemars(extend("examples" = ["30s"]))]
    rate_grace: Option<Spanned<String>>,
    /// For the next bytes of an upgraded connection, such as a WebSocket, in either direction; 1s
    /// to 24h. Default: 10m.
    #[schemars(extend("examples" = ["10m"]))]
    tunnel_idle: Option<Spanned<String>>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            head: Duration::from_secs(10),
            tls_handshake: Duration::from_secs(10),
            keep_alive: Duration::from_secs(30),
            http2_idle: Duration::from_secs(60),
            request_body: Duration::from_secs(30),
            response: Duration::from_secs(30),
            request_body_rate: least_rate(DEFAULT_RATE, DEFAULT_GRACE),
            response_rate: least_rate(DEFAULT_RATE, DEFAULT_GRACE),
            tunnel_idle: Duration::from_secs(600),
        }
    }
}

/// Less than the slowest modem: a slower client is most likely slow on purpose.
const DEFAULT_RATE: u32 = 240;
/// How long a transfer may pause: a single pause of up to this time never violates the rate.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

const RATES: RangeInclusive<u32> = 0..=1_000_000;
const HOUR: Duration = Duration::from_secs(3600);
/// A tick of the clock that these are measured by is the least.
const OF_A_CLIENT: RangeInclusive<Duration> = Duration::from_millis(100)..=HOUR;
const OF_A_TUNNEL: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 3600);

impl Checker<'_> {
    pub(super) fn timeouts(&mut self, raw: &RawTimeouts) -> Timeouts {
        let default = Timeouts::default();
        let mut client = |raw, default| self.time_or(raw, OF_A_CLIENT, default);
        let grace = client(&raw.rate_grace, DEFAULT_GRACE);
        Timeouts {
            head: client(&raw.head, default.head),
            tls_handshake: client(&raw.tls_handshake, default.tls_handshake),
            keep_alive: client(&raw.keep_alive, default.keep_alive),
            http2_idle: client(&raw.http2_idle, default.http2_idle),
            request_body: client(&raw.request_body, default.request_body),
            response: client(&raw.response, default.response),
            request_body_rate: self.least_rate(&raw.request_body_rate, grace),
            response_rate: self.least_rate(&raw.response_rate, grace),
            tunnel_idle: self.time_or(&raw.tunnel_idle, OF_A_TUNNEL, default.tunnel_idle),
        }
    }

    fn least_rate(&mut self, raw: &Option<Spanned<u32>>, grace: Duration) -> Option<LeastRate> {
        least_rate(self.number_or(raw, RATES, DEFAULT_RATE), grace)
    }
}

/// None: any rate.
fn least_rate(bytes: u32, grace: Duration) -> Option<LeastRate> {
    NonZeroU32::new(bytes).map(|bytes| LeastRate { bytes, grace })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::with_section;

    fn timeouts(fields: &str) -> Result<Timeouts, Vec<String>> {
        with_section("timeouts", fields).map(|settings| settings.timeouts)
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let set = timeouts("head: 1500ms, tunnel_idle: 2h").unwrap();
        let expected = Timeouts {
            head: Duration::from_millis(1500),
            tunnel_idle: Duration::from_secs(7200),
            ..Timeouts::default()
        };
        assert_eq!(set, expected);
    }

    #[test]
    fn rates_share_a_grace_and_can_be_taken_off() {
        let set = timeouts("request_body_rate: 500, response_rate: 0, rate_grace: 5s").unwrap();
        assert_eq!(set.request_body_rate, least_rate(500, Duration::from_secs(5)));
        assert_eq!(set.response_rate, None);
        let set = timeouts("rate_grace: 5s").unwrap();
        assert_eq!(set.response_rate, least_rate(DEFAULT_RATE, Duration::from_secs(5)));
    }

    #[test]
    fn time_out_of_range_is_reported_with_its_place() {
        for (fields, expected) in [
            ("response_rate: 1000001", "3:28 1000001 is out of range: write 0 to 1000000"),
            ("head: 0s", "3:19 `0s` is out of range: write a number and a unit, 100ms to 1h"),
            ("head: soon", "3:19 `soon` is not a time: write a number and a unit, 100ms to 1h"),
            ("tunnel_idle: 25h", "3:26 `25h` is out of range: write a number and a unit, 1s to 1d"),
        ] {
            assert_eq!(timeouts(fields).unwrap_err(), [expected]);
        }
        assert_eq!(timeouts("head: 0s, keep_alive: 2h").unwrap_err().len(), 2);
        assert!(timeouts("idle: 1s").unwrap_err()[0].contains("unknown"));
    }
}
