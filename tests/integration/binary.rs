//! The program as its users start it: real files, real signals, exit codes, and what it prints.

mod access_log;
mod admin;
mod admin_access;
mod callers;
mod certificates;
mod check;
mod commands;
mod decisions;
mod demo;
mod descriptors;
mod diff;
mod disk;
mod draining;
mod event_floods;
mod events;
mod explain;
mod fleet;
mod handover;
mod health;
mod ignored_chain;
mod import;
mod init;
mod key;
mod key_rotation;
mod literal_secrets;
mod metrics;
mod moving;
mod packaging;
mod ranking;
mod rehearsals;
mod reload;
mod restart;
mod run;
mod running;
mod settings_places;
mod store;
mod store_health;
mod tenants;
mod token;
mod traces;
mod tutorial;
mod unfit_claims;
mod unread_scheme;

use std::{fs, net::SocketAddr, path::Path, process::Output};

use tempfile::TempDir;

pub(crate) use self::commands::PROGRAMS;
use self::running::Running;
use crate::support::{Client, Request, Response, SECRET, Upstream};

/// A folder with settings, one policy and a secret.
struct Folder(TempDir);

impl Folder {
    fn before(upstream: &Upstream) -> Folder {
        Folder::with_settings(upstream, "")
    }

    /// With these lines in the settings file.
    fn with_settings(upstream: &Upstream, settings: &str) -> Folder {
        let folder = Folder(TempDir::new().unwrap());
        let listeners = "listeners: [{ address: 127.0.0.1:0 }]";
        folder
            .write("tollgate.yaml", &format!("version: 1\n{listeners}\nworkers: 1\n{settings}\n"));
        folder.write("secret", SECRET);
        folder.write("policies/api.yaml", &POLICY.replace("UPSTREAM", &upstream.url()));
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, content: &str) {
        let file = self.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    /// Runs a command to its end in this folder.
    fn run(&self, arguments: &[&str]) -> Output {
        Running::start(self, arguments).finish()
    }

    /// Mints a token with the folder's secret, also one that its policy would refuse.
    fn token(&self, arguments: &[&str]) -> String {
        let mut all = vec!["token", "--secret-file", "secret"];
        for (name, value) in [("--issuer", "https://id.example.com/"), ("--audience", "api")] {
            if !arguments.contains(&name) {
                all.extend([name, value]);
            }
        }
        let output = self.run(&[&all[..], arguments].concat());
        let token = text(&output.stdout).trim_end();
        assert!(!token.is_empty(), "{output:#?}");
        token.to_owned()
    }
}

const POLICY: &str = "\
version: 1
upstreams: { api: { servers: [\"UPSTREAM\"] } }
identity:
  jwt:
    - issuer: https://id.example.com/
      audience: [api]
      algorithms: [HS256]
      secret_file: ../secret
  callers:
    - { name: user, key: jwt.sub, tier: jwt.plan }
tiers: { default: free, names: [free, pro] }
limits:
  core: { per: caller, rate: { free: 10/hour, pro: 20/hour } }
routes:
  - { match: { path: /** }, auth: required, limits: [core] }
";

fn send(address: SocketAddr, request: Request) -> Response {
    Client::connect(address).send(&request)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{output:#?}");
}

#[test]
fn help_of_each_command_says_what_it_does() {
    let folder = Folder::before(&Upstream::start());
    for (arguments, expected) in [
        (
            &["--help"][..],
            &["Usage: tollgate <COMMAND>", "demo", "run", "check", "health", "status", "token"][..],
        ),
        (&["run", "--help"], &["--config <FILE>", "TOLLGATE_CONFIG", "SIGTERM"]),
        (&["check", "--help"], &["[PATH]", "TOLLGATE_CONFIG", "Exits with 0"]),
        (&["explain", "--help"], &["--admin <HOST:PORT>", "--claims <JSON>", "Nothing is charged"]),
        (&["health", "--help"], &["--config <FILE>", "--address <HOST:PORT>", "Exits with 0"]),
        (&["token", "--help"], &["--private-key", "--secret-file", "--sub", "Authorization"]),
        (&["jwks", "--help"], &["<FILE>...", "--algorithm <ALG>", "thumbprint"]),
        (&["key", "--help"], &["--id", "--secret-stdin", "--append <FILE>", "digest"]),
        (&["demo", "--help"], &["--listen", "Ctrl-C"]),
    ] {
        let output = folder.run(arguments);
        assert_exit(&output, 0);
        for expected in expected {
            let help = text(&output.stdout);
            assert!(help.contains(expected), "{expected} is not in\n{help}");
        }
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn unknown_command_exits_with_64_and_the_usage() {
    let folder = Folder::before(&Upstream::start());
    for arguments in [&[][..], &["serve"], &["run", "--colour"]] {
        let output = folder.run(arguments);
        assert_exit(&output, 64);
        assert!(text(&output.stderr).contains("Usage: tollgate"), "{output:#?}");
    }
}
