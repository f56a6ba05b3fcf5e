//! What all workers share.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::{
    clock::Clock,
    identity::{Identifier, TokenCache, TrustedProxies},
    limit::KeyHasher,
    policy::Policies,
    settings::Configuration,
    store::{MemoryStore, restore},
};

/// What all workers share.
pub struct Shared {
    /// The policies in force.
    pub policies: ArcSwap<Policies>,
    /// The counters.
    pub store: Arc<MemoryStore>,
    /// Finds out who is calling.
    pub identifier: Identifier,
    /// What time it is.
    pub clock: Clock,
    /// Whose word about a client's address is taken.
    pub trusted_proxies: TrustedProxies,
    /// Whether upstreams get a `Forwarded` field.
    pub write_forwarded: bool,
}

impl Shared {
    /// What `configuration` describes, at the time that `clock` tells, with the counters that were
    /// saved, if any were.
    ///
    /// # Errors
    /// The system has no random numbers to key the counters with.
    pub fn new(configuration: Configuration, clock: Clock) -> Result<Shared, NoRandomness> {
        let Configuration { settings, policies } = configuration;
        let saved = settings.snapshot.as_ref();
        let restored = saved.and_then(|saved| restore(&saved.file, settings.max_keys, clock.now()));
        let store = match restored {
            Some(store) => store,
            None => {
                let mut secret = [0; 16];
                aws_lc_rs::rand::fill(&mut secret).map_err(|_| NoRandomness)?;
                MemoryStore::new(settings.max_keys, secret)
            }
        };
        Ok(Shared {
            policies: ArcSwap::from_pointee(policies),
            identifier: Identifier {
                tokens: TokenCache::new(settings.token_cache_bytes),
                hasher: KeyHasher::new(store.key_secret()),
            },
            store: Arc::new(store),
            clock,
            trusted_proxies: settings.trusted_proxies,
            write_forwarded: settings.write_forwarded,
        })
    }
}

/// The system has no random numbers.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the system has no random numbers")]
pub struct NoRandomness;
