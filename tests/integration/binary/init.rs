//! `tollgate init`: what it writes runs, and it never replaces a file.

use std::fs;

use tempfile::TempDir;

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Upstream, get};

const POLICY: &str = "policies/api.yaml";

fn empty() -> Folder {
    Folder(TempDir::new().unwrap())
}

fn read(folder: &Folder, name: &str) -> String {
    fs::read_to_string(folder.path().join(name)).unwrap()
}

#[test]
fn what_it_writes_is_checked_and_serves() {
    let upstream = Upstream::start();
    let folder = empty();
    let url = upstream.url();
    let options = ["--upstream", &url, "--limit", "1/minute", "--listen", "127.0.0.1:0"];
    let written = folder.run(&[&["init"], &options[..]].concat());
    assert_exit(&written, 0);
    let printed = text(&written.stdout);
    for line in ["policy api: ok, 1 limit, 1 route, 1 test", "tollgate run\n", "curl -i http://"] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    let settings = read(&folder, "tollgate.yaml").replace("127.0.0.1:9901", "127.0.0.1:0");
    folder.write("tollgate.yaml", &settings);
    let (_running, address) = Running::serve(&folder);
    send(address, get("/")).assert_status(200);
    send(address, get("/")).assert_status(429);
}

#[test]
fn issuer_and_audience_are_written_as_they_are_given() {
    let folder = empty();
    let issuer = "https://id.example.com/\"#: x";
    let options = ["init", "--upstream", "http://127.0.0.1:9", "--issuer", issuer];
    let refused = folder.run(&options);
    assert_exit(&refused, 64);
    assert!(text(&refused.stderr).contains("https://id.example.com/"), "{refused:?}");
    assert!(!folder.path().join("tollgate.yaml").exists());

    let options = ["--issuer", "https://id.example.com/", "--audience", "shop ${1}"];
    let written = folder.run(
        &[&["init", "--upstream", "http://127.0.0.1:9", "--dir", "new"], &options[..]].concat(),
    );
    assert_exit(&written, 0);
    let printed = text(&written.stdout);
    assert!(!printed.contains("warning"), "{printed}");
    assert!(printed.contains("tollgate run --config new/tollgate.yaml"), "{printed}");
    let policy = read(&folder, "new/policies/api.yaml");
    assert!(policy.contains("audience: [\"shop $${1}\"]"), "{policy}");
}

#[test]
fn missing_audience_is_warned_of() {
    let folder = empty();
    let options = ["--upstream", "http://127.0.0.1:9", "--issuer", "https://id.example.com/"];
    let written = folder.run(&[&["init"], &options[..]].concat());
    assert_exit(&written, 0);
    assert!(text(&written.stdout).contains("whatever service they are for"), "{written:?}");
}

#[test]
fn files_that_are_there_stay() {
    for (name, other) in [("tollgate.yaml", POLICY), (POLICY, "tollgate.yaml")] {
        let folder = empty();
        folder.write(name, "mine");
        let refused = folder.run(&["init", "--upstream", "http://127.0.0.1:9"]);
        assert_exit(&refused, 1);
        let printed = text(&refused.stderr);
        assert!(printed.contains(name) && printed.contains("--dir"), "{printed}");
        assert_eq!(read(&folder, name), "mine");
        assert!(!folder.path().join(other).exists());
    }
}

#[test]
fn what_makes_no_sense_is_not_written() {
    let before = ["--upstream", "http://127.0.0.1:9"];
    for (options, named) in [
        (&[][..], "--upstream"),
        (&["--upstream", "ftp://127.0.0.1"], "ftp://127.0.0.1"),
        (&[&before[..], &["--limit", "often"]].concat(), "often"),
        (&[&before[..], &["--limit", "9/hour, mode: shadow"]].concat(), "mode: shadow"),
        (&[&before[..], &["--audience", "api"]].concat(), "--issuer"),
    ] {
        let folder = empty();
        let refused = folder.run(&[&["init"], options].concat());
        assert_exit(&refused, 64);
        assert!(text(&refused.stderr).contains(named), "{options:?}: {refused:?}");
        assert!(!folder.path().join("tollgate.yaml").exists(), "{options:?}");
    }
}

#[test]
fn nothing_is_left_of_what_cannot_be_written() {
    let folder = empty();
    folder.write("policies", "a file where a folder has to be");
    let refused = folder.run(&["init", "--upstream", "http://127.0.0.1:9"]);
    assert_exit(&refused, 1);
    assert!(text(&refused.stderr).contains("cannot write policies/api.yaml"), "{refused:?}");
    assert!(!folder.path().join("tollgate.yaml").exists());
}
