//! Configurations that change while the program runs: each way of changing a file, what is refused,
//! and what goes on meanwhile.

mod files;
mod in_flight;
mod keys;
mod load;
mod refused;
mod settings;

use std::{fs, net::SocketAddr};

use serde_json::Value;

use super::{Folder, Running, send};
use crate::support::{Request, Response, Upstream, eventually, get, post};

/// Only the system's file events report changes.
const EVENTS: &str = "poll: 1h, quiet: 20ms";
/// Only polling finds changes.
const POLL: &str = "poll: 100ms, quiet: 20ms, events: false";
/// Nothing finds changes within the time of a test, so a reload has to be requested.
const ON_REQUEST: &str = "poll: 1h, quiet: 20ms, events: false";

/// The program at work, with an admin listener.
struct Served {
    running: Running,
    address: SocketAddr,
    admin: SocketAddr,
    token: String,
    folder: Folder,
}

impl Served {
    /// Follows its files in this way.
    fn start(upstream: &Upstream, reload: &str) -> Served {
        Served::from(folder(upstream, reload))
    }

    fn from(folder: Folder) -> Served {
        let token = folder.token(&["--sub", "42"]);
        let (mut running, address) = Running::serve(&folder);
        let line = running.wait_for_event("admin listener is open");
        let admin = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
        Served { running, address, admin, token, folder }
    }

    fn ask(&self) -> Response {
        send(self.address, get("/").token(&self.token))
    }

    /// How much the user may ask in an hour.
    fn limit(&self) -> u64 {
        self.ask().number("x-ratelimit-limit")
    }

    /// Waits until that is so.
    fn wait_for_limit(&self, limit: u64, what: &str) {
        eventually(what, || (self.limit() == limit).then_some(()));
    }

    fn ask_admin(&self, request: Request) -> Response {
        send(self.admin, request.host("127.0.0.1"))
    }

    fn status(&self) -> Value {
        self.ask_admin(get("/status")).assert_status(200).json()
    }

    fn generation(&self) -> u64 {
        self.status()["generation"].as_u64().unwrap()
    }

    /// Has it read everything now.
    fn reload(&self) -> Response {
        self.ask_admin(post("/reload", "").field("x-tollgate-action", "1"))
    }

    fn policy(&self) -> String {
        fs::read_to_string(self.folder.path().join("policies/api.yaml")).unwrap()
    }
}

/// What a program is started in. Users may ask a thousand times in an hour.
fn folder(upstream: &Upstream, reload: &str) -> Folder {
    let settings = format!("admin: {{ address: 127.0.0.1:0 }}\nreload: {{ {reload} }}");
    let folder = Folder::with_settings(upstream, &settings);
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    fs::write(file, with_limit(&policy, 1000)).unwrap();
    folder
}

/// The policy with another limit of users.
fn with_limit(policy: &str, limit: u64) -> String {
    let (before, rest) = policy.split_once("{ free: ").unwrap();
    let (_, after) = rest.split_once("/hour").unwrap();
    format!("{before}{{ free: {limit}/hour{after}")
}
