//! What packages ship beside the binary: completions for shells, and the manual.

use std::{collections::BTreeSet, fs, io::Write, process::Command};

use super::{Folder, assert_exit, text};
use crate::{docs::Page, support::Upstream};

/// The commands, as `--help` lists them.
fn commands(folder: &Folder) -> BTreeSet<String> {
    commands_of(folder, &[])
}

/// The commands of a command; none: it has none.
fn commands_of(folder: &Folder, command: &[&str]) -> BTreeSet<String> {
    let help = folder.run(&[command, &["--help"]].concat());
    let (_, list) = text(&help.stdout).split_once("Commands:\n").unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

fn folder() -> Folder {
    Folder::before(&Upstream::start())
}

/// What bash completes a line of these words to, by the script of `tollgate completions bash`.
fn completed_by_bash(script: &[u8], words: &[&str]) -> BTreeSet<String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(script).unwrap();
    let last = words.len() - 1;
    let line = format!(
        "source {file}; COMP_WORDS=({words}); COMP_CWORD={last}; \
         _tollgate tollgate '{word}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        file = file.path().display(),
        words = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        word = words[last],
        before = words[last - 1],
    );
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert!(output.status.success(), "{output:#?}");
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_description_and_a_place_in_the_docs() {
    let folder = folder();
    let list = folder.run(&["--help"]);
    let pages: String = Page::all().into_iter().map(|page| page.text).collect();
    for command in commands(&folder) {
        let of_command = |line: &&str| line.trim_start().starts_with(&format!("{command} "));
        let line = text(&list.stdout).lines().find(of_command).unwrap_or_default();
        let description = line.trim_start().strip_prefix(&command).unwrap_or_default().trim();
        assert!(!description.is_empty(), "`tollgate --help` does not describe {command}");
        let help = folder.run(&[&command, "--help"]);
        assert_exit(&help, 0);
        let help = text(&help.stdout);
        assert!(!help.starts_with("Usage"), "`tollgate {command} --help` has no description");
        let is_named = [format!("tollgate {command}"), format!("--release -- {command}")]
            .iter()
            .any(|name| pages.contains(name));
        assert!(is_named, "no page of docs/ names `tollgate {command}`");
    }
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let folder = folder();
    let script = folder.run(&["completions", "bash"]);
    assert_exit(&script, 0);
    let completed = |words: &[&str]| completed_by_bash(&script.stdout, words);

    let all = completed(&["tollgate", ""]);
    for command in commands(&folder) {
        assert!(all.contains(&command), "{command} is not among {all:?}");
    }
    assert_eq!(completed(&["tollgate", "chec"]), BTreeSet::from(["check".into()]));
    assert_eq!(completed(&["tollgate", "check", "--form"]), BTreeSet::from(["--format".into()]));
    assert_eq!(completed(&["tollgate", "schema", "pol"]), BTreeSet::from(["policy".into()]));
}

#[test]
fn completions_of_every_shell_name_every_command() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.run(&["completions", shell]);
        assert_exit(&script, 0);
        for command in commands(&folder) {
            assert!(text(&script.stdout).contains(&command), "{shell} does not know {command}");
        }
    }
    let unknown = folder.run(&["completions", "csh"]);
    assert_exit(&unknown, 64);
    assert!(text(&unknown.stderr).contains("possible values: bash, zsh, fish"), "{unknown:#?}");
}

#[test]
fn manual_has_a_page_for_the_program_and_for_each_command() {
    let folder = folder();
    let page = folder.run(&["man"]);
    assert_exit(&page, 0);
    for command in commands(&folder) {
        let name = format!("tollgate\\-{command}(1)");
        assert!(text(&page.stdout).contains(&name), "{name} is not in the program's page");
        let page = folder.run(&["man", &command]);
        assert_exit(&page, 0);
        assert!(text(&page.stdout).starts_with(".ie \\n(.g"), "{command} has no page of roff");
        assert!(text(&page.stdout).contains(&format!(".TH tollgate-{command} 1")), "{page:#?}");
    }

    assert_exit(&folder.run(&["man", "--all", "manual"]), 0);
    let written = fs::read_dir(folder.path().join("manual")).unwrap();
    let written: BTreeSet<String> =
        written.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut expected = BTreeSet::from(["tollgate.1".to_owned()]);
    for command in commands(&folder) {
        let nested = commands_of(&folder, &[&command]);
        expected.extend(nested.iter().map(|nested| format!("tollgate-{command}-{nested}.1")));
        expected.insert(format!("tollgate-{command}.1"));
    }
    assert_eq!(written, expected);

    let unknown = folder.run(&["man", "nope"]);
    assert_exit(&unknown, 64);
    assert!(text(&unknown.stderr).contains("there is no command `nope`"), "{unknown:#?}");
}
