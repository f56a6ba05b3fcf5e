//! What limits count by, of one request: an object of JSON, in lines of either format.

use std::{
    fmt::{Display, Write as _},
    io::Write as _,
};

use serde_json::Value;

use super::escape::JsonWord;

/// The most bytes of a value that are written; of a longer one there is a hash. Cut off, two
/// callers would look like one.
pub const MAX_FACT_BYTES: usize = 256;

/// What limits count by, of one request. Each name may be added once.
#[derive(Clone, Debug)]
pub struct Facts {
    /// An object whose closing brace is still to come, without a space anywhere: a text line is
    /// words.
    json: Vec<u8>,
}

/// The value of a fact.
#[derive(Clone, Copy, Debug)]
pub enum FactValue<'v> {
    /// As it came.
    Text(&'v str),
    /// A number of units.
    Units(u32),
    /// True or false.
    Truth(bool),
    /// A claim: a text, a number, a truth value, or a list of them.
    Claim(&'v Value),
    /// In place of a value that is not to be read, or too long: the same value always has the same
    /// hash.
    Hash(u128),
}

/// Room for the facts of most requests.
const FACTS_BYTES: usize = 256;

impl Default for Facts {
    /// None yet.
    fn default() -> Self {
        let mut json = Vec::with_capacity(FACTS_BYTES);
        json.push(b'{');
        Facts { json }
    }
}

impl Facts {
    /// Adds one.
    pub fn add(&mut self, name: &dyn Display, value: FactValue<'_>) {
        if self.json.len() > 1 {
            self.json.push(b',');
        }
        push_text(&mut self.json, name);
        self.json.push(b':');
        // Writing to memory does not fail.
        let _ = match value {
            FactValue::Text(text) => {
                push_text(&mut self.json, &text);
                Ok(())
            }
            FactValue::Units(units) => write!(self.json, "{units}"),
            FactValue::Truth(truth) => write!(self.json, "{truth}"),
            FactValue::Claim(claim) => {
                push_claim(&mut self.json, claim);
                Ok(())
            }
            FactValue::Hash(hash) => write!(self.json, "{{\"hash\":\"{hash:032x}\"}}"),
        };
    }

    /// Appends the whole object to a line.
    pub(super) fn write(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(&self.json);
        line.push(b'}');
    }
}

fn push_text(json: &mut Vec<u8>, text: &dyn Display) {
    json.push(b'"');
    let _ = write!(JsonWord(json), "{text}");
    json.push(b'"');
}

/// What is in a list goes no deeper: a list in a list, or an object, is null.
fn push_claim(json: &mut Vec<u8>, claim: &Value) {
    match claim {
        Value::Array(values) => {
            json.push(b'[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    json.push(b',');
                }
                push_scalar(json, value);
            }
            json.push(b']');
        }
        value => push_scalar(json, value),
    }
}

fn push_scalar(json: &mut Vec<u8>, value: &Value) {
    let _ = match value {
        Value::String(text) => {
            push_text(json, text);
            Ok(())
        }
        Value::Number(number) => write!(json, "{number}"),
        Value::Bool(truth) => write!(json, "{truth}"),
        Value::Null | Value::Array(_) | Value::Object(_) => json.write_all(b"null"),
    };
}
