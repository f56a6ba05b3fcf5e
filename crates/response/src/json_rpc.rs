//! Errors as JSON-RPC 2.0 has them, for clients of the Model Context Protocol: they read an error
//! only if it has the id of what they have called.

use serde::Serialize;
use serde_json::value::RawValue;
use tollgate_policy::Responses;
use tollgate_usage::mcp::{MessageError, Recipients};

use super::{json::json_line, rejection::Rejection};

/// An error in place of the response to one message.
#[derive(Serialize)]
struct RpcError<'e> {
    jsonrpc: &'static str,
    /// None: it is not known, which JSON-RPC writes as null.
    id: Option<Box<RawValue>>,
    error: Details<'e>,
}

#[derive(Clone, Copy, Serialize)]
struct Details<'e> {
    code: i32,
    message: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Data<'e>>,
}

/// What a program can use of a denial.
#[derive(Clone, Copy, Serialize)]
struct Data<'e> {
    limit: &'e str,
    /// Seconds; left out if waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

/// `HeaderMismatch` of revision 2026-07-28.
const HEADER_MISMATCH: i32 = -32_020;

/// `Invalid Request` of JSON-RPC 2.0, section 5.1.
const INVALID_REQUEST: i32 = -32_600;

/// The body of an error for these recipients: one error for each.
pub(super) fn rpc_errors(
    rejection: &Rejection,
    responses: &Responses,
    recipients: &Recipients<'_>,
) -> Vec<u8> {
    let message = rejection.message();
    let limit = rejection.limit();
    let data = limit.map(|limit| Data { limit, retry_after: rejection.retry_after() });
    let error = Details { code: code(rejection, responses), message: &message, data };
    let to = |id: &Option<&str>| {
        let id = id.and_then(|id| RawValue::from_string(id.to_owned()).ok());
        RpcError { jsonrpc: "2.0", id, error }
    };
    match recipients.ids.as_slice() {
        [only] if !recipients.is_batch => json_line(&to(only)),
        all => json_line(&all.iter().map(to).collect::<Vec<_>>()),
    }
}

/// The code of an error. One that no standard has is the HTTP status: JSON-RPC keeps -32768 to
/// -32000 for itself, and the protocol parts of that.
fn code(rejection: &Rejection, responses: &Responses) -> i32 {
    match rejection {
        Rejection::Message(MessageError::Field { .. }) => HEADER_MISMATCH,
        Rejection::Message(_) | Rejection::Member(_) => INVALID_REQUEST,
        _ => rejection.status(responses).as_u16().into(),
    }
}
