//! Zones, and the places that use them: one counter with a rate, and a room of its own at each place.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Importer,
    keys::maps::{Condition, Maps},
    keys::{self, Key, Per},
    tree::Directive,
};
use crate::{Finding, Problems, flow::Flow, names::Names};

/// A zone.
pub(super) struct Zone<'c> {
    name: &'c str,
    /// Else why it is left out.
    pub(super) key: Result<Key, String>,
    /// Thousandths of a request a second; None: it is for requests in flight.
    rate: Option<u64>,
    directive: &'c Directive,
}

/// What a place uses of a zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) zone: usize,
    /// Which counter of it, if each server has its own.
    server: Option<String>,
    is_dry: bool,
    /// How many more than one at once; or how many in flight.
    room: u64,
}

/// All zones, and what of them is used.
#[derive(Default)]
pub(super) struct Zones<'c> {
    pub(super) zones: Vec<Zone<'c>>,
    used: BTreeSet<Use>,
    names: BTreeMap<Use, Vec<String>>,
}

/// Rooms of one zone that are told apart. With more, the smallest one holds everywhere.
const MAX_ROOMS: usize = 4;

impl<'c> Zones<'c> {
    /// The zones that are declared.
    pub(super) fn new(http: &'c [Directive], maps: &Maps<'_>, problems: &mut Problems) -> Self {
        let mut zones = Vec::new();
        for directive in http {
            let is_rate = match directive.name.as_str() {
                "limit_req_zone" => true,
                "limit_conn_zone" => false,
                _ => continue,
            };
            let name = directive.parameter("zone").and_then(|zone| zone.split(':').next());
            let rate = rate(directive.parameter("rate").unwrap_or("1r/s")).filter(|rate| *rate > 0);
            let (Some(name), Some(rate), true) = (name, rate, directive.args.len() > 1) else {
                let help = "write it as `limit_req_zone $binary_remote_addr zone=api:10m rate=10r/s;`, with a whole number of r/s or r/m";
                problems.push(
                    directive
                        .place
                        .problem(format!("`{}` is not complete", directive.said()), help),
                );
                continue;
            };
            let key = keys::key(directive.arg(0), maps);
            zones.push(Zone { name, key, rate: is_rate.then_some(rate), directive });
        }
        Zones { zones, ..Zones::default() }
    }

    fn find(&self, name: &str, is_rate: bool) -> Option<(usize, &Zone<'c>)> {
        self.zones
            .iter()
            .enumerate()
            .find(|(_, zone)| zone.name == name && zone.rate.is_some() == is_rate)
    }

    /// Names all limits that are used.
    pub(super) fn name_limits(&mut self) {
        let mut names = Names::default();
        for used in &self.used {
            let Some(zone) = self.zones.get(used.zone) else { continue };
            let mut name = zone.name.to_owned();
            if self.rooms(used).len() > 1 {
                name = format!("{name}-{}", used.room);
            }
            if let Some(server) = used.server.as_deref().filter(|_| {
                self.used.iter().any(|other| other.zone == used.zone && other.server != used.server)
            }) {
                name = format!("{name}-{server}");
            }
            if used.is_dry && self.used.iter().any(|other| other.zone == used.zone && !other.is_dry)
            {
                name.push_str("-dry-run");
            }
            let keys = zone.key.as_ref().map_or(0, |key| key.per.len());
            self.names.insert(used.clone(), (0..keys).map(|_| names.take(&name)).collect());
        }
    }

    /// The rooms of this counter, the smallest first.
    fn rooms(&self, used: &Use) -> Vec<&Use> {
        let is_alike = |other: &&Use| {
            (other.zone, other.is_dry, &other.server) == (used.zone, used.is_dry, &used.server)
        };
        let rooms: Vec<&Use> = self.used.iter().filter(is_alike).collect();
        if rooms.len() > MAX_ROOMS { rooms.into_iter().take(1).collect() } else { rooms }
    }

    /// The names of the limits that a place charges: with its own room, and all larger ones, so that
    /// the largest one counts what all places take.
    pub(super) fn limits(&self, used: &Use) -> Vec<String> {
        let rooms = self.rooms(used);
        let is_alone = rooms.len() == 1;
        let charged = rooms.into_iter().filter(|other| is_alone || other.room >= used.room);
        charged.filter_map(|other| self.names.get(other)).flatten().cloned().collect()
    }

    /// The limits of the policy, and its overrides. `has_callers`: a 304 is given back to them.
    pub(super) fn written(&self, has_callers: bool) -> (Vec<(String, Flow)>, Vec<Flow>) {
        let (mut limits, mut overrides) = (Vec::new(), Vec::new());
        for (used, names) in &self.names {
            let Some(Zone { key: Ok(key), rate, .. }) = self.zones.get(used.zone) else { continue };
            if !self.rooms(used).contains(&used) {
                continue;
            }
            for (name, Per { parts, on_missing }) in names.iter().zip(&key.per) {
                let per = match &parts[..] {
                    [part] => part.as_str().into(),
                    parts => Flow::list(parts.iter().cloned()),
                };
                let mut limit = amount(Flow::fields([("per", per)]), *rate, used.room);
                if parts.iter().any(|part| part == "client.ip") {
                    limit = limit.with("ipv6_prefix", 128);
                }
                if let Some(on_missing) = on_missing {
                    limit = limit.with("on_missing", *on_missing);
                }
                if used.is_dry {
                    limit = limit.with("mode", "shadow");
                }
                if has_callers {
                    limit =
                        limit.with("refund", Flow::fields([("status", Flow::List(Vec::new()))]));
                }
                limits.push((name.clone(), limit));
                overrides.extend(exceptions(&key.condition, name, *rate, used.room));
            }
        }
        (limits, overrides)
    }

    /// How many of these requests at once are admitted by a limit by rate, if it tells none apart;
    /// with the rate in thousandths of a request a second.
    pub(super) fn at_once(&self, used: &Use) -> Option<(u64, u64)> {
        let smallest = self
            .rooms(used)
            .first()
            .filter(|_| self.rooms(used).len() == 1)
            .map_or(used.room, |first| first.room);
        let rate = self.zones.get(used.zone)?.rate?;
        (!used.is_dry).then_some((smallest + 1, rate))
    }

    /// A row for each zone.
    pub(super) fn findings(&self, http: &[Directive]) -> Vec<Finding> {
        let used = used_anywhere(http);
        let row = |(at, zone): (usize, &Zone<'_>)| {
            let Zone { key, rate, directive, .. } = zone;
            let (place, there) = (directive.place.to_string(), directive.said());
            let names: Vec<&str> = self
                .names
                .iter()
                .filter(|(used, _)| used.zone == at)
                .flat_map(|(_, names)| names)
                .map(String::as_str)
                .collect();
            let Ok(Key { notes, per, .. }) = key else {
                return Finding::left_out(
                    place,
                    there,
                    key.as_ref().err().cloned().unwrap_or_default(),
                );
            };
            if names.is_empty() {
                return match used.contains(&zone.name) {
                    false => Finding::same(place, there, "nothing uses it"),
                    true => {
                        let why = "the places that use it are not in the policy: nothing is limited by it";
                        Finding::left_out(place, there, why)
                    }
                };
            }
            let per: Vec<String> = per.iter().map(|per| per.parts.join(", ")).collect();
            let mut here = format!("limits {}, per {}", names.join(", "), per.join(" and per "));
            let has_odd_rate = rate.is_some_and(|rate| {
                directive.args.iter().any(|arg| arg.ends_with("r/m")) && rate * 60 % 1000 != 0
            });
            if has_odd_rate {
                here = format!(
                    "{here}; {}, which is what nginx makes of it",
                    rate_in_words(rate.unwrap_or_default())
                );
            }
            for note in notes {
                here = format!("{here}; {note}");
            }
            if notes.is_empty() {
                Finding::same(place, there, here)
            } else {
                Finding::nearly(place, there, here)
            }
        };
        self.zones.iter().enumerate().map(row).collect()
    }
}

impl Importer<'_> {
    /// What a `limit_req` or `limit_conn` of a place uses, with a row for it.
    pub(super) fn uses(
        &mut self,
        directive: &Directive,
        server: Option<&str>,
        is_dry: bool,
    ) -> Option<Use> {
        let is_rate = directive.name == "limit_req";
        let name = if is_rate {
            directive.parameter("zone").unwrap_or_default()
        } else {
            directive.arg(0)
        };
        let (burst, delay) =
            (number(directive.parameter("burst"), 0), number(directive.parameter("delay"), 0));
        let room =
            if is_rate { burst } else { directive.arg(1).parse().ok().filter(|room| *room > 0) };
        let (Some((at, zone)), Some(room), Some(delay)) =
            (self.zones.find(name, is_rate), room, delay)
        else {
            let is_there = self.zones.find(name, is_rate).is_some();
            let (message, help) = match is_there {
                true => (
                    format!("`{}` has no usable number", directive.said()),
                    "write a whole number above 0".to_owned(),
                ),
                false => (
                    format!("there is no zone `{name}` for `{}`", directive.said()),
                    format!(
                        "give the file with `{}_zone … zone={name}:…` as well, or the output of `nginx -T`",
                        directive.name
                    ),
                ),
            };
            self.problems.push(directive.place.problem(message, help));
            return None;
        };
        let key = zone.key.as_ref().ok();
        let server = server.map(str::to_owned).filter(|_| key.is_some_and(|key| key.by_server));
        let used = key.filter(|key| !key.by_server || server.is_some()).map(|_| Use {
            zone: at,
            server,
            is_dry,
            room,
        });
        let rate = zone.rate.unwrap_or(1000);
        let there = directive.said();
        let mut notes = Vec::new();
        let has_delay =
            is_rate && !directive.args.iter().any(|arg| arg == "nodelay") && room > delay;
        if has_delay {
            let milliseconds = (room - delay) * 1_000_000 / rate;
            notes.push(format!("the same requests are admitted, but at once: nginx holds {} of them back, up to {}.{} s", room - delay, milliseconds / 1000, milliseconds % 1000 / 100));
        }
        let place = directive.place.to_string();
        let Some(used) = used else {
            let why = if key.is_some() {
                "the server has no name, so nothing is counted".to_owned()
            } else {
                format!("the zone `{name}` is left out: these requests are not limited by it")
            };
            let finding = if key.is_some() {
                Finding::same(place, there, why)
            } else {
                Finding::left_out(place, there, why)
            };
            self.row(finding);
            return None;
        };
        if !is_rate {
            notes.push("a request that its client gives up counts until the server has answered, and a refused one charges no rate".to_owned());
        }
        if is_dry {
            notes.push("in shadow mode, with a counter of its own".to_owned());
        }
        let same = match is_rate {
            true => format!("{} at once, then {}", room + 1, rate_in_words(rate)),
            false => format!("{room} in flight"),
        };
        self.zones.used.insert(used.clone());
        let here = std::iter::once(same).chain(notes.clone()).collect::<Vec<_>>().join("; ");
        self.row(if notes.is_empty() {
            Finding::same(place, there, here)
        } else {
            Finding::nearly(place, there, here)
        });
        Some(used)
    }

    /// Rows for counters with several rooms.
    pub(super) fn note_rooms(&mut self) {
        let mut rows = Vec::new();
        for (at, zone) in self.zones.zones.iter().enumerate() {
            let of_zone: Vec<&Use> =
                self.zones.used.iter().filter(|used| used.zone == at).collect();
            let (place, there) = (zone.directive.place.to_string(), format!("zone {}", zone.name));
            let rooms: BTreeSet<u64> = of_zone.iter().map(|used| used.room).collect();
            let (Some(least), Some(most)) = (rooms.first(), rooms.last()) else { continue };
            if of_zone.iter().any(|used| self.zones.rooms(used).len() > 1) {
                rows.push(Finding::nearly(&place, &there, format!(
                    "used with {} different rooms: a limit for each, and a place charges its own and all larger ones. After requests elsewhere a place may take up to {} more at once; the rate of all is the same", rooms.len(), most - least)));
            } else if rooms.len() > MAX_ROOMS {
                rows.push(Finding::nearly(&place, &there, format!("used with {} different rooms: the smallest, {least}, holds at all places: stricter", rooms.len())));
            }
            if of_zone.iter().any(|used| used.is_dry) && of_zone.iter().any(|used| !used.is_dry) {
                rows.push(Finding::nearly(&place, &there, "dry run in some places: what passes there uses up nothing of the other places, which is looser"));
            }
        }
        self.findings.extend(rows);
    }
}

/// The names of all zones that some place uses, also of servers that are left out.
fn used_anywhere(http: &[Directive]) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut open = vec![http];
    while let Some(level) = open.pop() {
        for directive in level {
            open.extend(directive.block.as_deref());
            match directive.name.as_str() {
                "limit_req" => names.extend(directive.parameter("zone")),
                "limit_conn" => names.extend(directive.args.first().map(String::as_str)),
                _ => {}
            }
        }
    }
    names
}

/// A limit or an override with its numbers.
fn amount(fields: Flow, rate: Option<u64>, room: u64) -> Flow {
    match rate {
        None => fields.with("concurrent", room),
        Some(milli) => fields
            .with("rate", rate_in_words(milli))
            .with("algorithm", "gcra")
            .with("burst", room + 1),
    }
}

/// A rate of thousandths a second, as limits have it.
fn rate_in_words(milli: u64) -> String {
    match (milli % 1000, milli * 60 % 1000) {
        (0, _) => format!("{}/second", milli / 1000),
        (_, 0) => format!("{}/minute", milli * 60 / 1000),
        _ => format!("{milli}/1000s"),
    }
}

/// Thousandths of a request a second, rounded down as nginx does.
fn rate(text: &str) -> Option<u64> {
    let (number, seconds) = match (text.strip_suffix("r/s"), text.strip_suffix("r/m")) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 60),
        _ => (text, 1),
    };
    Some(number.parse::<u64>().ok().filter(|number| *number <= 4_000_000)? * 1000 / seconds)
}

/// The number of a parameter, above zero.
fn number(text: Option<&str>, default: u64) -> Option<u64> {
    text.map_or(Some(default), |text| {
        text.parse().ok().filter(|number| (1..4_000_000_000).contains(number))
    })
}

/// The overrides of a limit: those that are not counted, and those within them that are.
fn exceptions(condition: &Condition, limit: &str, rate: Option<u64>, room: u64) -> Vec<Flow> {
    let Condition::Networks { networks, others } = condition else { return Vec::new() };
    let of = |network: String, is_counted: bool| {
        let fields = Flow::fields([("limit", limit.into()), ("client.ip", network.into())]);
        let fields = match (is_counted, rate) {
            (true, None) => fields.with("concurrent", room),
            (true, Some(milli)) => {
                fields.with("rate", rate_in_words(milli)).with("burst", room + 1)
            }
            (false, None) => fields.with("concurrent", "unlimited"),
            (false, Some(_)) => fields.with("rate", "unlimited"),
        };
        fields.with("why", if is_counted { "nginx counts it" } else { "nginx does not count it" })
    };
    let is_needed = |network: &ipnet::IpNet, is_counted: bool| {
        is_counted != *others
            || networks.iter().any(|(wider, other)| {
                other != &is_counted && wider != network && wider.contains(network)
            })
    };
    let mut written: Vec<Flow> = networks
        .iter()
        .filter(|(network, is_counted)| is_needed(network, *is_counted))
        .map(|(network, is_counted)| of(network.to_string(), *is_counted))
        .collect();
    if !others {
        written.extend(["0.0.0.0/0", "::/0"].map(|all| of(all.to_owned(), false)));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_rounded_down_as_nginx_does() {
        for (text, expected) in [
            ("10r/s", "10/second"),
            ("3", "3/second"),
            ("1r/m", "16/1000s"),
            ("5r/m", "83/1000s"),
            ("30r/m", "30/minute"),
            ("60r/m", "1/second"),
            ("240r/m", "4/second"),
            ("100r/m", "1666/1000s"),
        ] {
            assert_eq!(rate_in_words(rate(text).unwrap()), expected, "{text}");
        }
        for text in ["5r/h", "0.5r/s", "", "-1r/s"] {
            assert_eq!(rate(text), None);
        }
    }
}
