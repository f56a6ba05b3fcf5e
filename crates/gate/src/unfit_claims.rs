//! Claims whose value no limit can count by: lists of several values, objects, empty values.
//!
//! To a limit such a claim is missing. The author of the policy may not know that tokens have it in
//! that form, so the log names the form, and never the value.

use serde_json::Value;
use tollgate_clock::Timestamp;
use tollgate_identity::{Identifier, Identity};
use tollgate_policy::{KeyPart, Limit, OnMissing, Policy};

use super::charge_context::keys::counted_claim;

/// Warns about a claim that keeps `limit` from counting a request: once in a while in the whole
/// process, since every request may have one.
pub(super) fn warn_of_unfit_claim(
    policy: &Policy,
    limit: &Limit,
    identity: &Identity<'_>,
    identifier: &Identifier,
    now: Timestamp,
) {
    let warnings = &identifier.unfit_claims;
    if !warnings.is_due(now) {
        return;
    }
    let mut claims = limit.per.parts.iter().filter_map(|part| match part {
        KeyPart::Claim(name) => Some((name, unfit_claim(identity, name)?)),
        _ => None,
    });
    let Some((name, form)) = claims.next().filter(|_| warnings.take(now)) else { return };
    let on_missing = match limit.per.on_missing {
        OnMissing::Skip => "skip",
        OnMissing::Deny => "deny",
        OnMissing::Share => "share",
    };
    tracing::warn!(
        policy = %policy.name,
        limit = %limit.name,
        claim = %name,
        %form,
        %on_missing,
        "a claim that a limit counts by has no single value, and counts as missing"
    );
}

/// The form of a claim of the verified token, if no limit can count by it.
pub fn unfit_claim(identity: &Identity<'_>, name: &str) -> Option<String> {
    let known = identity.token.as_ref()?;
    form_of(known.token.claims.lookup(name)?)
}

/// The form of a value that no limit can count by.
fn form_of(value: &Value) -> Option<String> {
    let counted = counted_claim(value);
    let form = match counted {
        Value::Array(values) if values.is_empty() => "an empty list".to_owned(),
        Value::Array(values) => format!("a list of {}", values.len()),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.is_empty() => "an empty text".to_owned(),
        Value::Null => "null".to_owned(),
        Value::String(_) | Value::Number(_) | Value::Bool(_) => return None,
    };
    match std::ptr::eq(counted, value) {
        true => Some(form),
        false => Some(format!("a list of {form}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn form_of_a_claim_reveals_nothing_of_its_value() {
        for (value, form) in [
            (json!("octo"), None),
            (json!(["octo"]), None),
            (json!(0), None),
            (json!([false]), None),
            (json!([]), Some("an empty list")),
            (json!(["octo", "cats"]), Some("a list of 2")),
            (json!([["octo"]]), Some("a list of a list of 1")),
            (json!([[]]), Some("a list of an empty list")),
            (json!({ "id": 1 }), Some("an object")),
            (json!([{ "id": 1 }]), Some("a list of an object")),
            (json!(""), Some("an empty text")),
            (json!(null), Some("null")),
        ] {
            assert_eq!(form_of(&value).as_deref(), form, "{value}");
        }
    }
}
