//! Overrides: of which limit, for which callers, how much, and until when.

use tollgate_clock::Timestamp;
use tollgate_identity::Tiers;
use tollgate_yaml::{Check, Node, Span, Spanned, Value};

use super::{Compiler, WrittenNames, quotas::AllowanceContext};
use crate::{
    Allowances, KeyPart, KeyValue, Limit, NamedKey, OnMissing, Override, Per, Wanted,
    file::{LATER, RawMeasure, RawOverride, RawPolicy},
};

/// An override as it is written: its fields, and by names of their own what it is for.
struct WrittenOverride {
    place: Span,
    fields: RawOverride,
    keys: Vec<(Spanned<String>, Node)>,
    /// Whether a field of it is wrong: it may be the one that names the caller.
    is_faulty: bool,
}

impl Compiler<'_> {
    /// Adds each override to its limit.
    pub(super) fn overrides(
        &mut self,
        raw: &RawPolicy,
        names: &WrittenNames<'_>,
        tiers: &Tiers,
        limits: &mut [Limit],
    ) {
        for node in &raw.overrides {
            let Some(written) = self.written_override(node) else { continue };
            let fields = &written.fields;
            let known = self.resolve(&fields.limit, &names.limits);
            let until = match &fields.until {
                None => Some(None),
                Some(until) => self.until(until).map(Some),
            };
            if fields.why.value.trim().is_empty() {
                self.refuse(
                    fields.why.span,
                    "no reason",
                    "write the reason, for the people who read this later",
                );
            }
            let limit = limits.iter_mut().find(|limit| *limit.name == *fields.limit.value);
            let refunds = limit.as_ref().and_then(|limit| limit.refund.at_most);
            let allowances = match known {
                Some(_) => self.override_allowances(&written, raw, tiers, refunds),
                None => {
                    if let Some(own) = self.override_measure(fields) {
                        self.check_numbers(&own, tiers);
                    }
                    None
                }
            };
            let of = match &limit {
                Some(limit) => self.override_keys(&written, &limit.per, raw, names),
                // A mistake in these is reported whatever is wrong with the limit.
                None => {
                    self.override_caller(fields, raw, names);
                    self.check_override_keys(&written.keys);
                    None
                }
            };
            let (Some(limit), Some(of), Some(until), Some(allowances)) =
                (limit, of, until, allowances)
            else {
                continue;
            };
            if limit.overrides.0.iter().any(|earlier| earlier.of == of) {
                let (place, owner) = match &fields.caller {
                    Some(caller) if written.keys.is_empty() => (caller.span, "this caller"),
                    _ => (written.place, "the same"),
                };
                let message = format!("a second override of `{}` for {owner}", limit.name);
                self.refuse(place, message, "keep one");
            }
            let why = fields.why.value.as_str().into();
            limit.overrides.0.push(Override { of, allowances, until, why });
            self.warn_of_override(limit, fields, raw);
        }
    }

    /// Takes apart what serde could not: names of keys are not known beforehand.
    fn written_override(&mut self, node: &Node) -> Option<WrittenOverride> {
        let (keys, fields) = match &node.value {
            Value::Mapping(entries) => entries.iter().cloned().partition(|(key, _)| is_key(key)),
            _ => (Vec::new(), Vec::new()),
        };
        let rest = match &node.value {
            Value::Mapping(_) => Node { span: node.span, value: Value::Mapping(fields) },
            _ => node.clone(),
        };
        let before = self.inspection.problems.len();
        let fields = self.decode(&rest, LATER)?;
        let is_faulty = self.inspection.problems.len() > before;
        Some(WrittenOverride { place: node.span, fields, keys, is_faulty })
    }

    fn override_caller(
        &mut self,
        raw: &RawOverride,
        policy: &RawPolicy,
        names: &WrittenNames<'_>,
    ) -> Option<Vec<KeyValue>> {
        let Some(caller) = &raw.caller else { return Some(Vec::new()) };
        let caller = self.caller_name(caller, &policy.identity, names)?;
        Some(vec![KeyValue { part: KeyPart::Caller, value: Wanted::Caller(caller) }])
    }

    /// What an override is for: a caller, and parts of what the limit counts by.
    fn override_keys(
        &mut self,
        written: &WrittenOverride,
        per: &Per,
        raw: &RawPolicy,
        names: &WrittenNames<'_>,
    ) -> Option<Vec<KeyValue>> {
        let caller = self.override_caller(&written.fields, raw, names);
        let issuer = self.override_issuer(written, names);
        let mut all = Some(Vec::new());
        for (key, node) in &written.keys {
            let value = self.override_key(key, node, per).map(|mut own| {
                if let Wanted::Claim { issuer: of, .. } = &mut own.value {
                    *of = issuer.flatten();
                }
                own
            });
            all = all.zip(value).map(|(mut all, value)| {
                all.push(value);
                all
            });
        }
        let of = [caller?, all?].concat();
        if of.is_empty() {
            if !written.is_faulty {
                let help = format!("name the caller: {}", example(per));
                self.refuse(written.place, "an override for everybody is a limit", help);
            }
            return None;
        }
        issuer.map(|_| of)
    }

    /// Whose word claims are: what two issuers say alike is not the same.
    fn override_issuer(
        &mut self,
        written: &WrittenOverride,
        names: &WrittenNames<'_>,
    ) -> Option<Option<usize>> {
        let claim = written.keys.iter().find(|(key, _)| is_claim(key));
        match (&written.fields.issuer, claim) {
            (Some(issuer), None) => {
                self.refuse(
                    issuer.span,
                    "`issuer` says whose claims are meant, and none is named",
                    "remove it; of a caller, write whose it is as in main/user:42",
                );
                None
            }
            (Some(issuer), Some(_)) => {
                let at = self.resolve(issuer, &names.issuers)?;
                if at >= names.vouching {
                    let message = format!("`{}` has no claims", issuer.value);
                    self.refuse(issuer.span, message, "write the name of an issuer of tokens");
                    return None;
                }
                Some(Some(at))
            }
            (None, Some((key, _))) if names.vouching > 1 && names.issuers.is_complete => {
                let first = names.issuers.names.first().copied().unwrap_or_default();
                self.refuse(
                    key.span,
                    format!("`{}` may be a claim of any issuer", key.value),
                    format!("say whose: `issuer: {first}`"),
                );
                None
            }
            (None, _) => Some(None),
        }
    }

    /// Finds what is wrong with keys of an override by whatever its limit counts.
    fn check_override_keys(&mut self, keys: &[(Spanned<String>, Node)]) {
        for (key, node) in keys {
            let name = Node { span: key.span, value: Value::String(key.value.clone()) };
            let Some(part) = self.key_part(&name) else { continue };
            let (ipv4_prefix, ipv6_prefix) = (32, 128);
            let on_missing = OnMissing::default();
            let per = Per { parts: vec![part.clone()], on_missing, ipv4_prefix, ipv6_prefix };
            self.wanted(&part, node, &per);
        }
    }

    fn override_key(&mut self, key: &Spanned<String>, node: &Node, per: &Per) -> Option<KeyValue> {
        let name = Node { span: key.span, value: Value::String(key.value.clone()) };
        let part = self.key_part(&name)?;
        if !per.parts.contains(&part) {
            let message = format!("the limit does not count by {}", part);
            self.refuse(key.span, message, format!("write {}", example(per)));
            return None;
        }
        let value = self.wanted(&part, node, per)?;
        Some(KeyValue { part, value })
    }

    fn override_allowances(
        &mut self,
        written: &WrittenOverride,
        raw: &RawPolicy,
        tiers: &Tiers,
        refunds: Option<u8>,
    ) -> Option<Allowances> {
        let fields = &written.fields;
        let own = self.override_measure(fields)?;
        let Some(limit) = raw.limits.get(&fields.limit.value) else {
            self.check_numbers(&own, tiers);
            return None;
        };
        let base = limit.measure();
        self.check_same_kind(&own, &base)?;
        let measure = self.measure(&own.over(base), written.place, tiers)?;
        let context = AllowanceContext {
            limit: &fields.limit.value,
            tier: None,
            is_candidate: false,
            refunds,
            place: fields.limit.span,
        };
        self.allowances(&measure, context)
    }

    fn override_measure(&mut self, raw: &RawOverride) -> Option<RawMeasure> {
        let fields = [&raw.rate, &raw.burst, &raw.capacity, &raw.concurrent];
        if fields.iter().all(|field| field.is_none()) {
            self.refuse(
                raw.limit.span,
                "an override without a rate",
                "add `rate: 50000/hour`, or `rate: unlimited`",
            );
            return None;
        }
        let is_by_tier = |node: &&Node| matches!(node.value, Value::Mapping(_));
        if let Some(node) = fields.into_iter().flatten().find(is_by_tier) {
            self.refuse(node.span, "an override has one rate for all tiers", "write one value");
            return None;
        }
        Some(RawMeasure {
            rate: raw.rate.clone(),
            burst: raw.burst.clone(),
            capacity: raw.capacity.clone(),
            concurrent: raw.concurrent.clone(),
            ..RawMeasure::default()
        })
    }

    /// The first instant after a day in UTC, or an instant.
    fn until(&mut self, raw: &Spanned<String>) -> Option<Timestamp> {
        let until = Timestamp::parse_end(&raw.value);
        if until.is_none() {
            self.note(
                raw.span,
                format!("`{}` is not a date", raw.value),
                "write 2026-12-31 or 2026-12-31T18:00:00Z",
            );
        }
        until
    }
}

/// Whether an entry says what an override is for, and is not one of its fields.
fn is_key(key: &Spanned<String>) -> bool {
    match key.value.split_once('.') {
        Some((prefix, _)) => {
            ["client", "mcp"].contains(&prefix) || NamedKey::from_prefix(prefix).is_some()
        }
        // `caller` is a field of an override.
        None => {
            let mut keywords = KeyPart::KEYWORDS.iter().map(|(keyword, _)| *keyword);
            key.value != "caller" && keywords.any(|keyword| keyword == key.value)
        }
    }
}

/// What an override of a limit that is counted so can be for.
fn example(per: &Per) -> String {
    let part = |part: &KeyPart| match part {
        KeyPart::Caller => "`caller: \"user:42\"`".to_owned(),
        other => format!("`{}: …`", other),
    };
    per.parts.iter().map(part).collect::<Vec<_>>().join(" or ")
}

fn is_claim(key: &Spanned<String>) -> bool {
    matches!(key.value.split_once('.'), Some(("jwt" | "claim", _)))
}
