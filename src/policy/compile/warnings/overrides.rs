//! Overrides that are over, and those of limits that do not count by the caller that they name.

use crate::{
    identity::{CallerKey, IdentityRules},
    policy::{
        KeyPart, Limit, Override, Policy,
        compile::Compiler,
        file::{RawOverride, RawPolicy},
    },
    warning::{Condition, Rule},
    yaml::Spanned,
};

impl Compiler<'_> {
    pub(super) fn warn_of_overrides(&mut self, raw: &RawPolicy, policy: &Policy) {
        for limit in &policy.limits {
            let written = raw.overrides.iter().filter(|raw| *raw.limit.value == *limit.name);
            for (own, raw) in limit.overrides.0.iter().zip(written) {
                self.warn_of_end(own, raw);
                if !counts_by_caller(limit, own, &policy.identity) {
                    let message = format!(
                        "the override is for one caller, but limit `{}` does not count per caller",
                        limit.name
                    );
                    let help = "add `caller` to the limit's `per`, or remove the override";
                    self.warn(Rule::OverrideNotPerCaller, raw.caller.span, message, help);
                }
            }
        }
    }

    fn warn_of_end(&mut self, own: &Override, raw: &Spanned<RawOverride>) {
        let message = format!("the override for `{}` is over", raw.caller.value);
        let help = "write a later day, or remove the override";
        self.warn(Rule::EndedOverride, raw.until.span, message, help);
        self.only(Condition::From(own.until));
    }
}

/// Whether a counter of the limit is one caller's: it counts per caller, or by what names the caller.
fn counts_by_caller(limit: &Limit, own: &Override, identity: &IdentityRules) -> bool {
    let caller = identity.callers.iter().find(|caller| caller.name == own.caller.kind);
    let named_by = caller.and_then(|caller| match &caller.key {
        CallerKey::Claim(claim) => Some(KeyPart::Claim(claim.clone())),
        CallerKey::Address { .. } => Some(KeyPart::ClientIp),
        CallerKey::ApiKey(_) | CallerKey::Certificate(_) => None,
    });
    let counts_by = |part: &KeyPart| limit.per.parts.contains(part);
    counts_by(&KeyPart::Caller) || named_by.as_ref().is_some_and(counts_by)
}
