//! What of the settings differs from those that the process was started with.

use std::collections::HashMap;

use super::{
    CurrentTokens, ListenAddress, ListenerSettings, MoveMode, Moving, Renewed, Settings, StoreKind,
    StoreSettings,
};

impl Settings {
    /// The sections that differ from `running` and need a restart to take effect, by their names in
    /// the file. Where policies are, what their tests mean, and how callers move to the next store,
    /// does not.
    pub fn needing_restart(&self, running: &Settings) -> Vec<&'static str> {
        // Named one by one, so that a new setting cannot be forgotten here.
        let Settings {
            listeners,
            decisions,
            policies: _,
            workers,
            trusted_proxies,
            write_forwarded,
            via,
            store,
            token_cache_bytes,
            access_log,
            events,
            drain,
            drain_delay,
            handover,
            timeouts,
            limits,
            admin,
            reload,
            tracing,
            warnings: _,
        } = self;
        let changes = [
            ("listeners", *listeners != running.listeners),
            ("decisions", *decisions != running.decisions),
            ("workers", *workers != running.workers),
            ("trusted_proxies", *trusted_proxies != running.trusted_proxies),
            ("send_forwarded", *write_forwarded != running.write_forwarded),
            ("via", *via != running.via),
            ("store", store.at_rest() != running.store.at_rest()),
            ("token_cache_bytes", *token_cache_bytes != running.token_cache_bytes),
            ("access_log", *access_log != running.access_log),
            ("log", *events != running.events),
            ("drain", *drain != running.drain),
            ("drain_delay", *drain_delay != running.drain_delay),
            ("handover", *handover != running.handover),
            ("timeouts", *timeouts != running.timeouts),
            ("limits", *limits != running.limits),
            ("admin", *admin != running.admin),
            ("reload", reload.at_rest() != running.reload.at_rest()),
            ("tracing", *tracing != running.tracing),
        ];
        changes.into_iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| name).collect()
    }
}

impl Settings {
    /// The listeners that workers serve.
    pub fn all_listeners(&self) -> impl Iterator<Item = &ListenerSettings> {
        self.listeners.iter().chain(&self.decisions.http)
    }

    /// All that may have certificates: also those of the Redis protocol.
    pub fn encrypted_listeners(&self) -> impl Iterator<Item = &ListenerSettings> {
        self.all_listeners().chain(self.decisions.redis.iter().map(|own| &own.listener))
    }

    /// Gives the listeners of `running` whose address is unchanged these certificates and these
    /// rules for clients' certificates from now on, even if other changes to them wait for a
    /// restart. Returns the listeners for which this changed something.
    pub fn renew_certificates<'r>(
        &self,
        running: &'r Settings,
    ) -> impl Iterator<Item = (&'r ListenAddress, Renewed)> {
        let renew = |listener: &'r ListenerSettings| {
            let newer =
                self.encrypted_listeners().find(|newer| newer.address == listener.address)?;
            let renewed = listener.tls.as_ref()?.replace_by(newer.tls.as_ref()?)?;
            Some((&listener.address, renewed))
        };
        running.encrypted_listeners().filter_map(renew)
    }
}

impl Settings {
    /// Gives the admin listener of `running`, and its listeners for programs whose address is
    /// unchanged, these tokens from now on, where both have some. Returns the listeners at which
    /// that changed them.
    pub fn renew_tokens<'r>(&self, running: &'r Settings) -> Vec<&'r ListenAddress> {
        let newer: HashMap<&ListenAddress, &CurrentTokens> = self.tokens().collect();
        let renewed = running.tokens().filter(|(address, tokens)| {
            newer.get(address).is_some_and(|newer| tokens.replace_by(newer))
        });
        renewed.map(|(address, _)| address).collect()
    }

    /// The listeners that need tokens, with these.
    fn tokens(&self) -> impl Iterator<Item = (&ListenAddress, &CurrentTokens)> {
        let admin =
            self.admin.iter().filter_map(|own| Some((&own.address, own.tokens.as_deref()?)));
        let programs = self
            .decisions
            .http
            .iter()
            .filter_map(|own| Some((&own.address, own.asked.as_ref()?.token.as_deref()?)));
        admin.chain(programs)
    }
}

impl StoreSettings {
    /// Gives new connections to Redis the passwords and certificates of `newer`, if that is the
    /// same Redis. Returns whether they changed.
    pub fn renew_access(&self, newer: &StoreSettings) -> bool {
        let kinds = |store: &StoreSettings| {
            let next = store.next.as_ref().map(|next| next.to.clone());
            [Some(store.current.clone()), next]
        };
        let pairs = kinds(self).into_iter().zip(kinds(newer));
        let renewed = pairs.filter(|pair| match pair {
            (Some(StoreKind::Redis(running)), Some(StoreKind::Redis(newer))) => {
                running == newer && running.access.replace_by(&newer.access)
            }
            _ => false,
        });
        renewed.count() > 0
    }

    /// Without what changes while traffic flows: how many callers are to move, and how.
    fn at_rest(&self) -> StoreSettings {
        let mut store = self.clone();
        if let Some(Moving { percent, mode, .. }) = &mut store.next {
            (*percent, *mode) = (0, MoveMode::Mirror);
        }
        store
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tollgate_yaml::Sources;

    use super::*;

    const RUNNING: &str = "workers: 2\nstore:\n  next: { redis: { url: redis://a, password_env: PASSWORD } }\n  percent: 5\n  mode: mirror\n";

    fn settings(rest: &str, password: &str) -> Settings {
        let text = format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\n{rest}");
        let sources = Sources::system().with_variable("PASSWORD", password);
        let settings = Settings::parse(Path::new("tollgate.yaml"), &text, &sources);
        settings.unwrap_or_else(|problems| panic!("{}\n{text}", problems[0]))
    }

    #[test]
    fn changed_sections_are_named() {
        let running = settings(RUNNING, "one");
        for (from, to, expected) in [
            ("", "", &[][..]),
            ("workers: 2", "workers: 3", &["workers"]),
            ("workers: 2", "workers: 2\npolicies: elsewhere", &[]),
            ("percent: 5\n  mode: mirror", "percent: 50\n  mode: move", &[]),
            ("redis://a", "redis://b", &["store"]),
            ("workers: 2", "workers: 2\ntrusted_proxies: [10.0.0.0/8]", &["trusted_proxies"]),
            (
                "workers: 2",
                "workers: 2\nclient_address_from: forwarded\ndrain: 1s",
                &["trusted_proxies", "drain"],
            ),
            ("workers: 2", "workers: 2\nvia: edge", &["via"]),
            ("workers: 2", "workers: 2\nadmin: { address: 127.0.0.1:1 }", &["admin"]),
            ("workers: 2", "workers: 2\nreload: { poll: 1s }", &["reload"]),
            ("workers: 2", "workers: 2\nreload: { tests: ignored }", &[]),
            ("workers: 2", "workers: 2\naccess_log: { only: denied }", &["access_log"]),
            ("workers: 2", "workers: 2\nlog: { format: json }", &["log"]),
            (
                "workers: 2",
                "workers: 2\ntimeouts: { head: 1s }\nlimits: { fields: 50 }",
                &["timeouts", "limits"],
            ),
        ] {
            let changed = settings(&RUNNING.replace(from, to), "one");
            assert_eq!(changed.needing_restart(&running), expected, "{to}");
        }
    }

    #[test]
    fn passwords_change_while_traffic_flows() {
        let running = settings(RUNNING, "one");
        let newer = settings(RUNNING, "two");
        assert_eq!(newer.needing_restart(&running), [""; 0]);
        assert!(running.store.renew_access(&newer.store));
        // It has them now.
        assert!(!running.store.renew_access(&newer.store));
        // Of another Redis, they are none of this one's.
        let other = settings(&RUNNING.replace("redis://a", "redis://b"), "three");
        assert!(!running.store.renew_access(&other.store));
    }
}
