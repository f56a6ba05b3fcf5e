//! Resets counters that programs name, and logs who did it. Lines of this file are never left out
//! (`crates/observe/src/events/repeats.rs`).

use std::sync::Arc;

use tollgate_gate::CallHead;
use tollgate_limit::Charge;

use super::{
    call::{Answer, CallError},
    reason::Reason,
};
use crate::decisions::named_limits::{NamedPlan, note_reset, of_reset};

/// Makes counters as never used, and has their receipts end.
pub(super) async fn reset(
    head: &CallHead<'_, '_>,
    named: &NamedPlan<'_>,
    limit: &str,
    why: &Reason,
) -> Result<Answer, CallError> {
    let charges = &named.plan.charges;
    let result = reset_counters(head, charges).await;
    let by = head.program.address.to_string();
    let asked_by = head.program.protocol;
    let key = charges.first().map(|charge| format!("{:032x}", charge.key.owner));
    let key = key.unwrap_or_default();
    let why = why.as_str();
    match &result {
        Ok(()) => tracing::info!(by, asked_by, limit, key, why, "counters of a key were reset"),
        Err(error) => {
            tracing::warn!(%error, by, asked_by, limit, key, why, "a reset of a key failed");
        }
    }
    result.map(|()| Answer::default())
}

async fn reset_counters(head: &CallHead<'_, '_>, charges: &[Charge<'_>]) -> Result<(), CallError> {
    let store = head.gate.store();
    let keys = charges.iter().flat_map(|charge| [charge.key, of_reset(charge.key)]);
    let keys: Vec<_> = keys.collect();
    store.reset(&keys).await?;
    note_reset(charges, store, head.arrival.now).await?;
    // A crash must not bring the counters back; and writing them must not hold up a worker.
    let stores = Arc::clone(&head.gate.shared().stores);
    let _ = tokio::task::spawn_blocking(move || stores.save()).await;
    Ok(())
}
