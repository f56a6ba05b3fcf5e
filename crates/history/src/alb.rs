//! The access logs of AWS's load balancers: Application Load Balancers, and classic ones.
//!
//! Their words have no names in the file. New ones are added at the end.

use super::{
    Format,
    draft::{Fault, Line},
    fields::Fields,
    instant, named,
    options::Asked,
    value_cache::ValueCache,
    words::words,
};

/// The words of a line, as AWS's documentation calls them. `time` is when the response had been
/// sent.
const APPLICATION: [&str; 29] = [
    "type",
    "time",
    "elb",
    "client:port",
    "target:port",
    "request_processing_time",
    "target_processing_time",
    "response_processing_time",
    "elb_status_code",
    "target_status_code",
    "received_bytes",
    "sent_bytes",
    "request",
    "user_agent",
    "ssl_cipher",
    "ssl_protocol",
    "target_group_arn",
    "trace_id",
    "domain_name",
    "chosen_cert_arn",
    "matched_rule_priority",
    "request_creation_time",
    "actions_executed",
    "redirect_url",
    "error_reason",
    "target:port_list",
    "target_status_code_list",
    "classification",
    "classification_reason",
];

/// The words of a classic load balancer, whose time is that of the request.
const CLASSIC: [&str; 15] = [
    "request_creation_time",
    "elb",
    "client:port",
    "backend:port",
    "request_processing_time",
    "backend_processing_time",
    "response_processing_time",
    "elb_status_code",
    "backend_status_code",
    "received_bytes",
    "sent_bytes",
    "request",
    "user_agent",
    "ssl_cipher",
    "ssl_protocol",
];

const SHAPE: &str = "it does not have the form of AWS's load balancers: `type time elb client:port \
                     target:port … \"request\" \"user agent\" …`; a line of another program, or cut \
                     off";

/// Reads a line.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(line: &str, asked: &Asked, repeated: &mut ValueCache) -> Result<Line, Fault> {
    named::of_fields(Format::Alb, &fields(line).ok_or(SHAPE)?, asked, repeated)
}

/// Whether a line has the form, whatever its request is.
pub(super) fn has_shape(line: &str) -> bool {
    fields(line).is_some()
}

fn fields(line: &str) -> Option<Fields<'_>> {
    let words = words(line);
    let is_time = |at: usize| words.get(at).is_some_and(|word| instant::iso(word).is_some());
    let names = if is_time(0) { &CLASSIC[..] } else { &APPLICATION[..] };
    let request = names.iter().position(|name| *name == "request")?;
    let has_form = (is_time(0) || is_time(1)) && words.get(request)?.contains(' ');
    has_form.then(|| Fields::of(names.iter().copied().zip(words)))
}
