//! What a `limit_req` or `limit_conn` uses of its zone.

use tollgate_yaml::Problem;

use super::{Importer, directive::Directive, rates::rate_in_words};
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
        let Some((at, zone)) = self.zones.find(name, is_rate) else {
            self.problems.push(no_zone(directive, name));
            return None;
        };
        let room = match is_rate {
            true => number(directive.parameter("burst")),
            false => directive.arg(1).parse().ok().filter(|room| *room > 0),
        };
        let Some((room, delay)) = room.zip(number(directive.parameter("delay"))) else {
            let message = format!("`{}` has no usable number", directive.said());
            let help = "write a whole number above 0";
            self.problems.push(directive.place.problem(message, help));
            return None;
        };
        let rate = zone.rate;
        let by_server = zone.key.as_ref().is_ok_and(|key| key.by_server);
        let server = server.map(str::to_owned).filter(|_| by_server);
        let uncounted = match &zone.key {
            Err(_) => Some(directive.left_out(format!(
                "the zone `{name}` is left out: these requests are not limited by it"
            ))),
            Ok(key) if open.is_some_and(|open| !key.condition.counts_any(open)) => Some(
                directive.nearly("it counts none of the methods that `limit_except` leaves open"),
            ),
            Ok(_) if by_server && server.is_none() => {
                Some(directive.same("the server has no name, so nothing is counted"))
            }
            Ok(_) => None,
        };
        if let Some(row) = uncounted {
            self.row(row);
            return None;
        }
        let is_delayed = is_rate && !directive.args.iter().any(|arg| arg == "nodelay");
        let held = if is_delayed { room.saturating_sub(delay) } else { 0 };
        let used = Use { zone: at, server, is_dry, room };
        self.zones.used.insert(used.clone());
        let (place, there) = (directive.place.to_string(), directive.said());
        self.zones.rows.push(UseRow { used: used.clone(), place, there, rate, held });
        Some(used)
    }
}

/// What a place uses of a zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) zone: usize,
    /// Which counter of it, if each server has its own.
    pub(super) server: Option<String>,
    pub(super) is_dry: bool,
    /// How many more than one at once; or how many in flight.
    pub(super) room: u64,
}

/// What is said of a place that uses a zone.
pub(super) struct UseRow {
    pub(super) used: Use,
    place: String,
    there: String,
    /// Thousandths of a request a second; None: it is for requests in flight.
    rate: Option<u64>,
    /// How many of its requests nginx holds back.
    held: u64,
}

impl UseRow {
    /// Its row, with the room that holds there.
    pub(super) fn finding(&self, room: u64) -> Finding {
        let here = match self.rate {
            Some(rate) => format!("{} at once, then {}", room + 1, rate_in_words(rate)),
            None => format!("{room} in flight"),
        };
        Finding::but_for(&self.notes(room), &self.place, &self.there, here)
    }

    /// How it differs.
    fn notes(&self, room: u64) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |note: &str| notes.push(note.to_owned());
        if room < self.used.room {
            note("the smallest room of the zone holds everywhere, as there are too many: stricter");
        } else if let (Some(rate), 1..) = (self.rate, self.held) {
            let (held, milliseconds) = (self.held, self.held * 1_000_000 / rate);
            note(&format!(
                "the same requests are admitted, but at once: nginx holds {held} of them back, up \
                 to {}.{} s",
                milliseconds / 1000,
                milliseconds % 1000 / 100
            ));
        }
        if self.rate.is_none() {
            note(
                "a request that its client gives up counts until the server has answered, and a \
                 refused one charges no rate",
            );
        }
        if self.used.is_dry {
            note("in shadow mode, with a counter of its own");
        }
        notes
    }
}

fn no_zone(directive: &Directive, name: &str) -> Problem {
    let help = format!(
        "give the file with `{}_zone … zone={name}:…` as well, or the output of `nginx -T`",
        directive.name
    );
    let message = format!("there is no zone `{name}` for `{}`", directive.said());
    directive.place.problem(message, help)
}

/// The number of a parameter, above zero; without one, zero.
fn number(text: Option<&str>) -> Option<u64> {
    text.map_or(Some(0), |text| {
        text.parse().ok().filter(|number| (1..4_000_000_000).contains(number))
    })
}
