//! Learns and checks the secret that keys are hashed with, where Redis is shared and the settings
//! have no secret.
//!
//! The first proxy of all makes the secret, and Redis keeps it beside the counters, so proxies need
//! nothing else to make the same keys. The current store's secret is the right one; a next store in
//! Redis gets a copy, so that counters keep their keys through a move.

use std::{
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tollgate_clock::Timestamp;
use tollgate_limit::{KeptSecret, SecretStatus};

use crate::{Backend, FIRST_CONNECTIONS, Store, redis::CommandError};

/// Time between two checks of the secret, in microseconds: after Redis was flushed, proxies may use
/// different secrets for so long.
const PERIOD_MICROS: u64 = 60_000_000;

/// Time before the first retry while Redis does not answer; it doubles each time.
const PAUSE: Duration = Duration::from_millis(20);

/// The longest pause. It may be short, because a query to a server that is known to be away costs
/// nothing.
const LONGEST_PAUSE: Duration = Duration::from_millis(300);

/// The longest timeout of background queries, whatever a decision may take.
const LONGEST_BACKGROUND: Duration = Duration::from_secs(10);

/// Advice for when Redis cannot keep the secret.
const ADVICE: &str = "set `key_secret_env` or `key_secret_file`, or let the user GET and SET this \
                      key, and delete it if no proxy wrote it";

impl Store {
    /// Learns the secret in the background, unless another worker has, or the settings have one.
    pub(crate) fn learn_secret(self: &Rc<Self>) {
        if let Some(kept) = self.stores.awaited_secret() {
            let kept = Arc::clone(kept);
            tokio::task::spawn_local(learn(Rc::downgrade(self), kept));
        } else {
            self.has_queried_secret.set(true);
        }
    }

    /// Checks in the background whether Redis still keeps the secret: once a minute, and when
    /// another server has become primary, which may have another secret.
    pub(crate) fn check_secret(self: &Rc<Self>, now: Timestamp) {
        let elections = self.redis().map(|redis| redis.elections()).sum();
        let is_changed = self.elections.replace(elections) != elections;
        let is_due = |kept: &Arc<KeptSecret>| {
            kept.status() != SecretStatus::Awaited && kept.is_due(now, PERIOD_MICROS)
        };
        if is_changed || self.stores.secret.as_ref().is_some_and(is_due) {
            self.recheck_secret();
        }
    }

    /// Checks in the background whether Redis still keeps the secret that was learnt.
    pub(crate) fn recheck_secret(self: &Rc<Self>) {
        if let Some(kept) = &self.stores.secret
            && kept.status() != SecretStatus::Awaited
        {
            let store = Rc::clone(self);
            let kept = Arc::clone(kept);
            tokio::task::spawn_local(async move { store.fetch_secret(&kept).await });
        }
    }

    /// How long background queries to all servers may take: as long as a decision, and as first
    /// connections.
    pub(crate) fn background_timeout(&self) -> Duration {
        self.stores.settings.deadline.clamp(FIRST_CONNECTIONS, LONGEST_BACKGROUND)
    }

    /// Queries Redis for the secret, and uses it.
    async fn fetch_secret(&self, kept: &KeptSecret) {
        let deadline = Instant::now() + self.background_timeout();
        let next = self.next.as_ref().and_then(Backend::redis);
        let Some(decider) = self.current.redis().or(next) else { return };
        // Another worker may learn it while this one waits for the reply.
        let is_known = kept.status() == SecretStatus::Known;
        match decider.keep_secret(kept.secret(), deadline).await {
            Ok(found) => {
                let (before, is_other) = kept.adopt(found.secret);
                self.stores.memory.rekey(found.secret);
                if let Some(disk) = &self.stores.disk {
                    disk.rekey(found.secret);
                }
                if is_other {
                    self.stores.pending.discard_all();
                }
                let key = decider.secret_name();
                match (before, is_other) {
                    (SecretStatus::Known, true) => {
                        tracing::warn!(key, "redis has another key secret: limits start afresh");
                    }
                    (SecretStatus::Known, false) if found.is_new && is_known => {
                        tracing::warn!(key, "redis had lost the key secret; it was written again");
                    }
                    (SecretStatus::Known, false) => {}
                    (SecretStatus::Awaited | SecretStatus::Refused, _) => {
                        tracing::info!(key, is_new = found.is_new, "redis keeps the key secret");
                    }
                }
                if let Some(next) = next.filter(|next| !Rc::ptr_eq(next, decider))
                    && let Err(error) = next.replace_secret(found.secret, deadline).await
                {
                    let key = next.secret_name();
                    tracing::warn!(key, %error, "the key secret was not copied to the next store");
                }
            }
            // A secret that was learnt is used until Redis has another one.
            Err(CommandError::Away) => {}
            Err(error) => match kept.refuse() {
                SecretStatus::Awaited => {
                    let key = decider.secret_name();
                    tracing::warn!(
                        key, %error, advice = ADVICE,
                        "redis keeps no key secret: limits are not shared with other proxies"
                    );
                }
                SecretStatus::Known => {
                    let key = decider.secret_name();
                    tracing::warn!(key, %error, advice = ADVICE, "redis no longer keeps the key secret");
                }
                SecretStatus::Refused => {}
            },
        }
    }
}

/// Queries Redis until the secret is known, or Redis refuses to keep one.
async fn learn(store: Weak<Store>, kept: Arc<KeptSecret>) {
    let mut pause = PAUSE;
    loop {
        let Some(store) = store.upgrade() else { return };
        if !store.has_queried_secret.get() {
            let deadline = Instant::now() + store.background_timeout();
            for redis in store.redis() {
                redis.ready(deadline).await;
            }
        }
        if kept.status() == SecretStatus::Awaited {
            store.fetch_secret(&kept).await;
        }
        store.has_queried_secret.set(true);
        if kept.status() != SecretStatus::Awaited {
            return;
        }
        drop(store);
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}
