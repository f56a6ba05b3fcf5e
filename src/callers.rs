//! The counters of a caller, or of other values that limits count by, found by their name: how they
//! stand, and resetting them. And which callers use limits most, and were denied last.
//!
//! A name that has not all values that a limit counts by finds none of its counters: which ones
//! there are is not known. Those that were seen lately are offered by their whole names (`seen`).

mod denied;
mod found;
mod report;
mod seen;
mod shared_limit;
pub mod top;

use std::sync::Arc;

pub use self::denied::{DenialReport, DenialsReport, denials};
pub use self::report::{
    AnsweredBy, CallerReport, LimitReport, OverrideReport, PolicyReport, ResetReport,
    SkippedPolicy, WindowReport,
};
pub use self::seen::CounterCommand;
pub use self::shared_limit::SharedLimit;
use tollgate_gate::Shared;
use tollgate_identity::NameError;
use tollgate_limit::Charge;
use tollgate_store::{NotReset, Store, StoreError};

use self::{
    found::{Found, OwnCounters, find},
    report::Answer,
    seen::SeenNames,
};
use crate::decisions::{note_reset, of_reset};

/// Which counters are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerQuery {
    /// Whose: `user:42`, `main/user:42` where several issuers have users, `client.ip:192.0.2.1`, a
    /// value of anything else that a limit counts by, as `jwt.org:acme`, or all values, as
    /// `client.ip=192.0.2.1,header.x-login=bob`.
    pub caller: String,
    /// Of which policy; none: of all.
    pub policy: Option<String>,
    /// Of which limit; none: of all.
    pub limit: Option<String>,
}

/// The policy and the limit that are asked for: `--limit api/core` is short for both.
fn asked_limit<'q>(
    policy: Option<&'q str>,
    limit: Option<&'q str>,
) -> (Option<&'q str>, Option<&'q str>) {
    match (policy, limit.and_then(|limit| limit.split_once('/'))) {
        (None, Some((policy, limit))) => (Some(policy), Some(limit)),
        _ => (policy, limit),
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallerError {
    /// The name is not that of a caller.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Each policy wants something else of the name.
    #[error("no policy takes this name as it is: {0}: write which policy with `--policy`")]
    Policies(String),
    /// Policies give one name to several callers.
    #[error("`{name}` is a caller of {whose}: write which with `--policy`")]
    SeveralCallers {
        /// The name.
        name: String,
        /// Of which issuers in which policies.
        whose: String,
    },
    /// Nothing is counted by such a thing.
    #[error("`{kind}` is no entry of `callers`, and no limit counts by it: ask for one of {known}")]
    Kind {
        /// What the name begins with.
        kind: String,
        /// A name of each kind that there is.
        known: String,
    },
    /// No policy is called so.
    #[error("no policy is called `{policy}`: there are {known}")]
    Policy {
        /// The name.
        policy: String,
        /// Those that there are.
        known: String,
    },
    /// No limit is called so.
    #[error("no limit is called `{limit}`: those that count by `{caller}` alone are {known}")]
    Limit {
        /// The name.
        limit: String,
        /// Whose counters are asked for.
        caller: String,
        /// Those that there are.
        known: String,
    },
    /// A limit counts by something else.
    #[error("limit `{limit}` counts by {per}: name all values, as in {name}; {seen}")]
    NotAlone {
        /// The limit.
        limit: String,
        /// What it counts by.
        per: String,
        /// How to ask for it.
        name: String,
        /// The counters of such names that this proxy has seen, and how to ask for them.
        seen: String,
    },
    /// There is nothing to reset.
    #[error("no limit counts by `{0}` alone")]
    NoLimits(String),
    /// Some counters may not be reset.
    #[error("{0}: some counters may not be reset; try again")]
    NotReset(#[from] NotReset),
    /// Receipts from before may still be taken.
    #[error("{0}: the counters were reset, but not their receipts; try again")]
    NotMarked(#[from] StoreError),
    /// The system does not let it.
    #[error("cannot query the store: {0}")]
    System(#[from] std::io::Error),
}

impl CallerError {
    /// What to ask for instead of `asked`.
    fn not_alone(other: SharedLimit, asked: &str, command: CounterCommand) -> CallerError {
        let SharedLimit { limit, per, name, seen } = other;
        let seen = match seen.as_slice() {
            [] => format!("this proxy has seen none of `{asked}` lately"),
            names => {
                let lines = names.iter().map(|name| format!("\n  {}", command.line(name)));
                format!("this proxy has seen these lately:{}", lines.collect::<String>())
            }
        };
        CallerError::NotAlone { limit, per, name, seen }
    }
}

/// How the limits of a caller stand. It changes nothing, and opens no window.
///
/// It runs on this thread until it is known, and queries stores on the way: never call it where
/// others wait.
///
/// # Errors
/// [`CallerError`].
pub fn read(shared: &Arc<Shared>, query: &CallerQuery) -> Result<CallerReport, CallerError> {
    let snapshot = shared.snapshot();
    with_store(shared, async |store| {
        let found = find(shared, &snapshot.policies, query, CounterCommand::Look)?;
        let now = shared.clock.now();
        let rows: Vec<_> = found.own.iter().flat_map(|own| own.rows(now)).collect();
        let charges: Vec<Charge<'_>> = rows.iter().map(|row| row.charge).collect();
        let decision = store.peek_latest(&charges, now).await;
        let answer = Answer { rows: &rows, decision, now, seen: SeenNames::new(shared) };
        Ok(report::of(&found, &answer, shared.stores.settings()))
    })
}

/// Resets the counters of a caller, in all stores and on all proxies that share a Redis.
///
/// It runs on this thread, as [`read`] does.
///
/// # Errors
/// [`CallerError`]; of [`CallerError::NotReset`], some counters may be reset.
pub fn reset(shared: &Arc<Shared>, query: &CallerQuery) -> Result<ResetReport, CallerError> {
    let snapshot = shared.snapshot();
    let report = with_store(shared, async |store| {
        let found = find(shared, &snapshot.policies, query, CounterCommand::Reset)?;
        let seen = SeenNames::new(shared);
        of_one_caller(&found, &query.caller)?;
        let mut keys: Vec<_> = found.own.iter().flat_map(OwnCounters::keys).collect();
        if keys.is_empty() {
            // Those that count by more can be asked for.
            let first = found.own.iter().flat_map(|own| own.with_more(seen)).next();
            return Err(match first {
                Some(other) => CallerError::not_alone(other, &query.caller, CounterCommand::Reset),
                None => CallerError::NoLimits(query.caller.clone()),
            });
        }
        keys.sort_unstable_by_key(|key| key.entry);
        keys.dedup();
        let now = shared.clock.now();
        // Programs may have receipts of them.
        let rows: Vec<_> = found.own.iter().flat_map(|own| own.rows(now)).collect();
        let mut charges: Vec<Charge<'_>> = rows.iter().map(|row| row.charge).collect();
        charges.sort_unstable_by_key(|charge| charge.key.entry);
        charges.dedup_by_key(|charge| charge.key);
        keys.extend(charges.iter().map(|charge| of_reset(charge.key)));
        store.reset(&keys).await?;
        note_reset(&charges, store, now).await?;
        Ok(ResetReport::of(&found, seen))
    })?;
    shared.forget_standings();
    // A crash must not bring the counters back.
    shared.stores.save();
    Ok(report)
}

/// # Errors
/// Policies give the name to several callers.
fn of_one_caller(found: &Found<'_>, name: &str) -> Result<(), CallerError> {
    let counted = || found.own.iter().filter(|own| !own.limits.is_empty());
    let mut all = counted().map(OwnCounters::vouched_for);
    let first = all.next();
    if all.all(|own| Some(own) == first) {
        return Ok(());
    }
    let whose = counted()
        .map(|own| format!("{} in policy {}", own.issuer().unwrap_or_default(), own.policy.name));
    let whose = whose.collect::<Vec<_>>().join(", of ");
    Err(CallerError::SeveralCallers { name: name.to_owned(), whose })
}

/// Runs `work` over the counters that the proxy has, with connections of its own.
fn with_store<T>(
    shared: &Arc<Shared>,
    work: impl AsyncFnOnce(&std::rc::Rc<Store>) -> Result<T, CallerError>,
) -> Result<T, CallerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())?;
    runtime.block_on(async {
        let store = Store::start(Arc::clone(&shared.stores));
        // The secret must be known before a caller's counters can be named.
        store.ready(shared.clock.now()).await;
        work(&store).await
    })
}
