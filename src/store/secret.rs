//! Where Redis is shared and no secret was configured: the one that Redis keeps is learnt, and looked
//! after.
//!
//! It is made at the first start of all, and kept beside the counters: proxies need nothing else to
//! agree on their names. The store that decides has the say; a next store in Redis gets a copy, so
//! that counters keep their names through a move.

use std::{
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{Backend, FIRST_CONNECTIONS, Store, redis::NoSecret};
use crate::{
    clock::Timestamp,
    limit::{KeptSecret, SecretStatus},
};

/// Time from one look at what Redis keeps to the next, in microseconds: for so long may proxies
/// differ after it was flushed.
const PERIOD_MICROS: u64 = 60_000_000;

/// Time to the next try while Redis does not tell; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(20);

/// The longest of them: asking a server that is known to be away costs nothing.
const LONGEST_PAUSE: Duration = Duration::from_millis(300);

/// No look takes longer, whatever a decision may.
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// What to do about a Redis that keeps no secret.
const ADVICE: &str = "set `key_secret_env` or `key_secret_file`, or let the user GET and SET this \
                      key, and delete it if no proxy wrote it";

impl Store {
    /// Learns the secret in the background, unless another worker has, or it was configured.
    pub(super) fn learn_secret(self: &Rc<Self>) {
        if let Some(kept) = self.stores.awaited_secret() {
            let kept = Arc::clone(kept);
            tokio::task::spawn_local(learn(Rc::downgrade(self), kept));
        } else {
            self.has_looked.set(true);
        }
    }

    /// Looks in the background whether Redis still keeps the secret: once in a while, and when
    /// another server is primary, which may have another one.
    pub(super) fn look_after_secret(self: &Rc<Self>, now: Timestamp) {
        let elections = self.redis().map(|redis| redis.elections()).sum();
        let is_changed = self.elections.replace(elections) != elections;
        let is_due = |kept: &Arc<KeptSecret>| {
            kept.status() != SecretStatus::Awaited && kept.is_due(now, PERIOD_MICROS)
        };
        if is_changed || self.stores.secret.as_ref().is_some_and(is_due) {
            self.look_again_for_secret();
        }
    }

    /// Looks in the background whether Redis still keeps the secret that was learnt.
    pub(super) fn look_again_for_secret(self: &Rc<Self>) {
        if let Some(kept) = &self.stores.secret
            && kept.status() != SecretStatus::Awaited
        {
            let (store, kept) = (Rc::clone(self), Arc::clone(kept));
            tokio::task::spawn_local(async move { store.look_for_secret(&kept).await });
        }
    }

    /// How long one look may take, over all servers: as long as a decision, and as first connections
    /// may.
    pub(super) fn look_timeout(&self) -> Duration {
        self.stores.settings.deadline.clamp(FIRST_CONNECTIONS, LONGEST_LOOK)
    }

    /// Asks Redis which secret it keeps, and takes that one.
    async fn look_for_secret(&self, kept: &KeptSecret) {
        let deadline = Instant::now() + self.look_timeout();
        let next = self.next.as_ref().and_then(Backend::redis);
        let Some(decider) = self.current.redis().or(next) else { return };
        match decider.keep_secret(kept.secret(), deadline).await {
            Ok(found) => {
                let (before, is_other) = kept.adopt(found.secret);
                self.stores.memory.rekey(found.secret);
                if is_other {
                    self.stores.owed.forget_all();
                }
                let key = decider.secret_name();
                match (before, is_other) {
                    (SecretStatus::Known, true) => {
                        tracing::warn!(key, "redis has another key secret: limits start afresh");
                    }
                    (SecretStatus::Known, false) if found.is_new => {
                        tracing::warn!(key, "redis had lost the key secret, and has it again");
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
                    tracing::warn!(key, %error, "the next store has no copy of the key secret");
                }
            }
            // It may have been learnt, and is right until Redis says otherwise.
            Err(NoSecret::Away) => {}
            Err(error) => match kept.refuse() {
                SecretStatus::Awaited => {
                    let (key, advice) = (decider.secret_name(), ADVICE);
                    tracing::warn!(
                        key, %error, advice,
                        "redis keeps no key secret: limits are not shared with other proxies"
                    );
                }
                SecretStatus::Known => {
                    let (key, advice) = (decider.secret_name(), ADVICE);
                    tracing::warn!(key, %error, advice, "redis keeps the key secret no more");
                }
                SecretStatus::Refused => {}
            },
        }
    }
}

/// Asks until it is known what Redis keeps, or that it keeps nothing.
async fn learn(store: Weak<Store>, kept: Arc<KeptSecret>) {
    let mut pause = PAUSE;
    loop {
        let Some(store) = store.upgrade() else { return };
        if !store.has_looked.get() {
            let deadline = Instant::now() + store.look_timeout();
            for redis in store.redis() {
                redis.ready(deadline).await;
            }
        }
        if kept.status() == SecretStatus::Awaited {
            store.look_for_secret(&kept).await;
        }
        store.has_looked.set(true);
        if kept.status() != SecretStatus::Awaited {
            return;
        }
        drop(store);
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}
