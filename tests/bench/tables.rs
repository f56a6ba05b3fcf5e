//! What the tables cost when nearly every look misses the processor's caches:
//! `cargo bench --bench tables [CALLERS] [TOKENS]`.
//!
//! `charge` is a decision of the store in the process for a caller it knows, with one limit and
//! with four, among 10,000 callers and among CALLERS (10 million take 2 GiB). `identify` is a
//! request whose token is known, among 10,000 tokens, among as many as the default cache holds, and
//! among TOKENS (a million) in a cache that holds them all.
//!
//! Callers are drawn at random, and each draw waits for the decision before it, as requests of
//! different callers do: the processor cannot look two of them up at once. One thread; the figures
//! are nanoseconds, the median and the extremes of some rounds.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "it reports, and stops if it cannot")]

use std::{
    fmt,
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use tollgate_clock::{Clock, Timestamp};
use tollgate_identity::{
    AcceptedTokens, Algorithm, Auth, Client, CurrentKeys, Identifier, KeyRing, PublishedKeys,
    SigningKey,
};
use tollgate_limit::{Align, Charge, FixedWindow, Hashing, Key, KeyHasher, LimitId, Quota};
use tollgate_policy::{self as policy, Policy};
use tollgate_store::MemoryStore;
use tollgate_yaml::Sources;

const START: Timestamp = Timestamp::from_secs(1_790_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const FEW: usize = 10_000;
const ROUNDS: usize = 15;
const A_ROUND: usize = 200_000;

fn main() {
    let mut numbers = std::env::args().filter_map(|text| text.parse().ok());
    let callers = numbers.next().unwrap_or(10_000_000);
    let tokens = numbers.next().unwrap_or(1_000_000);
    for count in [FEW, callers] {
        charge::<1>(count);
        charge::<4>(count);
    }
    for (count, bytes) in [(FEW, 64 << 20), (DEFAULT_TOKENS, 64 << 20), (tokens, 4 << 30)] {
        identify(count, bytes);
    }
}

/// A fixed sequence of numbers below `count`, spread evenly.
struct Draws {
    state: u64,
    count: u64,
}

impl Draws {
    fn new(count: usize) -> Draws {
        Draws { state: 1, count: count as u64 }
    }

    /// The next number. `after` is zero, and known once the last decision is: the draw waits for it.
    fn next(&mut self, after: u64) -> usize {
        self.state = self.state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(after | 1);
        (u128::from(self.state ^ self.state >> 32).wrapping_mul(self.count.into()) >> 64) as usize
    }
}

fn charge<const LIMITS: usize>(callers: usize) {
    let store = MemoryStore::new(usize::MAX >> 1, [0; 16]);
    let align = Align::FirstRequest(HOUR);
    let quota = Quota::FixedWindow(FixedWindow { limit: u32::MAX >> 1, align });
    let hasher = KeyHasher::new([7; 16]);
    let names = ["core", "search", "writes", "monthly"];
    let ids = names.first_chunk::<LIMITS>().unwrap();
    let ids = ids.map(|limit| LimitId::new("bench", limit, "fixed_window", 3_600_000_000));
    let decide = |number: usize| {
        let owner = hasher.hash([(b'u', number.to_le_bytes().as_slice())]);
        let charges = ids.map(|id| Charge::new(Key::new(owner, owner, id), &quota, 1));
        store.charge(black_box(&charges), START).unwrap()
    };
    for number in 0..callers {
        decide(number);
    }
    let mut draws = Draws::new(callers);
    let mut after = 0;
    let rounds = rounds(|| {
        let began = Instant::now();
        for _ in 0..A_ROUND {
            let decision = decide(draws.next(after));
            // Nothing was used that often: zero, which the compiler does not know.
            after = u64::from(decision.outcomes.iter().all(|outcome| outcome.standing.used == 0));
        }
        began.elapsed()
    });
    println!("charge, {LIMITS} limits, {callers} callers: {rounds}");
}

/// About as many tokens as a cache of 64 MiB holds.
const DEFAULT_TOKENS: usize = 60_000;

/// Requests that are made ready before the clock starts.
const READY: usize = 50;

fn identify(tokens: usize, cache_bytes: u64) {
    let policy = policy();
    let secret = SECRET.as_bytes();
    let key = SigningKey::from_secret(secret, Algorithm::HS256).unwrap();
    let hashing = Hashing::Fixed(KeyHasher::new([7; 16]));
    let identifier = Identifier::new(cache_bytes, hashing, KeyRing::offline(Clock::System));
    let request = |number: usize| {
        let claims = serde_json::json!({
            "iss": "https://issuer.test",
            "aud": "bench",
            "sub": format!("user-{number:08}"),
            "exp": 1_790_003_600,
        });
        let token = key.sign(None, claims.as_object().unwrap()).unwrap();
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    };
    let published = PublishedKeys::default();
    let auth = Auth::Required(AcceptedTokens::ALL);
    let mut verified = 0;
    let mut find = |headers: &HeaderMap| {
        let address = [127, 0, 0, 1].into();
        let client = Client { address, certificate: None, headers, query: None };
        let keys = CurrentKeys { published: &published, now: START };
        let permit = || {
            verified += 1;
            Some(())
        };
        let found = identifier.identify(&policy.identity, &auth, client, keys, permit);
        let identity = found.now_or_never().unwrap().unwrap();
        identity.caller.map_or(0, |caller| caller.hash)
    };
    for number in 0..tokens {
        find(&request(number));
    }
    let mut draws = Draws::new(tokens);
    let mut after = 0;
    let rounds = rounds(|| {
        let mut elapsed = Duration::ZERO;
        for _ in 0..A_ROUND / READY / 4 {
            let requests: [_; READY] = std::array::from_fn(|_| request(draws.next(0)));
            let began = Instant::now();
            for at in 0..READY {
                let hash = find(requests.get(at + after).unwrap());
                after = usize::from(hash == 0);
            }
            elapsed += began.elapsed();
        }
        elapsed * 4
    });
    println!("identify, {tokens} tokens: {rounds}; {verified} checks of a signature");
}

const SECRET: &str = "not a secret: a text of thirty-two bytes";

fn policy() -> Policy {
    let text = "
version: 1
upstreams:
  api: { servers: [http://127.0.0.1:9] }
identity:
  jwt:
    - name: main
      issuer: https://issuer.test
      audience: [bench]
      algorithms: [HS256]
      secret_file: bench.key
  callers:
    - { name: user, key: jwt.sub }
limits:
  core: { per: caller, rate: 1000/60s }
routes:
  - { match: { path: \"/**\" }, auth: required, limits: [core] }
";
    let sources = Sources::system().with_file("bench.key", SECRET);
    policy::load(Path::new("bench.yaml"), text, &sources).ok().unwrap()
}

/// What one step took in each round, in ascending order.
struct Rounds([f64; ROUNDS]);

fn rounds(mut round: impl FnMut() -> Duration) -> Rounds {
    round();
    let mut all = std::array::from_fn(|_| round().as_secs_f64() * 1e9 / A_ROUND as f64);
    all.sort_by(f64::total_cmp);
    Rounds(all)
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [least, .., most] = self.0;
        write!(f, "{:.0} ns ({least:.0} to {most:.0})", self.0[ROUNDS / 2])
    }
}
