//! `tracestate`: what other tracing systems keep of a trace (W3C Trace Context, section 3.3). It is
//! passed on as it came, or not at all.

use http::{HeaderMap, HeaderName, HeaderValue};

pub(super) static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Most members of a list.
const MAX_MEMBERS: usize = 32;

/// Most characters of a list that are passed on: those that everybody has to.
const MAX_LENGTH: usize = 512;

/// The list of a request, in one value. None: there is none, or it is not valid; then the trace
/// goes on without it.
pub(super) fn tracestate(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut fields = headers.get_all(&TRACESTATE).iter();
    let first = fields.next()?;
    let list = match fields.next() {
        None => first.clone(),
        Some(second) => {
            let mut joined = first.as_bytes().to_vec();
            for field in std::iter::once(second).chain(fields) {
                joined.push(b',');
                joined.extend_from_slice(field.as_bytes());
                if joined.len() > MAX_LENGTH {
                    return None;
                }
            }
            HeaderValue::from_bytes(&joined).ok()?
        }
    };
    is_valid(list.as_bytes()).then_some(list)
}

/// Whether a list has at least one member, and each is `key=value` with a key of its own.
fn is_valid(list: &[u8]) -> bool {
    if list.len() > MAX_LENGTH {
        return false;
    }
    let mut keys: [&[u8]; MAX_MEMBERS] = [&[]; MAX_MEMBERS];
    let mut places = keys.iter_mut();
    let members = list.split(|byte| *byte == b',').map(trimmed);
    let mut number = 0;
    for member in members.filter(|member| !member.is_empty()) {
        let Some(end) = memchr::memchr(b'=', member) else { return false };
        let (key, value) = member.split_at(end);
        let (Some(place), true) = (places.next(), is_key(key) && is_value(value.get(1..))) else {
            return false;
        };
        *place = key;
        number += 1;
    }
    let keys = keys.get(..number).unwrap_or_default();
    number > 0
        && keys.iter().zip(1..).all(|(key, next)| !keys.iter().skip(next).any(|other| other == key))
}

/// Without the spaces and tabs that a list may have around its members.
fn trimmed(mut member: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = member {
        member = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = member {
        member = rest;
    }
    member
}

/// `name`, or `tenant@system`.
fn is_key(key: &[u8]) -> bool {
    let has_form = |name: &[u8], most: usize, may_begin: fn(u8) -> bool| {
        name.len() <= most
            && name.first().is_some_and(|first| may_begin(*first))
            && name.iter().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(byte)
            })
    };
    match memchr::memchr(b'@', key).map(|at| key.split_at(at)) {
        None => has_form(key, 256, |first| first.is_ascii_lowercase()),
        Some((tenant, system)) => {
            let system = system.get(1..).unwrap_or_default();
            has_form(tenant, 241, |first| first.is_ascii_lowercase() || first.is_ascii_digit())
                && has_form(system, 14, |first| first.is_ascii_lowercase())
        }
    }
}

/// 1 to 256 visible characters and spaces, but no `=`; the end is no space.
fn is_value(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| {
        (1..=256).contains(&value.len())
            && value.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'=')
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What goes on of these fields.
    fn passed(fields: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(&TRACESTATE, HeaderValue::from_str(field).unwrap());
        }
        tracestate(&headers).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn valid_lists_go_on_as_they_came() {
        let many: Vec<String> = (0..32).map(|number| format!("k{number}=v")).collect();
        for list in [
            "congo=t61rcWkgMzE",
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
            "a=1 , b=2,\tc=3",
            "0tenant@system=x y z",
            "a=1,,b=2",
            "a_-*/9=!\"#$%&'()*+-./:;<>?@[]^_`{|}~",
            &many.join(","),
            &format!("{}=v", "a".repeat(256)),
            &format!("a={}", "v".repeat(256)),
        ] {
            assert_eq!(passed(&[list]).as_deref(), Some(list));
        }
        assert_eq!(passed(&["a=1", "b=2", "c=3"]).as_deref(), Some("a=1,b=2,c=3"));
    }

    #[test]
    fn other_lists_do_not_go_on() {
        let many: Vec<String> = (0..33).map(|number| format!("k{number}=v")).collect();
        for list in [
            "",
            " , ",
            "a",
            "a=",
            "=1",
            "A=1",
            "1a=1",
            "a b=1",
            "a=1=2",
            "a=1;b=2=3",
            "@system=1",
            "tenant@=1",
            "tenant@9system=1",
            "a@b@c=1",
            "a=1,b=2,a=3",
            &many.join(","),
            &format!("{}=v", "a".repeat(257)),
            &format!("a={}", "v".repeat(257)),
            &format!("a={0},b={0}", "v".repeat(255)),
            &format!("tenant@{}=1", "s".repeat(15)),
        ] {
            assert_eq!(passed(&[list]), None, "{list}");
        }
        assert_eq!(passed(&[]), None);
        assert_eq!(passed(&["a=1", "b"]), None);
        assert_eq!(passed(&["a=1", &format!("b={}", "v".repeat(600))]), None);
        let mut headers = HeaderMap::new();
        headers.append(&TRACESTATE, HeaderValue::from_bytes(b"a=\xff").unwrap());
        assert_eq!(tracestate(&headers), None);
    }

    proptest! {
        #[test]
        fn prop_what_goes_on_is_within_the_bounds(
            list in "([a-z0-9@_ =,]{0,6}[=,]){0,40}[a-z0-9]{0,3}",
        ) {
            if let Some(passed) = passed(&[&list]) {
                prop_assert!(passed.len() <= MAX_LENGTH);
                let members = passed.split(',').filter(|member| !member.trim().is_empty());
                prop_assert!((1..=MAX_MEMBERS).contains(&members.clone().count()));
                prop_assert!(members.clone().all(|member| member.matches('=').count() == 1));
            }
        }
    }
}
