//! Follows the body of a response for the costs that it tells, while it passes: nothing is held
//! back for that.

use std::{cell::Cell, rc::Rc, time::Duration};

use http::{HeaderMap, HeaderName, header};
use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_observe::access_log::FinalCost;
use tollgate_policy::{BodyCost, CostSource, units_of};
use tollgate_response::FinalCosts;
use tollgate_usage::response::{Report, ResponseReader, Wanted};

use super::{
    awaited_cost::{AwaitedCost, AwaitedCosts},
    late_charges::LateCharges,
    unknown_costs::Unknown,
};

/// Follows the body of a response. Dropped, it charges what it has seen.
pub(super) struct CostTap {
    charges: Rc<LateCharges>,
    /// Empty once they are charged.
    costs: AwaitedCosts,
    /// One for each thing that is looked for.
    readers: SmallVec<[(Wanted, ResponseReader); 1]>,
    /// Bytes of the body so far.
    bytes: u64,
    measures: Measures,
}

/// What is measured of a request, whatever its response says.
pub(super) struct Measures {
    /// When its head had arrived.
    pub(super) begun: Timestamp,
    /// Bytes of its body; none: it has none.
    pub(super) received: Option<Rc<Cell<u64>>>,
}

/// What a request has cost, and who says so.
struct Verdict {
    units: u32,
    source: &'static str,
    /// Why the response did not tell; none: it did, or nothing was to be told.
    unknown: Option<Unknown>,
}

impl CostTap {
    /// Of the body of a response with these header fields.
    pub(super) fn new(
        charges: &Rc<LateCharges>,
        costs: AwaitedCosts,
        headers: &HeaderMap,
        measures: Measures,
    ) -> CostTap {
        let mut readers: SmallVec<[(Wanted, ResponseReader); 1]> = SmallVec::new();
        for cost in &costs {
            if let CostSource::Body(body) = &*cost.source
                && !readers.iter().any(|(wanted, _)| *wanted == body.wanted)
            {
                let content_type = text(headers, &header::CONTENT_TYPE);
                let coding = text(headers, &header::CONTENT_ENCODING);
                let reader = ResponseReader::new(body.wanted.clone(), content_type, coding);
                readers.push((body.wanted.clone(), reader));
            }
        }
        CostTap { charges: Rc::clone(charges), costs, readers, bytes: 0, measures }
    }

    /// Whether the rest of the body is of interest to nobody but this.
    pub(super) fn reads_on(&self) -> bool {
        let reads_on = |cost: &AwaitedCost| match &*cost.source {
            CostSource::Body(body) => !body.stop_upstream,
            _ => false,
        };
        self.costs.iter().any(reads_on)
    }

    /// Charges what the request has cost, unless that was done. `is_whole` says whether the body
    /// has ended, as far as this knows.
    pub(super) fn settle(&mut self, is_whole: bool) -> FinalCosts {
        let readers = std::mem::take(&mut self.readers);
        let reports: SmallVec<[(Wanted, Report); 1]> =
            readers.into_iter().map(|(wanted, reader)| (wanted, reader.end())).collect();
        let mut settled = FinalCosts::new();
        for cost in std::mem::take(&mut self.costs) {
            let reserved = cost.charge.cost;
            let Verdict { units, source, unknown } = match &*cost.source {
                CostSource::Body(body) => {
                    let report = reports.iter().find(|(wanted, _)| *wanted == body.wanted);
                    let report = report.map(|(_, report)| *report).unwrap_or_default();
                    by_body(&cost, body, &report, is_whole)
                }
                other => Verdict {
                    units: self.measured(other, reserved),
                    source: other.name(),
                    unknown: None,
                },
            };
            match unknown {
                None => self.charges.remember(&cost, units),
                Some(unknown) => {
                    let shared = self.charges.shared();
                    shared.unknown_costs.note(unknown, cost.source.name(), shared.clock.now());
                }
            }
            self.charges.charge(&cost, units);
            settled.push(FinalCost { position: cost.position, units, reserved, source });
        }
        settled
    }

    fn measured(&self, source: &CostSource, reserved: u32) -> u32 {
        match source {
            CostSource::ResponseBytes(unit) => units_of(self.bytes, *unit),
            CostSource::RequestBytes(unit) => {
                let received = self.measures.received.as_ref();
                units_of(received.map_or(0, |received| received.get()), *unit)
            }
            CostSource::UpstreamTime(unit) => {
                let now = self.charges.shared().clock.now();
                units_of_time(now.saturating_since(self.measures.begun), *unit)
            }
            CostSource::Header(_) | CostSource::Body(_) => reserved,
        }
    }
}

/// What a request has cost by what its response has reported.
fn by_body(cost: &AwaitedCost, body: &BodyCost, report: &Report, is_whole: bool) -> Verdict {
    let name = cost.source.name();
    let is_tokens = matches!(body.wanted, Wanted::Tokens(_));
    let may_estimate = is_tokens && report.is_stream && (report.delta_bytes > 0 || !is_whole);
    let estimate =
        may_estimate.then(|| cost.input_units.saturating_add(body.estimate(report.delta_bytes)));
    match (body.units(report), estimate) {
        (Some(units), _) if is_whole => Verdict { units, source: name, unknown: None },
        // What was used may be more by now.
        (Some(units), estimate) => {
            let units = units.max(estimate.unwrap_or_default());
            Verdict { units, source: name, unknown: None }
        }
        (None, Some(units)) => {
            let unknown = is_whole.then_some(Unknown::Missing);
            Verdict { units, source: "estimate", unknown }
        }
        (None, None) => {
            let unknown = Some(report.unread.map_or(Unknown::Missing, Unknown::Unread));
            Verdict { units: cost.charge.cost, source: "reserve", unknown }
        }
    }
}

/// Units of a time of which so much is one: what is begun counts.
pub(super) fn units_of_time(time: Duration, unit: Duration) -> u32 {
    let units = time.as_nanos().div_ceil(unit.as_nanos().max(1));
    u32::try_from(units).unwrap_or(u32::MAX).min(i32::MAX as u32)
}

/// The value of a field that is there once; none: it is not, or is no text.
fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("unknown"))
}

impl CostTap {
    /// The next piece of the body has passed.
    pub(super) fn read(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        for (_, reader) in &mut self.readers {
            reader.read(data);
        }
    }
}

impl Drop for CostTap {
    fn drop(&mut self) {
        self.settle(false);
    }
}
