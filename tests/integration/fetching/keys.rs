//! Fetched keys: when they are fetched, who waits, and what is made of bad answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_clock::{Clock, Timestamp};
use tollgate_identity::{Algorithm, KeyLocation, KeyRing, RemoteKeys, RemoteSpec};

use super::{server, server_within};
use crate::support::{
    Answer, Authority, HOUR, IssuerKey, JWKS, METADATA, MINUTE, SECOND, START, Signal, eventually,
};

/// A ring with a clock that the test moves.
struct Ring {
    ring: KeyRing,
    clock: Arc<AtomicU64>,
}

impl Ring {
    fn start() -> Ring {
        let clock = Arc::new(AtomicU64::new(START.as_micros()));
        Ring { ring: KeyRing::start(Clock::Manual(Arc::clone(&clock))).unwrap(), clock }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.load(Ordering::SeqCst))
    }

    fn advance(&self, time: Duration) {
        self.clock.fetch_add(time.as_micros() as u64, Ordering::SeqCst);
    }

    /// Asking for another one would be in vain if it has ended already.
    fn wait_for_first_fetch(&self, keys: &RemoteKeys) {
        eventually("the first fetch", || (self.count(keys) > 0).then_some(()));
    }

    /// How many keys there are now.
    fn count(&self, keys: &RemoteKeys) -> usize {
        keys.current(self.now()).map_or(0, |keys| keys.len())
    }
}

fn spec(location: KeyLocation) -> RemoteSpec {
    RemoteSpec {
        location,
        algorithms: vec![Algorithm::EdDSA],
        lenient: Vec::new(),
        cache: 10 * MINUTE,
        cooldown: 30 * SECOND,
        max_stale: HOUR,
    }
}

fn jwks(authority: &Authority) -> RemoteSpec {
    spec(KeyLocation::Jwks(server(authority, JWKS)))
}

fn discovery(authority: &Authority, issuer: String) -> RemoteSpec {
    spec(KeyLocation::Discovery { issuer, server: server(authority, METADATA) })
}

#[tokio::test]
async fn first_fetch_begins_at_once_and_askers_wait_for_it() {
    let authority = Authority::start_tls();
    let ring = Ring::start();
    let go = Signal::default();
    authority.publish(&[&IssuerKey::new("a")]);
    authority.answer(JWKS, Answer::Held(go.clone()));
    let keys = ring.ring.adopt(&jwks(&authority));
    authority.wait_for(JWKS, 1);
    assert_eq!((ring.count(&keys), keys.generation()), (0, 0));
    let open = async { go.open() };
    let (one, other, ()) = tokio::join!(keys.refresh(ring.now()), keys.refresh(ring.now()), open);
    assert!(one && other);
    assert_eq!((ring.count(&keys), authority.count(JWKS)), (1, 1));
    assert_ne!(keys.generation(), 0);
    let asked = authority.last();
    assert_eq!(asked.field("accept"), Some("application/jwk-set+json, application/json"));
}

#[tokio::test]
async fn unknown_key_has_the_set_fetched_once_in_a_cooldown() {
    let authority = Authority::start();
    let ring = Ring::start();
    let old = IssuerKey::new("old");
    let new = IssuerKey::new("new");
    authority.publish(&[&old]);
    let keys = ring.ring.adopt(&jwks(&authority));
    ring.wait_for_first_fetch(&keys);
    let generation = keys.generation();
    authority.publish(&[&old, &new]);
    assert!(!keys.refresh(ring.now()).await);
    ring.advance(30 * SECOND);
    assert!(keys.refresh(ring.now()).await);
    assert_eq!(ring.count(&keys), 2);
    assert_ne!(keys.generation(), generation);
    for _ in 0..1000 {
        assert!(!keys.refresh(ring.now()).await);
    }
    assert_eq!(authority.count(JWKS), 2);
}

#[tokio::test]
async fn keys_are_fetched_ahead_and_a_removed_one_is_gone() {
    let authority = Authority::start();
    let ring = Ring::start();
    let old = IssuerKey::new("old");
    let new = IssuerKey::new("new");
    authority.publish(&[&old, &new]);
    let keys = ring.ring.adopt(&jwks(&authority));
    ring.wait_for_first_fetch(&keys);
    let generation = keys.generation();
    ring.advance(9 * MINUTE);
    authority.wait_for(JWKS, 2);
    // Waits for the fetch if it has not ended.
    keys.refresh(ring.now()).await;
    assert_eq!(keys.generation(), generation, "the same keys");
    authority.publish(&[&new]);
    ring.advance(9 * MINUTE);
    authority.wait_for(JWKS, 3);
    keys.refresh(ring.now()).await;
    assert_eq!(ring.count(&keys), 1);
    assert_ne!(keys.generation(), generation);
}

#[tokio::test]
async fn issuer_that_is_down_is_outlived_up_to_the_bound() {
    let authority = Authority::start();
    let ring = Ring::start();
    authority.publish(&[&IssuerKey::new("a")]);
    let keys = ring.ring.adopt(&jwks(&authority));
    ring.wait_for_first_fetch(&keys);
    authority.answer(JWKS, Answer::Close);
    ring.advance(HOUR + 10 * MINUTE);
    assert!(!keys.refresh(ring.now()).await);
    assert_eq!(ring.count(&keys), 1);
    ring.advance(Duration::from_micros(1));
    assert_eq!(ring.count(&keys), 0);
    let status = keys.status(ring.now());
    assert_eq!((status.keys, status.fetched), (0, Some(START)));
    assert!(status.last_error.unwrap().starts_with("the request failed"));
    authority.answer_as_usual(JWKS);
    ring.advance(MINUTE);
    eventually("the keys are back", || (ring.count(&keys) == 1).then_some(()));
    assert_eq!(keys.status(ring.now()).last_error, None);
}

#[tokio::test]
async fn bad_answers_do_not_replace_a_good_set() {
    let authority = Authority::start();
    let ring = Ring::start();
    authority.publish(&[&IssuerKey::new("a")]);
    let keys = ring.ring.adopt(&jwks(&authority));
    ring.wait_for_first_fetch(&keys);
    let generation = keys.generation();
    for (answer, expected) in [
        (Answer::Status(500), "status 500"),
        (Answer::Body(b"<html>".to_vec()), "not a JWKS"),
        (Answer::Body(br#"{"keys":[]}"#.to_vec()), "no usable key"),
        (Answer::Body(br#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#.to_vec()), "no usable key"),
        (Answer::Body(vec![b' '; 300 * 1024]), "larger than 256 KiB"),
        (Answer::Redirect("https://elsewhere.example/".into()), "another server"),
    ] {
        authority.answer(JWKS, answer);
        ring.advance(30 * SECOND);
        assert!(!keys.refresh(ring.now()).await, "{expected}");
        let error = keys.status(ring.now()).last_error.unwrap();
        assert!(error.contains(expected), "{error}");
        assert_eq!((ring.count(&keys), keys.generation()), (1, generation));
    }
}

#[tokio::test]
async fn published_secrets_are_never_used() {
    let authority = Authority::start();
    let ring = Ring::start();
    let secret = br#"{"keys":[{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}]}"#;
    authority.answer(JWKS, Answer::Body(secret.to_vec()));
    let spec = RemoteSpec { algorithms: vec![Algorithm::HS256], ..jwks(&authority) };
    let keys = ring.ring.adopt(&spec);
    assert!(!keys.refresh(ring.now()).await);
    assert_eq!((ring.count(&keys), authority.count(JWKS)), (0, 0));
}

#[tokio::test]
async fn metadata_leads_to_the_keys() {
    let authority = Authority::start_tls();
    let ring = Ring::start();
    authority.publish(&[&IssuerKey::new("a")]);
    let keys = ring.ring.adopt(&discovery(&authority, authority.issuer()));
    ring.wait_for_first_fetch(&keys);
    assert_eq!((ring.count(&keys), authority.count(METADATA), authority.count(JWKS)), (1, 1, 1));
    assert_eq!(keys.status(ring.now()).url, authority.url(METADATA));
}

#[tokio::test]
async fn metadata_of_another_issuer_leads_nowhere() {
    let authority = Authority::start();
    let ring = Ring::start();
    authority.publish(&[&IssuerKey::new("a")]);
    let keys = ring.ring.adopt(&discovery(&authority, authority.url("/")));
    assert!(!keys.refresh(ring.now()).await);
    assert_eq!(authority.count(JWKS), 0);
}

#[tokio::test]
async fn specs_that_differ_in_how_keys_are_fetched_begin_with_the_same_keys() {
    let authority = Authority::start_tls();
    let ring = Ring::start();
    authority.publish(&[&IssuerKey::new("a")]);
    let [by_url, by_discovery] = [jwks(&authority), discovery(&authority, authority.issuer())];
    let held = [ring.ring.adopt(&by_url), ring.ring.adopt(&by_discovery)];
    for keys in &held {
        eventually("the keys are there", || (ring.count(keys) == 1).then_some(()));
    }
    for path in [JWKS, METADATA] {
        authority.answer(path, Answer::Close);
    }
    ring.advance(MINUTE);
    let within = |path: &str, timeout| server_within(&authority, path, timeout);
    let elsewhere = authority.url("/elsewhere");
    for (spec, generation) in [
        (RemoteSpec { cooldown: MINUTE, ..by_url.clone() }, Some(held[0].generation())),
        (RemoteSpec { cache: HOUR, ..by_url.clone() }, Some(held[0].generation())),
        (
            RemoteSpec { location: KeyLocation::Jwks(within(JWKS, HOUR)), ..by_url.clone() },
            Some(held[0].generation()),
        ),
        (RemoteSpec { max_stale: MINUTE, ..by_discovery.clone() }, Some(held[1].generation())),
        // Others: for another use, from elsewhere, of another issuer.
        (RemoteSpec { algorithms: vec![Algorithm::ES256], ..by_url.clone() }, None),
        (spec(KeyLocation::Jwks(within("/elsewhere", HOUR))), None),
        (discovery(&authority, elsewhere), None),
    ] {
        let keys = ring.ring.adopt(&spec);
        let expected = generation.map_or((0, false), |generation| (generation, true));
        let are_usable = keys.current(ring.now()).is_some();
        assert_eq!((keys.generation(), are_usable), expected, "{spec:?}");
        let fetched = keys.status(ring.now()).fetched;
        assert_eq!(fetched, generation.map(|_| START), "they are no younger");
        assert_eq!(keys.status(ring.now()).fetches, 1, "a fetch is due at once");
    }
}

#[tokio::test]
async fn equal_specs_share_keys_for_as_long_as_somebody_has_them() {
    let authority = Authority::start();
    let ring = Ring::start();
    authority.publish(&[&IssuerKey::new("a")]);
    let keys = ring.ring.adopt(&jwks(&authority));
    ring.wait_for_first_fetch(&keys);
    assert!(Arc::ptr_eq(&keys, &ring.ring.adopt(&jwks(&authority))));
    let other = RemoteSpec { cache: HOUR, ..jwks(&authority) };
    let other = ring.ring.adopt(&other);
    authority.wait_for(JWKS, 2);
    assert_eq!((ring.ring.statuses(ring.now()).len(), authority.count(JWKS)), (2, 2));
    drop(other);
    let is_gone = || (ring.ring.statuses(ring.now()).len() == 1).then_some(());
    eventually("keys without a user are dropped", is_gone);
}
