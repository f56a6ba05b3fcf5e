//! What a `limit_req` or `limit_conn` uses of its zone.

use super::{Importer, directive::Directive, rates::rate_in_words, zones::Use};
use crate::Finding;

impl Importer<'_> {
    /// What a `limit_req` or `limit_conn` of a place uses, with a row for it.
    pub(super) fn uses(
        &mut self,
        directive: &Directive,
        server: Option<&str>,
        is_dry: bool,
        open: Option<&[String]>,
    ) -> Option<Use> {
        let is_rate = directive.name == "limit_req";
        let name = match is_rate {
            true => directive.parameter("zone").unwrap_or_default(),
            false => directive.arg(0),
        };
        let (place, there) = (directive.place.to_string(), directive.said());
        let Some((at, zone)) = self.zones.find(name, is_rate) else {
            let help = format!(
                "give the file with `{}_zone … zone={name}:…` as well, or the output of `nginx -T`",
                directive.name
            );
            let message = format!("there is no zone `{name}` for `{there}`");
            self.problems.push(directive.place.problem(message, help));
            return None;
        };
        let room = match is_rate {
            true => number(directive.parameter("burst"), 0),
            false => directive.arg(1).parse().ok().filter(|room| *room > 0),
        };
        let (Some(room), Some(delay)) = (room, number(directive.parameter("delay"), 0)) else {
            let message = format!("`{there}` has no usable number");
            let help = "write a whole number above 0";
            self.problems.push(directive.place.problem(message, help));
            return None;
        };
        let rate = zone.rate.unwrap_or(1000);
        let Ok(key) = &zone.key else {
            let why =
                format!("the zone `{name}` is left out: these requests are not limited by it");
            self.row(Finding::left_out(place, there, why));
            return None;
        };
        if open.is_some_and(|open| !key.condition.counts_any(open)) {
            let here = "it counts none of the methods that `limit_except` leaves open";
            self.row(Finding::nearly(place, there, here));
            return None;
        }
        let by_server = key.by_server;
        let server = server.map(str::to_owned).filter(|_| by_server);
        if by_server && server.is_none() {
            let why = "the server has no name, so nothing is counted";
            self.row(Finding::same(place, there, why));
            return None;
        }
        let held = if is_rate && !directive.args.iter().any(|arg| arg == "nodelay") {
            room.saturating_sub(delay)
        } else {
            0
        };
        let here = match is_rate {
            true => format!("{} at once, then {}", room + 1, rate_in_words(rate)),
            false => format!("{room} in flight"),
        };
        self.row(Finding::but_for(&notes(is_rate, is_dry, held, rate), place, there, here));
        let used = Use { zone: at, server, is_dry, room };
        self.zones.used.insert(used.clone());
        Some(used)
    }
}

/// How a limit differs, of whose requests nginx holds some back.
fn notes(is_rate: bool, is_dry: bool, held: u64, rate: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if held > 0 {
        let milliseconds = held * 1_000_000 / rate;
        notes.push(format!(
            "the same requests are admitted, but at once: nginx holds {held} of them back, up to \
             {}.{} s",
            milliseconds / 1000,
            milliseconds % 1000 / 100
        ));
    }
    if !is_rate {
        let note = "a request that its client gives up counts until the server has answered, and a \
                    refused one charges no rate";
        notes.push(note.to_owned());
    }
    if is_dry {
        notes.push("in shadow mode, with a counter of its own".to_owned());
    }
    notes
}

/// The number of a parameter, above zero.
fn number(text: Option<&str>, default: u64) -> Option<u64> {
    text.map_or(Some(default), |text| {
        text.parse().ok().filter(|number| (1..4_000_000_000).contains(number))
    })
}
