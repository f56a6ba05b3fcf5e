//! What programs ask for, and what they get.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use tollgate_clock::Timestamp;
use tollgate_response::Account;
use tollgate_store::{NotReset, StoreError};

use crate::named::{ChargeTime, NamedCharge, NamedError, ReceiptError};

/// What a program asks for.
#[derive(Clone, Copy, Debug)]
pub enum Call<'r> {
    /// Take all of this or nothing.
    Charge(&'r [NamedCharge<'r>], ChargeTime),
    /// Correct what a receipt is for, of this limit or of all, to this cost.
    Settle(&'r str, Option<&'r str>, u32),
    /// Give the slots back that a receipt is for.
    Release(&'r str),
    /// How this limit stands for this key; at the program's instant, if there is one.
    Standing(&'r str, &'r [u8], Option<Timestamp>),
    /// Make the counters of this limit and this key as never used.
    Reset(&'r str, &'r [u8]),
}

/// What a program gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Why it was not charged; none: it was, or has not asked for that.
    pub denied: Option<DeniedCall>,
    /// How the limits stand, in the order of the charges; a limit has one for each of its windows.
    pub standings: Vec<NamedStanding>,
    /// For correcting what was taken.
    pub receipt: Option<String>,
}

/// Why a program was not charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedCall {
    /// The limit.
    pub by: Box<str>,
    /// When another try makes sense; none: never.
    pub retry_after: Option<Duration>,
}

/// How a window of a limit stands for a key.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct NamedStanding {
    /// The limit.
    pub limit: Box<str>,
    /// The length of the window; none: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<u64>,
    /// Units that it allows.
    pub of: u32,
    /// Units used.
    pub used: u32,
    /// Units left.
    pub remaining: u32,
    /// Seconds since 1970; none: of slots, which end when they are released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<u64>,
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
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
pub struct CallAnswer {
    /// The answer.
    pub answer: Result<Answer, CallError>,
    /// The limit headers of a response with this answer.
    pub headers: HeaderMap,
    /// To be ended with the response.
    pub account: Option<Account>,
    /// The id of the call, as the log has it.
    pub request_id: HeaderValue,
}

/// What a program calls, as HTTP has it; the log has it so whatever the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
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
    pub(crate) const ALL: [Operation; 5] = [
        Operation::Charge,
        Operation::Settle,
        Operation::Release,
        Operation::Standing,
        Operation::Reset,
    ];

    pub(crate) fn path(self) -> &'static str {
        match self {
            Operation::Charge => "/v1/charge",
            Operation::Settle => "/v1/settle",
            Operation::Release => "/v1/release",
            Operation::Standing => "/v1/standing",
            Operation::Reset => "/v1/reset",
        }
    }

    pub(crate) fn method(self) -> Method {
        match self {
            Operation::Standing => Method::GET,
            Operation::Charge | Operation::Settle | Operation::Release | Operation::Reset => {
                Method::POST
            }
        }
    }
}

impl Call<'_> {
    pub(super) fn operation(&self) -> Operation {
        match self {
            Call::Charge(..) => Operation::Charge,
            Call::Settle(..) => Operation::Settle,
            Call::Release(_) => Operation::Release,
            Call::Standing(..) => Operation::Standing,
            Call::Reset(..) => Operation::Reset,
        }
    }
}

impl CallError {
    /// The status of a response with this error.
    pub fn status(&self) -> u16 {
        match self {
            CallError::Named(NamedError::NoLimit(_)) => 404,
            CallError::Receipt(ReceiptError::Used) => 409,
            CallError::Receipt(ReceiptError::Ended | ReceiptError::Gone) => 410,
            CallError::Store(_)
            | CallError::NotReset(_)
            | CallError::Receipt(ReceiptError::Store(_)) => 503,
            CallError::Named(_)
            | CallError::Receipt(ReceiptError::Forged | ReceiptError::Nothing(_)) => 400,
        }
    }
}

/// The status of a denial.
pub(crate) const DENIED: u16 = 429;
