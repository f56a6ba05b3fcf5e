//! What the admin listener and the log report about Redis: which servers are away, who decides, and
//! whether the proxy is ready.

use std::net::SocketAddr;

use serde_json::Value;

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Cluster, Redis, Response, Shards, Upstream, eventually, get};

/// The program, with a user who asks and an operator who looks.
struct Served {
    running: Running,
    address: SocketAddr,
    admin: SocketAddr,
    token: String,
    folder: Folder,
}

impl Served {
    /// By so many workers, with this store, and an admin listener that says so when it is ready.
    fn start(upstream: &Upstream, workers: usize, store: &str, ready: &str) -> Served {
        let admin = format!("admin: {{ address: 127.0.0.1:0, ready: {{ store: {ready} }} }}");
        let settings = format!("{admin}\nstore: {{ {store} }}");
        let folder = Folder::with_settings(upstream, &settings);
        let file = std::fs::read_to_string(folder.path().join("tollgate.yaml")).unwrap();
        folder.write("tollgate.yaml", &file.replace("workers: 1", &format!("workers: {workers}")));
        let token = folder.token(&["--sub", "42"]);
        let (mut running, address) = Running::serve(&folder);
        let line = running.wait_for_event("admin listener is open");
        let admin = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
        Served { running, address, admin, token, folder }
    }

    fn ask(&self) -> Response {
        send(self.address, get("/").token(&self.token))
    }

    fn page(&self, path: &str) -> Response {
        send(self.admin, get(path).host("localhost"))
    }

    /// What `/status` reports about the store.
    fn store(&self) -> Value {
        self.page("/status").json()["store"].clone()
    }

    /// What `/status` reports about a server; none: the server is not listed there.
    fn server(&self, port: u16) -> Option<Value> {
        let store = self.store();
        let name = format!("127.0.0.1:{port}");
        let is_it = |server: &&Value| server["server"] == name.as_str();
        store["servers"].as_array().unwrap().iter().find(is_it).cloned()
    }

    /// Waits until a server is so.
    fn wait_until(&self, port: u16, role: &str, health: &str) -> Value {
        eventually(&format!("{port} is {health}"), || {
            let server = self.server(port)?;
            (server["role"] == role && server["health"] == health).then_some(server)
        })
    }

    fn has_metric(&self, series: &str, value: u64) -> bool {
        self.page("/metrics").text().contains(&format!("\n{series} {value}\n"))
    }

    fn assert_metric(&self, series: &str, value: u64) {
        let metrics = self.page("/metrics").text();
        assert!(metrics.contains(&format!("\n{series} {value}\n")), "{series} {value}\n{metrics}");
    }

    /// What `/readyz` answers, and why.
    fn readiness(&self) -> (u16, Vec<String>) {
        let response = self.page("/readyz");
        let json = response.json();
        assert_eq!(json["status"], "serving");
        let reasons = json["reasons"].as_array().cloned().unwrap_or_default();
        let text = |reason: &Value| reason.as_str().unwrap().to_owned();
        (response.status, reasons.iter().map(text).collect())
    }

    fn wait_until_ready(&self) {
        eventually("it is ready", || (self.readiness() == (200, vec![])).then_some(()));
    }

    /// What `tollgate status` prints.
    fn summary(&self) -> String {
        let output = self.folder.run(&["status", "--admin", &self.admin.to_string()]);
        assert_exit(&output, 0);
        text(&output.stdout).to_owned()
    }

    fn into_log(self) -> String {
        self.running.signal("TERM");
        let output = self.running.finish();
        assert_exit(&output, 0);
        text(&output.stderr).to_owned()
    }
}

fn up(store: &str, port: u16, role: &str) -> String {
    format!(
        "tollgate_store_server_up{{store=\"{store}\",server=\"127.0.0.1:{port}\",role=\"{role}\"}}"
    )
}

#[test]
fn server_that_is_gone_is_logged_once_and_shown_everywhere() {
    let upstream = Upstream::start();
    let redis = Redis::with().password("hunter2").start();
    let port = redis.port();
    let store = format!("redis: {{ url: redis://:hunter2@127.0.0.1:{port} }}, deadline: 10s");
    let served = Served::start(&upstream, 4, &store, "require");
    served.wait_until(port, "primary", "serving");
    served.wait_until_ready();
    served.assert_metric("tollgate_store_alone", 0);
    served.assert_metric("tollgate_ready", 1);
    served.assert_metric(&up("current", port, "primary"), 1);
    assert_eq!(served.store()["alone"].as_array().unwrap().len(), 0);

    redis.save();
    redis.kill();
    let server = served.wait_until(port, "primary", "away");
    assert!(server["last_error"].is_string(), "{server}");
    (0..8).for_each(|_| drop(served.ask()));
    served.assert_metric(&up("current", port, "primary"), 0);
    served.assert_metric("tollgate_store_alone", 1);
    served.assert_metric("tollgate_ready", 0);
    let (status, reasons) = served.readiness();
    assert_eq!((status, reasons.len()), (503, 1), "{reasons:?}");
    assert!(reasons[0].contains(&format!("127.0.0.1:{port} is away")), "{reasons:?}");
    let store = served.store();
    assert_eq!(store["alone"][0], reasons[0].as_str());
    assert_eq!(store["owed"], 1, "of the one caller: {store}");
    let summary = served.summary();
    for line in [
        &format!("redis 127.0.0.1:{port} of the current store: primary, away since 2"),
        "limits are decided without redis: redis at 127.0.0.1",
        "1 counters with charges not yet written to redis",
    ] {
        assert!(summary.contains(line), "{line}\n{summary}");
    }
    for page in ["/status", "/metrics", "/readyz"] {
        assert!(!served.page(page).text().contains("hunter2"), "{page}");
    }
    let listeners = "listeners: [{ address: 127.0.0.1:1 }]";
    let admin = format!("admin: {{ address: {} }}", served.admin);
    served.folder.write("asked.yaml", &format!("version: 1\n{listeners}\n{admin}\n"));
    let health = served.folder.run(&["health", "--config", "asked.yaml"]);
    assert_exit(&health, 1);
    assert!(text(&health.stderr).contains(&reasons[0]), "{health:?}");

    redis.restart();
    served.wait_until(port, "primary", "serving");
    served.wait_until_ready();
    eventually("redis decides", || served.has_metric("tollgate_store_alone", 0).then_some(()));
    eventually("it has all", || (served.store()["owed"] == 0).then_some(()));
    let log = served.into_log();
    for message in ["redis is away", "redis is back"] {
        assert_eq!(log.matches(message).count(), 1, "{message}\n{log}");
    }
    assert!(!log.contains("lets only some"), "{log}");
}

#[test]
fn proxy_is_ready_without_a_store_that_is_not_required() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let store = format!("redis: {{ {} }}, deadline: 10s", redis.settings());
    let served = Served::start(&upstream, 1, &store, "ignore");
    served.wait_until(redis.port(), "primary", "serving");
    redis.kill();
    served.wait_until(redis.port(), "primary", "away");
    assert_eq!(served.readiness(), (200, vec![]));
    served.assert_metric("tollgate_ready", 1);
    served.assert_metric("tollgate_store_alone", 1);
    served.ask().assert_status(200);
}

#[test]
fn server_that_hangs_is_found_without_a_request() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let store = format!("redis: {{ {} }}, deadline: 200ms", redis.settings());
    let served = Served::start(&upstream, 2, &store, "require");
    served.wait_until(redis.port(), "primary", "serving");
    redis.pause();
    served.wait_until(redis.port(), "primary", "away");
    assert_eq!(served.readiness().0, 503);
    let unanswered = &served.store()["unanswered"];
    assert_eq!(unanswered["timeout"], 0, "no request had to wait");
    redis.resume();
    served.wait_until(redis.port(), "primary", "serving");
    served.wait_until_ready();
}

#[test]
fn server_that_takes_no_charges_is_reported_until_it_does() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let port = redis.port();
    let store = format!("redis: {{ {} }}, deadline: 10s", redis.settings());
    let served = Served::start(&upstream, 1, &store, "require");
    served.ask().assert_status(200);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    eventually("it is reported", || {
        served.ask();
        let (status, reasons) = served.readiness();
        (status == 503 && reasons[0].contains("takes no charges")).then_some(())
    });
    served.assert_metric(&up("current", port, "primary"), 1);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    served.ask().assert_status(200);
    served.wait_until_ready();
}

#[test]
fn replica_that_is_gone_is_reported_and_no_request_is_affected() {
    let upstream = Upstream::start();
    let shards = Shards::start(2);
    let store = format!("redis: {{ {} }}, deadline: 10s", shards.settings());
    let served = Served::start(&upstream, 1, &store, "require");
    for shard in 0..2 {
        served.wait_until(shards.primary(shard).port(), "primary", "serving");
        served.wait_until(shards.replica(shard).port(), "replica", "serving");
    }
    let gone = shards.replica(1).port();
    shards.replica(1).kill();
    served.wait_until(gone, "replica", "away");
    served.assert_metric(&up("current", gone, "replica"), 0);
    served.assert_metric("tollgate_store_alone", 0);
    assert_eq!(served.readiness(), (200, vec![]));

    // Its primary follows: one shard of two decides nothing.
    let gone = shards.primary(1).port();
    shards.primary(1).kill();
    served.wait_until(gone, "primary", "away");
    assert_eq!(served.readiness().0, 503);
    served.assert_metric(&up("current", shards.primary(0).port(), "primary"), 1);
}

#[test]
fn replica_that_is_promoted_is_reported_as_primary() {
    let upstream = Upstream::start();
    let shards = Shards::start(1);
    let store = format!("redis: {{ {} }}, deadline: 10s", shards.settings());
    let served = Served::start(&upstream, 2, &store, "require");
    let old = shards.primary(0).port();
    let new = shards.replica(0).port();
    served.wait_until(old, "primary", "serving");
    served.wait_until(new, "replica", "serving");
    shards.primary(0).kill();
    shards.promote(0);
    served.wait_until(new, "primary", "serving");
    served.wait_until(old, "replica", "away");
    served.wait_until_ready();

    // Who explains a request begins with what the settings say, and changes nothing.
    let admin = served.admin.to_string();
    served.folder.run(&["explain", "--admin", &admin, "GET", "/"]);
    let [new, old] = [new, old].map(|port| served.server(port).unwrap()["role"].clone());
    assert_eq!((new, old), ("primary".into(), "replica".into()));
    assert_eq!(served.readiness(), (200, vec![]));
}

#[test]
fn servers_of_a_cluster_are_reported_with_their_roles() {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let store = format!("redis: {{ {} }}, deadline: 10s", cluster.settings());
    let served = Served::start(&upstream, 1, &store, "ignore");
    let roles = |role: &str| {
        let servers = served.store()["servers"].clone();
        let is_so = |it: &&Value| it["role"] == role && it["health"] == "serving";
        servers.as_array().unwrap().iter().filter(is_so).count()
    };
    eventually("all are known", || {
        ([roles("primary"), roles("replica"), roles("unknown")] == [3, 3, 0]).then_some(())
    });
}

#[test]
fn next_store_that_does_not_answer_is_reported_and_does_not_count() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let store = format!(
        "current: {{ memory: {{}} }}, next: {{ redis: {{ {} }} }}, percent: 100, mode: mirror, \
         deadline: 10s",
        redis.settings()
    );
    let mut served = Served::start(&upstream, 1, &store, "require");
    served.wait_until(redis.port(), "primary", "serving");
    served.assert_metric("tollgate_store_move_percent{mode=\"mirror\"}", 100);
    served.assert_metric("tollgate_store_move_percent{mode=\"move\"}", 0);
    served.ask().assert_status(200);
    eventually("it is mirrored", || {
        served.has_metric("tollgate_store_mirrored_total", 1).then_some(())
    });
    served.assert_metric("tollgate_store_unmirrored_total", 0);

    redis.save();
    redis.kill();
    served.wait_until(redis.port(), "primary", "away");
    served.assert_metric(&up("next", redis.port(), "primary"), 0);
    served.ask().assert_status(200);
    eventually("it is reported", || (served.store()["unmirrored"] == 1).then_some(()));
    let line = served.running.wait_for_event("the next store did not respond");
    assert!(line.contains("decisions=1"), "{line}");
    // The present store decides.
    assert_eq!(served.readiness(), (200, vec![]));
    served.assert_metric("tollgate_store_alone", 0);
    assert_eq!(served.store()["mode"], "mirror");
    assert!(served.summary().contains("100 % of the callers to redis (mirror)"));

    // Once it is to decide, it counts.
    let file = served.folder.path().join("tollgate.yaml");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, settings.replace("mode: mirror", "mode: move_now")).unwrap();
    served.running.wait_for_event("callers move to the next store");
    assert_eq!(served.readiness().0, 503);
    served.assert_metric("tollgate_store_alone", 1);
    redis.restart();
    served.wait_until_ready();
}
