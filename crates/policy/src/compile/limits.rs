//! Limits: a measure, what it is counted per, and for which callers it is enforced.

use std::collections::HashMap;

use http::HeaderValue;
use tollgate_identity::Tiers;
use tollgate_limit::WhenFull;
use tollgate_yaml::{Check, Choice, Entries, Problem, Span, Spanned};

use super::{
    Compiler, measure::Measure, quotas::AllowanceContext, rates::NEEDS_CALENDAR, words::Names,
};
use crate::{
    Allowances, Cost, Enforcement, KeyPart, Limit, OpenParts, Overrides,
    cost::{BodyCost, StreamUsage},
    file::{Mode, OnStoreFull, RawLimit, RawMeasure},
};

/// Longest name of a limit or of one of its windows in responses.
const MAX_NAME: usize = 64;

impl Compiler<'_> {
    pub(super) fn limit(
        &mut self,
        name: &Spanned<String>,
        raw: &RawLimit,
        tiers: &Tiers,
        issuers: &Names<'_>,
    ) -> Option<Limit> {
        self.check_name(name, "limit");
        self.refuse_what_leases_ignore(raw);
        let per = self.per(raw, issuers);
        let refund = self.refund(raw);
        let refunds = refund.as_ref().and_then(|refund| refund.at_most);
        let context = AllowanceContext {
            limit: name.as_str(),
            tier: None,
            is_candidate: false,
            refunds,
            place: name.span,
        };
        let measure = self.measure(&raw.measure(), name.span, tiers);
        let rates = measure.and_then(|measure| self.for_each_tier(&measure, context, tiers));
        let candidate = match &raw.candidate {
            None => Some(Vec::new()),
            Some(candidate) => self.candidate(candidate, raw, context, tiers),
        };
        let cost = per.as_ref().and_then(|per| self.limit_cost(raw, per));
        let count_when = self.count_when(raw);
        let asked = |part: &KeyPart| matches!(part, KeyPart::Key | KeyPart::Descriptor(_));
        if let Some(part) = per.as_ref().and_then(|per| per.parts.iter().find(|part| asked(part))) {
            self.refuse_what_programs_ignore(raw, part, cost.as_ref());
        } else if let (Some(verified), Some(per)) = (&raw.verified, &per)
            && !per.parts.iter().all(KeyPart::is_vouched_for)
        {
            let message = "`verified` goes with keys that programs name: `key`, `descriptor.<key>`, \
                           `caller` and claims";
            let help = "remove it; who chooses other keys is known";
            self.refuse(verified.span, message, help);
        }
        let enforcement = self.enforcement(raw);
        let fallback = self.keyword_or_default(raw.on_store_error.as_ref());
        let full = self.when_full(raw.on_store_full.as_ref());
        Some(Limit {
            name: name.value.as_str().into(),
            position: 0,
            resource: HeaderValue::from_str(&name.value).ok()?,
            per: per?,
            verified: raw.verified.as_ref().is_some_and(|verified| verified.value),
            open: OpenParts::default(),
            rates: rates?,
            overrides: Overrides::default(),
            cost: cost?,
            refund: refund?,
            count_when: count_when?,
            enforcement: enforcement?,
            fallback: fallback?,
            full: full?,
            candidate: candidate?,
        })
    }

    fn for_each_tier(
        &mut self,
        measure: &Measure,
        context: AllowanceContext<'_>,
        tiers: &Tiers,
    ) -> Option<Vec<Allowances>> {
        let found = self.inspection.problems.len();
        let each: Vec<Option<Allowances>> = (0..tiers.len())
            .map(|tier| self.allowances(measure, AllowanceContext { tier: Some(tier), ..context }))
            .collect();
        // One missing field, however many tiers need it.
        let of_tiers = self.inspection.problems.split_off(found);
        let mut is_known = false;
        let is_another = move |problem: &Problem| {
            problem.message() != NEEDS_CALENDAR || !std::mem::replace(&mut is_known, true)
        };
        self.inspection.problems.extend(of_tiers.into_iter().filter(is_another));
        each.into_iter().collect()
    }

    fn candidate(
        &mut self,
        candidate: &Spanned<RawMeasure>,
        limit: &RawLimit,
        context: AllowanceContext<'_>,
        tiers: &Tiers,
    ) -> Option<Vec<Allowances>> {
        let own = &candidate.value;
        let base = limit.measure();
        if own.rate.is_none() && own.refill.is_none() && own.concurrent.is_none() {
            let help = if base.concurrent.is_some() { "concurrent: 20" } else { "rate: 5000/hour" };
            let message = "a candidate without a rate";
            self.refuse(candidate.span, message, format!("add `{help}`"));
            return None;
        }
        self.check_same_kind(own, &base)?;
        let measure = self.measure(&own.clone().over(base), candidate.span, tiers)?;
        let context = AllowanceContext { is_candidate: true, place: candidate.span, ..context };
        self.for_each_tier(&measure, context, tiers)
    }

    /// Refuses a rate in place of requests at once, and the reverse: refunds differ.
    pub(super) fn check_same_kind(&mut self, own: &RawMeasure, base: &RawMeasure) -> Option<()> {
        let rate = own.rate.as_ref().or(own.refill.as_ref());
        let refused = match (rate, &own.concurrent, &base.concurrent) {
            (Some(rate), _, Some(_)) => {
                (rate.span, "the limit is of requests at once", "write `concurrent`")
            }
            (_, Some(concurrent), None) => (concurrent.span, "the limit is a rate", "write `rate`"),
            _ => return Some(()),
        };
        let (span, message, help) = refused;
        self.refuse(span, message, help);
        None
    }

    /// Requests at once always count one each, and for as long as they last.
    fn refuse_what_leases_ignore(&mut self, raw: &RawLimit) {
        // Beside a rate, `concurrent` is the mistake.
        if raw.concurrent.is_none() || raw.rate.is_some() {
            return;
        }
        let fields = [
            ("cost", raw.cost.as_ref().map(|cost| cost.span)),
            ("refund", raw.refund.as_ref().map(|refund| refund.span)),
            ("count_when", raw.count_when.as_ref().map(|count_when| count_when.span)),
        ];
        for (field, span) in fields {
            if let Some(span) = span {
                let message = format!("`{field}` does not go with `concurrent`");
                self.refuse(span, message, "remove it; each request in flight counts one");
            }
        }
    }

    /// A program says what it charges, and gives back itself: there is no request and no response.
    fn refuse_what_programs_ignore(&mut self, raw: &RawLimit, part: &KeyPart, cost: Option<&Cost>) {
        let fields = [
            ("on_missing", raw.on_missing.as_ref().map(|field| field.span)),
            ("refund", raw.refund.as_ref().map(|field| field.span)),
            ("count_when", raw.count_when.as_ref().map(|field| field.span)),
        ];
        for (field, span) in fields {
            if let Some(span) = span {
                let message = format!("`{field}` does not go with `per: {part}`");
                let help = "remove it; programs say what they charge, and settle it themselves";
                self.refuse(span, message, help);
            }
        }
        if let (Some(node), Some(cost)) = (&raw.cost, cost)
            && !is_for_programs(cost, part)
        {
            let help = match part {
                KeyPart::Key => {
                    "write a number, or `from_response: { usage: auto }` with no more than \
                     `weights` and a `reserve` that is a number"
                }
                _ => "write a number; programs say what they charge, and settle it themselves",
            };
            self.refuse(node.span, format!("this `cost` does not go with `per: {part}`"), help);
        }
    }

    fn enforcement(&mut self, raw: &RawLimit) -> Option<Enforcement> {
        let mode = match self.keyword_or_default(raw.mode.as_ref())? {
            Mode::Enforce => Enforcement::AllCallers,
            Mode::Shadow => Enforcement::Shadow,
        };
        let Some(percent) = &raw.enforce_percent else { return Some(mode) };
        let refused = match (mode, percent.value) {
            (Enforcement::Shadow, _) => ("a limit in shadow mode never denies", "remove it"),
            (_, 0..=99) => return Some(Enforcement::Percent(percent.value)),
            (_, 100) => return Some(Enforcement::AllCallers),
            _ => ("more than 100 percent", "write 0 to 100"),
        };
        self.refuse(percent.span, refused.0, refused.1);
        None
    }

    fn when_full(&mut self, raw: Option<&Spanned<Choice<OnStoreFull>>>) -> Option<WhenFull> {
        let Some(raw) = raw else { return Some(WhenFull::default()) };
        Some(match self.keyword(raw)? {
            OnStoreFull::Open => WhenFull::Open,
            OnStoreFull::Closed => WhenFull::Closed,
        })
    }

    /// Clients distinguish limits by name: a window's name must be short and not that of another
    /// limit.
    pub(super) fn check_window_names(&mut self, raw: &Entries<RawLimit>, limits: &[Limit]) {
        let places: HashMap<&str, Span> =
            raw.iter().map(|(name, _)| (name.as_str(), name.span)).collect();
        for limit in limits {
            let windows = limit.rates.iter().flatten().filter(|window| window.name != limit.name);
            for window in windows {
                let place = places.get(&*limit.name).copied().unwrap_or_default();
                if window.name.len() > MAX_NAME {
                    let message = format!("too long with the name of a window, `{}`", window.name);
                    self.refuse(place, message, "write a shorter one");
                } else if let Some(place) = places.get(&*window.name) {
                    let message = format!("a window of limit `{}` is called so", limit.name);
                    self.refuse(*place, message, "write another name");
                }
            }
        }
    }
}

/// Whether programs can charge this cost, and settle it: a number, or, for a key that they name, a
/// price of the usage that they hand over. They have no request and no stream to read.
fn is_for_programs(cost: &Cost, part: &KeyPart) -> bool {
    let Cost { by_method, default: _, source, reserve, abandoned } = cost;
    let is_told = match cost.by_usage() {
        Some(BodyCost { stream_usage, stop_upstream, .. }) => {
            *part == KeyPart::Key && *stream_usage == StreamUsage::default() && !stop_upstream
        }
        None => source.is_none(),
    };
    is_told && by_method.is_empty() && reserve.is_none() && abandoned.is_none()
}

impl Limit {
    /// Whether it limits requests at once.
    pub(super) fn counts_leases(&self) -> bool {
        self.rates.iter().flatten().any(|allowance| allowance.quota.holds_leases())
    }
}
