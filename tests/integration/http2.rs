//! HTTP/2 as an attacker or a careless client would speak it.

/// What RFC 9113 and RFC 7541 say of each mistake, by their sections.
mod conformance;

/// Clients that keep the proxy busy, or waiting.
mod floods;

/// Requests that HTTP/2 can carry and HTTP/1.1 cannot.
mod requests;
