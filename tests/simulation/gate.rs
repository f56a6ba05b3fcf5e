//! The gate of proxies, above their stores: what Envoy asks it, under a policy that is loaded anew
//! at any moment. Its limit is the hourly one of the callers, each of whom has an address.

use std::{
    cell::Cell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Request, StatusCode};
use tokio::time::Instant;
use tollgate_clock::{Clock, Timestamp, deadline::Ticker};
use tollgate_gate::{CountedKey, Gate, Shared};
use tollgate_identity::{Identifier, KeyRing};
use tollgate_limit::{Hashing, Key, KeyHasher};
use tollgate_policy::{Policies, load};
use tollgate_settings::{ListenAddress, ListenerSettings};
use tollgate_store::Stores;
use tollgate_upstream::{Upstreams, downstream::Peer};
use tollgate_wire::forward_auth::Asker;
use tollgate_yaml::{Problem, Sources};

use crate::limits::{KEY_SECRET, Limit};

/// Bytes of tokens that are remembered: nobody shows one.
const TOKENS_BYTES: u64 = 1 << 10;

/// The file of the policy. Nothing of it counts for counters but the name of the limit.
#[derive(Clone, Debug)]
pub(crate) struct PolicyFile {
    /// Units an hour.
    pub(crate) hourly: u32,
    /// Where its windows begin.
    pub(crate) align: &'static str,
    /// How often it was edited. Some of what was written is wrong.
    edition: Rc<Cell<usize>>,
    /// The edition that proxies start with.
    latest_good: Rc<Cell<usize>>,
}

/// What a caller asks a gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) caller: usize,
    pub(crate) cost: u32,
}

/// What the gate has answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// When, by the clock of the proxy.
    pub(crate) at: Timestamp,
    pub(crate) took: Duration,
}

/// What an answer says of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitFields {
    pub(crate) limit: u32,
    pub(crate) used: u32,
    pub(crate) remaining: u32,
    pub(crate) reset: Timestamp,
    /// Whether the proxy has decided alone.
    pub(crate) is_alone: bool,
}

impl PolicyFile {
    pub(crate) fn new(hourly: u32, align: &'static str) -> PolicyFile {
        PolicyFile { hourly, align, edition: Rc::default(), latest_good: Rc::default() }
    }

    /// Edits it: another limit beside, routes in another order, or a mistake.
    pub(crate) fn edit(&self) -> Result<Policies, Vec<Problem>> {
        let edition = self.edition.get() + 1;
        self.edition.set(edition);
        let loaded = self.load(edition);
        if loaded.is_ok() {
            self.latest_good.set(edition);
        }
        loaded
    }

    /// As proxies load it at their start.
    pub(crate) fn latest(&self) -> Policies {
        self.load(self.latest_good.get()).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    fn load(&self, edition: usize) -> Result<Policies, Vec<Problem>> {
        let text = self.text(edition);
        let policy = load(Path::new("api.yaml"), &text, &Sources::system())?;
        Ok(Policies::new(vec![policy]))
    }

    fn text(&self, edition: usize) -> String {
        let PolicyFile { hourly, align, .. } = self;
        let rest = format!("align: {align}, on_store_error: local");
        let mut limits = vec![format!("hourly: {{ per: client.ip, rate: {hourly}/hour, {rest} }}")];
        let route = |path: &str, cost: usize| {
            format!(
                "  - {{ match: {{ path: {path} }}, auth: none, limits: [hourly], cost: {cost} }}\n"
            )
        };
        let mut routes = [route("/1", 1), route("/2", 2)];
        match edition % 4 {
            0 => {}
            1 => limits.insert(0, format!("other: {{ per: path, rate: {edition}/minute }}")),
            2 => routes.reverse(),
            _ => limits.push("other: { per: weather }".to_owned()),
        }
        let limits: String = limits.iter().map(|limit| format!("  {limit}\n")).collect();
        let routes = routes.concat();
        format!(
            "version: 1\nupstreams: {{ api: {{ servers: [http://127.0.0.1:9] }} }}\n\
             identity: {{ callers: [{{ name: address, key: client.ip }}] }}\n\
             limits:\n{limits}routes:\n{routes}"
        )
    }

    /// The counter that the gate keeps for a caller, and how it counts.
    pub(crate) fn limit_of(&self, caller: usize) -> Limit {
        let policies = self.latest();
        let policy = policies.iter().next().expect("there is one");
        let limit = policy.limits.iter().find(|limit| &*limit.name == "hourly");
        let limit = limit.expect("it has one");
        let ring = KeyRing::offline(Clock::System);
        let hashing = Hashing::Fixed(KeyHasher::new(KEY_SECRET));
        let identifier = Identifier::new(TOKENS_BYTES, hashing, ring);
        let name = format!("client.ip:{}", address_of(caller));
        let counted = CountedKey::find(&identifier, policy, &name);
        let counted = counted.unwrap_or_else(|error| panic!("{name}: {error}"));
        let (owner, entry) = counted.hash(&identifier, policy, limit);
        let allowance = &limit.rates[policy.identity.tiers.default][0];
        Limit {
            name: format!("caller {caller} hourly"),
            quota: allowance.quota.clone(),
            key: Key::new(owner, entry, allowance.id),
        }
    }
}

/// A gate over these stores, by this clock. Without a file it has no policy, and is asked nothing.
pub(crate) fn start(stores: &Arc<Stores>, clock: Clock, file: Option<&PolicyFile>) -> Rc<Gate> {
    let mut shared = Shared::offline(None, clock.clone());
    shared.stores = Arc::clone(stores);
    shared.identifier = Identifier::new(TOKENS_BYTES, stores.hashing(), KeyRing::offline(clock));
    file.iter().for_each(|file| drop(shared.install(file.latest())));
    let ticker = Rc::new(Ticker::new(Duration::MAX, None));
    Rc::new(Gate::new(0, Arc::new(shared), Upstreams::new(ticker), None))
}

impl Question {
    /// Asks a gate as Envoy does.
    pub(crate) async fn ask(self, gate: &Rc<Gate>) -> Answer {
        let Question { caller, cost } = self;
        let request = Request::get(format!("/{cost}")).header("host", "api.example").body(());
        let (parts, ()) = request.expect("it is well-formed").into_parts();
        let address = address_of(caller);
        let listener = ListenAddress::Tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1));
        let peer = Peer {
            address,
            address_value: HeaderValue::try_from(address.to_string()).expect("it is ASCII"),
            is_trusted: false,
            client_chain: None,
            certificate_choice: None,
            own_address: None,
            listener: Arc::new(ListenerSettings::plain(listener)),
        };
        let (at, asked) = (gate.shared().clock.now(), Instant::now());
        let response = gate.handle_described(parts, Asker::Envoy, Rc::new(peer)).await;
        let (head, _) = response.into_parts();
        Answer { status: head.status, headers: head.headers, at, took: asked.elapsed() }
    }
}

impl Answer {
    /// What it says of the limit. None: it lacks one of the fields.
    pub(crate) fn fields(&self) -> Option<LimitFields> {
        let field = |name: &str| self.headers.get(name)?.to_str().ok();
        let number = |name: &str| field(name)?.parse().ok();
        Some(LimitFields {
            limit: number("x-ratelimit-limit")?,
            used: number("x-ratelimit-used")?,
            remaining: number("x-ratelimit-remaining")?,
            reset: Timestamp::from_secs(number("x-ratelimit-reset")?.into()),
            is_alone: field("x-tollgate-store") == Some("local"),
        })
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn fault(&self, file: &PolicyFile) -> Option<String> {
        let is_denied = match self.status {
            StatusCode::OK => false,
            StatusCode::TOO_MANY_REQUESTS => true,
            status => return Some(format!("status {status}")),
        };
        let Some(fields) = self.fields() else { return Some(format!("no {:?}", self.headers)) };
        let LimitFields { limit, used, remaining, is_alone, .. } = fields;
        let is_limit = if is_alone { limit <= file.hourly } else { limit == file.hourly };
        let is_whole = is_denied && remaining == 0 || limit.saturating_sub(used) == remaining;
        let says_when = self.headers.contains_key("retry-after") == is_denied;
        let is_good = is_limit && is_whole && says_when;
        (!is_good).then(|| format!("{} with {fields:?}, {:?}", self.status, self.headers))
    }
}

/// Where a caller sends from.
fn address_of(caller: usize) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, 1 + caller as u8).into()
}
