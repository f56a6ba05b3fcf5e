//! A limit of a RateLimitPolicy: which requests it counts, and how many may pass.

use std::time::Duration;

use super::{
    auth::Auth,
    cel::{self, Term, Test},
};
use crate::{
    flow,
    gateway::{
        Path,
        field::Field,
        limit::{Rate, Scope},
        pattern::{Pattern, host_contains},
    },
};

/// The longest window.
const MAX_WINDOW: u64 = 366 * 86_400_000;

/// What a limit counts on a path.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) scope: Scope,
    /// What is different here.
    pub(super) notes: Vec<String>,
}

/// Why a limit is not on a path.
pub(super) enum Absent {
    /// Its predicates never hold there.
    Elsewhere,
    /// It has no counterpart here.
    LeftOut(String),
}

/// What a limit counts on a path, by its counters and predicates.
pub(super) fn counted(
    limit: Field<'_>,
    predicates: &[Field<'_>],
    path: &Path<'_>,
    auth: &Auth,
) -> Result<Counted, Absent> {
    let mut own = Counted::default();
    for counter in limit.items(&["counters"]) {
        let text = counter.text_at(&["expression"]).or_else(|| counter.text()).unwrap_or_default();
        let known = cel::term(text).and_then(|term| key(&term, auth));
        let Some(key) = known else {
            return Err(Absent::LeftOut(format!("no counterpart of the counter {text}")));
        };
        let note = match cel::term(text) {
            Some(Term::SourceAddress) => Some(
                "source.address has the port, so it held nobody there: here each address is \
                 counted",
            ),
            Some(Term::Path) => Some("there each query has a counter of its own, here each path"),
            Some(Term::Host) => Some("there the host may have a port"),
            Some(Term::Header(_)) if text.contains('"') => {
                Some("with double quotes it was probably not in force there")
            }
            _ => None,
        };
        own.notes.extend(note.map(str::to_owned));
        if !own.scope.per.contains(&key) {
            own.scope.per.push(key);
        }
    }
    for predicate in predicates {
        let text =
            predicate.text_at(&["predicate"]).or_else(|| predicate.text()).unwrap_or_default();
        let unread = || Absent::LeftOut(format!("no counterpart of the predicate {}", shown(text)));
        for test in cel::tests(text).ok_or_else(unread)? {
            narrow(&mut own, test, path, auth).map_err(|absent| absent.unwrap_or_else(unread))?;
        }
    }
    if own.scope.keys().len() > 8 {
        return Err(Absent::LeftOut("more than 8 counters".to_owned()));
    }
    let mut headers = own.scope.keys().into_iter().filter(|key| key.starts_with("header."));
    if let Some(key) = headers.next() {
        own.notes.push(format!(
            "a request without `{key}` has the other limits here, and there none of this call"
        ));
    }
    Ok(own)
}

/// A predicate without texts that headers are compared with, which may be keys of an API.
fn shown(text: &str) -> String {
    if !text.contains("headers") {
        return text.to_owned();
    }
    let parts = text.split(['\'', '"']).enumerate();
    let parts: Vec<&str> = parts.map(|(at, part)| if at % 2 == 0 { part } else { "…" }).collect();
    parts.join("'")
}

/// The key of a policy that is the same.
fn key(term: &Term, auth: &Auth) -> Option<String> {
    Some(match term {
        Term::Method => "method".to_owned(),
        Term::UrlPath | Term::Path => "path".to_owned(),
        Term::Host => "host".to_owned(),
        Term::Header(name) => format!("header.{name}"),
        Term::Identity(property) => format!("jwt.{}", auth.claim(property)?),
        Term::RemoteAddress | Term::SourceAddress => "client.ip".to_owned(),
    })
}

/// Narrows a limit by a comparison. An error without more: it has no counterpart.
fn narrow(
    own: &mut Counted,
    test: Test,
    path: &Path<'_>,
    auth: &Auth,
) -> Result<(), Option<Absent>> {
    let Counted { scope, notes } = own;
    match test {
        Test::Never => {
            let why = "its predicate never holds, so it held nobody there";
            Err(Some(Absent::LeftOut(why.to_owned())))
        }
        Test::Is(Term::Method, methods) => {
            scope.methods.narrow(methods);
            Ok(())
        }
        Test::IsNot(Term::Method, method) => scope.methods.exclude(method).ok_or(None),
        Test::Is(term @ (Term::UrlPath | Term::Path), values) => {
            let [value] = values.as_slice() else { return Err(None) };
            if term == Term::Path {
                notes.push(format!("{value} with a query counts here as well"));
            }
            narrow_path(scope, Pattern::exact(value), value)
        }
        Test::Begins(Term::UrlPath | Term::Path, value) => {
            narrow_path(scope, Pattern::begins(&value), &value)
        }
        Test::Is(Term::Host, hosts) => on_host(
            path,
            |own| !own.starts_with('*') && hosts.iter().any(|host| host == own),
            |own| hosts.iter().any(|host| host_contains(Some(own), Some(host))),
        ),
        Test::Ends(Term::Host, ending) if ending.starts_with('.') => {
            let hosts = format!("*{ending}");
            on_host(
                path,
                |own| host_contains(Some(&hosts), Some(own)),
                |own| host_contains(Some(own), Some(&hosts)),
            )
        }
        Test::Is(term @ (Term::Header(_) | Term::Identity(_) | Term::RemoteAddress), values) => {
            let ([value], Some(key)) = (values.as_slice(), key(&term, auth)) else {
                return Err(None);
            };
            if scope.is.iter().any(|(own, other)| *own == key && other != value) {
                return Err(Some(Absent::Elsewhere));
            }
            scope.is.push((key, value.clone()));
            Ok(())
        }
        Test::IsNot(term @ (Term::Header(_) | Term::Identity(_) | Term::RemoteAddress), value) => {
            let key = key(&term, auth).filter(|key| scope.per.contains(key)).ok_or(None)?;
            scope.not.push((key, value));
            Ok(())
        }
        Test::Is(..) | Test::IsNot(..) | Test::Begins(..) | Test::Ends(..) => Err(None),
    }
}

/// A comparison with hosts: it holds for all requests of the path, or for none, or no route says
/// it.
fn on_host(
    path: &Path<'_>,
    holds_for_all: impl Fn(&str) -> bool,
    may_hold: impl Fn(&str) -> bool,
) -> Result<(), Option<Absent>> {
    match &path.host {
        Some(host) if holds_for_all(host) => Ok(()),
        Some(host) if !may_hold(host) => Err(Some(Absent::Elsewhere)),
        _ => Err(None),
    }
}

fn narrow_path(scope: &mut Scope, pattern: Pattern, written: &str) -> Result<(), Option<Absent>> {
    if !written.starts_with('/') || written.contains(['?', '#']) {
        return Err(None);
    }
    match &scope.pattern {
        Some(known) if pattern.contains(known) => {}
        Some(known) if !known.contains(&pattern) => return Err(Some(Absent::Elsewhere)),
        _ => scope.pattern = Some(pattern),
    }
    Ok(())
}

/// The rates of a limit, with what is different; none that holds: why.
pub(super) fn rates(limit: Field<'_>, notes: &mut Vec<String>) -> Result<Vec<Rate>, String> {
    let mut rates: Vec<Rate> = Vec::new();
    for own in limit.items(&["rates"]) {
        let number = own.number_at(&["limit"]);
        let written = own.text_at(&["window"]);
        let Some((number, window)) = number.zip(written) else {
            own.complain("a rate without limit and window", "write `{ limit: 5, window: 10s }`");
            continue;
        };
        let Some(millis) = milliseconds(window).filter(|millis| *millis > 0) else {
            let help = "write hours, minutes and seconds, such as `24h` or `1h30m`";
            own.complain(format!("`{window}` is no window that Kuadrant takes"), help);
            continue;
        };
        if millis > MAX_WINDOW {
            return Err(format!("a window of {window}, and here at most 366 days"));
        }
        if millis < 1000 {
            notes.push(format!(
                "a window of {window} is none there, and held nobody: here it holds"
            ));
        } else if millis % 1000 != 0 {
            notes.push(format!(
                "a window of {window} is {}s there, and here all of it",
                millis / 1000
            ));
        }
        let rate = Rate {
            requests: u64::try_from(number).unwrap_or(0),
            window: flow::window(Duration::from_millis(millis)),
        };
        if rates.iter().any(|known| known.window == rate.window) {
            notes.push(format!("two rates in {window} are one there, the first: here both hold"));
        }
        notes.extend(rate.note());
        rates.push(rate);
    }
    if rates.is_empty() { Err("it has no rates, so it holds nobody".to_owned()) } else { Ok(rates) }
}

/// Up to four times a number and `h`, `m`, `s` or `ms`.
fn milliseconds(window: &str) -> Option<u64> {
    let (mut rest, mut sum) = (window, 0_u64);
    for _ in 0..4 {
        let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, unit) = rest.split_at_checked(end)?;
        if number.len() > 5 {
            return None;
        }
        let (length, left) = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1000)]
            .into_iter()
            .find_map(|(name, length)| Some((length, unit.strip_prefix(name)?)))?;
        sum += number.parse::<u64>().ok()? * length;
        rest = left;
        if rest.is_empty() {
            return Some(sum);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_as_kuadrant_reads_them() {
        for (text, expected) in [
            ("10s", Some("10s")),
            ("1m", Some("minute")),
            ("60m", Some("hour")),
            ("24h", Some("day")),
            ("1h30m", Some("5400s")),
            ("1500ms", Some("1500ms")),
            ("1d", None),
            ("10", None),
            ("", None),
            ("s", None),
            ("123456s", None),
            ("1h1h1h1h1h", None),
        ] {
            assert_eq!(
                milliseconds(text)
                    .map(|millis| flow::window(Duration::from_millis(millis)))
                    .as_deref(),
                expected,
                "{text}"
            );
        }
    }
}
