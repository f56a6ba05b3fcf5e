//! The tutorial, followed from top to bottom in an empty folder.

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    process::{Child, Command, Output, Stdio},
};

use tempfile::TempDir;

use super::{Folder, Running, commands::blocks, commands::sh, text};
use crate::docs::Page;

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the page's addresses are here.
struct Followed {
    folder: Folder,
    addresses: Vec<(&'static str, String)>,
    site: Option<Ended>,
    proxy: Option<Running>,
}

impl Followed {
    fn here(&self, text: &str) -> String {
        let replace = |text: String, (page, own): &(&str, String)| text.replace(page, own);
        self.addresses.iter().fold(text.to_owned(), replace)
    }

    /// Writes the fenced blocks of YAML: settings, and a policy.
    fn write_files(&self, page: &str) {
        let fences: Vec<&str> = page.split("```yaml ").skip(1).collect();
        for (fence, name) in fences.iter().zip(["tollgate.yaml", "policies/api.yaml"]) {
            let (_, content) = fence.split_once('\n').unwrap();
            let content = self.here(content.split("```").next().unwrap());
            let content = content.replace("127.0.0.1:8080", "127.0.0.1:0");
            self.folder.write(name, &content.replace("127.0.0.1:9901", "127.0.0.1:0"));
        }
    }

    /// Serves the folder `site`, as the page's command does.
    fn serve_site(&mut self) {
        let mut python = Command::new("python3");
        python.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", "site"]);
        python.current_dir(self.folder.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut python = Ended(python.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(python.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.split(" port ").nth(1).unwrap().split(' ').next().unwrap();
        self.addresses.push(("127.0.0.1:9000", format!("127.0.0.1:{port}")));
        self.site = Some(python);
    }

    fn run_proxy(&mut self) {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        program.arg("run");
        let (mut running, address) = Running::serve_by(&self.folder, program);
        let line = running.wait_for_event("admin listener is open");
        let admin = line.split("address=").nth(1).unwrap().trim().to_owned();
        // They are fetched beside the rest, and may have come before.
        running.wait_for_event_or_seen("an issuer's keys have changed");
        self.addresses.push(("127.0.0.1:8080", address.to_string()));
        // Commands find it by the settings, which have no port here.
        for command in ["tollgate look", "tollgate reset", "tollgate reload"] {
            self.addresses.push((command, format!("{command} --admin {admin}")));
        }
        self.proxy = Some(running);
    }

    fn run(&self, script: &str) -> Output {
        let output = sh(&self.folder, &self.here(script));
        assert!(output.status.success(), "{script}: {output:#?}");
        output
    }
}

#[test]
fn tutorial_does_what_it_says() {
    let page = Page::read("docs/tutorial.md").text;
    let folder = Folder(TempDir::new().unwrap());
    std::fs::create_dir(folder.path().join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_tollgate"), folder.path().join("bin/tollgate")).unwrap();
    let mut followed = Followed { folder, addresses: Vec::new(), site: None, proxy: None };
    let mut rest = page.as_str();
    let mut shown = 0;
    for block in blocks(&page) {
        let mut printed = String::new();
        let mut script = String::new();
        for line in block.lines() {
            match line {
                _ if line.starts_with("python3 -m http.server ") => {
                    printed += text(&followed.run(&script).stdout);
                    script.clear();
                    followed.serve_site();
                    followed.write_files(&page);
                }
                "tollgate run &" => {
                    printed += text(&followed.run(&script).stdout);
                    script.clear();
                    followed.run_proxy();
                }
                _ => script += &format!("{line}\n"),
            }
        }
        printed += text(&followed.run(&script).stdout);
        let last = block.trim_end().lines().last().unwrap();
        let (_, behind) = rest.split_once(last).unwrap();
        rest = behind;
        if let Some(expected) = behind.trim_start().strip_prefix("```text\n") {
            for line in expected.split("```").next().unwrap().lines() {
                let begins = line.split('…').next().unwrap();
                let is_there = printed.lines().any(|own| own.starts_with(begins));
                assert!(is_there, "{line} is not in\n{printed}");
                shown += 1;
            }
        }
        if block.contains("tollgate look") {
            assert!(printed.contains("100/minute (pro): 1 of 100 used, 99 left"), "{printed}");
            assert!(printed.contains("reset anonymous:127.0.0.1: api/core"), "{printed}");
        }
        if block.contains("tollgate explain") {
            assert!(printed.contains("50/minute"), "{printed}");
        }
    }
    assert!(shown >= 10, "{shown}");
}
