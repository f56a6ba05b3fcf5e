//! Simulated requests, answered by the code that answers real ones. Those of tests inside policies
//! have counters of their own; those of explanations charge nothing.

use std::{
    net::{IpAddr, SocketAddr},
    ops::ControlFlow,
    rc::Rc,
    sync::Arc,
};

use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tollgate_clock::Timestamp;
use tollgate_gate::{
    Shared,
    body_look::{BodyFacts, BodyInput},
    charge_context::ChargeContext,
    dry_run::DryRun,
    forward::Inbound,
    head::Head,
    judge::Judge,
    judge_input::JudgeInput,
    past_costs::PastCosts,
    request_state::{Action, RequestState},
    respond::{Audience, Reply},
    shared::fresh_stores,
};
use tollgate_identity::{Client, Identity, PublishedKeys, client_address};
use tollgate_policy::{Policies, Policy, Route};
use tollgate_response::{Body, Rejection};
use tollgate_settings::{ListenerSettings, MemoryBounds};
use tollgate_store::{LeaseBook, Store};
use tollgate_upstream::{clean_response, downstream::Peer};
use tollgate_usage::logged::LoggedUse;

use super::{
    draft::{Draft, DraftOutcome, DraftResult},
    explanation::{Explanation, ExplanationInput},
};

/// Answers simulated requests.
pub struct Rehearsal {
    judge: Judge,
    pub(super) leases: Rc<LeaseBook>,
    published_keys: PublishedKeys,
}

/// The response to a simulated request.
pub struct RehearsedResponse<'p> {
    /// The status of the response.
    pub status: StatusCode,
    /// The headers of the response.
    pub headers: HeaderMap,
    /// The policy that is for its host.
    pub policy: Option<&'p Policy>,
    /// The route that it takes.
    pub route: Option<&'p Route>,
    /// Who sends it.
    pub identity: Option<Identity<'p>>,
    /// The limit that denies it.
    pub denied_by: Option<Box<str>>,
    /// The limits that would deny it if they were enforced: `core`, `search;candidate`.
    pub would_deny: Vec<Box<str>>,
    /// Why it is not forwarded, as a log would say it.
    pub reason: Option<String>,
}

impl Rehearsal {
    /// With new counters in the process. `published_keys` are those of the policies that it judges
    /// by.
    pub fn with_fresh_counters(shared: &Arc<Shared>, published_keys: &PublishedKeys) -> Rehearsal {
        Rehearsal::with_room(shared, published_keys, MemoryBounds::DEFAULT)
    }

    /// The same, with room for so many counters.
    pub fn with_room(
        shared: &Arc<Shared>,
        published_keys: &PublishedKeys,
        bounds: MemoryBounds,
    ) -> Rehearsal {
        Rehearsal::over(Arc::clone(shared), Store::start(fresh_stores(bounds)), published_keys)
    }

    /// Over the counters that a proxy has. It starts local tasks of this thread if they are in
    /// Redis.
    pub async fn of_running(shared: Arc<Shared>, published_keys: &PublishedKeys) -> Rehearsal {
        let store = Store::start(Arc::clone(&shared.stores));
        store.ready(shared.clock.now()).await;
        Rehearsal::over(shared, store, published_keys)
    }

    fn over(shared: Arc<Shared>, store: Rc<Store>, published_keys: &PublishedKeys) -> Rehearsal {
        let leases = LeaseBook::new(Rc::clone(&store), shared.clock.clone());
        let published_keys = published_keys.clone();
        Rehearsal { judge: Judge::new(shared, store), leases, published_keys }
    }

    /// Drops the counters that are over.
    pub fn sweep(&self, now: Timestamp) {
        self.judge.sweep(now);
    }

    /// The counters in use.
    pub fn counters(&self) -> usize {
        self.judge.counters()
    }

    /// Answers a request and charges it; `answer` is what the upstream says if it is asked.
    pub async fn answer<'p>(
        &self,
        policies: &'p Policies,
        draft: &Draft,
        answer: &Response<Box<[u8]>>,
    ) -> RehearsedResponse<'p> {
        let now = self.judge.shared.clock.now();
        let dry_run = DryRun { token: draft.token.clone(), is_charged: true, ..DryRun::default() };
        let DraftResult { mut state, outcome } = self.run(policies, draft, &dry_run, now).await;
        // They end when this function does, as with the end of the response.
        let _leases = state.tally.as_ref().and_then(|tally| self.leases.hold(tally.granted(), now));
        let no_id = NO_ID;
        let reply = match outcome {
            DraftOutcome::Forwarded(..) => Reply::Forwarded(as_from_upstream(answer)),
            DraftOutcome::Answered(reply) => reply,
        };
        let denied_by = reply.rejection().and_then(Rejection::limit).map(Box::from);
        let would_deny = state.tally.as_ref().and_then(|tally| tally.would_deny_names());
        let would_deny = would_deny.iter().flat_map(|names| names.split(", ")).map(Box::from);
        let would_deny = would_deny.collect();
        let reason = reply.rejection().map(ToString::to_string);
        let found = Head::read(&draft.head, policies).ok();
        let found = found.as_ref().map(|(head, _)| head);
        let address = self.client_address(draft);
        let audience = Audience::of(&draft.head, found, &state, &no_id, address);
        let audience = audience.reading(dry_run.body_facts.get());
        let is_forwarded = matches!(reply, Reply::Forwarded(_));
        let response = self.judge.respond(reply, &mut state, &audience, None);
        if is_forwarded {
            self.judge.settle_body(&state, answer.headers(), answer.body(), now);
        }
        let (head, _) = response.into_parts();
        let RequestState { policy, route, identity, .. } = state;
        RehearsedResponse {
            status: head.status,
            headers: head.headers,
            policy,
            route,
            identity,
            denied_by,
            would_deny,
            reason,
        }
    }

    /// How a request would be handled, and why. Nothing is charged.
    pub async fn explain(&self, policies: &Policies, draft: &Draft) -> Explanation {
        let now = self.judge.shared.clock.now();
        let dry_run = DryRun { token: draft.token.clone(), ..DryRun::default() };
        let result = self.run(policies, draft, &dry_run, now).await;
        let address = self.client_address(draft);
        let head = Head::read(&draft.head, policies).ok().map(|(head, _)| head);
        let identifier = &self.judge.shared.identifier;
        let RequestState { policy, route, .. } = result.state;
        let input = head.as_ref().map(|head| self.input(head, draft, &dry_run, now));
        let context = policy.zip(input.as_ref()).map(|(policy, input)| ChargeContext {
            identifier,
            policy,
            route,
            input,
            message: input.facts.get().and_then(BodyFacts::first_message),
        });
        let ignored = match &context {
            Some(context) => self.judge.ignored(*context, result.state.identity.as_ref()).await,
            None => None,
        };
        Explanation::of(draft, address, &ExplanationInput { result, context, ignored }, policies)
    }

    async fn run<'p>(
        &self,
        policies: &'p Policies,
        draft: &Draft,
        dry_run: &DryRun,
        now: Timestamp,
    ) -> DraftResult<'p> {
        let parts = &draft.head;
        let address = self.client_address(draft);
        let mut state = RequestState::default();
        let action = self.decide(policies, draft, dry_run, now, &mut state).await;
        let outcome = match Reply::to(action, &state, &parts.headers) {
            ControlFlow::Continue(forward) => {
                let mut head = parts.clone();
                let upstream = forward.upstream;
                let peer = &self.peer(draft);
                let (asker, trace) = (None, None);
                let inbound = Inbound { peer, asker, address, request_id: &NO_ID, trace };
                self.judge.prepare(&mut head, &state, forward, inbound);
                DraftOutcome::Forwarded(upstream, head)
            }
            ControlFlow::Break(reply) => DraftOutcome::Answered(reply),
        };
        DraftResult { state, outcome }
    }

    /// What is to be done with a request; what was found out about it is noted in `state`.
    pub(super) async fn decide<'p>(
        &self,
        policies: &'p Policies,
        draft: &Draft,
        dry_run: &DryRun,
        now: Timestamp,
        state: &mut RequestState<'p>,
    ) -> Action<'p> {
        match Head::read(&draft.head, policies) {
            Ok((head, policy)) => {
                self.judge.judge(&self.input(&head, draft, dry_run, now), policy, state).await
            }
            Err(rejection) => Action::Refuse(rejection),
        }
    }

    fn input<'r>(
        &'r self,
        head: &'r Head<'r>,
        draft: &'r Draft,
        dry_run: &'r DryRun,
        now: Timestamp,
    ) -> JudgeInput<'r> {
        let (address, headers) = (self.client_address(draft), &draft.head.headers);
        let client = Client { address, certificate: None, headers, query: draft.head.uri.query() };
        let published_keys = &self.published_keys;
        let facts = &dry_run.body_facts;
        let dry_run = Some(dry_run);
        JudgeInput {
            head,
            client,
            published_keys,
            now,
            is_asked: false,
            dry_run,
            body: match dry_run.and_then(|dry_run| dry_run.used.request_bytes) {
                Some(bytes) => BodyInput::Logged(bytes, &draft.body),
                None => BodyInput::Whole(&draft.body),
            },
            facts,
        }
    }

    /// Corrects what a request of the past was charged, by the upstream's answer.
    pub(super) fn settle_past(&self, state: &mut RequestState<'_>, answer: &Response<()>) {
        self.judge.settle_past(state, answer);
    }

    /// What an admitted request of the past has cost, of what its response told after its head.
    pub(super) fn past_costs(&self, state: &RequestState<'_>, used: &LoggedUse) -> PastCosts {
        self.judge.past_costs(state, used)
    }

    /// Settles what a request of the past has cost, as its response has ended now.
    pub fn settle_past_costs(&self, costs: PastCosts) {
        self.judge.settle_past_costs(costs);
    }

    /// The time by which it judges.
    pub(super) fn now(&self) -> Timestamp {
        self.judge.shared.clock.now()
    }

    fn client_address(&self, draft: &Draft) -> IpAddr {
        client_address(draft.address, &draft.head.headers, &self.judge.shared.trusted_proxies)
    }

    fn peer(&self, draft: &Draft) -> Peer {
        let address = draft.address;
        let address_value = HeaderValue::from_str(&address.to_string());
        Peer {
            address,
            address_value: address_value.unwrap_or(NO_ID),
            is_trusted: self.judge.shared.trusted_proxies.contains(address),
            client_chain: None,
            certificate_choice: None,
            own_address: None,
            listener: Arc::new(ListenerSettings::plain(SocketAddr::new(address, 0).into())),
        }
    }
}

/// A request that was never sent has no id.
const NO_ID: HeaderValue = HeaderValue::from_static("-");

impl RehearsedResponse<'_> {
    /// Who sends it, as policies write it: `user:42`. None: the caller is not known.
    pub fn caller(&self) -> Option<String> {
        let caller = self.identity.as_ref()?.caller.as_ref()?;
        Some(caller.name(&self.policy?.identity).to_string())
    }
}

fn as_from_upstream<T>(answer: &Response<T>) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.status();
    response.headers_mut().clone_from(answer.headers());
    clean_response(response.headers_mut());
    response
}
