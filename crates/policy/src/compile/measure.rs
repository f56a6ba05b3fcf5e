//! Measures: how much, and how it is counted, checked field by field.
//!
//! Each algorithm has fields of its own, and one that it has no use for is refused: who writes
//! `burst` for a fixed window believes in a limit that is not there.

use std::time::Duration;

use tollgate_identity::Tiers;
use tollgate_keyword::Keyword;
use tollgate_limit::AlgorithmKind;
use tollgate_yaml::{Check, Node, Span, Spanned, Value};

use super::{
    Compiler,
    rates::{RateAlgorithm, WindowRate, is_strict},
    tiers::ByTier,
    words::DAY,
};
use crate::{
    Rate,
    file::{LATER, RawMeasure, RawRefill},
    rate::{Period, parse_period},
};

/// Windows of one limit: each is a counter for every key.
const MAX_WINDOWS: usize = 4;
const HOUR: Duration = Duration::from_secs(3600);

/// How much, and how it is counted. What is left to do is to take the numbers of a tier.
pub(super) enum Measure {
    Rates {
        /// The shortest window first; none: unlimited.
        rates: ByTier<Vec<WindowRate>>,
        algorithm: RateAlgorithm,
    },
    Refill {
        capacity: ByTier<Spanned<Units>>,
        amount: u32,
        interval: Duration,
        strict: bool,
    },
    Concurrent {
        limit: ByTier<Spanned<Units>>,
        lease: Duration,
        retry_after: Duration,
    },
}

/// A number that may be left open.
#[derive(Clone, Copy)]
pub(super) enum Units {
    Unlimited,
    Limited(u32),
}

impl Compiler<'_> {
    /// The measure that `raw` describes; `place` is where it is missing if it is.
    pub(super) fn measure(
        &mut self,
        raw: &RawMeasure,
        place: Span,
        tiers: &Tiers,
    ) -> Option<Measure> {
        let Some(algorithm) = self.algorithm(raw) else {
            self.check_numbers(raw, tiers);
            return None;
        };
        self.refuse_foreign_fields(raw, algorithm);
        if raw.align.is_some() && algorithm != AlgorithmKind::FixedWindow {
            self.check_numbers(raw, tiers);
            return None;
        }
        match (&raw.concurrent, &raw.refill, &raw.rate) {
            (Some(concurrent), _, _) => self.concurrent(raw, concurrent, tiers),
            (None, Some(refill), Some(_)) => {
                self.refuse(refill.span, "`refill` beside `rate`, which says the same", "keep one");
                None
            }
            (None, Some(refill), None) => self.refill(raw, refill, tiers),
            (None, None, Some(rate)) => {
                let rates = self.by_tier(rate, "rate", tiers, Self::rates);
                let algorithm = self.rate_algorithm(raw, algorithm, tiers);
                Some(Measure::Rates { rates: rates?, algorithm: algorithm? })
            }
            (None, None, None) => {
                self.refuse(
                    place,
                    "a limit without a rate",
                    "add `rate: 5000/hour`, or `concurrent: 20`",
                );
                None
            }
        }
    }

    /// Finds what is wrong with numbers by whatever they are counted.
    pub(super) fn check_numbers(&mut self, raw: &RawMeasure, tiers: &Tiers) {
        if let Some(rate) = &raw.rate {
            self.by_tier(rate, "rate", tiers, Self::rates);
        }
        let fields =
            [(&raw.burst, "burst"), (&raw.capacity, "capacity"), (&raw.concurrent, "number")];
        for (field, what) in fields {
            if let Some(node) = field {
                self.by_tier(node, what, tiers, Self::units);
            }
        }
    }

    fn algorithm(&mut self, raw: &RawMeasure) -> Option<AlgorithmKind> {
        let Some(word) = &raw.algorithm else {
            return Some(match raw.concurrent {
                Some(_) => AlgorithmKind::Concurrency,
                None => AlgorithmKind::FixedWindow,
            });
        };
        let algorithm = self.keyword(word)?;
        match (algorithm, &raw.concurrent) {
            (AlgorithmKind::Concurrency, None) => {
                self.refuse(
                    word.span,
                    "`concurrency` needs `concurrent`",
                    "add how many requests at once: `concurrent: 20`",
                );
                None
            }
            (AlgorithmKind::Concurrency, Some(_)) | (_, None) => Some(algorithm),
            (_, Some(concurrent)) => {
                self.refuse(
                    concurrent.span,
                    format!("`concurrent` does not go with {}", algorithm.keyword()),
                    "remove `algorithm`, or write a `rate`",
                );
                None
            }
        }
    }

    fn refuse_foreign_fields(&mut self, raw: &RawMeasure, algorithm: AlgorithmKind) {
        fn span<T>(field: &Option<Spanned<T>>) -> Option<Span> {
            field.as_ref().map(|field| field.span)
        }
        let node = |field: &Option<Node>| field.as_ref().map(|node| node.span);
        let fields = [
            ("align", span(&raw.align), AlgorithmKind::FixedWindow),
            // A time zone only belongs to `align`, which is refused then.
            (
                "timezone",
                span(&raw.timezone).filter(|_| raw.align.is_none()),
                AlgorithmKind::FixedWindow,
            ),
            ("burst", node(&raw.burst), AlgorithmKind::Gcra),
            ("capacity", node(&raw.capacity), AlgorithmKind::TokenBucket),
            ("refill", node(&raw.refill), AlgorithmKind::TokenBucket),
            ("strict", span(&raw.strict), AlgorithmKind::TokenBucket),
            ("lease", span(&raw.lease), AlgorithmKind::Concurrency),
            ("retry_after", span(&raw.retry_after), AlgorithmKind::Concurrency),
        ];
        for (field, span, owner) in fields {
            if let Some(span) = span.filter(|_| owner != algorithm) {
                let needed = match owner.holds_leases() {
                    true => "concurrent".to_owned(),
                    false => format!("algorithm: {}", owner.keyword()),
                };
                // A fixed window by default may be meant as another algorithm.
                let is_default = algorithm == AlgorithmKind::FixedWindow && raw.algorithm.is_none();
                let help = if owner == AlgorithmKind::FixedWindow {
                    format!("write `{needed}`, or remove this")
                } else if is_default && !owner.holds_leases() {
                    format!("add `{needed}`, or remove it")
                } else {
                    "remove it".to_owned()
                };
                self.refuse(span, format!("`{field}` needs `{needed}`"), help);
            }
        }
        if let (AlgorithmKind::Concurrency, Some(rate)) = (algorithm, &raw.rate) {
            self.refuse(
                rate.span,
                "`rate` beside `concurrent`",
                "keep one; make the other a limit of its own",
            );
        }
    }

    fn concurrent(
        &mut self,
        raw: &RawMeasure,
        concurrent: &Node,
        tiers: &Tiers,
    ) -> Option<Measure> {
        const WHOLE: &str = "write whole seconds, 1s to 1h";
        let limit = self.by_tier(concurrent, "number", tiers, Self::units);
        let second = Duration::from_secs(1);
        let lease = self.time_or(&raw.lease, second..=DAY, Duration::from_secs(60));
        let retry_after = self.time_or(&raw.retry_after, second..=HOUR, second);
        if let Some(raw) = &raw.retry_after
            && retry_after.subsec_nanos() != 0
        {
            self.refuse(raw.span, "a fraction of a second", WHOLE);
        }
        Some(Measure::Concurrent { limit: limit?, lease, retry_after })
    }

    fn refill(&mut self, raw: &RawMeasure, refill: &Node, tiers: &Tiers) -> Option<Measure> {
        let capacity = match &raw.capacity {
            Some(capacity) => self.by_tier(capacity, "capacity", tiers, Self::units),
            None => {
                self.refuse(refill.span, "a bucket without a capacity", "add `capacity: 50`");
                None
            }
        };
        let RawRefill { amount, interval } = self.decode(refill, LATER)?;
        let units = self.count(&amount);
        if units == Some(0) {
            self.refuse(amount.span, "a bucket that is never filled", "write at least 1");
        }
        const HELP: &str = "write a time such as 1s or 10 minutes";
        let length = match parse_period(&interval.value) {
            Ok(Period::Length(length)) => Some(length),
            Ok(Period::Month | Period::Year) => {
                self.refuse(interval.span, "months and years differ in length", HELP);
                None
            }
            Err(error) => {
                self.note(interval.span, error.to_string(), HELP);
                None
            }
        };
        Some(Measure::Refill {
            capacity: capacity?,
            amount: units?,
            interval: length?,
            strict: is_strict(raw),
        })
    }

    /// One rate or several windows at once, the shortest first.
    fn rates(&mut self, node: &Node) -> Option<Vec<WindowRate>> {
        let nodes = match &node.value {
            Value::Sequence(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(node),
        };
        if nodes.is_empty() || nodes.len() > MAX_WINDOWS {
            let message = format!("{} windows", nodes.len());
            self.refuse(node.span, message, format!("write 1 to {MAX_WINDOWS} rates"));
            return None;
        }
        let rates: Vec<Option<Rate>> = nodes.iter().map(|node| self.rate(node)).collect();
        let rates: Vec<Rate> = rates.into_iter().collect::<Option<_>>()?;
        let mut windows: Vec<WindowRate> = Vec::new();
        for (rate, Node { span, .. }) in rates.iter().zip(nodes) {
            let &Rate::Limited { limit, period } = rate else {
                if rates.len() > 1 {
                    self.refuse(*span, "`unlimited` beside other rates", "remove it");
                    return None;
                }
                return Some(Vec::new());
            };
            if windows.iter().any(|earlier| earlier.period == period) {
                self.refuse(*span, "two rates with the same window", "keep one");
                return None;
            }
            windows.push(WindowRate { limit, period, span: *span });
        }
        windows.sort_by_key(|window| window.period.longest());
        Some(windows)
    }

    fn rate(&mut self, node: &Node) -> Option<Rate> {
        match self.text(node)?.parse() {
            Ok(rate) => Some(rate),
            Err(error) => {
                self.note(node.span, error.to_string(), error.help());
                None
            }
        }
    }

    fn units(&mut self, node: &Node) -> Option<Spanned<Units>> {
        let value = match &node.value {
            Value::String(text) if text == "unlimited" => Units::Unlimited,
            _ => Units::Limited(self.count(node)?),
        };
        Some(Spanned { value, span: node.span })
    }

    /// A number of units that is not zero.
    pub(super) fn some(&mut self, node: &Node) -> Option<Spanned<u32>> {
        let value = self.count(node)?;
        if value == 0 {
            self.refuse(
                node.span,
                "0 would deny every request",
                "write at least 1, or `rate: 0/hour`",
            );
            return None;
        }
        Some(Spanned { value, span: node.span })
    }
}

impl RawMeasure {
    /// This measure over another: what it leaves out is as `base` says, where that goes with what
    /// it does say.
    pub(super) fn over(self, base: RawMeasure) -> RawMeasure {
        let name = |raw: &RawMeasure| {
            let written = raw.algorithm.as_ref().map(|algorithm| algorithm.value.as_ref());
            written.unwrap_or(AlgorithmKind::FixedWindow.keyword()).to_owned()
        };
        if self.algorithm.is_some() && name(&self) != name(&base) {
            let rate = if self.refill.is_some() { None } else { base.rate };
            return RawMeasure { rate: self.rate.clone().or(rate), ..self };
        }
        RawMeasure {
            algorithm: self.algorithm.or(base.algorithm),
            rate: self.rate.clone().or(base.rate.filter(|_| self.refill.is_none())),
            refill: self.refill.clone().or(base.refill.filter(|_| self.rate.is_none())),
            timezone: self.timezone.or(base.timezone.filter(|_| self.align.is_none())),
            align: self.align.or(base.align),
            burst: self.burst.or(base.burst),
            capacity: self.capacity.or(base.capacity),
            strict: self.strict.or(base.strict),
            concurrent: self.concurrent.or(base.concurrent),
            lease: self.lease.or(base.lease),
            retry_after: self.retry_after.or(base.retry_after),
        }
    }
}
