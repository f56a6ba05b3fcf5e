//! Settings of the listeners at which other programs ask for decisions.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_identity::ForwardedField;
use tollgate_keyword::keywords;
use tollgate_yaml::{Check, Choice, Spanned};

use super::{
    AskProtocol, AskedHere, Askers, Checker, ListenAddress, ListenerSettings, Protocols, Secret,
    limits::CONNECTIONS, listener::RawTls,
};

/// A listener at which other programs ask, in the protocol of Redis.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionSettings {
    /// Where it is, with its certificates.
    pub listener: ListenerSettings,
    /// What clients must say first, if anything.
    pub password: Option<Secret>,
    /// The networks whose addresses may ask.
    pub askers: Askers,
    /// Most keys that are remembered, of each kind of command.
    pub max_keys: usize,
    /// Connections at once.
    pub connections: usize,
    /// Connections at once of one address, or of one network of 64 bits in IPv6.
    pub connections_per_address: usize,
}

/// The protocol that other programs ask in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecisionProtocol {
    /// HTTP: forward-auth, and calls in JSON.
    Http,
    /// gRPC: Envoy.
    Grpc,
    /// That of Redis: `RL.*`, `CL.THROTTLE`, `TG.*`.
    Redis,
}

keywords! { DecisionProtocol { Http = "http", Grpc = "grpc", Redis = "redis" } }

/// Where other programs ask.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decisions {
    /// By HTTP or gRPC: workers serve these listeners, as they serve those of clients.
    pub http: Vec<ListenerSettings>,
    /// In the protocol of Redis: a thread serves each.
    pub redis: Vec<DecisionSettings>,
}

/// A listener at which other programs ask for decisions.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "decisions entry")]
pub(super) struct RawDecisions {
    /// Where to listen: an IP address and a port. One that other machines reach needs a password.
    #[schemars(extend("examples" = ["127.0.0.1:6380"]))]
    address: Spanned<String>,
    /// What is spoken there: `http` (forward-auth, and calls in JSON), `grpc` (Envoy) or `redis`.
    protocol: Spanned<Choice<DecisionProtocol>>,
    /// Certificates. Left out: other programs use no TLS here.
    #[schemars(extend("examples" = [{ "certificates": [{ "certificate_file": "server.pem", "key_file": "server.key" }] }]))]
    tls: Option<Spanned<RawTls>>,
    /// A file with the password that clients must say (`AUTH`), of `redis` only. Left out: they
    /// need none.
    #[schemars(length(min = 1), extend("examples" = ["secrets/decisions-password"]))]
    password_file: Option<Spanned<String>>,
    /// An environment variable with the password, in place of the file.
    #[schemars(length(min = 1), extend("examples" = ["DECISIONS_PASSWORD"]))]
    password_env: Option<Spanned<String>>,
    /// Addresses and networks that may ask. Default: loopback; where `tls` requires certificates
    /// of clients, every client that has one.
    #[schemars(length(min = 1), extend("examples" = [["127.0.0.0/8", "10.0.0.0/8"]]))]
    askers: Option<Spanned<Vec<Spanned<String>>>>,
    /// A file with the token that programs must send (`authorization: Bearer …`) with calls at
    /// `/v1/`, of `http` only. With it they may call from any address, unless `askers` is written,
    /// too. Left out: they need none.
    #[schemars(length(min = 1), extend("examples" = ["secrets/decisions-token"]))]
    token_file: Option<Spanned<String>>,
    /// An environment variable with the token, in place of the file.
    #[schemars(length(min = 1), extend("examples" = ["DECISIONS_TOKEN"]))]
    token_env: Option<Spanned<String>>,
    /// Names and addresses by which programs may ask (the `Host` of a request), of `http` and
    /// `grpc`, beside loopback, the listener's own address and names without a dot: a web page
    /// cannot have its own name lead here. With `tls` the certificate sees to that. Left out: no
    /// others.
    #[serde(default)]
    #[schemars(extend("examples" = [["tollgate.internal"]]))]
    hosts: Vec<Spanned<String>>,
    /// Most keys that are remembered, of `RL.*` and of `CL.THROTTLE` each, 1000 to 100000000.
    /// Default: 1000000.
    #[schemars(range(min = 1000, max = 100_000_000))]
    max_keys: Option<Spanned<u32>>,
    /// Connections at once, 1 to 1000000; more are closed as soon as they are made. Default: 4000.
    #[schemars(range(min = 1, max = 1_000_000))]
    connections: Option<Spanned<u32>>,
    /// Connections at once of one address, or of one network of 64 bits in IPv6, 1 to 1000000.
    /// Default: 1000.
    #[schemars(range(min = 1, max = 1_000_000))]
    connections_per_address: Option<Spanned<u32>>,
}

const DEFAULT_MAX_KEYS: usize = 1_000_000;
const DEFAULT_CONNECTIONS: usize = 4000;
const DEFAULT_CONNECTIONS_PER_ADDRESS: usize = 1000;
const REACHABLE: &str =
    "other machines reach this address, and an asker can claim to be any client";

impl RawDecisions {
    fn has_token(&self) -> bool {
        self.token_file.is_some() || self.token_env.is_some()
    }

    /// Whether only those may connect who show a certificate.
    fn requires_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.value.requires_certificate())
    }
}

impl Checker<'_> {
    pub(super) fn decisions(&mut self, raw: &[RawDecisions]) -> Decisions {
        let mut all = Decisions::default();
        let mut taken: Vec<SocketAddr> = Vec::new();
        for raw in raw {
            let Some(address) = self.address(&raw.address) else { continue };
            if address.port() != 0 && taken.contains(&address) {
                let message = format!("a second listener at `{}`", raw.address.value);
                self.refuse(&raw.address, message, "keep one");
            }
            taken.push(address);
            match self.keyword(&raw.protocol) {
                Some(DecisionProtocol::Http) => {
                    all.http.extend(self.http_decisions(raw, address, AskProtocol::Http));
                }
                Some(DecisionProtocol::Grpc) => {
                    all.http.extend(self.http_decisions(raw, address, AskProtocol::Grpc));
                }
                Some(DecisionProtocol::Redis) => {
                    all.redis.extend(self.redis_decisions(raw, address))
                }
                None => {}
            }
        }
        all
    }

    /// Proxies that ask name the client in one field, which their shipped files overwrite. Most
    /// proxies pass on the other one as a client wrote it, which would so choose its own address.
    pub(super) fn refuse_other_field_of_askers(
        &mut self,
        raw: Option<&Spanned<Choice<ForwardedField>>>,
        field: Option<ForwardedField>,
        decisions: &Decisions,
    ) {
        let (Some(raw), Some(ForwardedField::Forwarded)) = (raw, field) else { return };
        if !decisions.http.is_empty() {
            let message = "proxies that ask at `decisions` name the client in X-Forwarded-For, \
                           and in no other field";
            let help = "write x-forwarded-for, and have all proxies set that field; or serve \
                        `decisions` from a process of their own";
            self.refuse(raw, message, help);
        }
    }

    fn http_decisions(
        &mut self,
        raw: &RawDecisions,
        address: SocketAddr,
        protocol: AskProtocol,
    ) -> Option<ListenerSettings> {
        let RawDecisions { password_file, password_env, max_keys, .. } = raw;
        let RawDecisions { connections, connections_per_address, .. } = raw;
        let texts = [password_file, password_env].into_iter().flatten().map(|raw| raw.span);
        let numbers = [max_keys, connections, connections_per_address].into_iter().flatten();
        for span in texts.chain(numbers.map(|raw| raw.span)) {
            self.refuse(span, "only `protocol: redis` has this", "remove it");
        }
        if protocol == AskProtocol::Grpc {
            self.refuse_token(raw);
        }
        let is_closed = raw.requires_certificate() || raw.has_token();
        if !is_loopback(address) && raw.askers.is_none() && !is_closed {
            let help = "add `askers` with the addresses of those who ask, such as [10.0.0.0/8]";
            self.refuse(&raw.address, REACHABLE, help);
        }
        let hosts = raw.hosts.iter().filter_map(|raw| self.host_name(raw)).collect();
        let askers = self.askers(raw);
        let programs = match raw.has_token() && raw.askers.is_none() {
            true => Askers::everybody(),
            false => askers.clone(),
        };
        let token = self.program_token(raw.token_env.as_ref(), raw.token_file.as_ref());
        let asked = AskedHere { askers, programs, token, protocol, hosts };
        let listener = self.decision_listener(raw, address)?;
        Some(ListenerSettings { asked: Some(asked), ..listener })
    }

    fn refuse_token(&mut self, raw: &RawDecisions) {
        for token in [&raw.token_file, &raw.token_env].into_iter().flatten() {
            self.refuse(token, "only `protocol: http` has this", "remove it");
        }
    }

    fn decision_listener(
        &mut self,
        raw: &RawDecisions,
        address: SocketAddr,
    ) -> Option<ListenerSettings> {
        let plain = ListenerSettings::plain(ListenAddress::Tcp(address));
        Some(match &raw.tls {
            None => plain,
            Some(tls) => ListenerSettings {
                tls: Some(self.listener_tls(&tls.value, Protocols::Both)?),
                ..plain
            },
        })
    }

    fn redis_decisions(
        &mut self,
        raw: &RawDecisions,
        address: SocketAddr,
    ) -> Option<DecisionSettings> {
        for host in &raw.hosts {
            let help = "remove it: no browser can send commands of that protocol";
            self.refuse(host, "`protocol: redis` has no hosts", help);
        }
        self.refuse_token(raw);
        let password = self.secret(raw.password_env.as_ref(), raw.password_file.as_ref());
        let has_password = raw.password_env.is_some() || raw.password_file.is_some();
        if !is_loopback(address) && !has_password && !raw.requires_certificate() {
            let help = "add `password_file`, or write an address such as 127.0.0.1:6380";
            self.refuse(&raw.address, REACHABLE, help);
        }
        let askers = self.askers(raw);
        Some(DecisionSettings {
            max_keys: self.count_or(&raw.max_keys, 1000..=100_000_000, DEFAULT_MAX_KEYS),
            connections: self.count_or(&raw.connections, CONNECTIONS, DEFAULT_CONNECTIONS),
            connections_per_address: self.count_or(
                &raw.connections_per_address,
                CONNECTIONS,
                DEFAULT_CONNECTIONS_PER_ADDRESS,
            ),
            listener: self.decision_listener(raw, address)?,
            password,
            askers,
        })
    }

    fn askers(&mut self, raw: &RawDecisions) -> Askers {
        let Some(raw) = &raw.askers else {
            let is_anybody = raw.requires_certificate();
            return if is_anybody { Askers::everybody() } else { Askers::this_machine() };
        };
        if raw.value.is_empty() {
            let help = "write the addresses of those who ask, [10.0.0.0/8], or remove it: loopback";
            self.refuse(raw, "an empty list: nobody could ask", help);
        }
        Askers::new(raw.value.iter().filter_map(|raw| self.network(raw)))
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tollgate_yaml::Sources;

    use super::*;
    use crate::{
        Settings,
        tests::{FILE, rendered},
    };

    /// Settings with one such listener, on line 3; its fields begin in column 14.
    fn decisions(fields: &str) -> Result<DecisionSettings, Vec<String>> {
        let text = format!(
            "version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\ndecisions: [{{ {fields} }}]\n"
        );
        let sources = Sources::system().with_file("config/password", "open sesame, of our own\n");
        let settings = Settings::parse(Path::new(FILE), &text, &sources);
        settings.map(|it| it.decisions.redis[0].clone()).map_err(|problems| rendered(&problems))
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let plain = decisions("address: 127.0.0.1:6380, protocol: redis").unwrap();
        assert_eq!((plain.max_keys, plain.connections), (1_000_000, 4000));
        assert_eq!((plain.connections_per_address, plain.password), (1000, None));
        let asks = |address: &str| plain.askers.contains(address.parse().unwrap());
        assert!(asks("127.0.0.9") && asks("::1") && !asks("10.0.0.1"));
        let set = "address: 10.0.0.1:1, protocol: redis, password_file: password, askers: \
                   [10.0.0.0/8], max_keys: 1000";
        let set = decisions(set).unwrap();
        assert_eq!(set.password.unwrap().reveal(), "open sesame, of our own");
        assert!(
            set.askers.contains([10, 9, 9, 9].into()) && !set.askers.contains([11, 0, 0, 1].into())
        );
        assert_eq!(set.max_keys, 1000);
    }

    #[test]
    fn hosts_are_kept_in_lower_case_where_browsers_can_ask() {
        let text = "version: 1\nlisteners: [{ address: 127.0.0.1:0 }]\ndecisions: [{ address: \
                    127.0.0.1:1, protocol: http, hosts: [Tollgate.Internal, 10.0.0.7] }]\n";
        let settings = Settings::parse(Path::new(FILE), text, &Sources::system()).unwrap();
        let asked = settings.decisions.http[0].asked.as_ref().unwrap();
        assert_eq!(asked.hosts, ["tollgate.internal", "10.0.0.7"]);
        assert_eq!(
            decisions("address: 127.0.0.1:1, protocol: redis, hosts: [a.example]").unwrap_err(),
            ["3:62 `protocol: redis` has no hosts: remove it: no browser can send commands of \
                 that protocol"]
        );
    }

    #[test]
    fn token_opens_an_address_to_programs_alone() {
        let parse = |fields: &str| {
            let text = format!(
                "version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\ndecisions: [{{ {fields} }}]\n"
            );
            let sources = Sources::system().with_file("config/token", "sixteen-or-more-bytes\n");
            let sources = sources.with_file("config/short", "short");
            let settings = Settings::parse(Path::new(FILE), &text, &sources);
            let asked = |settings: Settings| settings.decisions.http[0].asked.clone().unwrap();
            settings.map(asked).map_err(|problems| rendered(&problems))
        };
        let anybody = parse("address: 0.0.0.0:80, protocol: http, token_file: token").unwrap();
        let elsewhere = [192, 0, 2, 1].into();
        assert!(anybody.token.is_some() && anybody.programs.contains(elsewhere));
        assert!(!anybody.askers.contains(elsewhere));
        let some = "address: 0.0.0.0:80, protocol: http, token_file: token, askers: 10.0.0.0/8";
        assert!(!parse(some).unwrap().programs.contains(elsewhere));
        for (fields, expected) in [
            (
                "address: 127.0.0.1:1, protocol: grpc, token_file: token",
                "3:65 only `protocol: http` has this: remove it",
            ),
            (
                "address: 127.0.0.1:1, protocol: http, token_file: short",
                "3:65 `short` contains a token of fewer than 16 characters: make one: openssl rand \
                 -hex 32",
            ),
        ] {
            assert_eq!(parse(fields).unwrap_err(), [expected], "{fields}");
        }
    }

    #[test]
    fn askers_name_the_client_in_one_field() {
        let parse = |protocol: &str| {
            let text = format!(
                "version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\nclient_address_from: \
                 forwarded\ndecisions: [{{ address: 127.0.0.1:1, protocol: {protocol} }}]\n"
            );
            let settings = Settings::parse(Path::new(FILE), &text, &Sources::system());
            settings.map(drop).map_err(|problems| rendered(&problems))
        };
        let expected = "3:22 proxies that ask at `decisions` name the client in X-Forwarded-For, \
                        and in no other field: write x-forwarded-for, and have all proxies set \
                        that field; or serve `decisions` from a process of their own";
        for protocol in ["http", "grpc"] {
            assert_eq!(parse(protocol).unwrap_err(), [expected], "{protocol}");
        }
        // Programs that send commands name no client.
        assert_eq!(parse("redis"), Ok(()));
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        let redis = "protocol: redis";
        for (fields, expected) in [
            (
                format!("address: 0.0.0.0:6380, {redis}"),
                "3:24 other machines reach this address, and an asker can claim to be any \
                 client: add `password_file`, or write an address such as 127.0.0.1:6380",
            ),
            (
                format!("address: 127.0.0.1:1, {redis}, askers: []"),
                "3:62 an empty list: nobody could ask: write the addresses of those who ask, \
                 [10.0.0.0/8], or remove it: loopback",
            ),
            (
                "address: 0.0.0.0:80, protocol: http".to_owned(),
                "3:24 other machines reach this address, and an asker can claim to be any \
                 client: add `askers` with the addresses of those who ask, such as [10.0.0.0/8]",
            ),
            (
                "address: 127.0.0.1:1, protocol: http, max_keys: 5".to_owned(),
                "3:63 only `protocol: redis` has this: remove it",
            ),
            (
                format!("address: 127.0.0.1:1, {redis}, max_keys: 5"),
                "3:64 5 is out of range: write 1000 to 100000000",
            ),
        ] {
            assert_eq!(decisions(&fields).unwrap_err(), [expected], "{fields}");
        }
        let unknown = decisions("address: 127.0.0.1:1, protocol: smtp").unwrap_err();
        assert!(unknown[0].contains("unknown value `smtp`"), "{unknown:?}");
    }
}
