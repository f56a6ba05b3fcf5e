//! The record of an attempt, if the request's trace is recorded.

use http::StatusCode;
use tollgate_observe::trace::{AttemptNumber, Attempts};

use super::{Member, UpstreamError, outbound::Outbound};

/// An attempt that has begun.
pub(super) struct TracedAttempt<'t>(Option<(&'t Attempts, AttemptNumber)>);

impl<'t> TracedAttempt<'t> {
    /// An attempt to send `request`, which names the span of the attempt from here on.
    pub(super) fn begin(
        trace: Option<&'t Attempts>,
        member: &Member,
        request: &mut Outbound,
    ) -> Self {
        let attempt = TracedAttempt::first(trace, member);
        if let Some((trace, number)) = attempt.0
            && !number.is_first()
        {
            request.set_parent(&trace.span_digits(number));
        }
        attempt
    }

    /// The first attempt of a request, whose span the head names already.
    pub(super) fn first(trace: Option<&'t Attempts>, member: &Member) -> Self {
        let server = &member.server;
        TracedAttempt(trace.map(|trace| (trace, trace.begin(&server.host, server.port))))
    }

    /// It has got a response with this status, or none.
    pub(super) fn end(self, result: Result<StatusCode, &UpstreamError>) {
        if let Some((trace, number)) = self.0 {
            trace.end(number, result.map(|status| status.as_u16()).map_err(UpstreamError::word));
        }
    }
}
