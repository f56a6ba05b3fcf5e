//! The guide to replacing keys, step by step: tokens of the old key and of the new one stay valid.

use std::{fs, net::SocketAddr, path::Path};

use super::{
    Folder, Running,
    commands::{blocks, commands, folder, section, sh},
    send, text,
};
use crate::support::{Upstream, eventually, get};

/// A proxy whose issuer has one key, and those who follow the guide.
struct Rotation {
    folder: Folder,
    address: SocketAddr,
    admin: String,
    _running: Running,
    _upstream: Upstream,
}

impl Rotation {
    /// The issuer's keys are in a file: `keys` is the line of the policy, `make` the command that
    /// makes the file of `old.pub`.
    fn start(keys: &str, make: &str) -> Rotation {
        let upstream = Upstream::start();
        let folder = folder();
        let edit = |name: &str, old: &str, new: &str| {
            let file = folder.path().join(name);
            let content = fs::read_to_string(&file).unwrap();
            assert!(content.contains(old), "{old} is not in {name}");
            fs::write(file, content.replace(old, new)).unwrap();
        };
        edit(
            "config/tollgate.yaml",
            "  - { address: 127.0.0.1:8080 }",
            "  - { address: 127.0.0.1:0 }\nadmin: { address: 127.0.0.1:0 }\nreload: { quiet: 20ms }",
        );
        edit("config/policies/api.yaml", "http://127.0.0.1:9000", &upstream.url());
        edit("config/policies/api.yaml", "      algorithms: [EdDSA]\n", "");
        edit("config/policies/api.yaml", "public_key_file: ../keys/public.pem", keys);
        for command in [
            "openssl genpkey -algorithm ed25519 -out old.pem",
            "openssl pkey -in old.pem -pubout -out old.pub",
            make,
        ] {
            run(&folder, command);
        }
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
        program.arg("run");
        let (mut running, address) = Running::serve_by(&folder, program);
        let line = running.wait_for_event("admin listener is open");
        let admin = line.split("address=").nth(1).unwrap().trim().to_owned();
        Rotation { folder, address, admin, _running: running, _upstream: upstream }
    }

    /// Runs a command of the guide. A file that was moved is in force afterwards.
    fn follow(&self, command: &str) -> String {
        let before = self.generation();
        let printed = run(&self.folder, &command.replace("127.0.0.1:9901", &self.admin));
        if command.starts_with("mv ") {
            eventually("the file is read", || (self.generation() > before).then_some(()));
        }
        printed
    }

    fn generation(&self) -> u64 {
        let request = get("/status").host("127.0.0.1");
        let status = send(self.admin.parse().unwrap(), request).json();
        assert_eq!(status["refused"], serde_json::Value::Null, "{status}");
        status["generation"].as_u64().unwrap()
    }

    fn token(&self, key: &str) -> String {
        run(&self.folder, &format!("tollgate token --private-key {key} --sub 42"))
    }

    fn status(&self, token: &str) -> u16 {
        send(self.address, get("/user").token(token.trim())).status
    }
}

fn run(folder: &Folder, command: &str) -> String {
    let output = sh(folder, command);
    assert!(output.status.success(), "{command}: {output:#?}");
    text(&output.stdout).to_owned()
}

/// The commands of a section of the guide.
fn guide(title: &str) -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/key-rotation.md");
    let section = section(&fs::read_to_string(guide).unwrap(), title);
    let commands = blocks(&section).into_iter().flat_map(|block| commands(&block));
    commands.map(|(command, _)| command).collect()
}

#[test]
fn keys_of_a_set_are_replaced_without_a_401() {
    let make = "tollgate jwks old.pub > config/keys/jwks.json";
    let rotation = Rotation::start("jwks_file: ../keys/jwks.json", make);
    let mut tokens = vec![rotation.token("old.pem")];
    let guide = guide("Keys in a file: `jwks_file`");
    assert_eq!(guide.len(), 8, "{guide:?}");
    for command in &guide {
        let printed = rotation.follow(command);
        if command.starts_with("tollgate token") {
            tokens.push(printed);
        }
        if !command.ends_with("jwks.json") || tokens.len() == 1 {
            let statuses: Vec<u16> = tokens.iter().map(|token| rotation.status(token)).collect();
            assert_eq!(statuses, vec![200; tokens.len()], "after {command}");
        }
    }
    let statuses = tokens.iter().map(|token| rotation.status(token)).collect::<Vec<_>>();
    assert_eq!(statuses, [401, 200], "the old key was removed by the last command");
}

#[test]
fn keys_of_two_algorithms_in_one_file_are_replaced_without_a_401() {
    let make = "cp old.pub config/keys/public.pem";
    let rotation = Rotation::start("public_key_file: ../keys/public.pem", make);
    let old = rotation.token("old.pem");
    let new = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out new.pem";
    run(&rotation.folder, new);
    run(&rotation.folder, "openssl pkey -in new.pem -pubout -out new.pub");
    for command in guide("Keys in a file: `public_key_file`") {
        rotation.follow(&command);
        assert_eq!(rotation.status(&old), 200, "after {command}");
    }
    let new = rotation.token("new.pem");
    assert_eq!([rotation.status(&old), rotation.status(&new)], [200, 200]);
    rotation.follow("cp new.pub config/keys/public.pem.new");
    rotation.follow("mv config/keys/public.pem.new config/keys/public.pem");
    assert_eq!([rotation.status(&old), rotation.status(&new)], [401, 200]);
}
