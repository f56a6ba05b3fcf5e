//! The answers of a simulation, for people and programs: text for a terminal, Markdown for a pull
//! request, a page of HTML that needs nothing else, and JSON.
//!
//! Names of callers, paths and lines come from a log, so from clients: `safe` makes them harmless
//! for each form.

/// A page of HTML, in one file.
pub mod html;
/// JSON, and its schema.
pub mod json;
/// Markdown for a pull request.
pub mod markdown;
/// Text for a terminal.
pub mod text;

mod choice;
mod safe;
mod sentences;
mod tables;
#[cfg(test)]
mod tests;
mod times;
mod words;

pub use self::safe::code_span;
