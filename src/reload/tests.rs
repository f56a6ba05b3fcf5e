//! The thread's work, without the thread.

use std::{fs, io, path::Path};

use tempfile::TempDir;
use tollgate_clock::Clock;

use super::*;

/// A folder with a configuration, and what reloads it.
struct Running {
    reloader: Reloader,
    folder: TempDir,
}

const SETTINGS: &str = "version: 1\nlisteners: [{ address: 127.0.0.1:0 }]\n";

fn policy(rate: &str, secret_file: &str) -> String {
    format!(
        "version: 1\n\
         upstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
         identity:\n  jwt: [{{ issuer: me, algorithms: [HS256], secret_file: {secret_file} }}]\n  \
         callers: [{{ name: user, key: jwt.sub }}]\n\
         limits: {{ core: {{ per: caller, rate: {rate} }} }}\n\
         routes: [{{ match: {{ path: /** }}, auth: required, limits: [core] }}]\n"
    )
}

impl Running {
    fn start() -> Running {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("tollgate.yaml"), SETTINGS).unwrap();
        fs::write(at("secret"), "a secret that is long enough for it").unwrap();
        fs::create_dir(at("policies")).unwrap();
        fs::write(at("policies/api.yaml"), policy("1/hour", "../secret")).unwrap();
        let file = at("tollgate.yaml");
        let sources = Sources::system();
        let recording = sources.recording();
        let configuration = Configuration::read(&file, &recording).unwrap();
        let inputs = recording.inputs();
        let settings = configuration.settings.clone();
        let shared = Arc::new(Shared::new(configuration, Clock::System).unwrap());
        let state = ReloadState::new(shared.clock.now(), inputs.policies_digest());
        let reloader = Reloader {
            origin: Origin { file, sources, inputs, settings },
            shared,
            state: Arc::new(state),
            watch: Watch::nothing(),
            hint: Arc::default(),
            quiet: Quiet::default(),
        };
        Running { reloader, folder }
    }

    fn write(&self, rate: &str, secret_file: &str) {
        let file = self.folder.path().join("policies/api.yaml");
        fs::write(file, policy(rate, secret_file)).unwrap();
    }

    /// Carries out `orders`, and returns when there are no more.
    fn follow(&mut self, orders: impl IntoIterator<Item = Order>) {
        let (sender, inbox) = channel();
        orders.into_iter().for_each(|order| sender.send(order).unwrap());
        drop(sender);
        self.reloader.follow(&inbox);
    }

    fn done(&self) -> u64 {
        self.reloader.state.report().done
    }
}

#[test]
fn many_orders_at_once_have_everything_read_once() {
    let mut running = Running::start();
    let (answers, awaited): (Vec<_>, Vec<_>) = (0..32).map(|_| oneshot::channel()).unzip();
    running.follow(answers.into_iter().map(Order::Answer));
    for mut awaited in awaited {
        assert_eq!(awaited.try_recv().unwrap(), Ok(2));
    }
    assert_eq!(running.done(), 1);
}

#[test]
fn order_whose_receiver_was_dropped_is_not_carried_out() {
    let mut running = Running::start();
    let (answer, _) = oneshot::channel();
    running.follow([Order::Answer(answer)]);
    assert_eq!(running.done(), 0);
    running.follow([Order::Read]);
    assert_eq!(running.done(), 1, "an order by a signal has no receiver");
}

#[test]
fn order_to_stop_comes_before_all_others() {
    let mut running = Running::start();
    let (answer, mut awaited) = oneshot::channel();
    running.follow([Order::Answer(answer), Order::Stop]);
    awaited.try_recv().unwrap_err();
    assert_eq!(running.done(), 0);
}

#[test]
fn files_that_keep_changing_are_refused_and_looked_at_again() {
    const OTHER_EACH_TIME: &str = "/proc/sys/kernel/random/uuid";
    let mut running = Running::start();
    running.write("2/hour", OTHER_EACH_TIME);
    let refused = running.reloader.reload().unwrap_err();
    let expected = "the files keep changing while they are read";
    assert!(refused.problems[0].contains(expected), "{refused:?}");
    assert_eq!(running.reloader.state.report().generation, 1);
    running.write("2/hour", "../secret");
    let inputs = &running.reloader.origin.inputs;
    assert_ne!(inputs.read_again(), *inputs);
    assert!(inputs.paths().any(|path| path == Path::new(OTHER_EACH_TIME)), "still followed");
    assert_eq!(running.reloader.reload(), Ok(2));
}

/// A log that panics when changed policies are logged.
struct PanickingLog;

impl io::Write for PanickingLog {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(lines);
        // After a panic the next line comes with those before it.
        let last = text.lines().last().unwrap_or_default();
        assert!(!last.contains("policies have changed"), "changed policies were logged");
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn panic_while_changes_are_logged_ends_neither_the_reload_nor_the_next() {
    let mut running = Running::start();
    let log = tracing_subscriber::fmt().with_writer(|| PanickingLog).finish();
    tracing::subscriber::with_default(log, || {
        for generation in 2..4 {
            running.write(&format!("{generation}/hour"), "../secret");
            assert_eq!(running.reloader.reload(), Ok(generation));
            assert_eq!(running.reloader.state.report().generation, generation);
        }
    });
}

#[test]
fn thread_that_is_stuck_is_left_behind() {
    let (orders, _inbox) = channel();
    let (ending, ended) = channel();
    let (go, stuck) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let _ending = ending;
        let _ = stuck.recv();
    });
    let mut reload = Reload { handle: ReloadHandle { orders }, thread: Some(thread), ended };
    assert!(!reload.end(Duration::ZERO));
    drop(go);
    assert!(reload.end(Duration::from_secs(20)), "it is not stuck any more");
}
