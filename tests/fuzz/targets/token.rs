//! Any bytes as a token: only the tokens that the issuers have signed identify a caller, and those
//! no longer once a bit of them is changed.

#![no_main]

use std::{net::IpAddr, path::Path, sync::LazyLock};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use tollgate_clock::{Clock, Timestamp};
use tollgate_gate::Shared;
use tollgate_identity::{AcceptedTokens, Algorithm, Auth, Client, CurrentKeys, PublishedKeys, SigningKey};
use tollgate_policy::{Policy, load};
use tollgate_yaml::Sources;

const SECRET: &str = "a secret of more than 32 bytes, is it not";

const ISSUERS: &str = "
version: 1
upstreams: { api: { servers: [http://127.0.0.1:9000] } }
identity:
  jwt:
    - { name: one, issuer: one, audience: [api], algorithms: [HS256], secret_env: SECRET }
    - { name: two, issuer: two, audience: [api], algorithms: [EdDSA], public_key_file: two.pem }
  callers: [{ name: user, key: jwt.sub }]
routes: [{ match: { path: /** }, auth: required, limits: [] }]
";

struct Issuers {
    policy: Policy,
    shared: Shared,
    tokens: [String; 2],
    runtime: tokio::runtime::Runtime,
}

static ISSUERS_AND_TOKENS: LazyLock<Issuers> = LazyLock::new(|| {
    let one = SigningKey::from_secret(SECRET.as_bytes(), Algorithm::HS256).expect("a key");
    let (two, public) = SigningKey::generate_ed25519().expect("a key");
    let sources = Sources::system().with_variable("SECRET", SECRET).with_file("two.pem", public);
    let policy = load(Path::new("policy.yaml"), ISSUERS, &sources);
    let claims = |iss| json!({ "iss": iss, "aud": "api", "sub": "7", "exp": 4_000_000_000_u64 });
    let sign = |key: &SigningKey, iss| key.sign(None, claims(iss).as_object().expect("an object"));
    Issuers {
        policy: policy.unwrap_or_else(|problems| panic!("{}", problems[0])),
        shared: Shared::rehearsing(None, Clock::System).expect("threads"),
        tokens: [sign(&one, "one"), sign(&two, "two")].map(|token| token.expect("a token")),
        runtime: tokio::runtime::Builder::new_current_thread().build().expect("a runtime"),
    }
});

fuzz_target!(|input: &[u8]| {
    let Issuers { tokens, .. } = &*ISSUERS_AND_TOKENS;
    let is_signed = tokens.iter().any(|token| input.trim_ascii() == token.as_bytes());
    assert!(is_signed || !is_identified_by(input));

    // The first bytes say which bit of which token is turned; what follows comes into its place.
    let [which, at, more, bit, rest @ ..] = input else { return };
    let token = tokens[usize::from(which % 2)].as_bytes();
    let at = usize::from(u16::from_le_bytes([*at, *more])) % token.len();
    let mut turned = token.to_vec();
    turned[at] ^= 1 << (bit % 8);
    assert!(!is_identified_by(&turned), "{}", String::from_utf8_lossy(&turned));
    let mut spliced = token.to_vec();
    let end = token.len().min(at + rest.len());
    spliced[at..end].copy_from_slice(&rest[..end - at]);
    assert!(
        spliced == token || !is_identified_by(&spliced),
        "{}",
        String::from_utf8_lossy(&spliced)
    );
    assert!(is_identified_by(token));
});

fn is_identified_by(token: &[u8]) -> bool {
    let Issuers { policy, shared, runtime, .. } = &*ISSUERS_AND_TOKENS;
    let Ok(value) = HeaderValue::from_bytes(&[b"Bearer ", token].concat()) else { return false };
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    let address = IpAddr::from([203, 0, 113, 7]);
    let client = Client { address, headers: &headers, query: None, certificate: None };
    let auth = Auth::Required(AcceptedTokens::ALL);
    let now = Timestamp::from_secs(1_790_000_000);
    let published = PublishedKeys::default();
    let keys = CurrentKeys { published: &published, now };
    let permit = || Some(());
    let identified = shared.identifier.identify(&policy.identity, &auth, client, keys, permit);
    runtime.block_on(identified).is_ok_and(|identity| identity.caller.is_some())
}
