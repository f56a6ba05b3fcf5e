//! What there is in a log: its paths, and who called.

use std::net::IpAddr;

use tollgate_history::{HistoryAhead, OwnFields, ReadOptions, Record, Target};

use super::{
    counts::Counts,
    free::{Free, RATE_LIMIT},
    words::{is_name, is_tier},
};
use crate::{
    Progress, SimulationError,
    order::finish,
    paths::Paths,
    translate::{CallerField, stands_for},
};

/// Lines between two reports of progress.
const LINES_A_REPORT: u64 = 1 << 13;

/// Bytes of the longest issuer. A log can have longer ones, each of which would be kept.
const LONGEST_ISSUER: usize = 1024;

/// How the fact `issuer` begins where an API key named the caller.
const API_KEYS: &str = "api_keys:";

/// What a log says.
#[derive(Default)]
pub(super) struct Observations {
    /// The lines that tell of requests.
    pub(super) records: u64,
    pub(super) requests: u64,
    pub(super) paths: Paths,
    /// Paths that need no limit, which are not in `paths`.
    pub(super) free: Free,
    /// Kinds of callers.
    pub(super) kinds: Counts<String, Kind>,
    pub(super) issuers: Counts<Whose, u64>,
}

/// Callers of one kind.
#[derive(Default)]
pub(super) struct Kind {
    pub(super) requests: u64,
    /// Whether one of them is something else than an address.
    pub(super) has_names: bool,
    /// Whether one of them was named by an API key.
    pub(super) has_keys: bool,
    pub(super) tiers: Counts<String, u64>,
}

/// Whose a caller is.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Whose {
    /// What stands before its name: `main` of `main/user:42`.
    pub(super) prefix: Option<String>,
    /// What the facts of its request say.
    pub(super) id: Option<String>,
}

impl Observations {
    /// Reads the logs once.
    pub(super) fn of(
        read: &ReadOptions,
        callers: &[CallerField],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Observations, SimulationError> {
        let mut history = HistoryAhead::open(read)?;
        let mut seen = Observations::default();
        while let Some(record) = history.next_record() {
            seen.add(&record, callers);
            if seen.records.is_multiple_of(LINES_A_REPORT) {
                let (bytes, all_bytes) = history.progress();
                // The second time takes about as long.
                let all_bytes = all_bytes.map(|all| all * 2);
                progress(Progress { requests: seen.records, bytes, all_bytes });
            }
        }
        finish(history)?;
        Ok(seen)
    }

    fn add(&mut self, record: &Record, callers: &[CallerField]) {
        let own = record.own.as_ref();
        let times = u64::from(stands_for(record));
        self.records += 1;
        self.requests += times;
        if let Target::Valid(target) = &record.target {
            let is_failure = matches!(record.status, Some(401 | 403));
            let failed = record.client.filter(|_| is_failure);
            let path = target.path();
            // The proxy itself answers that one.
            if path != RATE_LIMIT && !self.free.add(record, path, times) {
                self.paths.add(path, times, failed);
            }
        }
        let fields = callers.iter().zip(&record.fields);
        let is_known = |text: &&str| !matches!(*text, "" | "-");
        let mut named = fields.filter(|(_, field)| field.as_deref().filter(is_known).is_some());
        let issuer = own.and_then(|own| fact(own, "issuer"));
        let found = match named.next() {
            Some((caller, _)) => CallerKind { issuer: None, kind: &caller.kind, is_address: false },
            None => match own.and_then(|own| CallerKind::parse(own.caller.as_deref()?, issuer)) {
                Some(found) => found,
                None => return,
            },
        };
        let Some(kind) = self.kinds.of(found.kind.to_owned()) else { return };
        kind.requests += times;
        kind.has_names |= !found.is_address;
        let is_key = issuer.is_some_and(|issuer| issuer.starts_with(API_KEYS));
        kind.has_keys |= is_key;
        let tier = own.and_then(|own| own.tier.as_deref().or_else(|| fact(own, "tier")));
        if let Some(tier) = tier.filter(|tier| is_tier(tier)) {
            kind.tiers.of(tier.to_owned()).into_iter().for_each(|count| *count += times);
        }
        if !found.is_address {
            let id = issuer.filter(|_| !is_key);
            if [found.issuer, id].into_iter().flatten().all(|name| name.len() <= LONGEST_ISSUER) {
                let whose =
                    Whose { prefix: found.issuer.map(str::to_owned), id: id.map(str::to_owned) };
                self.issuers.of(whose).into_iter().for_each(|count| *count += times);
            }
        }
    }
}

fn fact<'r>(own: &'r OwnFields, name: &str) -> Option<&'r str> {
    own.facts.as_ref()?.get(name)?.as_str()
}

/// A caller as logs name it.
struct CallerKind<'r> {
    issuer: Option<&'r str>,
    kind: &'r str,
    is_address: bool,
}

impl<'r> CallerKind<'r> {
    /// Reads `user:42`, or `main/user:42`, where the issuer may be a URL. `issuer`: whose it is, if
    /// that is known from elsewhere. None: no policy has such callers.
    fn parse(name: &'r str, issuer: Option<&str>) -> Option<CallerKind<'r>> {
        let known = issuer.and_then(|issuer| {
            let rest = name.strip_prefix(issuer)?.strip_prefix('/')?;
            Some((name.strip_suffix(rest)?.strip_suffix('/')?, rest))
        });
        let of_url = || ["https://", "http://"].iter().find_map(|scheme| of_url(name, scheme));
        let (issuer, short) = match known.or_else(of_url) {
            Some((issuer, short)) => (Some(issuer), short),
            None => (None, name),
        };
        let (kind, value) = short.split_once(':')?;
        let (issuer, kind) = match kind.rsplit_once('/') {
            Some((before, kind)) if issuer.is_none() => (Some(before), kind),
            _ => (issuer, kind),
        };
        let is_address = issuer.is_none() && value.parse::<IpAddr>().is_ok();
        is_name(kind).then_some(CallerKind { issuer, kind, is_address })
    }
}

/// The issuer and the rest of a name that begins with a URL: the rest begins at the first segment
/// behind the host that looks like a kind and a value.
fn of_url<'r>(name: &'r str, scheme: &str) -> Option<(&'r str, &'r str)> {
    let behind = name.strip_prefix(scheme)?;
    let path = scheme.len() + behind.find('/')?;
    let slashes = name.match_indices('/').map(|(place, _)| place).filter(|place| *place >= path);
    let mut splits = slashes.filter_map(|place| Some((name.get(..place)?, name.get(place + 1..)?)));
    splits.find(|(_, rest)| rest.split_once(':').is_some_and(|(kind, _)| is_name(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_read_with_and_without_issuer() {
        let cases = [
            ("user:42", None, Some((None, "user", false))),
            ("user:a/b:c", None, Some((None, "user", false))),
            ("anonymous:192.0.2.1", None, Some((None, "anonymous", true))),
            ("anonymous:2001:db8::", None, Some((None, "anonymous", true))),
            ("main/user:42", None, Some((Some("main"), "user", false))),
            ("https://a:8080//user:4/2", None, Some((Some("https://a:8080/"), "user", false))),
            (
                "https://a:80/user:4",
                Some("https://a:80"),
                Some((Some("https://a:80"), "user", false)),
            ),
            ("user:4", Some("https://a/"), Some((None, "user", false))),
            ("no one:4", None, None),
            ("nobody", None, None),
            (":4", None, None),
        ];
        for (name, issuer, expected) in cases {
            let found = CallerKind::parse(name, issuer);
            let found = found.map(|found| (found.issuer, found.kind, found.is_address));
            assert_eq!(found, expected, "{name}");
        }
    }
}
