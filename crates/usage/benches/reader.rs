//! How fast bodies are read as they pass: `cargo bench -p tollgate-usage`.
//!
//! All of a megabyte is read in pieces as large as the proxy gets them, on one core.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

use std::sync::Arc;

use divan::{Bencher, black_box, counter::BytesCount};
use tollgate_usage::{
    event_stream::EventStream,
    path::Paths,
    response::{ResponseReader, Wanted},
    tokens::Vendor,
};

fn main() {
    divan::main();
}

const BODY_BYTES: usize = 1 << 20;
const PIECE_BYTES: usize = 16 << 10;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// An event of Chat Completions, of 200 bytes.
const CHAT: &str = concat!(
    r#"data: {"id":"chatcmpl-AbCdEfGhIjKlMnOpQrStUvWx","object":"chat.completion.chunk","#,
    r#""created":1790000000,"model":"gpt-5","choices":[{"index":0,"delta":{"content":" hello"},"#,
    r#""finish_reason":null}]}"#,
    "\n\n",
);

/// An event of Messages, of 111 bytes with its name.
const MESSAGES: &str = concat!(
    "event: content_block_delta\n",
    r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" hello"}}"#,
    "\n\n",
);

/// One that no vendor sends, with little to find.
const TEXT: &str = concat!(
    r#"data: {"text":"To be, or not to be, that is the question: whether 'tis nobler in the mind "#,
    r#"to suffer the slings and arrows of outrageous fortune, or to take arms against a sea of "#,
    r#"troubles and by opposing end them"}"#,
    "\n\n",
);

/// As many of these as a body has room for.
fn repeated(part: &str) -> Vec<u8> {
    part.repeat(BODY_BYTES / part.len()).into_bytes()
}

fn read(bencher: Bencher<'_, '_>, wanted: &Wanted, content_type: &str, body: &[u8]) {
    let pieces: Vec<&[u8]> = body.chunks(PIECE_BYTES).collect();
    bencher.counter(BytesCount::new(body.len())).bench_local(|| {
        let mut reader = ResponseReader::new(wanted.clone(), Some(content_type), None);
        pieces.iter().for_each(|piece| reader.read(black_box(piece)));
        reader.end()
    });
}

fn number(path: &str) -> Wanted {
    Wanted::Number(Arc::new(Paths::new(&[path.parse().unwrap()]).unwrap()))
}

/// Server-sent events.
mod events {
    use super::*;

    #[divan::bench]
    fn split_alone(bencher: Bencher<'_, '_>) {
        let body = repeated(CHAT);
        bencher.counter(BytesCount::new(body.len())).bench_local(|| {
            let mut bytes = 0;
            EventStream::default().read(black_box(&body), |part| {
                black_box(part);
                bytes += 1;
            });
            bytes
        });
    }

    #[divan::bench]
    fn chat_by_auto(bencher: Bencher<'_, '_>) {
        read(bencher, &Wanted::Tokens(Vendor::Auto), EVENTS, &repeated(CHAT));
    }

    #[divan::bench]
    fn chat_by_openai(bencher: Bencher<'_, '_>) {
        read(bencher, &Wanted::Tokens(Vendor::OpenAi), EVENTS, &repeated(CHAT));
    }

    #[divan::bench]
    fn chat_by_path(bencher: Bencher<'_, '_>) {
        read(bencher, &number("usage.total_tokens"), EVENTS, &repeated(CHAT));
    }

    #[divan::bench]
    fn messages_by_auto(bencher: Bencher<'_, '_>) {
        read(bencher, &Wanted::Tokens(Vendor::Auto), EVENTS, &repeated(MESSAGES));
    }

    #[divan::bench]
    fn text_by_path(bencher: Bencher<'_, '_>) {
        read(bencher, &number("usage.total_tokens"), EVENTS, &repeated(TEXT));
    }
}

/// JSON.
mod json {
    use super::*;

    /// What a model has written, at length, and what it took.
    #[divan::bench]
    fn long_text(bencher: Bencher<'_, '_>) {
        let text = "All the world's a stage,\\nand all the men and women merely players. ";
        let text = text.repeat(BODY_BYTES / text.len());
        let body = format!(
            r#"{{"choices":[{{"message":{{"content":"{text}"}}}}],"usage":{{"prompt_tokens":1}}}}"#
        );
        read(bencher, &Wanted::Tokens(Vendor::Auto), JSON, body.as_bytes());
    }

    /// Rows of an export, of which only their number is wanted.
    #[divan::bench]
    fn rows(bencher: Bencher<'_, '_>) {
        let row =
            r#"{"id":123456,"name":"Rosalind","city":"Arden","balance":-12.75,"active":true},"#;
        let rows = row.repeat(BODY_BYTES / row.len());
        let body = format!(r#"{{"rows":[{rows}{{}}],"meta":{{"rows":1}}}}"#);
        read(bencher, &number("meta.rows"), JSON, body.as_bytes());
    }

    /// What an embedding is.
    #[divan::bench]
    fn numbers(bencher: Bencher<'_, '_>) {
        let numbers = "-0.0123456789,".repeat(BODY_BYTES / 14);
        let body = format!(r#"{{"data":[{numbers}0],"usage":{{"prompt_tokens":1}}}}"#);
        read(bencher, &Wanted::Tokens(Vendor::Auto), JSON, body.as_bytes());
    }
}
