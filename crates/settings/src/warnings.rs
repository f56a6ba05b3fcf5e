//! Warnings about settings that are valid, but most likely not intended.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use tollgate_identity::{holds_private, is_private, whole_internet};
use tollgate_yaml::{
    Check, Span, Spanned,
    warning::{OnSettings, Rule},
};

use super::{Checker, ListenAddress, ListenerSettings, Settings, store::RawStore};

impl Checker<'_> {
    /// Networks that are trusted about a client's address.
    pub(super) fn trusted_networks(&mut self, raw: &[Spanned<String>]) -> Vec<IpNet> {
        let networks: Vec<Option<IpNet>> = raw.iter().map(|raw| self.network(raw)).collect();
        if let Some(networks) = networks.iter().copied().collect::<Option<Vec<IpNet>>>() {
            self.warn_of_trust_in_all(raw, &networks);
        }
        networks.into_iter().flatten().collect()
    }

    /// The admin listener shows callers and reloads.
    pub(super) fn warn_of_public_admin(
        &mut self,
        raw: &Spanned<String>,
        address: &ListenAddress,
        has_tokens: bool,
    ) {
        let Some(address) = address.tcp().filter(|_| !has_tokens) else { return };
        let ip = address.ip().to_canonical();
        let whose = match ip.is_unspecified() {
            true => "every address of this machine",
            false if is_private(ip) => return,
            false => "a public address",
        };
        let message = format!("the admin listener needs no token, and is on {whose}");
        let help = "write `auth` with files of tokens, or an address of a private network";
        self.warn(Rule::PublicAdmin, raw, message, help);
    }

    /// `networks` are those of `raw`, in the same order. They are trusted to state a client's
    /// address.
    fn warn_of_trust_in_all(&mut self, raw: &[Spanned<String>], networks: &[IpNet]) {
        let Some((last, version)) = whole_internet(networks) else { return };
        let Some(place) = raw.get(last) else { return };
        let message =
            format!("every {version} address is trusted: each client can claim any address");
        self.warn(Rule::WholeInternet, place, message, "list only the addresses of your proxies");
    }

    /// An attacker that has the secret can test a name: hash it, and look for its counter in Redis.
    pub(super) fn warn_of_missing_key_secret(&mut self, raw: &RawStore) {
        if raw.key_secret_env.is_some() || raw.key_secret_file.is_some() {
            return;
        }
        let kinds = [&raw.current, &raw.next].into_iter().flatten();
        let mut places = raw.redis.iter().chain(kinds.filter_map(|kind| kind.redis.as_ref()));
        let Some(redis) = places.next() else { return };
        let place = Span { end: redis.span.start, ..redis.span };
        let message = "the secret that callers' names are hashed with is kept in Redis itself, so \
                       that a reader of all of Redis can test whose counters it has";
        let help = "to keep it apart, add `key_secret_env` or `key_secret_file` to `store`";
        self.warn(Rule::MissingKeySecret, place, message, help);
    }
}

impl Settings {
    /// Whether they meet the condition of a warning.
    pub fn meet(&self, condition: &OnSettings) -> bool {
        match condition {
            OnSettings::AllClientsIn(network) => self.may_see_all_clients_in(network),
            OnSettings::NoClientCertificates => !self.ask_for_certificates(),
        }
    }

    /// Whether a listener asks the clients that it serves for a certificate.
    fn ask_for_certificates(&self) -> bool {
        let asks = |listener: &ListenerSettings| {
            let tls = listener.tls.as_ref().filter(|_| listener.redirect.is_none());
            tls.is_some_and(|tls| tls.asks_for_certificates())
        };
        self.listeners.iter().any(asks)
    }

    /// Whether all clients of a listener may seem to come from `network`, because the
    /// proxy in front of it is not trusted to state their addresses.
    ///
    /// On a loopback address or a Unix socket this is certain. On other addresses it is likely if
    /// all listeners use plain HTTP, because TLS then ends in front of them. A `network` of a
    /// single address was most likely chosen with care, and causes no warning.
    fn may_see_all_clients_in(&self, network: &IpNet) -> bool {
        let ends_tls = self.listeners.iter().any(|listener| listener.tls.is_some());
        let is_whole_network = network.prefix_len() < network.max_prefix_len();
        let is_likely = !ends_tls && is_whole_network && holds_private(network);
        let all_in = |listener: &ListenerSettings| {
            let knows_clients = listener.proxy_protocol.is_some() || listener.trusts_local_peers;
            let is_served = listener.redirect.is_none();
            is_served
                && !knows_clients
                && match local_peers(&listener.address) {
                    Some(peers) => network.contains(&peers),
                    None => is_likely,
                }
        };
        self.trusted_proxies.is_empty() && self.listeners.iter().any(all_in)
    }
}

/// The address of all who can connect, if they are on this machine.
fn local_peers(address: &ListenAddress) -> Option<IpAddr> {
    match address {
        ListenAddress::Unix(_) => Some(Ipv4Addr::LOCALHOST.into()),
        ListenAddress::Tcp(address) => {
            Some(address.ip().to_canonical()).filter(IpAddr::is_loopback)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tollgate_keyword::Keyword;
    use tollgate_yaml::Sources;

    use super::*;
    use crate::tests::FILE;

    /// Settings with these lines, the first of them on line 3.
    fn settings(lines: &str) -> Settings {
        let text = format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\n{lines}\n");
        let sources = Sources::system().with_variable("SECRET", "sixteen bytes it is");
        let settings = Settings::parse(Path::new(FILE), &text, &sources);
        settings.unwrap_or_else(|problems| panic!("{}", problems[0]))
    }

    /// Each warning as `line:column rule`.
    fn warned(lines: &str) -> Vec<String> {
        let warned = settings(lines).warnings.into_iter().map(|warning| {
            let problem = &warning.problem;
            format!("{}:{} {}", problem.line(), problem.column(), warning.rule.keyword())
        });
        warned.collect()
    }

    #[test]
    fn admin_on_a_public_address_is_a_warning() {
        for public in ["0.0.0.0", "[::]", "192.0.2.7", "[2001:db8::1]", "[::ffff:8.8.8.8]"] {
            let warnings = warned(&format!("admin: {{ address: \"{public}:9901\", auth: off }}"));
            assert_eq!(warnings, ["3:19 public-admin"], "{public}");
        }
        for private in ["127.0.0.1", "[::1]", "10.0.0.1", "192.168.1.1", "[fd00::1]"] {
            let warnings = warned(&format!("admin: {{ address: \"{private}:9901\", auth: off }}"));
            assert_eq!(warnings, [""; 0], "{private}");
        }
    }

    #[test]
    fn network_of_all_addresses_is_no_trusted_proxy() {
        for (networks, expected) in [
            ("[10.0.0.0/8, 0.0.0.0/0]", &["3:31 whole-internet"][..]),
            ("[0.0.0.0/1, 128.0.0.0/1]", &["3:30 whole-internet"]),
            ("[\"::/0\"]", &["3:19 whole-internet"]),
            ("[10.0.0.0/8, 172.16.0.0/12]", &[]),
        ] {
            assert_eq!(warned(&format!("trusted_proxies: {networks}")), expected, "{networks}");
        }
        let listener = "{ address: 127.0.0.1:1, proxy_protocol: { trusted: [0.0.0.0/0] } }";
        let text = format!("version: 1\nlisteners: [{listener}]\n");
        let settings = Settings::parse(Path::new(FILE), &text, &Sources::system()).unwrap();
        assert_eq!(settings.warnings.len(), 1);
        assert_eq!(settings.warnings[0].rule, Rule::WholeInternet);
    }

    #[test]
    fn redis_without_a_key_secret_is_a_warning_at_its_place() {
        let redis = "redis: { url: redis://127.0.0.1 }";
        for (store, expected) in [
            (redis.to_owned(), &["3:17 missing-key-secret"][..]),
            (
                format!("current: {{ memory: {{}} }}, next: {{ {redis} }}, percent: 1, mode: move"),
                &["3:50 missing-key-secret"],
            ),
            (format!("{redis}, key_secret_env: SECRET"), &[]),
            ("memory: {}".to_owned(), &[]),
        ] {
            assert_eq!(warned(&format!("store: {{ {store} }}")), expected, "{store}");
        }
    }

    #[test]
    fn all_clients_may_be_in_a_network_where_nothing_says_who_they_are() {
        let plain = "{ address: 0.0.0.0:8080 }";
        let local = "{ address: 127.0.0.1:8080 }";
        for (listeners, more, network, expected) in [
            (plain, "", "10.0.0.0/8", true),
            (plain, "", "fd00::/8", true),
            (plain, "", "10.0.0.7/32", false),
            (plain, "", "192.0.2.0/24", false),
            (plain, "trusted_proxies: [10.0.0.1]", "10.0.0.0/8", false),
            (local, "", "127.0.0.0/8", true),
            (local, "", "127.0.0.1/32", true),
            (local, "", "10.0.0.0/8", false),
            ("{ address: unix:a.sock }", "", "127.0.0.1/32", true),
            ("{ address: unix:a.sock, peers: trusted }", "", "127.0.0.1/32", false),
            ("{ address: 0.0.0.0:1, redirect: https }", "", "10.0.0.0/8", false),
            (
                "{ address: 0.0.0.0:1, proxy_protocol: { trusted: [10.0.0.1] } }",
                "",
                "10.0.0.0/8",
                false,
            ),
        ] {
            let text = format!("version: 1\nlisteners: [{listeners}]\n{more}\n");
            let settings = Settings::parse(Path::new(FILE), &text, &Sources::system()).unwrap();
            let network = network.parse().unwrap();
            let got = settings.may_see_all_clients_in(&network);
            assert_eq!(got, expected, "{listeners} {more} {network}");
        }
    }
}
