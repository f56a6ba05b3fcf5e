//! Overrides that are over, and those of limits that do not count by the caller that they name.

use tollgate_yaml::{
    Check,
    warning::{Condition, Rule},
};

use crate::{
    KeyPart, Limit, Override, Wanted,
    compile::Compiler,
    file::{RawOverride, RawPolicy},
};

impl Compiler<'_> {
    /// Looks at the latest override of `limit`, which `written` describes.
    pub(in crate::compile) fn warn_of_override(
        &mut self,
        limit: &Limit,
        written: &RawOverride,
        raw: &RawPolicy,
    ) {
        let Some(own) = limit.overrides.0.last() else { return };
        if let (Some(end), Some(until)) = (&written.until, own.until) {
            let message = format!("the override for `{own}` is over");
            let help = "write a later day, or remove the override";
            self.warn(Rule::EndedOverride, end.span, message, help);
            self.only(Condition::From(until));
        }
        if let Some(caller) = &written.caller
            && !counts_by_caller(limit, own, raw)
        {
            let message = format!(
                "the override is for one caller, but limit `{}` does not count per caller",
                limit.name
            );
            let help = "add `caller` to the limit's `per`, or remove the override";
            self.warn(Rule::OverrideNotPerCaller, caller.span, message, help);
        }
    }
}

/// Whether a counter of the limit is one caller's: it counts per caller, or by what names the
/// caller.
fn counts_by_caller(limit: &Limit, own: &Override, raw: &RawPolicy) -> bool {
    let kind = own.of.iter().find_map(|own| match &own.value {
        Wanted::Caller(name) => Some(&*name.kind),
        _ => None,
    });
    let entry = raw.identity.callers.iter().find(|entry| Some(&*entry.name.value) == kind);
    let named_by = entry.and_then(|entry| match entry.key.value.strip_prefix("jwt.") {
        Some(claim) => Some(KeyPart::Claim(claim.into())),
        None => (entry.key.value == "client.ip").then_some(KeyPart::ClientIp),
    });
    let counts_by = |part: &KeyPart| limit.per.parts.contains(part);
    counts_by(&KeyPart::Caller) || named_by.as_ref().is_some_and(counts_by)
}
