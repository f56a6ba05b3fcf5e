//! What programs ask for, and what they get.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tollgate_clock::Timestamp;
use tollgate_limit::Standing;
use tollgate_response::Account;
use tollgate_store::{NotReset, StoreError};

use super::reason::Reason;
use crate::decisions::named_limits::{
    ChargeTime, NamedCharge, NamedError, ReceiptError, SettledCost,
};

/// What a program asks for.
#[derive(Clone, Copy, Debug)]
pub(in crate::decisions) enum Call<'r> {
    /// Take all of this or nothing.
    Charge(&'r [NamedCharge<'r>], ChargeTime),
    /// Correct what a receipt is for, of this limit or of all, to this cost.
    Settle(&'r str, Option<&'r str>, SettledCost<'r>),
    /// Give the slots back that a receipt is for.
    Release(&'r str),
    /// Give everything back that a receipt is for: the units, the slots, or what is left of both.
    GiveBack(&'r str),
    /// How what this would charge stands; at the program's instant, if there is one.
    Standing(NamedCharge<'r>, Option<Timestamp>),
    /// Make the counters that this would charge as never used, for this reason.
    Reset(NamedCharge<'r>, &'r Reason),
}

/// What a program gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::decisions) struct Answer {
    /// Why it was not charged; none: it was, or has not asked for that.
    pub(in crate::decisions) denied: Option<DeniedCall>,
    /// How the limits stand, in the order of the charges; a limit has one for each of its windows.
    pub(in crate::decisions) standings: Vec<WindowStanding>,
    /// For correcting what was taken.
    pub(in crate::decisions) receipt: Option<String>,
}

/// Why a program was not charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::decisions) struct DeniedCall {
    /// The limit.
    pub(in crate::decisions) by: Box<str>,
    /// When another try makes sense; none: never.
    pub(in crate::decisions) retry_after: Option<Duration>,
}

/// How a window of a limit stands for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::decisions) struct WindowStanding {
    /// The limit.
    pub(in crate::decisions) limit: Box<str>,
    /// The length of the window; none: it is of slots, which end when they are released.
    pub(in crate::decisions) window_seconds: Option<u64>,
    /// How it stands.
    pub(in crate::decisions) standing: Standing,
}

impl WindowStanding {
    /// When the limit is whole again, in seconds since 1970; none: of slots.
    pub(in crate::decisions) fn reset(&self) -> Option<u64> {
        self.window_seconds.map(|_| self.standing.reported_reset().ceil_secs())
    }
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(in crate::decisions) enum CallError {
    /// What it charges cannot be planned.
    #[error(transparent)]
    Named(#[from] NamedError),
    /// Its receipt is not taken.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// The store did not decide, and the limit fails closed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Some counters may not be reset.
    #[error(transparent)]
    NotReset(#[from] NotReset),
}

/// An answer, and what goes with it.
pub(in crate::decisions) struct CallAnswer {
    /// The answer.
    pub(in crate::decisions) answer: Result<Answer, CallError>,
    /// The limit headers of a response with this answer.
    pub(in crate::decisions) headers: HeaderMap,
    /// To be ended with the response.
    pub(in crate::decisions) account: Option<Account>,
    /// The id of the call, as the log has it.
    pub(in crate::decisions) request_id: HeaderValue,
}

/// What a program calls, as HTTP has it; the log has it so whatever the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Takes all of this or nothing.
    Charge,
    /// Corrects what was charged.
    Settle,
    /// Gives slots back.
    Release,
    /// Says how a limit stands.
    Standing,
    /// Makes counters as never used.
    Reset,
}

impl Operation {
    pub(in crate::decisions) const ALL: [Operation; 5] = [
        Operation::Charge,
        Operation::Settle,
        Operation::Release,
        Operation::Standing,
        Operation::Reset,
    ];

    pub(in crate::decisions) fn path(self) -> &'static str {
        match self {
            Operation::Charge => "/v1/charge",
            Operation::Settle => "/v1/settle",
            Operation::Release => "/v1/release",
            Operation::Standing => "/v1/standing",
            Operation::Reset => "/v1/reset",
        }
    }

    pub(in crate::decisions) fn method(self) -> Method {
        match self {
            Operation::Standing => Method::GET,
            Operation::Charge | Operation::Settle | Operation::Release | Operation::Reset => {
                Method::POST
            }
        }
    }

    pub(in crate::decisions) fn method_name(self) -> &'static str {
        if self.method() == Method::GET { "GET" } else { "POST" }
    }
}

impl Call<'_> {
    pub(super) fn operation(&self) -> Operation {
        match self {
            Call::Charge(..) => Operation::Charge,
            Call::Settle(..) | Call::GiveBack(_) => Operation::Settle,
            Call::Release(_) => Operation::Release,
            Call::Standing(..) => Operation::Standing,
            Call::Reset(..) => Operation::Reset,
        }
    }
}

impl CallError {
    /// The status of a response with this error.
    pub(in crate::decisions) fn status(&self) -> StatusCode {
        match self {
            CallError::Named(NamedError::NoLimit(_) | NamedError::Name { .. }) => {
                StatusCode::NOT_FOUND
            }
            CallError::Receipt(ReceiptError::Used) => StatusCode::CONFLICT,
            CallError::Receipt(ReceiptError::Ended | ReceiptError::Reset | ReceiptError::Gone) => {
                StatusCode::GONE
            }
            // Others are served.
            CallError::Store(StoreError::NoRoom(reason)) if reason.is_clients_fault() => DENIED,
            CallError::Store(_)
            | CallError::NotReset(_)
            | CallError::Receipt(ReceiptError::Store(_)) => StatusCode::SERVICE_UNAVAILABLE,
            CallError::Named(_)
            | CallError::Receipt(
                ReceiptError::Forged | ReceiptError::Nothing(_) | ReceiptError::Settlement(_),
            ) => StatusCode::BAD_REQUEST,
        }
    }
}

/// The status of a denial.
pub(in crate::decisions) const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;
