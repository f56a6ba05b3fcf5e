//! Where commands find the settings when no option names them.

use std::{fs, process::Command};

use tempfile::TempDir;

use super::{Folder, Running, assert_exit, text};
use crate::support::Upstream;

/// All commands that read settings.
const COMMANDS: [&[&str]; 11] = [
    &["run"],
    &["check"],
    &["health"],
    &["status"],
    &["reload"],
    &["explain", "GET", "/"],
    &["look", "user:1"],
    &["reset", "user:1", "--why", "test"],
    &["top"],
    &["store", "stat"],
    &["simulate", "--log", "access.log"],
];

#[test]
fn command_without_settings_names_all_places_and_the_option() {
    let empty = Folder(TempDir::new().unwrap());
    for command in COMMANDS {
        let output = empty.run(command);
        assert_exit(&output, 64);
        let printed = text(&output.stderr);
        for place in [
            "tollgate.yaml, config/tollgate.yaml, /etc/tollgate/tollgate.yaml",
            "--config",
            "TOLLGATE_CONFIG",
        ] {
            assert!(printed.contains(place), "{command:?}: {printed}");
        }
    }
}

#[test]
fn variable_comes_before_the_folder_and_the_folder_before_config() {
    let folder = Folder::before(&Upstream::start());
    let checked = |folder: &Folder, variable: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.arg("check").env("TOLLGATE_CONFIG", variable);
        let output = Running::start_by(folder, command).finish();
        format!("{}{}", text(&output.stdout), text(&output.stderr))
    };
    let settings = fs::read_to_string(folder.path().join("tollgate.yaml")).unwrap();
    folder.write("config/tollgate.yaml", &format!("{settings}policies: ../policies\n"));
    folder.write("other/own.yaml", &format!("{settings}policies: ../policies\n"));
    for (variable, expected) in [
        ("other/own.yaml", "other/own.yaml: ok"),
        ("other/gone.yaml", "other/gone.yaml: cannot read"),
        ("", "tollgate.yaml: ok"),
    ] {
        let printed = checked(&folder, variable);
        assert!(printed.starts_with(expected), "{variable}: {printed}");
    }
    fs::remove_file(folder.path().join("tollgate.yaml")).unwrap();
    let printed = checked(&folder, "");
    assert!(printed.contains("config/tollgate.yaml: "), "{printed}");
}
