//! Runs the tests inside policies: with counters of their own in this process, and with a clock that
//! only the tests move.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Context;
use http::HeaderName;

use crate::{
    clock::{Clock, Timestamp},
    gate::{Draft, Rehearsal, Rehearsed, Shared},
    policy::{Case, Policies, Policy},
    settings::Settings,
};

/// When a test begins that goes on from no other: 2026-01-15T12:00:00Z.
const START: Timestamp = Timestamp::from_secs(1_768_478_400);

/// Runs tests.
pub struct Runner {
    shared: Arc<Shared>,
    clock: Arc<AtomicU64>,
    runtime: tokio::runtime::LocalRuntime,
}

/// A test that came out otherwise than expected.
pub struct Failed {
    /// Where the test is, and which.
    title: String,
    /// The request, in a line.
    request: String,
    differences: Vec<Difference>,
    /// What else the client was told about limits and errors.
    told: Vec<(HeaderName, String)>,
}

struct Difference {
    what: String,
    expected: String,
    got: String,
}

impl Runner {
    /// With these settings, if any were read, where they say whom to believe about addresses.
    ///
    /// # Errors
    /// The system has no thread to fetch keys from, or no event queue.
    pub fn start(settings: Option<&Settings>) -> anyhow::Result<Runner> {
        let clock = Arc::new(AtomicU64::new(START.as_micros()));
        let shared = Shared::rehearsing(settings, Clock::Manual(Arc::clone(&clock)));
        let shared = Arc::new(shared.context("cannot start")?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())?;
        Ok(Runner { shared, clock, runtime })
    }

    /// Runs the tests of one of `policies`. Returns those that failed.
    pub fn run(&self, policy: &Policy, policies: &Policies) -> Vec<Failed> {
        self.runtime.block_on(async {
            let mut rehearsal = Rehearsal::with_fresh_counters(&self.shared);
            let mut failed = Vec::new();
            for (number, case) in (1..).zip(&policy.tests) {
                match case.after {
                    Some(after) => {
                        let micros = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
                        self.clock.fetch_add(micros, Ordering::Relaxed);
                    }
                    None => {
                        self.clock.store(START.as_micros(), Ordering::Relaxed);
                        rehearsal = Rehearsal::with_fresh_counters(&self.shared);
                    }
                }
                let (draft, answer) = (Draft::of(&case.given), &case.given.response);
                for _ in 1..case.repeat {
                    rehearsal.answer(policies, &draft, answer).await;
                }
                let last = rehearsal.answer(policies, &draft, answer).await;
                failed.extend(Failed::of((number, case), &last));
            }
            failed
        })
    }
}

impl Failed {
    /// None: all is as expected.
    fn of((number, case): (usize, &Case), got: &Rehearsed<'_>) -> Option<Failed> {
        let differences = differences(case, got);
        if differences.is_empty() {
            return None;
        }
        let name = case.name.as_ref().map(|name| format!(", {name}")).unwrap_or_default();
        let is_told =
            |(name, _): &(&HeaderName, &http::HeaderValue)| is_about_limits(name.as_str());
        let told = got.headers.iter().filter(is_told);
        Some(Failed {
            title: format!("{}: test {number}{name}", case.place),
            request: request(case, got),
            differences,
            told: told.map(|(name, value)| (name.clone(), text(value))).collect(),
        })
    }
}

/// `GET /search/x for api.example.com by user:7, 11 times`.
fn request(case: &Case, got: &Rehearsed<'_>) -> String {
    let given = &case.given;
    let sender = match got.caller() {
        Some(caller) => format!("by {caller}"),
        None => format!("from {}", given.address),
    };
    let times = match case.repeat {
        1 => String::new(),
        times => format!(", {times} times"),
    };
    format!("{} {} {sender}{times}", given.method, given.target)
}

fn differences(case: &Case, got: &Rehearsed<'_>) -> Vec<Difference> {
    let expect = &case.expect;
    let mut differences = Vec::new();
    let mut differs = |what: &str, expected: &dyn fmt::Display, got: Option<String>| {
        let got = got.unwrap_or_else(|| "none".into());
        differences.push(Difference { what: what.into(), expected: expected.to_string(), got });
    };
    if let Some(status) = &expect.status
        && *status != got.status
    {
        let reason = got.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        differs("status", &status.as_u16(), Some(format!("{}{reason}", got.status.as_u16())));
    }
    if let Some(limit) = &expect.limit
        && got.denied_by.as_ref() != Some(limit)
    {
        differs("limit", limit, got.denied_by.as_ref().map(ToString::to_string));
    }
    if let Some(route) = &expect.route
        && got.route.is_none_or(|taken| taken.name != *route)
    {
        differs("route", route, got.route.map(|taken| taken.name.to_string()));
    }
    let resolved = got.identity.as_ref().and_then(|identity| identity.caller.as_ref());
    if let Some(caller) = &expect.caller
        && !resolved.is_some_and(|resolved| caller.is_of(resolved))
    {
        differs("caller", caller, got.caller());
    }
    for (name, value) in &expect.headers {
        let values = got.headers.get_all(name).iter().map(text).collect::<Vec<_>>();
        let value_got = (!values.is_empty()).then(|| values.join(", "));
        if value_got.as_deref() != value.as_deref() {
            let expected = value.as_deref().unwrap_or("none");
            differs(&format!("header {name}"), &expected, value_got);
        }
    }
    differences
}

fn is_about_limits(name: &str) -> bool {
    name.starts_with("x-ratelimit-")
        || name.starts_with("x-tollgate-")
        || ["ratelimit", "ratelimit-policy", "retry-after", "www-authenticate"].contains(&name)
}

fn text(value: &http::HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failed { title, request, differences, told } = self;
        writeln!(f, "{title}")?;
        writeln!(f, "  {request}")?;
        for Difference { what, expected, got } in differences {
            writeln!(f, "  {what}: expected {expected}, got {got}")?;
        }
        for (name, value) in told {
            writeln!(f, "  | {name}: {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::{Sources, load};

    /// What is said of a policy with these tests, the first of them on line 12.
    fn failed(tests: &str) -> Vec<String> {
        let demands = match tests.contains("azp") {
            true => ", audience: [api], required_claims: { azp: web }",
            false => "",
        };
        let text = format!(
            "version: 1\n\
             upstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
             identity:\n  \
               jwt: [{{ issuer: me, algorithms: [HS256], secret_env: SECRET{demands} }}]\n  \
               callers: [{{ name: user, key: jwt.sub }}, {{ name: anonymous, key: client.ip }}]\n\
             limits:\n  \
               core: {{ per: caller, rate: 3/minute, refund: {{ status: [304] }} }}\n  \
               slots: {{ per: caller, concurrent: 1 }}\n\
             routes: [{{ match: {{ path: /** }}, limits: [core, slots] }}]\n\
             tests:\n{tests}"
        );
        let secret = "a secret that is long enough for it";
        let sources = Sources::system().with_variable("SECRET", secret);
        let policy = load(Path::new("api.yaml"), &text, &sources);
        let policy = policy.unwrap_or_else(|problems| panic!("{}", problems[0]));
        let policies = Policies::new(vec![policy]);
        let runner = Runner::start(None).unwrap();
        let failed = policies.iter().flat_map(|policy| runner.run(policy, &policies));
        failed.map(|failed| failed.to_string()).collect()
    }

    #[test]
    fn tests_that_come_out_as_expected_say_nothing() {
        let failed = failed(
            "- { given: { path: /a, jwt: { sub: \"7\" } }, repeat: 3, expect: { status: 200, caller: user:7 } }\n\
             - { after: 0s, given: { path: /a, jwt: { sub: \"7\" } }, expect: { status: 429, limit: core } }\n\
             - { after: 0s, given: { path: /a }, expect: { status: 200, route: /**, headers: { x-ratelimit-used: 1, retry-after: null } } }\n\
             - { after: 59s, given: { path: /a, jwt: { sub: \"7\" } }, expect: { status: 429, headers: { retry-after: 1 } } }\n\
             - { after: 1s, given: { path: /a, jwt: { sub: \"7\" } }, expect: { status: 200 } }\n",
        );
        assert_eq!(failed, [""; 0]);
    }

    #[test]
    fn test_without_after_begins_anew() {
        let failed = failed(
            "- { given: { path: /a }, repeat: 4, expect: { status: 429 } }\n\
             - { given: { path: /a }, repeat: 3, expect: { status: 200 } }\n",
        );
        assert_eq!(failed, [""; 0]);
    }

    #[test]
    fn claims_are_held_to_what_their_issuer_demands() {
        let failed = failed(
            "- { given: { path: /a, jwt: { sub: \"7\", azp: web } }, expect: { status: 200 } }\n\
             - { given: { path: /a, jwt: { sub: \"7\" } }, expect: { status: 401 } }\n\
             - { given: { path: /a, jwt: { sub: \"7\", azp: web, aud: other } }, expect: { status: 401 } }\n\
             - { given: { path: /a, jwt: { sub: \"7\", azp: web, exp: 1 } }, expect: { status: 401 } }\n\
             - { given: { path: /a, jwt: { sub: \"7\", azp: web }, headers: { authorization: Bearer x } }, expect: { status: 400 } }\n",
        );
        assert_eq!(failed, [""; 0]);
    }

    #[test]
    fn what_the_upstream_answers_counts() {
        let failed = failed(
            "- { given: { path: /a, jwt: { sub: \"7\" }, response: { status: 304 } }, repeat: 9, \
                 expect: { status: 304, headers: { x-ratelimit-used: 0 } } }\n",
        );
        assert_eq!(failed, [""; 0]);
    }

    #[test]
    fn failed_test_tells_where_it_is_and_what_differs() {
        let failed = failed(
            "- name: too much\n  given: { path: /a?b=c, address: 192.0.2.9 }\n  repeat: 4\n  \
               expect: { status: 200, limit: slots, headers: { x-ratelimit-limit: 5 } }\n",
        );
        let expected = "\
api.yaml:11:3: test 1, too much
  GET /a?b=c by anonymous:192.0.2.9, 4 times
  status: expected 200, got 429: denied by limit core
  limit: expected slots, got core
  header x-ratelimit-limit: expected 5, got 3
  | x-tollgate-denied-by: core
  | retry-after: 60
  | x-ratelimit-limit: 3
  | x-ratelimit-remaining: 0
  | x-ratelimit-used: 3
  | x-ratelimit-reset: 1768478460
  | x-ratelimit-resource: core
";
        assert_eq!(failed, [expected]);
    }
}
