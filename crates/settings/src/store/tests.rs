use std::{num::NonZeroU32, path::Path, time::Duration};

use tollgate_yaml::{Problem, Sources};

use super::*;
use crate::{
    MoveMode, Settings,
    tests::{FILE, rendered, store},
};

fn sources() -> Sources {
    Sources::system()
        .with_variable("KEY_SECRET", "sixteen bytes it is")
        .with_variable("SHORT", "fifteen bytes..")
        .with_file("config/key-secret", "sixteen bytes it is\n")
}

fn parse(text: &str) -> Result<StoreSettings, Vec<Problem>> {
    store(text, &sources())
}

fn good(text: &str) -> StoreSettings {
    parse(text).unwrap_or_else(|problems| panic!("{text}\n{}", problems[0]))
}

#[test]
fn store_is_in_the_process_by_default() {
    let store = good("");
    assert!(matches!(store.current, StoreKind::Memory));
    assert!(store.next.is_none());
    assert_eq!(store.key_secret, None);
    assert_eq!(store.deadline, Duration::from_millis(25));
    assert_eq!(store.instances, NonZeroU32::MIN);
    assert!(!store.reports_fallback);
    assert_eq!((store.bounds.max_keys, store.snapshot), (2_000_000, None));
}

#[test]
fn everything_beside_the_store_is_read() {
    let store = good(
        "memory: { max_keys: 5, snapshot: { file: a.snapshot, every: 2s } }
redis: { url: redis://localhost }
deadline: 40ms
instances: 4
key_secret_env: KEY_SECRET
fallback_header: true
",
    );
    assert!(matches!(store.current, StoreKind::Redis(_)));
    assert_eq!(store.deadline, Duration::from_millis(40));
    assert_eq!(store.instances.get(), 4);
    assert!(store.reports_fallback);
    assert_eq!(store.bounds.max_keys, 5);
    let snapshot = store.snapshot.unwrap();
    assert_eq!(snapshot.file, Path::new("config/a.snapshot"));
    assert_eq!(snapshot.every, Duration::from_secs(2));
    let from_file = good("key_secret_file: key-secret").key_secret;
    assert_eq!(store.key_secret, from_file);
    assert!(from_file.is_some());
}

#[test]
fn moves_go_from_any_store_to_another() {
    for (text, is_from_memory, is_to_memory) in [
        ("next: { redis: { url: redis://b } }\nmode: mirror", true, false),
        ("current: { memory: {} }\nnext: { redis: { url: redis://b } }\nmode: mirror", true, false),
        ("current: { redis: { url: redis://a } }\nnext: { memory: {} }\nmode: mirror", false, true),
        (
            "current: { redis: { url: redis://a } }\nnext: { redis: { url: redis://a, prefix: b } }\nmode: mirror",
            false,
            false,
        ),
    ] {
        let store = good(text);
        let next = store.next.unwrap();
        assert_eq!(matches!(store.current, StoreKind::Memory), is_from_memory, "{text}");
        assert_eq!(matches!(next.to, StoreKind::Memory), is_to_memory, "{text}");
        assert_eq!((next.percent, next.mode), (0, MoveMode::Mirror), "{text}");
    }
}

#[test]
fn size_of_the_store_in_the_process_may_be_in_any_place() {
    for text in [
        "memory: { max_keys: 5 }\ncurrent: { memory: {} }",
        "current: { memory: { max_keys: 5 } }",
        "current: { redis: { url: redis://a } }\nnext: { memory: { max_keys: 5 } }\nmode: move",
        "memory: { max_keys: 5 }\ncurrent: { redis: { url: redis://a } }",
    ] {
        assert_eq!(good(text).bounds.max_keys, 5, "{text}");
    }
}

#[test]
fn every_mistake_is_reported_with_its_place() {
    const NEXT: &str = "add the store to move to as `next`, or remove this";
    const REDIS: &str = "next: { redis: { url: redis://b } }";
    for (text, expected) in [
        (
            "redis: { url: redis://a }\ncurrent: { memory: {} }",
            "5:12 `current` does not go with `redis`: move `redis` into `current`",
        ),
        (
            "redis: { url: redis://a }\nmode: move\nnext: { memory: {} }",
            "6:9 `next` does not go with `redis`: move `redis` into `current`",
        ),
        ("percent: 5", &format!("4:12 `percent` needs `next`: {NEXT}")),
        ("mode: move", &format!("4:9 `mode` needs `next`: {NEXT}")),
        (
            REDIS,
            "4:9 `next` needs `mode`: add `mode: mirror` to compare the stores, or `mode: move`",
        ),
        (&format!("{REDIS}\nmode: mirorr"), "5:9 unknown value `mirorr`: did you mean `mirror`?"),
        (&format!("{REDIS}\nmode: move\npercent: 101"), "6:12 101 is out of range: write 0 to 100"),
        (
            "mode: move\nnext: { memory: {} }",
            "5:9 the same store as the current one: write another, or remove it",
        ),
        (
            "current: { redis: { url: redis://b } }\nmode: move\nnext: { redis: { url: redis://b } }",
            "6:9 the same store as the current one: write another, or remove it",
        ),
        (
            "current: {}",
            "4:12 no store: write `memory: {}`, `disk` and its folder, or `redis` and where it is",
        ),
        (
            "current: { memory: {}, redis: { url: redis://a } }",
            "4:33 several stores where one is expected: keep `memory`, `disk` or `redis`",
        ),
        (
            "memory: { max_keys: 5 }\ncurrent: { memory: { max_keys: 5 } }",
            "5:22 the in-process store is configured twice: keep one of them",
        ),
        (
            "memory: { max_keys: 0 }",
            "4:23 `max_keys` is 0: write how many counters to keep: 2000000",
        ),
        ("deadline: 0s", "4:13 `0s` is out of range: write a number and a unit, 1ms to 10s"),
        ("deadline: 11s", "4:13 `11s` is out of range: write a number and a unit, 1ms to 10s"),
        ("instances: 0", "4:14 no proxy: write how many proxies share the limits: 4"),
        ("key_secret_env: SHORT", "4:19 the secret is too short: use one of at least 16 bytes"),
        (
            "key_secret_env: NOT_SET",
            "4:19 environment variable `NOT_SET` is not set: set it to the secret",
        ),
        (
            "key_secret_env: KEY_SECRET\nkey_secret_file: key-secret",
            "5:20 a secret from two sources: keep the variable or the file",
        ),
        ("fallback_header: maybe", "4:20 expected true or false, found text: "),
    ] {
        let problems = parse(text).expect_err(text);
        assert_eq!(rendered(&problems)[0], expected, "{text}");
    }
}

#[test]
fn secret_for_keys_is_never_shown() {
    let store = good("key_secret_env: KEY_SECRET");
    let bytes = format!("{:?}", store.key_secret.unwrap());
    let shown = format!("{store:?}");
    assert!(!shown.contains(&bytes) && !shown.contains("sixteen"), "{shown}");
    let problems = parse("key_secret: sixteen bytes it is").unwrap_err();
    assert!(!problems[0].to_string().contains("sixteen"), "{}", problems[0]);
}

#[test]
fn percent_and_mode_of_a_move_are_read() {
    const NEXT: &str = "next: { redis: { url: redis://a } }\n";
    for (rest, expected) in [
        ("mode: mirror", (0, MoveMode::Mirror)),
        ("mode: move\npercent: 10", (10, MoveMode::Move)),
        ("mode: move\npercent: 100", (100, MoveMode::Move)),
    ] {
        let next = good(&format!("{NEXT}{rest}")).next.unwrap();
        assert_eq!((next.percent, next.mode), expected, "{rest}");
    }
}

#[test]
fn half_written_move_is_refused() {
    for text in ["next: { memory: {} }\nmode: mov", "percent: 5", "next: {", "colour: red"] {
        assert!(parse(text).is_err(), "{text}");
    }
}

const SHIPPED: &str = include_str!("../../../../config/tollgate.yaml");

#[test]
fn examples_in_the_shipped_settings_are_good() {
    let sources = Sources::system()
        .with_variable("REDIS_PASSWORD", "hunter2")
        .with_variable("TOLLGATE_KEY_SECRET", "sixteen bytes it is");
    let all = SHIPPED.replace("\n  # ", "\n  ");
    let (before, rest) = all.split_once("\n  disk:").unwrap();
    let (disk, after) = rest.split_once("\n  redis:").unwrap();
    let disk = good(&format!("disk:{disk}\n"));
    assert_eq!(disk.disk().map(|disk| disk.max_keys), Some(100_000_000));
    let all = format!("{before}\n  redis:{after}");
    // Forms exclude each other, and the files for TLS are not there.
    for left_out in [
        &["cluster:", "shards:", "- { name:", "sentinels:", "service:", "tls:"][..],
        &["url:", "shards:", "- { name:", "sentinels:", "service:", "tls:"],
        &["url:", "cluster:", "service:", "tls:"],
        &["url:", "cluster:", "shards:", "- { name:", "tls:"],
    ] {
        let is_kept = |line: &&str| !left_out.iter().any(|key| line.trim_start().starts_with(key));
        let text: String = all.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
        let settings = Settings::parse(Path::new(FILE), &text, &sources);
        let store = settings.unwrap_or_else(|problems| panic!("{}\n{text}", problems[0])).store;
        assert!(
            store.is_shared() && store.key_secret.is_some() && store.reports_fallback,
            "{text}"
        );
    }
}

#[test]
fn example_of_a_move_is_good() {
    let (_, example) = SHIPPED.split_once("\n# store:\n").unwrap();
    let lines = example.lines().map_while(|line| line.strip_prefix("#   "));
    let store = good(&lines.map(|line| format!("{line}\n")).collect::<String>());
    let next = store.next.unwrap();
    assert_eq!((next.percent, next.mode), (10, MoveMode::Mirror));
}
