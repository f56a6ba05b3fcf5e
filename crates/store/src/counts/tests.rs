use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tollgate_settings::{DiskSettings, SyncMode};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::*;

/// The messages that were logged.
#[derive(Clone, Default)]
struct Messages(Arc<Mutex<Vec<String>>>);

impl Subscriber for Messages {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Visit for Messages {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

#[test]
fn what_a_disk_did_not_decide_is_not_said_to_be_redis_s() {
    let disk = DiskSettings {
        path: "counters".into(),
        memory: 1 << 20,
        flush: std::time::Duration::from_secs(1),
        sync: SyncMode::Os,
        max_keys: 1000,
    };
    let counts = Counts::default();
    Unanswered::all().for_each(|reason| counts.count_unanswered(reason));
    let messages = Messages::default();
    tracing::subscriber::with_default(messages.clone(), || {
        counts.report(&StoreKind::Disk(Arc::new(disk)));
    });
    let messages = messages.0.lock().unwrap();
    assert_eq!(messages.len(), Unanswered::KEYWORDS.len());
    for message in &*messages {
        assert_eq!(message, "the disk store did not decide");
    }
}
