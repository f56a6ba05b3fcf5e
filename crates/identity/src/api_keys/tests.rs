//! Which keys are accepted and refused, and the problems of a malformed file.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const SECRET: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";
const DIGEST: &str = "sha256:AAECAwQFBgcICQoLDA0ODw:jc_p4KzHtlBY3CYsBkBRIYMFmgBh9SNqlWuz96C5IXg";

fn new(id: &str) -> NewKey {
    NewKey { id: id.to_owned(), ..NewKey::default() }
}

/// A file with these items.
fn file(items: &[&str]) -> String {
    items.iter().fold("keys:\n".to_owned(), |text, item| text + item + "\n")
}

fn keys(minted: &[&MintedKey]) -> ApiKeys {
    let lines: Vec<&str> = minted.iter().map(|minted| minted.line.as_str()).collect();
    ApiKeys::parse("keys.yaml", &file(&lines)).unwrap()
}

/// The result of a check by id.
fn checked<'k>(keys: &'k ApiKeys, presented: &str, now: &str) -> Result<&'k str, ApiKeyError> {
    keys.check(presented.as_bytes(), at(now)).map(|key| &*key.id)
}

fn at(instant: &str) -> Timestamp {
    let instant: jiff::Timestamp = instant.parse().unwrap();
    Timestamp::from_micros(instant.as_microsecond().try_into().unwrap())
}

/// All problems of a file, as they are printed.
fn problems(text: &str) -> Vec<String> {
    let problems = ApiKeys::parse("keys.yaml", text).unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

const NOW: &str = "2026-12-01T00:00:00Z";

#[test]
fn digest_is_sha_256_of_salt_and_secret() {
    let text = file(&[&format!("  - {{ id: a, digest: \"{DIGEST}\" }}")]);
    let keys = ApiKeys::parse("keys.yaml", &text).unwrap();
    assert_eq!(checked(&keys, &format!("a.{SECRET}"), NOW), Ok("a"));
}

#[test]
fn key_is_found_by_its_id_and_verified_by_its_secret() {
    let a = new("tg_a").mint().unwrap();
    let b = new("b").mint().unwrap();
    let keys = keys(&[&a, &b]);
    let secret = |minted: &MintedKey| minted.key.split_once('.').unwrap().1.to_owned();
    assert_eq!(checked(&keys, &a.key, NOW), Ok("tg_a"));
    assert_eq!(checked(&keys, &b.key, NOW), Ok("b"));
    for (presented, expected) in [
        (format!("tg_a.{}", secret(&b)), ApiKeyError::Wrong),
        (format!("c.{}", secret(&a)), ApiKeyError::Unknown),
        (format!("TG_A.{}", secret(&a)), ApiKeyError::Unknown),
        (format!("{}x", a.key), ApiKeyError::Wrong),
    ] {
        assert_eq!(checked(&keys, &presented, NOW), Err(expected), "{presented}");
    }
    assert_eq!(keys.get("b").map(|key| &*key.id), Some("b"));
    assert_eq!(keys.len(), 2);
}

#[test]
fn text_without_the_form_of_a_key_is_malformed() {
    let keys = keys(&[]);
    let long = |bytes| "x".repeat(bytes);
    for (presented, expected) in [
        (String::new(), ApiKeyError::Malformed),
        (".".into(), ApiKeyError::Malformed),
        ("a".into(), ApiKeyError::Malformed),
        (format!(".{SECRET}"), ApiKeyError::Malformed),
        (format!("a b.{SECRET}"), ApiKeyError::Malformed),
        (format!("ä.{SECRET}"), ApiKeyError::Malformed),
        (format!("{}.{SECRET}", long(65)), ApiKeyError::Malformed),
        (format!("{}.{SECRET}", long(64)), ApiKeyError::Unknown),
        (format!("a.{}", long(15)), ApiKeyError::Malformed),
        (format!("a.{}", long(16)), ApiKeyError::Unknown),
        (format!("a.{}", long(256)), ApiKeyError::Unknown),
        (format!("a.{}", long(257)), ApiKeyError::Malformed),
        (format!("a.{SECRET} "), ApiKeyError::Malformed),
        (format!("a.{SECRET}\n"), ApiKeyError::Malformed),
        (format!("a.{SECRET}é"), ApiKeyError::Malformed),
        // A token.
        (format!("a.{SECRET}.{SECRET}"), ApiKeyError::Malformed),
    ] {
        assert_eq!(checked(&keys, &presented, NOW), Err(expected), "{presented:?}");
    }
}

#[test]
fn only_the_right_secret_reveals_that_a_key_is_revoked_or_has_expired() {
    let text = file(&[
        &format!("- {{ id: gone, revoked: true, expires: 2020-01-01, digest: \"{DIGEST}\" }}"),
        &format!("- {{ id: old, expires: 2020-01-01, digest: \"{DIGEST}\" }}"),
    ]);
    let keys = ApiKeys::parse("keys.yaml", &text).unwrap();
    for (id, expected) in [("gone", ApiKeyError::Revoked), ("old", ApiKeyError::Expired)] {
        assert_eq!(checked(&keys, &format!("{id}.{SECRET}"), NOW), Err(expected));
        let guess = checked(&keys, &format!("{id}.{SECRET}0"), NOW).unwrap_err();
        let unknown = checked(&keys, &format!("no.{SECRET}"), NOW).unwrap_err();
        assert_eq!((guess, unknown), (ApiKeyError::Wrong, ApiKeyError::Unknown));
    }
}

#[test]
fn key_is_valid_through_its_last_day_or_up_to_an_instant() {
    for (expires, good, bad) in [
        ("2027-01-01", "2027-01-01T23:59:59.999999Z", "2027-01-02T00:00:00Z"),
        ("2027-01-01T12:00:00Z", "2027-01-01T11:59:59.999999Z", "2027-01-01T12:00:00Z"),
        ("2027-01-01T12:00:00+02:00", "2027-01-01T09:59:59Z", "2027-01-01T10:00:00Z"),
    ] {
        let new = NewKey { expires: Some(expires.to_owned()), ..new("a") };
        let minted = new.mint().unwrap();
        let keys = keys(&[&minted]);
        assert_eq!(checked(&keys, &minted.key, good), Ok("a"), "{expires}");
        assert_eq!(checked(&keys, &minted.key, bad), Err(ApiKeyError::Expired), "{expires}");
        assert_eq!(keys.get("a").unwrap().expires, Some(at(bad)));
    }
}

#[test]
fn fields_are_claims() {
    let minted = NewKey {
        tier: Some("pro".into()),
        owner: Some("Größe \"1\" {a, b} #x".into()),
        scopes: vec!["read".into(), "repo:write".into()],
        expires: Some("2027-01-01".into()),
        fields: vec![("region".into(), "eu".into()), ("cost: centre".into(), "12".into())],
        ..new("a")
    };
    let minted = minted.mint().unwrap();
    let keys = keys(&[&minted]);
    let claims = &keys.get("a").unwrap().claims;
    for (name, expected) in [
        ("id", Some(json!("a"))),
        ("tier", Some(json!("pro"))),
        ("owner", Some(json!("Größe \"1\" {a, b} #x"))),
        ("scope", Some(json!("read repo:write"))),
        ("region", Some(json!("eu"))),
        ("cost: centre", Some(json!("12"))),
        ("digest", None),
        ("expires", None),
    ] {
        assert_eq!(claims.get(name), expected.as_ref(), "{name}");
    }
}

#[test]
fn missing_fields_are_missing_claims() {
    let keys = keys(&[&new("a").mint().unwrap()]);
    let claims = &keys.get("a").unwrap().claims;
    assert!(["tier", "owner", "scope"].iter().all(|name| claims.get(name).is_none()));
}

#[test]
fn lines_may_be_indented_commented_and_empty() {
    let digest = format!("digest: \"{DIGEST}\"");
    let text = format!(
        "\u{feff}# ours\r\n\r\nkeys: # all\r\n- {{ id: a, {digest} }} # first\r\n\t \r\n  # off\r\n\
         \x20     -   {{ id: b, {digest} }}"
    );
    let keys = ApiKeys::parse("keys.yaml", &text).unwrap();
    assert_eq!(checked(&keys, &format!("a.{SECRET}"), NOW), Ok("a"));
    assert_eq!(checked(&keys, &format!("b.{SECRET}"), NOW), Ok("b"));
    assert!(ApiKeys::parse("keys.yaml", "keys:").unwrap().is_empty());
}

#[test]
fn every_problem_has_a_location_and_help() {
    let digest = format!("digest: \"{DIGEST}\"");
    let text = [
        "# keys of this year",
        "keys:",
        &format!("  - {{ id: a, {digest} }}"),
        &format!("  - {{ id: b, revokd: true, {digest} }}"),
        &format!("  - {{ id: a, {digest} }}"),
        &format!("  - {{ id: a.b, expires: 1/1/2027, {digest} }}"),
        "  - { id: c, digest: correct-horse }",
        &format!("  - {{ id: d, scopes: [read all], {digest} }}"),
        &format!("  - {{ id: e, fields: {{ expires: never }}, {digest} }}"),
        &format!("  - {{ id: f, tier: \"\", {digest} }}"),
        "  - id: g",
        "  - { tier: pro }",
        "  - { id: h, tier: [ }",
    ]
    .join("\n");
    let found = ApiKeys::parse("keys.yaml", &text).unwrap_err();
    let shown: Vec<String> = found
        .iter()
        .map(|problem| format!("{}:{} {}", problem.line(), problem.column(), problem.message()))
        .collect();
    assert_eq!(
        shown,
        [
            "4:14 unknown field `revokd` in a key",
            "5:11 key `a` is defined twice",
            "6:11 not a valid key id",
            "6:25 `1/1/2027` is not a date",
            "7:22 not a valid digest of a secret",
            "8:23 not a valid scope",
            "9:24 a custom field cannot be called `expires`",
            "10:20 this text cannot be used",
            "0:0 line 11: a key takes one line",
            "12:5 missing field `digest` in a key",
            "12:5 missing field `id` in a key",
            "13:20 not valid YAML: mismatched bracket '[' closed by '}'",
        ]
    );
    // Errors of the YAML parser have no help.
    assert!(found[..11].iter().all(|problem| !problem.help().is_empty()), "{found:#?}");
}

#[test]
fn file_without_a_list_of_keys_is_one_problem() {
    assert_eq!(problems(""), ["keys.yaml: the file is empty\n  write `keys:`"]);
    assert_eq!(problems("# none\n").len(), 1);
    assert_eq!(
        problems("\n- { id: a }\n"),
        ["keys.yaml: line 2: the file does not begin with `keys:`\n  \
          write that, and the keys below it"]
    );
}

#[test]
fn outsized_files_and_floods_of_problems_are_bounded() {
    let many = file(&vec!["- x"; 100_001]);
    assert_eq!(
        problems(&many),
        ["keys.yaml: the file has 100001 keys; at most 100000 are read\n  \
          remove keys that have expired"]
    );
    assert_eq!(problems(&file(&vec!["- x"; 1000])).len(), 100);
    let large = " ".repeat((32 << 20) + 1);
    assert_eq!(
        problems(&large),
        ["keys.yaml: the file has more than 33554432 bytes\n  remove keys that have expired"]
    );
}

#[test]
fn file_may_have_no_keys() {
    for text in ["keys:\n", "keys: []\n", "# none\nkeys: []  # any more\n"] {
        assert!(ApiKeys::parse("keys.yaml", text).unwrap().is_empty(), "{text}");
    }
    let added = format!("keys: []\n{}\n", new("a").mint().unwrap().line);
    assert_eq!(problems(&added).len(), 1);
}

#[test]
fn neither_digests_nor_values_in_their_place_are_printed() {
    let line = format!("- {{ id: a, tier: [], digest: \"{DIGEST}\" }}");
    for line in [
        line.as_str(),
        "- { id: a, digest: correct-horse-battery }",
        "- { id: a, digest: \"correct-horse-battery\" }",
        "- { id: a, digest: 'correct-horse-battery }",
        "- { id: a, secret: correct-horse-battery }",
    ] {
        for shown in problems(&file(&[line])) {
            assert!(!shown.contains("correct") && !shown.contains("sha256"), "{shown}");
        }
    }
    let keys = keys(&[&new("a").mint().unwrap()]);
    assert_eq!(format!("{keys:?}"), "ApiKeys(1 keys)");
    let shown = format!("{:?}", keys.get("a").unwrap());
    assert!(shown.contains("digest: [digest]"), "{shown}");
}

#[test]
fn keys_that_the_file_cannot_have_are_not_minted() {
    for new in [
        new(""),
        new("a.b"),
        NewKey { tier: Some("".into()), ..new("a") },
        NewKey { owner: Some("a\u{85}b".into()), ..new("a") },
        NewKey { scopes: vec!["a b".into()], ..new("a") },
        NewKey { expires: Some("soon".into()), ..new("a") },
        NewKey { fields: vec![("owner".into(), "x".into())], ..new("a") },
        NewKey { fields: vec![("x".into(), "1".into()), ("x".into(), "2".into())], ..new("a") },
    ] {
        assert!(matches!(new.mint(), Err(MintError::Fields(_))), "{new:?}");
    }
    for secret in ["", "fifteen-letters", "sixteen.with.dots", "sixteen with blanks"] {
        assert!(matches!(new("a").mint_with(secret), Err(MintError::Secret)), "{secret:?}");
    }
}

#[test]
fn secrets_and_salts_are_never_the_same() {
    let (a, b) = (new("a").mint().unwrap(), new("a").mint().unwrap());
    assert_ne!(a.key, b.key);
    let (a, b) = (new("a").mint_with(SECRET).unwrap(), new("a").mint_with(SECRET).unwrap());
    assert_ne!(a.line, b.line);
    assert_eq!(a.key, format!("a.{SECRET}"));
}

proptest! {
    #[test]
    fn prop_minted_key_is_valid_and_one_with_a_changed_byte_is_not(
        id in "[A-Za-z0-9_-]{1,64}",
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let minted = new(&id).mint().unwrap();
        let keys = keys(&[&minted]);
        let now = Timestamp::from_secs(1);
        prop_assert!(keys.check(minted.key.as_bytes(), now).is_ok());
        let mut changed = minted.key.clone().into_bytes();
        let place = at.index(changed.len());
        prop_assume!(changed[place] != byte);
        changed[place] = byte;
        prop_assert!(keys.check(&changed, now).is_err());
        changed.truncate(place);
        prop_assert!(keys.check(&changed, now).is_err());
    }

    #[test]
    fn prop_secret_of_another_key_is_refused(
        ids in prop::collection::hash_set("[a-z]{1,8}", 2..6),
        secret in "[!-\\-/-~]{16,64}",
    ) {
        let mut minted: Vec<MintedKey> = ids.iter().map(|id| new(id).mint().unwrap()).collect();
        minted.push(new("OWN").mint_with(&secret).unwrap());
        let keys = keys(&minted.iter().collect::<Vec<_>>());
        let now = Timestamp::from_secs(1);
        for of_id in &minted {
            for of_secret in &minted {
                let (id, _) = of_id.key.split_once('.').unwrap();
                let (_, secret) = of_secret.key.split_once('.').unwrap();
                let is_good = keys.check(format!("{id}.{secret}").as_bytes(), now).is_ok();
                prop_assert_eq!(is_good, of_id.key == of_secret.key);
            }
        }
    }

    #[test]
    fn prop_minted_fields_are_read_back(
        owner in "\\PC{1,40}",
        field in "\\PC{1,40}",
        name in "[a-z:.#{ ]{1,10}",
    ) {
        prop_assume!(!["id", "tier", "owner", "scopes", "scope", "digest"].contains(&&*name));
        let new = NewKey {
            owner: Some(owner.clone()),
            fields: vec![(name.clone(), field.clone())],
            ..new("a")
        };
        let minted = new.mint().unwrap();
        prop_assert_eq!(minted.line.lines().count(), 1);
        let keys = keys(&[&minted]);
        let claims = &keys.get("a").unwrap().claims;
        prop_assert_eq!(claims.get("owner"), Some(&json!(owner)));
        prop_assert_eq!(claims.get(&name), Some(&json!(field)));
    }

    #[test]
    fn prop_reading_and_checking_never_panic(
        text in "(keys:\n)?([-{} a-z:,\"#\n\u{e9}]|id:|digest:){0,80}",
        presented in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let _ = ApiKeys::parse("keys.yaml", &text);
        prop_assert!(keys(&[]).check(&presented, Timestamp::default()).is_err());
    }
}
