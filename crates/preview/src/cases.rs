//! Runs the tests inside policies: with counters of their own in this process, with a clock that
//! only the tests move, and without asking another server. So the same files always have the same
//! result, and a running proxy can run them beside its traffic.

use std::{
    fmt, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{
    HeaderName,
    header::{RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;
use tollgate_clock::Clock;
use tollgate_gate::Shared;
use tollgate_identity::PublishedKeys;
use tollgate_policy::{Begin, Case, Policies, Policy, is_reserved};
use tollgate_settings::{Configuration, Settings, TestsRule};
use tollgate_yaml::Problem;
use tracing::subscriber::{NoSubscriber, with_default};

use crate::{Draft, Rehearsal, RehearsedResponse};

/// Runs the tests of all policies if the settings require that they pass. `file` is the settings
/// file. Nothing of it is logged: the log is about requests of real clients.
///
/// # Errors
/// Every test that fails, as a problem of its place.
pub fn verify(file: &Path, configuration: &Configuration) -> Result<(), Vec<Problem>> {
    let Configuration { settings, policies } = configuration;
    match settings.reload.tests {
        TestsRule::Ignored => return Ok(()),
        TestsRule::Required => {}
    }
    let problems = with_default(NoSubscriber::new(), || match Runner::start(Some(settings)) {
        Ok(runner) => {
            let failed = policies.iter().flat_map(|policy| runner.run(policy, policies));
            failed.map(|failed| failed.problem()).collect()
        }
        Err(error) => {
            let message = format!("cannot run the tests of policies: {error}");
            vec![Problem::whole_file(&file.display().to_string(), message, "")]
        }
    });
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Runs tests.
pub struct Runner<'s> {
    settings: Option<&'s Settings>,
    clock: Arc<AtomicU64>,
    runtime: tokio::runtime::LocalRuntime,
}

/// A test that came out otherwise than expected.
pub struct FailedTest {
    /// Which test of its policy, from 1.
    pub number: usize,
    /// Where the test is.
    pub place: Problem,
    /// Which one it is: its number, and its name.
    title: String,
    /// The request, in a line.
    pub request: String,
    /// All that differs.
    pub differences: Vec<Difference>,
    /// The headers of the response that are about limits and errors.
    pub headers: Vec<(HeaderName, String)>,
}

/// Something that came out otherwise than expected.
#[derive(Serialize)]
pub struct Difference {
    /// What it is about, such as `status`.
    pub what: String,
    /// What the test says.
    pub expected: String,
    /// What the request got.
    pub got: String,
}

/// The outcome of the requests of a test.
struct CaseOutcome<'p> {
    last: RehearsedResponse<'p>,
    /// How many were not refused.
    admitted: u32,
}

impl<'s> Runner<'s> {
    /// With these settings, if any were read: they name the proxies that are trusted to report a
    /// client's address.
    ///
    /// # Errors
    /// The system has no event queue.
    pub fn start(settings: Option<&'s Settings>) -> io::Result<Runner<'s>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())?;
        Ok(Runner { settings, clock: Arc::default(), runtime })
    }

    /// Runs the tests of one of `policies`. Returns those that failed.
    pub fn run(&self, policy: &Policy, policies: &Policies) -> Vec<FailedTest> {
        self.runtime.block_on(async {
            let mut rehearsal = self.rehearsal();
            let mut failed = Vec::new();
            for (number, case) in (1..).zip(&policy.tests) {
                match case.begin {
                    Begin::After(time) => self.advance(time),
                    Begin::At(start) => {
                        self.clock.store(start.as_micros(), Ordering::Relaxed);
                        rehearsal = self.rehearsal();
                    }
                }
                let outcome = self.play(case, &rehearsal, policies).await;
                failed.extend(FailedTest::of(number, case, &outcome));
            }
            failed
        })
    }

    /// One that knows nothing of earlier tests: their counters, and the tokens that they have
    /// shown.
    fn rehearsal(&self) -> Rehearsal {
        let clock = Clock::Manual(Arc::clone(&self.clock));
        let shared = Arc::new(Shared::offline(self.settings, clock));
        Rehearsal::with_fresh_counters(&shared, &PublishedKeys::default())
    }

    async fn play<'p>(
        &self,
        case: &Case,
        rehearsal: &Rehearsal,
        policies: &'p Policies,
    ) -> CaseOutcome<'p> {
        let draft = Draft::of(&case.given);
        let answer = &case.given.response;
        let mut admitted = 0;
        for _ in 1..case.repeat {
            let rehearsed = rehearsal.answer(policies, &draft, answer).await;
            admitted += u32::from(rehearsed.reason.is_none());
            self.advance(case.every);
        }
        let last = rehearsal.answer(policies, &draft, answer).await;
        admitted += u32::from(last.reason.is_none());
        CaseOutcome { last, admitted }
    }

    fn advance(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.clock.fetch_add(micros, Ordering::Relaxed);
    }
}

impl FailedTest {
    /// None: all is as expected.
    fn of(number: usize, case: &Case, outcome: &CaseOutcome<'_>) -> Option<FailedTest> {
        let differences = differences(case, outcome);
        let got = &outcome.last;
        if differences.is_empty() {
            return None;
        }
        let name = case.name.as_ref().map(|name| format!(", {name}")).unwrap_or_default();
        // Those about limits.
        let headers = got.headers.iter().filter(|(name, _)| {
            is_reserved(name.as_str()) || [RETRY_AFTER, WWW_AUTHENTICATE].contains(name)
        });
        Some(FailedTest {
            number,
            place: case.place.clone(),
            title: format!("test {number}{name}"),
            request: request(case, got),
            differences,
            headers: headers.map(|(name, value)| (name.clone(), text(value))).collect(),
        })
    }

    /// The same as a problem of the test's place.
    fn problem(&self) -> Problem {
        let FailedTest { place, title, differences, .. } = self;
        let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
        let message = format!("{title} fails: {}", differences.join("; "));
        place.saying(message, "correct the policy or the test")
    }
}

/// `GET /search/x for api.example.com by user:7, 11 times`.
fn request(case: &Case, got: &RehearsedResponse<'_>) -> String {
    let given = &case.given;
    let sender = match got.caller() {
        Some(caller) => format!("by {caller}"),
        None => format!("from {}", given.address),
    };
    let times = match case.repeat {
        1 => String::new(),
        times if case.every.is_zero() => format!(", {times} times"),
        times => format!(", {times} times, every {}", humantime::format_duration(case.every)),
    };
    format!("{} {} {sender}{times}", given.method, given.target)
}

fn differences(case: &Case, outcome: &CaseOutcome<'_>) -> Vec<Difference> {
    let expect = &case.expect;
    let got = &outcome.last;
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
    if let Some(limits) = &expect.would_deny {
        let mut would = got.would_deny.clone();
        would.sort_unstable();
        if would != *limits {
            let [expected, would] = [limits, &would].map(|names| names.join(", "));
            let named = |names: String| if names.is_empty() { "none".into() } else { names };
            differs("would_deny", &named(expected), Some(named(would)));
        }
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
        let rules = got.policy.map(|policy| &policy.identity);
        let expected =
            rules.map_or_else(|| caller.to_string(), |own| caller.whole(own).to_string());
        differs("caller", &expected, got.caller());
    }
    if let Some(admitted) = &expect.admitted
        && *admitted != outcome.admitted
    {
        differs("admitted", admitted, Some(outcome.admitted.to_string()));
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

fn text(value: &http::HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

impl fmt::Display for FailedTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailedTest { number: _, place, title, request, differences, headers } = self;
        writeln!(f, "{}: {title}", place.place())?;
        writeln!(f, "  {request}")?;
        for difference in differences {
            writeln!(f, "  {difference}")?;
        }
        for (name, value) in headers {
            writeln!(f, "  | {name}: {value}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { what, expected, got } = self;
        write!(f, "{what}: expected {expected}, got {got}")
    }
}

#[cfg(test)]
mod tests {
    use tollgate_identity::{Algorithm, SigningKey};
    use tollgate_policy::load;
    use tollgate_yaml::Sources;

    use super::*;

    /// What is said of a policy with these tests, the first of them on line 12.
    fn failed(tests: &str) -> Vec<String> {
        failed_with("invalid_token: reject", tests)
    }

    /// With this field in its section `identity`.
    fn failed_with(identity: &str, tests: &str) -> Vec<String> {
        let demands = match tests.contains("azp") {
            true => ", audience: [api], required_claims: { azp: web }",
            false => "",
        };
        let text = format!(
            "version: 1\n\
             upstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
             identity:\n  \
               jwt: [{{ issuer: me, algorithms: [HS256], secret_env: SECRET{demands} }}]\n  \
               callers: [{{ name: user, key: jwt.sub }}, {{ name: anonymous, key: client.ip }}]\n  \
               {identity}\n\
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
    fn limits_that_would_deny_are_all_compared() {
        let failed = failed(
            "- { given: { path: /a }, expect: { would_deny: [] } }\n\
             - { given: { path: /a }, expect: { would_deny: [slots, core] } }\n",
        );
        let [only] = failed.as_slice() else { panic!("{failed:?}") };
        assert!(only.contains("would_deny: expected core, slots, got none"), "{only}");
    }

    #[test]
    fn time_passes_between_repeated_requests() {
        let failed = failed(
            "- { given: { path: /a }, repeat: 7, every: 10s, expect: { status: 200, admitted: 4 } }\n\
             - { after: 59s, given: { path: /a }, expect: { headers: { x-ratelimit-used: 2 } } }\n\
             - { given: { path: /a }, repeat: 7, expect: { status: 429, admitted: 3 } }\n",
        );
        assert_eq!(failed, [""; 0]);
    }

    #[test]
    fn test_begins_when_it_says_and_another_one_then_begins_as_ever() {
        let failed = failed(
            "- { at: 2031-05-01T02:00:00+02:00, given: { path: /a }, expect: { headers: { x-ratelimit-reset: 1935360060 } } }\n\
             - { at: 2031-05-01, given: { path: /a }, expect: { headers: { x-ratelimit-reset: 1935360060 } } }\n\
             - { given: { path: /a }, expect: { headers: { x-ratelimit-reset: 1768478460 } } }\n",
        );
        assert_eq!(failed, [""; 0]);
    }

    #[test]
    fn token_that_has_expired_in_one_test_is_good_in_another_at_an_earlier_time() {
        let secret = b"a secret that is long enough for it";
        let key = SigningKey::from_secret(secret, Algorithm::HS256).unwrap();
        let claims = serde_json::json!({ "iss": "me", "sub": "7", "exp": 1_900_000_000 });
        let token = key.sign(None, claims.as_object().unwrap()).unwrap();
        let test = |at: &str, status: u16| {
            format!(
                "- {{ at: {at}, given: {{ path: /a, headers: {{ authorization: Bearer {token} }} }}, \
                     expect: {{ status: {status} }} }}\n"
            )
        };
        assert_eq!(failed(&(test("2031-01-01", 401) + &test("2029-01-01", 200))), [""; 0]);
    }

    #[test]
    fn no_issuer_is_asked_about_opaque_tokens() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        server.set_nonblocking(true).unwrap();
        let introspection = format!(
            "introspection: {{ url: \"http://{}/\", client_id: me, client_secret_env: SECRET }}",
            server.local_addr().unwrap()
        );
        let failed = failed_with(
            &introspection,
            "- { given: { path: /a, headers: { authorization: Bearer opaque } }, expect: { status: 503 } }\n",
        );
        assert_eq!(failed, [""; 0]);
        assert_eq!(server.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
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
            "- { given: { path: /a, jwt: { sub: \"7\" }, headers: { if-none-match: \"\\\"v1\\\"\" }, response: { status: 304 } }, repeat: 9, \
                 expect: { status: 304, headers: { x-ratelimit-used: 0 } } }\n",
        );
        assert_eq!(failed, [""; 0]);
    }

    #[test]
    fn failed_test_is_shown_with_its_position_and_its_differences() {
        let failed = failed(
            "- name: too much\n  given: { path: /a?b=c, address: 192.0.2.9 }\n  repeat: 4\n  \
               expect: { status: 200, limit: slots, headers: { x-ratelimit-limit: 5 } }\n",
        );
        let expected = "\
api.yaml:12:3: test 1, too much
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
