//! Panics: the hook that logs them is the whole process's, so each test is a process of its own.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tollgate_observe::{access_log::Format, events::log_to_stderr};
use tollgate_policy::Policies;
use tollgate_preview::cases::verify;
use tollgate_settings::{Configuration, Settings};
use tollgate_yaml::Sources;

use crate::support::{Policy, Proxy, Upstream, compile, http2};

const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// The lines on standard error of one of the programs below, and what it has printed.
fn run(program: &str) -> (Vec<String>, String) {
    let name = format!("panics::programs::{program}");
    let output = Command::new(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env_remove("TOLLGATE_LOG")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let logged = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{logged}");
    (logged.lines().map(str::to_owned).collect(), String::from_utf8(output.stdout).unwrap())
}

/// What the program printed as the ids of requests.
fn ids(printed: &str) -> Vec<&str> {
    let ids: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("id=")).collect();
    assert!(!ids.is_empty(), "{printed}");
    ids
}

#[test]
fn panic_of_a_request_is_one_line_with_its_id() {
    let (lines, printed) = run("text");
    let panics: Vec<&String> = lines.iter().filter(|line| line.contains("panicked")).collect();
    let ids = ids(&printed);
    assert_eq!(panics.len(), ids.len(), "{lines:#?}");
    for (line, id) in panics.iter().zip(ids) {
        for part in ["ERROR", "a request has panicked", id, "overflow", "place=\""] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
}

#[test]
fn panic_of_a_request_is_one_object_with_its_id() {
    let (lines, printed) = run("json");
    let events: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    let panics: Vec<&Value> =
        events.iter().filter(|event| event.to_string().contains("panicked")).collect();
    let ids = ids(&printed);
    assert_eq!(panics.len(), ids.len(), "{lines:#?}");
    for (event, id) in panics.iter().zip(ids) {
        assert_eq!(
            (&event["level"], &event["fields"]["request_id"]),
            (&"ERROR".into(), &id.into())
        );
        assert!(event["fields"]["panic"].as_str().unwrap().contains("overflow"), "{event}");
        assert!(event["fields"]["place"].as_str().unwrap().contains(':'), "{event}");
    }
}

#[test]
fn panic_of_a_policys_test_is_logged_although_nothing_else_of_it_is() {
    let (lines, _) = run("test_of_a_policy");
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    let event: Value = serde_json::from_str(line).expect(line);
    assert_eq!(event["message"], "a thread has panicked");
    assert!(event["fields"]["panic"].as_str().unwrap().contains("runtime"), "{event}");
}

/// Programs, as tests that only the tests above run.
mod programs {
    use super::*;

    /// Prints the ids of requests whose handling panics.
    #[expect(clippy::print_stdout, reason = "it is read by another process")]
    fn serve(format: Format) {
        let events = log_to_stderr(format);
        let upstream = Upstream::start();
        let proxy = Proxy::that_panics(&Policy::before(&upstream).rate("9/hour"));
        for _ in 0..2 {
            let response = proxy.get("/");
            response.assert_status(500);
            println!("\nid={}", response.field("x-request-id").unwrap());
        }
        let request = http::Request::get("http://a/").body(String::new()).unwrap();
        for response in http2(proxy.address(), vec![request]) {
            assert_eq!(response.status(), 500);
            println!("id={}", response.headers()["x-request-id"].to_str().unwrap());
        }
        drop(proxy);
        events.finish(FLUSH_TIMEOUT);
    }

    #[test]
    #[ignore = "a program"]
    fn text() {
        serve(Format::Text);
    }

    #[test]
    #[ignore = "a program"]
    fn json() {
        serve(Format::Json);
    }

    /// A runtime within a runtime cannot be.
    #[test]
    #[ignore = "a program"]
    fn test_of_a_policy() {
        let events = log_to_stderr(Format::Json);
        let policies: Policies = compile(&[&Policy::before(&Upstream::start())]);
        let settings = "version: 1\nlisteners: [{ address: 127.0.0.1:0 }]\n";
        let file = Path::new("tollgate.yaml");
        let settings = Settings::parse(file, settings, &Sources::system());
        let Ok(settings) = settings else { panic!("they are good") };
        let configuration = Configuration { settings, policies };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let verified = std::thread::spawn(move || {
            runtime.block_on(async { verify(file, &configuration).is_ok() })
        });
        assert!(verified.join().is_err(), "it has not panicked");
        events.finish(FLUSH_TIMEOUT);
    }
}
