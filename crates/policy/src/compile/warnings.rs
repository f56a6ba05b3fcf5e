//! What a policy says that is surely not meant: routes that no request takes, names that nothing
//! uses, keys that clients choose or leave out, networks that hold everybody, claims that no token
//! has, tokens that are for others, certificates that no client is asked for.

mod audiences;
mod certificates;
mod exempt;
mod holes;
mod keys;
mod overrides;
mod routes;
mod subjects;
mod tenants;
#[cfg(test)]
mod tests;
mod unused;

use tollgate_yaml::warning::Condition;

pub use self::subjects::Vouchers;
pub(crate) use self::subjects::warn_across;
use super::Compiler;
use crate::{Policy, file::RawPolicy};

impl Compiler<'_> {
    /// Makes the latest warning one that holds only under this condition.
    fn only(&mut self, condition: Condition) {
        if let Some(warning) = self.inspection.warnings.last_mut() {
            warning.condition = condition;
        }
    }

    /// Looks at a policy as a whole, once it is known to be sound.
    pub(super) fn warn_of(&mut self, raw: &RawPolicy, policy: &Policy) {
        // What is left out of a policy with problems would seem to be unused.
        if !self.inspection.problems.is_empty() {
            return;
        }
        self.warn_of_shadowed_routes(raw, policy);
        self.warn_of_unused_limits(raw, policy);
        self.warn_of_unused_tiers(raw, policy);
        self.warn_of_free_keys(raw, policy);
        self.warn_of_unsaid_keys(raw, policy);
        self.warn_of_skippable_keys(raw, policy);
        self.warn_of_claims_without_token(raw, policy);
        self.warn_of_limits_that_never_count(raw, policy);
        self.warn_of_exempt_networks(raw);
        self.warn_of_shared_subjects(raw, policy);
        self.warn_of_absent_tenant_claims(raw, policy);
        self.warn_of_idle_braces(raw, policy);
        self.warn_of_missing_audiences(raw, policy);
        self.warn_of_unasked_certificates(raw, policy);
    }
}
