//! Charges whose client goes away while servers are asked. The store in the process is never waited
//! for.

use super::subject::{Home, one, quotas};
use crate::support::eventually;

for_each_store! { single (charge_whose_reply_is_never_read_is_given_back) }
for_each_store! { sharded (charge_whose_reply_is_never_read_is_given_back) }
for_each_store! { cluster (charge_whose_reply_is_never_read_is_given_back) }

/// The client goes after the reply has arrived, and before it is read.
fn charge_whose_reply_is_never_read_is_given_back(home: &Home) {
    let store = home.open();
    for (name, quota) in &quotas(5) {
        let owners = ["alice", "bob", "carol"].map(|owner| format!("{owner} of the {name}"));
        let charges = owners.each_ref().map(|owner| one(owner, name, quota));
        for charges in [&charges[..1], &charges[..]] {
            store.abandon(charges);
            for charge in charges {
                let is_unused = || store.used(charge) == 0;
                eventually(&format!("{name} is given back"), || is_unused().then_some(()));
            }
        }
    }
}
