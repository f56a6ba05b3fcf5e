//! Counters in Redis, as who runs the program sees it: what it logs, and callers who are moved by
//! an edit of the settings file.

use std::net::SocketAddr;

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Redis, Response, Shards, Upstream, eventually, get};

/// The program, with a user who asks.
struct Served {
    running: Running,
    address: SocketAddr,
    token: String,
    folder: Folder,
}

impl Served {
    fn with_store(upstream: &Upstream, store: &str) -> Served {
        let folder = Folder::with_settings(upstream, &format!("store: {{ {store} }}"));
        let token = folder.token(&["--sub", "42"]);
        let (running, address) = Running::serve(&folder);
        Served { running, address, token, folder }
    }

    fn ask(&self) -> Response {
        send(self.address, get("/").token(&self.token))
    }

    /// What the user has used after one more request.
    fn used(&self) -> u64 {
        self.ask().number("x-ratelimit-used")
    }

    /// Changes a part of the settings.
    fn edit(&self, from: &str, to: &str) {
        let file = self.folder.path().join("tollgate.yaml");
        let settings = std::fs::read_to_string(&file).unwrap();
        assert!(settings.contains(from), "{settings}");
        std::fs::write(file, settings.replace(from, to)).unwrap();
    }

    /// Stops the program and returns its log.
    fn into_log(self) -> String {
        self.running.signal("TERM");
        let output = self.running.finish();
        assert_exit(&output, 0);
        text(&output.stderr).to_owned()
    }
}

/// The numbers under this name in lines with this message.
fn numbers(log: &str, message: &str, name: &str) -> Vec<u64> {
    let number = |line: &str| {
        let number = line.split(&format!("{name}=")).nth(1)?;
        number.split(' ').next()?.parse().ok()
    };
    log.lines().filter(|line| line.contains(message)).filter_map(number).collect()
}

#[test]
fn callers_move_when_the_settings_file_says_so() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let store = format!(
        "current: {{ memory: {{}} }}, next: {{ redis: {{ {} }} }}, percent: 0, mode: move, \
         deadline: 10s, fallback_header: true",
        redis.settings()
    );
    let mut served = Served::with_store(&upstream, &store);
    let first = served.ask();
    assert_eq!([served.used(), served.used()], [2, 3]);
    assert_eq!(redis.counters().len(), 0);

    served.edit("percent: 0", "percent: 100");
    let line = served.running.wait_for_event("callers move to the next store");
    assert!(line.contains("percent=100"), "{line}");
    let moved = served.ask();
    moved.assert_status(200).assert_no_field("x-tollgate-store");
    moved.assert_field("x-ratelimit-used", "4");
    assert_eq!(moved.field("x-ratelimit-reset"), first.field("x-ratelimit-reset"));
    assert_eq!(redis.counters().len(), 1);

    // What cannot be read changes nothing.
    served.edit("percent: 100", "percent: 200");
    served.running.wait_for_event("what was in force stays");
    assert_eq!(served.used(), 5);
    served.edit("percent: 200", "percent: 0");
    served.running.wait_for_event("callers move to the next store");
    let back = served.ask();
    back.assert_status(200).assert_no_field("x-tollgate-store");
    assert!(back.number("x-ratelimit-used") >= 4, "{back:?}");
    assert_eq!(back.field("x-ratelimit-reset"), first.field("x-ratelimit-reset"));
    served.into_log();
}

#[test]
fn log_tells_that_the_next_store_would_decide_otherwise() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let store = format!(
        "current: {{ memory: {{}} }}, next: {{ redis: {{ {} }} }}, percent: 100, mode: mirror, \
         deadline: 10s",
        redis.settings()
    );
    let mut served = Served::with_store(&upstream, &store);
    for used in 1..=10 {
        assert_eq!(served.used(), used);
    }
    eventually("the next store has counted", || (redis.counters().len() == 1).then_some(()));
    // It forgets, and lets pass what the present one does not.
    redis.command(&["FLUSHALL"]);
    served.ask().assert_status(429);
    let line = served.running.wait_for_event("the next store would decide otherwise");
    assert!(line.contains("disagreed=1"), "{line}");
    served.into_log();
}

#[test]
fn log_tells_that_redis_is_away_and_how_many_it_did_not_decide() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let mut served =
        Served::with_store(&upstream, &format!("redis: {{ {} }}, deadline: 10s", redis.settings()));
    assert_eq!(served.used(), 1);
    redis.save();
    redis.kill();
    for used in 2..=9 {
        assert_eq!(served.used(), used);
    }
    let line = served.running.wait_for_event("redis is away");
    assert!(line.contains(&format!("server=127.0.0.1:{}", redis.port())), "{line}");
    let mut decisions = 0;
    while decisions < 8 {
        let line = served.running.wait_for_event("redis did not decide");
        decisions += numbers(&line, "redis did not decide", "decisions")[0];
    }
    assert_eq!(decisions, 8, "each decision is logged once");
    redis.restart();
    served.running.wait_for_event("redis is back");
    assert_eq!(served.used(), 10, "with what was admitted without it");
    let log = served.into_log();
    assert_eq!(log.matches("redis is away").count(), 1, "{log}");
}

#[test]
fn errors_of_redis_are_logged_at_a_bounded_rate() {
    const REQUESTS: u64 = 200;
    let upstream = Upstream::start();
    let redis = Redis::start();
    let mut served =
        Served::with_store(&upstream, &format!("redis: {{ {} }}, deadline: 10s", redis.settings()));
    assert_eq!(served.used(), 1);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let begun = std::time::Instant::now();
    for _ in 0..REQUESTS {
        served.ask();
    }
    let line = served.running.wait_for_event("redis refused");
    assert!(line.contains("OOM"), "{line}");
    let mut decisions = 0;
    while decisions < REQUESTS {
        let line = served.running.wait_for_event("redis did not decide");
        decisions += numbers(&line, "redis did not decide", "decisions")[0];
    }
    let seconds = begun.elapsed().as_secs() as usize;
    assert_eq!(decisions, REQUESTS);
    let log = served.into_log();
    assert!(log.matches("redis refused").count() <= seconds + 2, "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

/// That the log says what is wrong with a server which does not write.
fn find_replica_in_log(deadline: &str) {
    let upstream = Upstream::start();
    let primary = Redis::start();
    let replica = Redis::with().replica_of(primary.port()).start();
    let store = format!("redis: {{ {} }}, deadline: {deadline}", replica.settings());
    let mut served = Served::with_store(&upstream, &store);
    for used in 1..=10 {
        assert_eq!(served.used(), used);
    }
    let line = served.running.wait_for_event("redis refused");
    assert!(line.contains("READONLY"), "{line}");
    served.into_log();
}

#[test]
fn log_tells_of_a_replica_in_place_of_a_primary() {
    find_replica_in_log("25ms");
}

#[test]
fn log_tells_of_it_however_long_a_decision_may_take() {
    find_replica_in_log("1s");
}

#[test]
fn no_password_is_ever_logged() {
    let upstream = Upstream::start();
    let redis = Redis::with().password("what the server wants").start();
    let host = format!("127.0.0.1:{}", redis.port());
    for settings in [
        format!("url: redis://:hunter2@{host}"),
        format!("url: redis://nobody:hunter2@{host}"),
        format!("url: redis://{host}, password_file: password"),
        format!("url: redis://{host}, username: nobody, password_file: password"),
    ] {
        let folder = Folder::with_settings(
            &upstream,
            &format!("store: {{ redis: {{ {settings} }}, deadline: 1s }}"),
        );
        folder.write("password", "hunter2\n");
        let token = folder.token(&["--sub", "42"]);
        let (running, address) = Running::serve(&folder);
        let mut served = Served { running, address, token, folder };
        assert_eq!(served.used(), 1, "{settings}");
        let line = served.running.wait_for_event("redis is away");
        eprintln!("{line}");
        let log = served.into_log();
        assert!(!log.contains("hunter2"), "{settings}:\n{log}");
    }
}

#[test]
fn password_in_a_file_is_changed_without_a_restart() {
    let upstream = Upstream::start();
    let redis = Redis::with().user("proxy", "first").start();
    let store = format!(
        "redis: {{ url: \"redis://127.0.0.1:{}\", username: proxy, password_file: password }}, \
         deadline: 10s, fallback_header: true",
        redis.port()
    );
    let folder = Folder::with_settings(&upstream, &format!("store: {{ {store} }}"));
    let password = folder.path().join("password");
    std::fs::write(&password, "first").unwrap();
    let token = folder.token(&["--sub", "42"]);
    let (running, address) = Running::serve(&folder);
    let mut served = Served { running, address, token, folder };
    assert_eq!(served.used(), 1);

    redis.command(&["ACL", "SETUSER", "proxy", "resetpass", ">second"]);
    std::fs::write(&password, "second").unwrap();
    served.running.wait_for_event("new connections to redis use other credentials");
    // Those that are there are not cut, and the next one is let in.
    redis.command(&["CLIENT", "KILL", "USER", "proxy"]);
    eventually("redis decides again", || {
        let answer = served.ask();
        (answer.field("x-tollgate-store").is_none() && answer.number("x-ratelimit-used") > 1)
            .then_some(())
    });
    let log = served.into_log();
    assert!(!log.contains("first") && !log.contains("second"), "{log}");
}

#[test]
fn command_that_a_redis_user_may_not_run_is_named() {
    let upstream = Upstream::start();
    let user =
        ["tollgate", "on", ">secret", "~tollgate:*", "+@all", "-time", "-getrange", "-setrange"];
    let redis = Redis::with().set("user", &user).start();
    let store = format!(
        "redis: {{ url: \"redis://tollgate:secret@127.0.0.1:{}\" }}, deadline: 10s",
        redis.port()
    );
    let folder = Folder::with_settings(&upstream, &format!("store: {{ {store} }}"));
    let token = folder.token(&["--sub", "42"]);
    let (mut running, address) = Running::serve(&folder);
    send(address, get("/").token(&token)).assert_status(200);
    let line = running.wait_for_event("redis refused");
    assert!(line.contains("the Redis user may not run TIME (docs/redis.md has all"), "{line}");
}

#[test]
fn redis_that_does_not_let_a_secret_be_kept_is_logged_once_with_what_to_do() {
    let upstream = Upstream::start();
    // It may do everything to counters, and nothing to the secret beside them.
    let user = ["tollgate", "on", ">secret", "~tollgate:{*", "+@all"];
    let redis = Redis::with().set("user", &user).start();
    let store = format!(
        "redis: {{ url: \"redis://tollgate:secret@127.0.0.1:{}\" }}, deadline: 10s",
        redis.port()
    );
    let served = Served::with_store(&upstream, &store);
    assert_eq!([served.used(), served.used()], [1, 2]);
    assert_eq!(redis.counters().len(), 1);
    let log = served.into_log();
    let logged: Vec<&str> = log.lines().filter(|line| line.contains("key secret")).collect();
    assert_eq!(logged.len(), 1, "{log}");
    for part in ["tollgate:key-secret", "NOPERM", "key_secret_env", "not shared"] {
        assert!(logged[0].contains(part), "{part} is not in {}", logged[0]);
    }
}

#[test]
fn secret_that_redis_keeps_is_logged_once_without_its_value() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    for _ in 0..2 {
        let served = Served::with_store(&upstream, &format!("redis: {{ {} }}", redis.settings()));
        let log = served.into_log();
        assert_eq!(log.matches("redis keeps the key secret").count(), 1, "{log}");
        let secret: String = redis.ask(&["GET", "tollgate:key-secret"]);
        assert!(!log.contains(&secret), "{log}");
    }
}

#[test]
fn difference_of_clocks_is_reported() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let server = format!("127.0.0.1:{}", redis.port());
    for (clock, counts) in [("redis", "redis"), ("proxy", "proxy")] {
        let settings = format!(
            "admin: {{ address: 127.0.0.1:0 }}\nstore: {{ redis: {{ {}, clock: {clock} }} }}",
            redis.settings()
        );
        let folder = Folder::with_settings(&upstream, &settings);
        let (mut running, _) = Running::serve(&folder);
        let line = running.wait_for_event("admin listener is open");
        let admin = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
        let ask = |path: &str| send(admin, get(path).host("localhost"));
        let reported = eventually("the clocks were compared", || {
            ask("/status").json()["store"]["clocks"].get(0).cloned()
        });
        assert_eq!(
            (&reported["server"], &reported["clock"]),
            (&server.as_str().into(), &counts.into())
        );
        assert_eq!(reported["overruled"], false);
        assert!(reported["ahead_seconds"].as_f64().unwrap().abs() < 1.0, "{reported}");
        let metrics = ask("/metrics").text();
        let overruled = format!("\ntollgate_store_clock_overruled{{server=\"{server}\"}} 0\n");
        let skew = format!("\ntollgate_store_clock_skew_seconds{{server=\"{server}\"}} ");
        assert!(metrics.contains(&overruled), "{metrics}");
        let skew = metrics.split(&skew).nth(1).unwrap().lines().next().unwrap();
        assert!(skew.parse::<f64>().unwrap().abs() < 1.0, "{skew}");
    }
}

#[test]
fn second_primary_of_a_shard_is_reported_until_one_is_left() {
    let upstream = Upstream::start();
    let shards = Shards::start(1);
    let settings = format!(
        "admin: {{ address: 127.0.0.1:0 }}\nstore: {{ redis: {{ {} }}, deadline: 10s }}",
        shards.settings()
    );
    let folder = Folder::with_settings(&upstream, &settings);
    let (mut running, _) = Running::serve(&folder);
    let line = running.wait_for_event("admin listener is open");
    let admin: SocketAddr = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
    let page = |path: &str| send(admin, get(path).host("localhost"));
    let metric = "\ntollgate_store_rival_primaries";
    assert!(page("/metrics").text().contains(&format!("{metric} 0\n")));

    shards.promote(0);
    let line = running.wait_for_event("two redis servers are primary of one shard");
    let server = |server: &Redis| format!("127.0.0.1:{}", server.port());
    let unused = server(shards.primary(0));
    let used = server(shards.replica(0));
    for field in ["shard=\"shard-0\"", &format!("used=\"{used}\""), &format!("unused=\"{unused}\"")]
    {
        assert!(line.contains(field), "{line}");
    }
    assert!(page("/metrics").text().contains(&format!("{metric} 1\n")));
    let role = format!("server=\"{unused}\",role=\"rival\"}} 1\n");
    let is_reported = || page("/metrics").text().contains(&role);
    eventually("its role is reported", || is_reported().then_some(()));
    let status = page("/status").json();
    let expected = serde_json::json!([{ "server": unused, "shard": "shard-0", "used": used }]);
    assert_eq!(status["store"]["rivals"], expected);
    let output = folder.run(&["status", "--admin", &admin.to_string()]);
    let expected = format!("two primaries of shard-0: {used} is used, {unused} is not\n");
    assert!(text(&output.stdout).contains(&expected), "{output:#?}");

    let port = shards.replica(0).port().to_string();
    shards.primary(0).command(&["REPLICAOF", "127.0.0.1", &port]);
    running.wait_for_event("no longer a second primary");
    assert!(page("/metrics").text().contains(&format!("{metric} 0\n")));
    running.signal("TERM");
    assert_exit(&running.finish(), 0);
}
