//! The limits of an Ingress. The controller makes a zone of each of them, which all its hosts and
//! paths share, and whose burst is the limit times the multiplier.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{
    Import,
    ingress::{Entry, Ingress},
};
use crate::{Finding, Verdict, flow::Flow};

/// The burst that the controller gives a limit, unless an annotation says otherwise.
const DEFAULT_MULTIPLIER: i64 = 5;
/// The largest number that a limit takes here.
const MAX_NUMBER: u64 = i32::MAX as u64;

/// The limits of an Ingress.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    /// Their names.
    pub(super) names: Vec<String>,
    /// The name of the one that counts requests in flight.
    concurrent: Option<String>,
    /// How many requests of one client may come at once. None: there is no limit by time.
    pub(super) room: Option<u64>,
    /// The networks that they are not for.
    pub(super) exempt: Vec<IpNet>,
}

/// What the limits count by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Address,
    /// As `per` has it.
    Other(&'static str),
    Header(String),
    /// A variable that has no counterpart.
    Unknown,
}

impl Key {
    /// The key for a variable of nginx.
    pub(super) fn of(variable: &str, has_exact_hosts: bool) -> Self {
        match variable.trim_start_matches('$') {
            "binary_remote_addr"
            | "remote_addr"
            | "realip_remote_addr"
            | "the_real_ip"
            | "http_x_forwarded_for"
            | "proxy_add_x_forwarded_for"
            | "http_x_real_ip"
            | "http_cf_connecting_ip"
            | "full_x_forwarded_for"
            | "http_true_client_ip" => Key::Address,
            "host" => Key::Other("host"),
            "server_name" if has_exact_hosts => Key::Other("host"),
            "server_name" => Key::Other("all"),
            name => match name.strip_prefix("http_") {
                Some(header) if header != "authorization" && header != "host" => {
                    Key::Header(header.replace('_', "-"))
                }
                _ => Key::Unknown,
            },
        }
    }

    fn limit(&self) -> Flow {
        match self {
            Key::Address => {
                Flow::fields([("per", "client.ip".into()), ("ipv6_prefix", 128.into())])
            }
            Key::Other(key) => Flow::fields([("per", (*key).into())]),
            Key::Header(name) => {
                Flow::fields([("per", format!("header.{name}").into())]).with("on_missing", "skip")
            }
            Key::Unknown => Flow::fields([]),
        }
    }
}

impl Import<'_> {
    /// Adds the limits of an Ingress.
    pub(super) fn limits(&mut self, ingress: &Ingress<'_>, key: &Key) -> Limits {
        let multiplier = ingress
            .value("limit-burst-multiplier")
            .map_or(DEFAULT_MULTIPLIER, |text| text.parse().unwrap_or(DEFAULT_MULTIPLIER));
        let mut limits = Limits::default();
        for name in ["limit-rps", "limit-rpm", "limit-connections"] {
            let Some(entry) = ingress.get(name) else { continue };
            let Some(number) = self.number(ingress, entry) else { continue };
            if *key == Key::Unknown {
                let here = "counted by a variable that has no counterpart: nothing is limited";
                self.left_out(ingress, entry, here);
                continue;
            }
            if name != "limit-connections" && multiplier <= 0 {
                self.problem_of_multiplier(ingress);
                continue;
            }
            self.add_limit(ingress, entry, number, (key, multiplier.unsigned_abs()), &mut limits);
        }
        limits.exempt = self.networks(ingress, &["limit-allowlist", "limit-whitelist"]);
        self.add_overrides(ingress, key, &limits);
        self.note_multiplier(ingress, &limits, multiplier);
        limits
    }

    fn add_limit(
        &mut self,
        ingress: &Ingress<'_>,
        entry: &Entry,
        number: u64,
        (key, multiplier): (&Key, u64),
        limits: &mut Limits,
    ) {
        let kind = entry.name.trim_start_matches("limit-");
        let id = format!("{}-{}-{kind}", ingress.namespace(), ingress.resource.name);
        let name = self.names.take(&id);
        let (limit, words) = if kind == "connections" {
            limits.concurrent = Some(name.clone());
            let number = number.min(MAX_NUMBER);
            let words = format!(
                "limit {name}: {number} requests in flight. One that its client gave up counts \
                 until it is answered; one that is refused uses no rate"
            );
            (key.limit().with("concurrent", number), words)
        } else {
            let burst = number.saturating_mul(multiplier).saturating_add(1).min(MAX_NUMBER);
            let rate = rate(kind, number);
            let rounded = if rate.ends_with("1000s") { ", as nginx rounds it" } else { "" };
            limits.room = Some(limits.room.map_or(burst, |room| room.min(burst)));
            let words = format!(
                "limit {name}: {rate}{rounded}, {burst} at once, in one counter for all its paths"
            );
            let limit = key.limit().with("rate", rate).with("algorithm", "gcra");
            (limit.with("burst", burst), words)
        };
        let is_same = kind != "connections" && *key == Key::Address && number <= MAX_NUMBER / 100;
        self.findings.push(ingress.row(entry, Verdict::same_if(is_same), words));
        self.draft.limits.push((name.clone(), limit));
        limits.names.push(name);
    }

    /// The number of a limit, if it is one: nothing and what is not above 0 is none.
    fn number(&mut self, ingress: &Ingress<'_>, entry: &Entry) -> Option<u64> {
        match entry.value.parse::<i64>() {
            Ok(number) if number > 0 => Some(number.unsigned_abs()),
            Ok(_) => {
                let row = ingress.row(entry, Verdict::Same, "no limit, there and here");
                self.findings.push(row);
                None
            }
            Err(_) => {
                let message = format!(
                    "`{}` takes a whole number: the controller ignores the whole Ingress, or \
                     before 1.12 this limit",
                    entry.name
                );
                self.problem(ingress, entry, message, "write a number, such as \"5\"");
                None
            }
        }
    }

    fn problem_of_multiplier(&mut self, ingress: &Ingress<'_>) {
        if let Some(entry) = ingress.get("limit-burst-multiplier") {
            let message = "nginx takes no burst that is not above 0: it does not load what the \
                           controller makes of this";
            self.problem(ingress, entry, message, "write 1 or more, or take it out for 5");
        }
    }

    fn note_multiplier(&mut self, ingress: &Ingress<'_>, limits: &Limits, multiplier: i64) {
        let Some(entry) = ingress.get("limit-burst-multiplier") else { return };
        let here = match (limits.room, entry.value.parse::<i64>()) {
            (None, _) => "there is no limit-rps or limit-rpm that it is for".to_owned(),
            (_, Err(_)) => "no number: 5, there and here".to_owned(),
            _ => format!("bursts of {multiplier} times the limit"),
        };
        self.findings.push(ingress.row(entry, Verdict::Same, here));
    }

    /// What the allow list of the limits says, for each of them.
    fn add_overrides(&mut self, ingress: &Ingress<'_>, key: &Key, limits: &Limits) {
        let entry = ["limit-allowlist", "limit-whitelist"].iter().find_map(|own| ingress.get(own));
        let Some(entry) = entry else { return };
        if limits.names.is_empty() {
            let there = format!("{}: {}", ingress.id(), entry.name);
            let here = "there is no limit that it is for";
            self.findings.push(Finding::same(ingress.place(entry.span), there, here));
            return;
        }
        if *key != Key::Address {
            let here = "limits that do not count by address have no exceptions by address: they \
                        hold for these networks, too";
            self.left_out(ingress, entry, here);
            return;
        }
        for name in &limits.names {
            let measure =
                if limits.concurrent.as_ref() == Some(name) { "concurrent" } else { "rate" };
            for network in &limits.exempt {
                self.draft.overrides.push(
                    Flow::fields([("limit", name.as_str().into())])
                        .with("client.ip", network.to_string())
                        .with(measure, "unlimited")
                        .with("why", format!("{} of {}", entry.name, ingress.id())),
                );
            }
        }
        let here = "overrides without limit, for the limits of this Ingress alone";
        self.findings.push(ingress.row(entry, Verdict::Same, here));
    }

    /// The networks of the first of these annotations that is there.
    pub(super) fn networks(&mut self, ingress: &Ingress<'_>, names: &[&str]) -> Vec<IpNet> {
        let Some(entry) = names.iter().find_map(|name| ingress.get(name)) else {
            return Vec::new();
        };
        let networks = networks(&entry.value);
        if networks.is_none() {
            let message = format!(
                "`{}` takes addresses and networks: of a list with anything else the controller \
                 takes nothing, and answers 503 where it is for access",
                entry.name
            );
            self.problem(
                ingress,
                entry,
                message,
                "write them with commas: \"10.0.0.0/8,192.0.2.1\"",
            );
        }
        networks.unwrap_or_default()
    }
}

/// The rate of a zone. nginx counts in thousandths of a request a second, rounded down.
fn rate(kind: &str, number: u64) -> String {
    match kind {
        "rps" => format!("{}/second", number.min(MAX_NUMBER)),
        _ if number.is_multiple_of(3) => format!("{}/minute", number.min(MAX_NUMBER)),
        _ => format!("{}/1000s", (number.saturating_mul(1000) / 60).min(MAX_NUMBER)),
    }
}

/// Addresses and networks with commas between them, masked as the controller does it.
pub(super) fn networks(text: &str) -> Option<Vec<IpNet>> {
    let network = |own: &str| {
        let address = || own.parse::<IpAddr>().ok().map(IpNet::from);
        own.parse::<IpNet>().ok().or_else(address).map(|network| network.trunc())
    };
    text.split(',').map(str::trim).filter(|own| !own.is_empty()).map(network).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_a_minute_are_rounded_down_as_nginx_does_it() {
        for (kind, number, expected) in [
            ("rps", 5, "5/second"),
            ("rpm", 30, "30/minute"),
            ("rpm", 10, "166/1000s"),
            ("rpm", 100, "1666/1000s"),
            ("rpm", 1000, "16666/1000s"),
            ("rpm", 1, "16/1000s"),
        ] {
            assert_eq!(rate(kind, number), expected);
        }
    }

    #[test]
    fn networks_are_masked() {
        let read = networks("192.168.11.20/24, 10.0.0.1,2001:db8::/32").unwrap();
        let read: Vec<String> = read.iter().map(IpNet::to_string).collect();
        assert_eq!(read, ["192.168.11.0/24", "10.0.0.1/32", "2001:db8::/32"]);
        assert_eq!(networks("10.0.0.0/8 10.1.0.0/16"), None);
    }

    #[test]
    fn variables_are_keys_as_far_as_no_client_gets_more_by_them() {
        assert_eq!(Key::of("$binary_remote_addr", true), Key::Address);
        assert_eq!(Key::of("$http_x_forwarded_for", true), Key::Address);
        assert_eq!(Key::of("$server_name", true), Key::Other("host"));
        assert_eq!(Key::of("$server_name", false), Key::Other("all"));
        assert_eq!(Key::of("$http_x_api_key", true), Key::Header("x-api-key".to_owned()));
        assert_eq!(Key::of("$http_authorization", true), Key::Unknown);
        assert_eq!(Key::of("$geoip2_country", true), Key::Unknown);
    }
}
