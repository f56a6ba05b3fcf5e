//! What others ask of a quota: each algorithm answers for itself.

use std::{num::NonZeroU32, time::Duration};

use tollgate_clock::Timestamp;

use super::{
    algorithm::{Algorithm, Receipt},
    align::Align,
    kind::{AlgorithmKind, Quota},
    standing::{Retry, Standing},
    terms::Terms,
    with_algorithm, with_kind,
};

impl Quota {
    /// The plain form of an algorithm, as in [`Algorithm::plain`].
    pub fn plain(kind: AlgorithmKind, units: u32, window: Duration) -> Option<Quota> {
        with_kind!(kind, Own => Own::plain(units, window).map(Quota::from))
    }

    /// Units that can be taken at once from an unused key. A higher cost is never admitted.
    pub fn capacity(&self) -> u32 {
        with_algorithm!(self, own => own.capacity())
    }

    /// For how long a unit counts at most, as in [`Algorithm::longest`].
    pub fn longest(&self) -> Duration {
        with_algorithm!(self, own => own.longest())
    }

    /// The share of one of `instances` that decide each for itself, as in [`Algorithm::share`].
    #[must_use]
    pub fn share(&self, instances: NonZeroU32) -> Quota {
        with_algorithm!(self, own => own.share(instances).into())
    }

    /// How a counter that was never charged stands at `now`.
    pub fn standing_of_unused(&self, now: Timestamp) -> Standing {
        with_algorithm!(self, own => own.standing(&Default::default(), now))
    }

    /// When `cost`, which does not fit, will fit, as in [`Algorithm::foresee`].
    pub fn foresee(&self, standing: &Standing, cost: u32, now: Timestamp) -> Retry {
        with_algorithm!(self, own => own.foresee(standing, cost, now))
    }

    /// A receipt for units of the window that is open, as in [`Algorithm::open_receipt`].
    pub fn open_receipt(&self, standing: &Standing, cost: u32, now: Timestamp) -> Option<Receipt> {
        with_algorithm!(self, own => own.open_receipt(standing, cost, now))
    }

    /// A receipt of a share's counter for a counter of the whole, as in
    /// [`Algorithm::receipt_of_share`].
    #[must_use]
    pub fn receipt_of_share(
        &self,
        receipt: Receipt,
        instances: NonZeroU32,
        now: Timestamp,
    ) -> Receipt {
        with_algorithm!(self, own => own.receipt_of_share(receipt, instances, now))
    }

    /// Whether its counters are made of leases, as in [`Algorithm::HOLDS_LEASES`].
    pub fn holds_leases(&self) -> bool {
        self.kind().holds_leases()
    }

    /// How long a lease lasts, as in [`Algorithm::lease`].
    pub fn lease(&self) -> Option<Duration> {
        with_algorithm!(self, own => own.lease())
    }

    /// Whether a denial lasts, as in [`Algorithm::DENIES_UNTIL_RETRY`].
    pub fn denies_until_retry(&self) -> bool {
        with_kind!(self.kind(), Own => Own::DENIES_UNTIL_RETRY)
    }

    /// Whether denials are written, as in [`Algorithm::writes_denials`].
    pub fn writes_denials(&self) -> bool {
        with_algorithm!(self, own => own.writes_denials())
    }

    /// Where windows begin and end, as in [`Algorithm::align`].
    pub fn align(&self) -> Option<&Align> {
        with_algorithm!(self, own => own.align())
    }

    /// When all that was used has come back, as in [`Algorithm::refill_time`].
    pub fn refill_time(&self) -> Option<Duration> {
        with_algorithm!(self, own => own.refill_time())
    }

    /// What a policy says of it, as in [`Algorithm::terms`].
    pub fn terms(&self) -> Terms {
        with_algorithm!(self, own => own.terms())
    }
}
