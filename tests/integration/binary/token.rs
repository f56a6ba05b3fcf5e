//! `tollgate token`: what it needs. That its tokens are good is shown with `run`.

use super::{Folder, assert_exit, text};
use crate::support::Upstream;

#[test]
fn key_is_needed_and_only_one() {
    let folder = Folder::before(&Upstream::start());
    for arguments in [
        &["token", "--sub", "42"][..],
        &["token", "--sub", "42", "--secret-file", "secret", "--secret-env", "X"],
        &["token", "--secret-file", "secret"],
    ] {
        let output = folder.run(arguments);
        assert_exit(&output, 64);
        assert!(text(&output.stderr).contains("Usage: tollgate token"), "{output:#?}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn key_that_cannot_be_used_exits_with_1() {
    let folder = Folder::before(&Upstream::start());
    folder.write("short", "too short");
    for (file, expected) in [("short", "at least 32"), ("none", "cannot read none")] {
        let output = folder.run(&["token", "--sub", "42", "--secret-file", file]);
        assert_exit(&output, 1);
        assert!(text(&output.stderr).contains(expected), "{output:#?}");
    }
}
