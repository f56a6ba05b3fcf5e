//! `tollgate key`: the key for the client, the line for the file, and the file itself.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Output, Stdio},
};

use tollgate_clock::Timestamp;
use tollgate_identity::{ApiKeyError, ApiKeys};

use super::{Folder, assert_exit, text};
use crate::support::Upstream;

const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

fn folder() -> Folder {
    Folder::before(&Upstream::start())
}

/// The keys in a file of the folder.
fn keys(folder: &Folder, file: &str) -> ApiKeys {
    ApiKeys::parse(file, &fs::read_to_string(folder.path().join(file)).unwrap()).unwrap()
}

/// Runs a command with this on its standard input.
fn run_with_input(folder: &Folder, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(arguments)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn key_and_line_belong_together() {
    let folder = folder();
    let output =
        folder.run(
            &[
                &[
                    "key",
                    "--id",
                    "reporting",
                    "--tier",
                    "pro",
                    "--owner",
                    "acme",
                    "--scope",
                    "read",
                ][..],
                &["--scope", "write", "--expires", "2027-01-01", "--field", "region=eu"],
            ]
            .concat(),
        );
    assert_exit(&output, 0);
    let (key, line) = text(&output.stdout).trim_end().split_once('\n').unwrap();
    let secret = key.strip_prefix("reporting.").unwrap();
    assert_eq!(secret.len(), 43);
    assert!(!line.contains(secret), "{line}");
    let expected = "  - { id: \"reporting\", tier: \"pro\", owner: \"acme\", expires: \"2027-01-01\", \
                    scopes: [\"read\", \"write\"], fields: { \"region\": \"eu\" }, \
                    digest: \"sha256:";
    assert!(line.starts_with(expected), "{line}");
    let keys = ApiKeys::parse("keys.yaml", &format!("keys:\n{line}\n")).unwrap();
    let key = keys.check(key.as_bytes(), NOW).unwrap();
    assert_eq!(key.claims.get("scope").unwrap(), "read write");
    assert_eq!(key.claims.get("region").unwrap(), "eu");
}

#[test]
fn lines_are_appended_to_a_file_that_only_its_owner_reads() {
    let folder = folder();
    let mint = |id| {
        let output = folder.run(&["key", "--id", id, "--append", "keys.yaml"]);
        assert_exit(&output, 0);
        let printed = text(&output.stdout);
        assert_eq!(printed.lines().count(), 1, "{printed}");
        printed.trim_end().to_owned()
    };
    let first = mint("a");
    let file = folder.path().join("keys.yaml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // As some editors leave a file.
    let written = fs::read_to_string(&file).unwrap();
    folder.write("keys.yaml", &format!("# ours\n{}", written.trim_end()));
    let second = mint("b");
    let keys = keys(&folder, "keys.yaml");
    for key in [first, second] {
        assert!(keys.check(key.as_bytes(), NOW).is_ok(), "{key}");
    }
}

#[test]
fn id_that_is_there_is_refused_and_the_file_stays_as_it_is() {
    let folder = folder();
    let mint = || folder.run(&["key", "--id", "a", "--append", "keys.yaml"]);
    assert_exit(&mint(), 0);
    let before = fs::read(folder.path().join("keys.yaml")).unwrap();
    let output = mint();
    assert_exit(&output, 1);
    assert_eq!(text(&output.stdout), "");
    assert_eq!(
        text(&output.stderr),
        "tollgate: `a` is in keys.yaml already: take another id, or remove it\n"
    );
    assert_eq!(fs::read(folder.path().join("keys.yaml")).unwrap(), before);
}

#[test]
fn nothing_is_appended_to_a_file_that_is_not_in_order() {
    let folder = folder();
    for content in ["keys:\n  - { id: a }\n", "version: 1\n"] {
        folder.write("keys.yaml", content);
        let output = folder.run(&["key", "--id", "b", "--append", "keys.yaml"]);
        assert_exit(&output, 64);
        assert!(text(&output.stderr).starts_with("keys.yaml"), "{output:#?}");
        assert_eq!(text(&output.stdout), "");
        assert_eq!(fs::read_to_string(folder.path().join("keys.yaml")).unwrap(), content);
    }
}

#[test]
fn secret_that_is_in_use_already_is_taken_and_not_printed() {
    let folder = folder();
    let secret = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";
    let arguments = ["key", "--id", "old", "--secret-stdin", "--append", "keys.yaml"];
    let output = run_with_input(&folder, &arguments, &format!("{secret}\n"));
    assert_exit(&output, 0);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("", ""));
    let keys = keys(&folder, "keys.yaml");
    assert!(keys.check(format!("old.{secret}").as_bytes(), NOW).is_ok());
    let wrong = keys.check(format!("old.{secret}0").as_bytes(), NOW);
    assert_eq!(wrong.unwrap_err(), ApiKeyError::Wrong);
}

#[test]
fn secret_that_is_too_short_or_no_header_value_is_refused() {
    let folder = folder();
    for secret in ["", "hunter2\n", "two words, but long enough\n"] {
        let output = run_with_input(&folder, &["key", "--id", "a", "--secret-stdin"], secret);
        assert_exit(&output, 1);
        assert_eq!(
            text(&output.stderr),
            "tollgate: cannot mint the key: a secret has 16 to 256 visible ASCII characters and \
             no dot\n"
        );
    }
}

#[test]
fn fields_that_a_file_cannot_have_exit_with_64_and_say_what_to_write() {
    let folder = folder();
    for (arguments, expected) in [
        (&["key", "--id", "a.b"][..], "write 1 to 64 of A-Z, a-z, 0-9, _ and -"),
        (&["key", "--id", "a", "--expires", "soon"], "write 2027-01-01"),
        (&["key", "--id", "a", "--field", "tier=pro"], "cannot be called `tier`"),
        (&["key", "--id", "a", "--field", "region"], "write NAME=TEXT"),
        (&["key"], "Usage: tollgate key"),
    ] {
        let output = folder.run(arguments);
        assert_exit(&output, 64);
        let complaint = text(&output.stderr);
        assert!(complaint.contains(expected), "{complaint}");
        assert!(!complaint.contains("sha256"), "{complaint}");
    }
}
