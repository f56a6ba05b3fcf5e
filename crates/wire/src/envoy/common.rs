//! `envoy.config.core.v3`: what several messages have.

use prost::{Enumeration, Message};

/// A header field. Only one of the values is there.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderValue {
    /// Its name, in lower case; those of HTTP/2 that begin with a colon, too.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value, if it is UTF-8.
    #[prost(string, tag = "2")]
    pub value: String,
    /// Its value as it came.
    #[prost(bytes = "vec", tag = "3")]
    pub raw_value: Vec<u8>,
}

/// A header field that Envoy is to set.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderValueOption {
    /// The field.
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    /// What becomes of fields of this name that are there already.
    #[prost(enumeration = "AppendAction", tag = "3")]
    pub append_action: i32,
}

/// What becomes of fields of a name that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum AppendAction {
    /// They stay, beside the new one.
    Append = 0,
    /// They go.
    Overwrite = 2,
}

impl HeaderValue {
    /// A field of these.
    pub fn new(key: &str, value: &str) -> HeaderValue {
        HeaderValue { key: key.to_owned(), value: value.to_owned(), raw_value: Vec::new() }
    }

    /// The value, in whichever form it came.
    pub fn bytes(&self) -> &[u8] {
        if self.raw_value.is_empty() { self.value.as_bytes() } else { &self.raw_value }
    }
}
