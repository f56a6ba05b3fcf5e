//! What the body of a response says about its cost, while it passes.

use std::{
    io::{self, Write},
    mem,
    sync::Arc,
};

use flate2::write::MultiGzDecoder;
use thiserror::Error;

use crate::{
    coding::ContentCoding,
    event_stream::{EventPart, EventStream},
    json::{Amount, Finder, Found, Lost, Scanner},
    path::Paths,
    tokens::{TokenCounts, Tokens, Vendor},
};

/// What is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A number at one of these paths: the first that is there.
    Number(Arc<Paths>),
    /// A vendor's numbers of tokens.
    Tokens(Vendor),
}

/// What a body has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it has used; none: it did not report that.
    pub used: Option<Used>,
    /// Bytes of what a language model has made, in the parts of a stream.
    pub delta_bytes: u64,
    /// Whether it is a stream of events.
    pub is_stream: bool,
    /// Why not all of the body was read; none: it was.
    pub unread: Option<Unread>,
}

/// What a request has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// So many units, rounded up.
    Units(u64),
    /// So many tokens.
    Tokens(Tokens),
}

/// Why a body could not be read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum Unread {
    /// It is neither JSON nor a stream of events.
    #[error("its content type is neither JSON nor a stream of events")]
    ContentType,
    /// It is in a content coding other than gzip.
    #[error("its content coding is not gzip")]
    ContentCoding,
    /// It is not what its content type and its content coding say.
    #[error("it is not what its content type and its content coding say")]
    Malformed,
    /// Decoded, it is longer than what is read of one response.
    #[error("it is too long when it is decoded")]
    TooLong,
}

/// Reads the body of a response.
#[derive(Debug)]
pub struct ResponseReader {
    coding: Coding,
    unread: Option<Unread>,
}

/// How the bytes become those of a document.
#[derive(Debug)]
enum Coding {
    None(Box<Documents>),
    Gzip(Box<MultiGzDecoder<Decoded>>),
    /// They do not.
    Unknown,
}

/// The documents of a body.
#[derive(Debug)]
struct Documents {
    wanted: Wanted,
    scanner: Scanner,
    form: Form,
    collected: Collected,
}

/// How documents follow each other.
#[derive(Debug)]
enum Form {
    /// Of JSON: one, or one a line.
    Json,
    /// As the data of events. None of an event whose data is no JSON counts.
    Events { stream: EventStream, is_unread: bool },
}

/// What was found so far.
#[derive(Debug, Default)]
struct Collected {
    /// In the documents that have ended.
    all: Collection,
    /// In the one that has not.
    latest: Collection,
}

#[derive(Debug, Default)]
struct Collection {
    /// Whether anything was found: most events of a stream have nothing.
    is_touched: bool,
    /// By the number of the path.
    numbers: Vec<Option<u64>>,
    tokens: TokenCounts,
}

/// Takes what was decoded.
#[derive(Debug)]
struct Decoded {
    documents: Documents,
    /// How many bytes may still come.
    room: u64,
    unread: Option<Unread>,
}

/// The most bytes of a response that are decoded, whatever they were before.
const MAX_DECODED: u64 = 64 << 20;

impl Wanted {
    fn paths(&self) -> &Paths {
        match self {
            Wanted::Number(paths) => paths,
            Wanted::Tokens(vendor) => vendor.paths(),
        }
    }
}

impl ResponseReader {
    /// For a body with this `Content-Type` and this `Content-Encoding`, if there are some.
    pub fn new(wanted: Wanted, content_type: Option<&str>, content_coding: Option<&str>) -> Self {
        let form = match content_type.and_then(form) {
            Some(form) => form,
            None => return ResponseReader::unread(Unread::ContentType),
        };
        let scanner = match form {
            Form::Json => Scanner::of_several(),
            Form::Events { .. } => Scanner::of_one(),
        };
        let documents = Documents { wanted, scanner, form, collected: Collected::default() };
        let coding = match ContentCoding::of(content_coding) {
            ContentCoding::Identity => Coding::None(Box::new(documents)),
            ContentCoding::Gzip => {
                let decoded = Decoded { documents, room: MAX_DECODED, unread: None };
                Coding::Gzip(Box::new(MultiGzDecoder::new(decoded)))
            }
            ContentCoding::Other => return ResponseReader::unread(Unread::ContentCoding),
        };
        ResponseReader { coding, unread: None }
    }

    fn unread(why: Unread) -> Self {
        ResponseReader { coding: Coding::Unknown, unread: Some(why) }
    }

    /// Reads the next piece of it.
    pub fn read(&mut self, piece: &[u8]) {
        if self.unread.is_some() {
            return;
        }
        self.unread = match &mut self.coding {
            Coding::None(documents) => documents.read(piece),
            Coding::Gzip(decoder) => match decoder.write_all(piece) {
                Ok(()) => None,
                Err(_) => Some(decoder.get_ref().unread.unwrap_or(Unread::Malformed)),
            },
            Coding::Unknown => None,
        };
    }

    /// What it has reported, now that it has ended or was broken off.
    pub fn end(mut self) -> Report {
        let documents = match &mut self.coding {
            Coding::None(documents) => documents,
            Coding::Gzip(decoder) => {
                // What was not written yet is decoded here.
                if decoder.try_finish().is_err() {
                    self.unread = self.unread.or(Some(Unread::Malformed));
                }
                &mut decoder.get_mut().documents
            }
            Coding::Unknown => return Report { unread: self.unread, ..Report::default() },
        };
        documents.end();
        let is_stream = matches!(documents.form, Form::Events { .. });
        Report { is_stream, unread: self.unread, ..documents.collected.report() }
    }
}

impl Documents {
    /// Reads the next piece. Returns why nothing more can be read, if so.
    fn read(&mut self, piece: &[u8]) -> Option<Unread> {
        let Documents { wanted, scanner, form, collected } = self;
        match form {
            Form::Json => {
                let mut finder = Collecting { wanted, collected, counts_each: true };
                let read = scanner.read(wanted.paths(), piece, &mut finder);
                read.is_err().then(|| {
                    collected.latest = Collection::default();
                    Unread::Malformed
                })
            }
            Form::Events { stream, is_unread } => {
                let mut finder = Collecting { wanted, collected, counts_each: false };
                stream.read(piece, |part| finder.read_event(scanner, is_unread, part));
                None
            }
        }
    }

    /// Nothing more comes. What a document has said that is not whole counts: it was used.
    fn end(&mut self) {
        let Documents { wanted, scanner, form, collected } = self;
        match form {
            Form::Json => {
                let mut finder = Collecting { wanted, collected, counts_each: true };
                scanner.finish(wanted.paths(), &mut finder);
                finder.end_document();
            }
            Form::Events { stream, is_unread } => {
                let mut finder = Collecting { wanted, collected, counts_each: false };
                stream.finish(|part| finder.read_event(scanner, is_unread, part));
            }
        }
    }
}

/// Collects from documents.
struct Collecting<'c> {
    wanted: &'c Wanted,
    collected: &'c mut Collected,
    /// Whether each document counts as it ends; else the event has to end, too.
    counts_each: bool,
}

impl Collecting<'_> {
    fn read_event(&mut self, scanner: &mut Scanner, is_unread: &mut bool, part: EventPart<'_>) {
        let paths = self.wanted.paths();
        match part {
            EventPart::Data(_) if *is_unread => {}
            EventPart::Data(data) => *is_unread = scanner.read(paths, data, self).is_err(),
            EventPart::End => {
                let is_json = !*is_unread && scanner.finish(paths, self);
                if is_json {
                    self.collected.count_latest();
                }
                if self.collected.latest.is_touched {
                    self.collected.latest = Collection::default();
                }
                *is_unread = false;
                scanner.reset();
            }
        }
    }
}

impl Finder for Collecting<'_> {
    fn found(&mut self, path: usize, value: Found<'_>) {
        let latest = &mut self.collected.latest;
        latest.is_touched = true;
        match self.wanted {
            Wanted::Tokens(vendor) => latest.tokens.note(*vendor, path, value),
            Wanted::Number(_) => {
                let number = match value {
                    Found::Number(number) => Some(number),
                    Found::Text(text) => text.text,
                    Found::Null | Found::Bool(_) | Found::Container => None,
                };
                let units = number.and_then(Amount::parse).map(|amount| amount.units);
                latest.set_number(path, units);
            }
        }
    }

    /// Of two members of one name the later one counts, as most readers have it.
    fn lost(&mut self, path: usize, _: Lost) {
        let latest = &mut self.collected.latest;
        latest.is_touched = true;
        latest.set_number(path, None);
    }

    fn end_document(&mut self) {
        if self.counts_each {
            self.collected.count_latest();
        }
    }
}

impl Collected {
    /// Has the latest document count. A number replaces the one that an earlier document has.
    fn count_latest(&mut self) {
        let Collected { all, latest } = self;
        if !mem::take(&mut latest.is_touched) {
            return;
        }
        for (path, units) in latest.numbers.drain(..).enumerate() {
            if units.is_some() {
                all.set_number(path, units);
            }
        }
        all.tokens.take_from(&mut latest.tokens);
    }

    fn report(&self) -> Report {
        let number = self.all.numbers.iter().find_map(|units| *units).map(Used::Units);
        let tokens = self.all.tokens.tokens().map(Used::Tokens);
        let delta_bytes = self.all.tokens.delta_bytes;
        Report { used: number.or(tokens), delta_bytes, is_stream: false, unread: None }
    }
}

impl Collection {
    fn set_number(&mut self, path: usize, units: Option<u64>) {
        if self.numbers.len() <= path {
            self.numbers.resize(path + 1, None);
        }
        if let Some(number) = self.numbers.get_mut(path) {
            *number = units;
        }
    }
}

impl Write for Decoded {
    fn write(&mut self, decoded: &[u8]) -> io::Result<usize> {
        let bytes = decoded.len() as u64;
        self.unread = match self.room.checked_sub(bytes) {
            Some(room) => {
                self.room = room;
                self.documents.read(decoded)
            }
            None => Some(Unread::TooLong),
        };
        match self.unread {
            None => Ok(decoded.len()),
            Some(why) => Err(io::Error::other(why)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How documents follow each other in a body of this type; none: it has none that can be read.
fn form(content_type: &str) -> Option<Form> {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "text/event-stream" => {
            Some(Form::Events { stream: EventStream::default(), is_unread: false })
        }
        "application/json"
        | "text/json"
        | "application/x-ndjson"
        | "application/ndjson"
        | "application/jsonl"
        | "application/x-jsonlines"
        | "application/json-lines" => Some(Form::Json),
        _ => essence.ends_with("+json").then_some(Form::Json),
    }
}

#[cfg(test)]
mod tests;
