//! Zones, and the places that use them: one counter with a rate, and a room of its own at each
//! place.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    directive::{Directive, within},
    keys::{Condition, Key, Per},
    maps::Maps,
    rates::{rate, rate_in_words},
    uses::{Use, UseRow},
};
use crate::{
    Finding, Problems,
    draft::{EVERYBODY, no_refund},
    flow::Flow,
    names::Names,
};

/// A zone.
pub(super) struct Zone<'c> {
    name: &'c str,
    /// Else why it is left out.
    pub(super) key: Result<Key, String>,
    /// Thousandths of a request a second; None: it is for requests in flight.
    pub(super) rate: Option<u64>,
    directive: &'c Directive,
}

/// All zones, and what of them is used.
#[derive(Default)]
pub(super) struct Zones<'c> {
    zones: Vec<Zone<'c>>,
    pub(super) used: BTreeSet<Use>,
    names: BTreeMap<Use, Vec<String>>,
    /// What is said of places, when the rooms of all are known.
    pub(super) rows: Vec<UseRow>,
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
                let help = "write it as `limit_req_zone $binary_remote_addr zone=api:10m \
                            rate=10r/s;`, with a whole number of r/s or r/m";
                let message = format!("`{}` is not complete", directive.said());
                problems.push(directive.place.problem(message, help));
                continue;
            };
            let key = maps.key(directive.arg(0));
            zones.push(Zone { name, key, rate: is_rate.then_some(rate), directive });
        }
        Zones { zones, ..Zones::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    /// The zone of this name, and where it is.
    pub(super) fn find(&self, name: &str, is_rate: bool) -> Option<(usize, &Zone<'c>)> {
        self.zones
            .iter()
            .enumerate()
            .find(|(_, zone)| zone.name == name && zone.rate.is_some() == is_rate)
    }

    /// The key of a zone that is not left out.
    pub(super) fn key(&self, used: &Use) -> Option<&Key> {
        self.zones.get(used.zone)?.key.as_ref().ok()
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

    /// The names of the limits that a place charges: with its own room, and all larger ones, so
    /// that the largest one counts what all places take.
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
                let by_address = parts.iter().any(|part| part == "client.ip");
                let limit = amount(Flow::fields([("per", per)]), *rate, used.room)
                    .with_some("ipv6_prefix", by_address.then_some(128))
                    .with_some("on_missing", *on_missing)
                    .with_some("mode", used.is_dry.then_some("shadow"))
                    .with_some("refund", has_callers.then(no_refund));
                limits.push((name.clone(), limit));
                overrides.extend(exceptions(&key.condition, name, *rate, used.room));
            }
        }
        (limits, overrides)
    }

    /// How many of these requests at once are admitted by a limit by rate, if it tells none apart;
    /// with the rate in thousandths of a request a second.
    pub(super) fn at_once(&self, used: &Use) -> Option<(u64, u64)> {
        let rate = self.zones.get(used.zone)?.rate?;
        (!used.is_dry).then_some((self.room(used) + 1, rate))
    }

    /// The room that a place has here.
    pub(super) fn room(&self, used: &Use) -> u64 {
        match &self.rooms(used)[..] {
            [only] => only.room,
            _ => used.room,
        }
    }

    /// The rows of all places.
    pub(super) fn findings_of_uses(&mut self) -> Vec<Finding> {
        let rows = std::mem::take(&mut self.rows);
        rows.into_iter().map(|row| row.finding(self.room(&row.used))).collect()
    }

    /// A row for each zone, and then those for counters with several rooms.
    pub(super) fn findings(&self, http: &[Directive]) -> Vec<Finding> {
        let used = used_anywhere(http);
        let zones = || self.zones.iter().enumerate();
        let rows = zones().map(|(at, zone)| self.finding(at, zone, &used));
        rows.chain(zones().flat_map(|(at, zone)| self.findings_of_rooms(at, zone))).collect()
    }

    fn finding(&self, at: usize, zone: &Zone<'_>, used_anywhere: &BTreeSet<&str>) -> Finding {
        let Zone { name, key, rate, directive } = zone;
        let (place, there) = (directive.place.to_string(), directive.said());
        let Key { notes, per, .. } = match key {
            Ok(key) => key,
            Err(why) => return Finding::left_out(place, there, why),
        };
        let is_written = |used: &Use| used.zone == at && self.rooms(used).contains(&used);
        let names = self.names.iter().filter(|(used, _)| is_written(used));
        let names: Vec<&str> = names.flat_map(|(_, names)| names).map(String::as_str).collect();
        if names.is_empty() && !used_anywhere.contains(name) {
            return Finding::same(place, there, "nothing uses it");
        }
        if names.is_empty() {
            let why = "the places that use it are not in the policy: nothing is limited by it";
            return Finding::left_out(place, there, why);
        }
        let per: Vec<String> = per.iter().map(|per| per.parts.join(", ")).collect();
        let mut here = format!("limits {}, per {}", names.join(", "), per.join(" and per "));
        let is_by_minute = directive.args.iter().any(|arg| arg.ends_with("r/m"));
        if let Some(rate) = rate.filter(|rate| is_by_minute && rate * 60 % 1000 != 0) {
            here = format!("{here}; {}, which is what nginx makes of it", rate_in_words(rate));
        }
        Finding::but_for(notes, place, there, here)
    }

    fn findings_of_rooms(&self, at: usize, zone: &Zone<'_>) -> Vec<Finding> {
        let of_zone: Vec<&Use> = self.used.iter().filter(|used| used.zone == at).collect();
        let rooms: BTreeSet<u64> = of_zone.iter().map(|used| used.room).collect();
        let (Some(least), Some(most)) = (rooms.first(), rooms.last()) else { return Vec::new() };
        let count = rooms.len();
        let mut notes = Vec::new();
        if of_zone.iter().any(|used| self.rooms(used).len() > 1) {
            notes.push(format!(
                "used with {count} different rooms: a limit for each, and a place charges its own \
                 and all larger ones. After requests elsewhere a place may take up to {} more at \
                 once; the rate of all is the same",
                most - least
            ));
        } else if count > MAX_ROOMS {
            notes.push(format!(
                "used with {count} different rooms: the smallest, {least}, holds at all places: \
                 stricter"
            ));
        }
        if of_zone.iter().any(|used| used.is_dry) && of_zone.iter().any(|used| !used.is_dry) {
            let note = "dry run in some places: what passes there uses up nothing of the other \
                        places, which is looser";
            notes.push(note.to_owned());
        }
        let (place, there) = (zone.directive.place.to_string(), format!("zone {}", zone.name));
        notes.into_iter().map(|note| Finding::nearly(&place, &there, note)).collect()
    }
}

/// The names of all zones that some place uses, also of servers that are left out.
fn used_anywhere<'d>(http: &'d [Directive]) -> BTreeSet<&'d str> {
    let zone = |directive: &'d Directive| match directive.name.as_str() {
        "limit_req" => directive.parameter("zone"),
        "limit_conn" => directive.args.first().map(String::as_str),
        _ => None,
    };
    within(http, |_| true).into_iter().filter_map(zone).collect()
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
        written.extend(EVERYBODY.map(|all| of(all.to_owned(), false)));
    }
    written
}
