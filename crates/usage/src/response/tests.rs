//! Bodies as vendors send them, in pieces of every size.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

use super::*;
use crate::path::Path;

fn reported_in_pieces(
    wanted: &Wanted,
    kind: &str,
    coding: Option<&str>,
    body: &[u8],
    piece: usize,
) -> Report {
    let mut reader = ResponseReader::new(wanted.clone(), Some(kind), coding);
    body.chunks(piece).for_each(|piece| reader.read(piece));
    reader.end()
}

/// What a body says, which must not depend on its pieces.
fn reported(wanted: &Wanted, kind: &str, body: &str) -> Report {
    let whole = reported_in_pieces(wanted, kind, None, body.as_bytes(), body.len().max(1));
    for piece in 1..body.len().min(90) {
        assert_eq!(
            reported_in_pieces(wanted, kind, None, body.as_bytes(), piece),
            whole,
            "{piece}"
        );
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(body.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    for piece in [1, 7, 4096] {
        assert_eq!(reported_in_pieces(wanted, kind, Some("gzip"), &gzip, piece), whole);
    }
    whole
}

fn tokens(input: u64, cached: u64, cache_write: u64, output: u64) -> Option<Used> {
    Some(Used::Tokens(Tokens { input, cached, cache_write, output }))
}

/// What is used by this vendor's own form, and by `auto`, which are the same.
fn used_by(vendor: Vendor, kind: &str, body: &str) -> Option<Used> {
    let own = reported(&Wanted::Tokens(vendor), kind, body);
    assert_eq!(reported(&Wanted::Tokens(Vendor::Auto), kind, body), own);
    assert_eq!(own.unread, None);
    own.used
}

const JSON: &str = "application/json; charset=utf-8";
const EVENTS: &str = "text/event-stream";

#[test]
fn chat_completions_include_cached_tokens_in_the_prompt() {
    let body = r#"{"id":"x","choices":[{"message":{"content":"{\"usage\":{\"prompt_tokens\":9}}"}}],
        "usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,
        "prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":10,"audio_tokens":0},
        "completion_tokens_details":{"reasoning_tokens":15}}}"#;
    assert_eq!(used_by(Vendor::OpenAi, JSON, body), tokens(30, 60, 10, 20));
}

#[test]
fn streams_of_chat_completions_have_their_usage_in_the_last_chunk() {
    let body = concat!(
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hi \"}}],\"usage\":null}\n\n",
        ": keep-alive\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"\u{e9}\"}}],\"usage\":null}\r\n\r\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5}}\n\n",
        "data: [DONE]\n\n",
    );
    assert_eq!(used_by(Vendor::OpenAi, EVENTS, body), tokens(10, 0, 0, 5));
    assert_eq!(reported(&Wanted::Tokens(Vendor::OpenAi), EVENTS, body).delta_bytes, 5);
}

#[test]
fn responses_have_their_usage_in_the_response_that_the_last_event_has() {
    let usage = r#""usage":{"input_tokens":81,"input_tokens_details":{"cached_tokens":1},
        "output_tokens":1035,"output_tokens_details":{"reasoning_tokens":832}}"#;
    let whole = format!("{{\"object\":\"response\",{usage}}}");
    assert_eq!(used_by(Vendor::OpenAi, JSON, &whole), tokens(80, 1, 0, 1035));
    for last in ["completed", "incomplete", "failed"] {
        let body = format!(
            "event: response.created\ndata: {{\"type\":\"response.created\",\"response\":{{\"usage\":null}}}}\n\n\
             data: {{\"type\":\"response.output_text.delta\",\"delta\":\"abc\"}}\n\n\
             data: {{\"type\":\"response.{last}\",\"response\":{{{}}}}}\n\n",
            usage.replace('\n', "")
        );
        assert_eq!(used_by(Vendor::OpenAi, EVENTS, &body), tokens(80, 1, 0, 1035));
        assert_eq!(reported(&Wanted::Tokens(Vendor::OpenAi), EVENTS, &body).delta_bytes, 3);
    }
}

#[test]
fn embeddings_have_a_prompt_alone() {
    let body = r#"{"object":"list","data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}"#;
    assert_eq!(used_by(Vendor::OpenAi, JSON, body), tokens(8, 0, 0, 0));
}

#[test]
fn messages_leave_cached_tokens_out_of_the_input() {
    let body = r#"{"type":"message","usage":{"input_tokens":12,"cache_creation_input_tokens":3,
        "cache_read_input_tokens":100,"output_tokens":30,"service_tier":"standard"}}"#;
    assert_eq!(used_by(Vendor::Anthropic, JSON, body), tokens(12, 100, 3, 30));
}

#[test]
fn streams_of_messages_replace_their_first_numbers() {
    let body = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":12,",
        "\"cache_creation_input_tokens\":4,\"cache_read_input_tokens\":0,\"output_tokens\":1}}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,",
        "\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},",
        "\"usage\":{\"input_tokens\":null,\"output_tokens\":30}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    assert_eq!(used_by(Vendor::Anthropic, EVENTS, body), tokens(12, 0, 4, 30));
    assert_eq!(reported(&Wanted::Tokens(Vendor::Auto), EVENTS, body).delta_bytes, 5);
}

#[test]
fn thoughts_come_on_top_of_what_gemini_answers() {
    let usage = |prompt, output| {
        format!(
            "\"usageMetadata\":{{\"promptTokenCount\":{prompt},\"candidatesTokenCount\":{output},\
             \"thoughtsTokenCount\":30,\"toolUsePromptTokenCount\":10,\"cachedContentTokenCount\":20}}"
        )
    };
    let one = format!("{{\"candidates\":[],{}}}", usage(120, 50));
    let expected = tokens(110, 20, 0, 80);
    assert_eq!(used_by(Vendor::Gemini, JSON, &one), expected);
    let first = format!("{{{}}}", usage(120, 1));
    let events = format!("data: {first}\r\n\r\ndata: {one}\r\n\r\n");
    assert_eq!(used_by(Vendor::Gemini, EVENTS, &events), expected);
    let array = format!("[{first}\n,\r\n{one}\n]");
    assert_eq!(used_by(Vendor::Gemini, JSON, &array), expected);
}

fn number(paths: &[&str]) -> Wanted {
    let paths: Vec<Path> = paths.iter().map(|path| path.parse().unwrap()).collect();
    Wanted::Number(Arc::new(Paths::new(&paths).unwrap()))
}

#[test]
fn the_first_path_that_is_there_has_the_cost() {
    let wanted = number(&["usage.total", "cost", "[-1].cost"]);
    for (body, expected) in [
        (r#"{"cost":3,"usage":{"total":7}}"#, Some(7)),
        (r#"{"cost":2.1}"#, Some(3)),
        (r#"{"cost":"12"}"#, Some(12)),
        (r#"{"cost":"twelve","usage":{}}"#, None),
        (r#"{"cost":-1}"#, None),
        (r#"{"cost":null}"#, None),
        (r#"[{"cost":1},{"cost":5}]"#, Some(5)),
        (r#"[{"cost":1},{}]"#, None),
        ("{\"cost\":1}\n{\"cost\":4}\n{}\n", Some(4)),
        (r#"{"cost":1,"cost":2}"#, Some(2)),
        ("{}", None),
    ] {
        assert_eq!(reported(&wanted, JSON, body).used, expected.map(Used::Units), "{body}");
    }
}

#[test]
fn events_that_are_no_json_say_nothing() {
    let wanted = number(&["cost"]);
    for (body, expected) in [
        ("data: {\"cost\":1}\n\ndata: [DONE]\n\n", Some(1)),
        ("data: {\"cost\":1} {\"cost\":2}\n\n", None),
        ("data: {\"cost\":1}\n\ndata: {\"cost\":2\n\n", Some(1)),
        ("data: {\"cost\":\ndata: 3}\n\n", Some(3)),
        ("data: {\"cost\":1}\n\ndata: {\"cost\":null}\n\n", Some(1)),
        ("data: {\"cost\":4}", Some(4)),
    ] {
        assert_eq!(reported(&wanted, EVENTS, body).used, expected.map(Used::Units), "{body}");
    }
}

#[test]
fn what_is_not_read_says_why() {
    let wanted = number(&["cost"]);
    let unread = |kind: Option<&str>, coding: Option<&str>, body: &[u8]| {
        let mut reader = ResponseReader::new(wanted.clone(), kind, coding);
        reader.read(body);
        reader.end().unread
    };
    let body = br#"{"cost":1}"#;
    assert_eq!(unread(Some("text/html"), None, body), Some(Unread::ContentType));
    assert_eq!(unread(None, None, body), Some(Unread::ContentType));
    assert_eq!(unread(Some(JSON), Some("br"), body), Some(Unread::ContentCoding));
    assert_eq!(unread(Some(JSON), Some("gzip, gzip"), body), Some(Unread::ContentCoding));
    assert_eq!(unread(Some(JSON), Some("gzip"), body), Some(Unread::Malformed));
    assert_eq!(unread(Some(JSON), None, b"<html>"), Some(Unread::Malformed));
    assert_eq!(unread(Some(JSON), Some("identity"), body), None);
    assert_eq!(unread(Some("application/problem+json"), None, body), None);
}

#[test]
fn what_was_seen_of_a_response_that_breaks_off_counts() {
    let wanted = Wanted::Tokens(Vendor::OpenAi);
    let body = r#"{"usage":{"prompt_tokens":10,"completion_tokens":5},"choices":[{"mess"#;
    assert_eq!(
        reported_in_pieces(&wanted, JSON, None, body.as_bytes(), 9).used,
        tokens(10, 0, 0, 5)
    );
}

#[test]
fn bombs_are_not_decoded_to_their_end() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let spaces = vec![b' '; 1 << 20];
    (0..=MAX_DECODED >> 20).for_each(|_| gzip.write_all(&spaces).unwrap());
    let gzip = gzip.finish().unwrap();
    let reported = reported_in_pieces(&number(&["cost"]), JSON, Some("gzip"), &gzip, 4096);
    assert_eq!(reported.unread, Some(Unread::TooLong));
}
