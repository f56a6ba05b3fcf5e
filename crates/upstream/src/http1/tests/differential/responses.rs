//! What servers send: responses that are valid, almost, or not at all, the same for the same seed.

use std::fmt;

use super::draw::Draw;

/// What a server sends to one request.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) is_head: bool,
    pub(super) bytes: Vec<u8>,
    /// How long the pieces are in which the bytes come; the rest comes at once.
    pub(super) cuts: Vec<usize>,
    /// The server closes the connection after the bytes.
    pub(super) closes: bool,
}

impl fmt::Debug for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = if self.is_head { "HEAD" } else { "GET" };
        let end = if self.closes { ", then closes" } else { "" };
        let shown = self.bytes.get(..1000).unwrap_or(&self.bytes).escape_ascii();
        write!(formatter, "{method}: \"{shown}\"{end}, cut at {:?}", self.cuts)
    }
}

impl Case {
    pub(super) fn new(seed: u64) -> Case {
        let mut draw = Draw::new(seed);
        let is_head = draw.chance(8);
        let mut bytes = Vec::new();
        if draw.chance(4) {
            push(&mut bytes, draw.pick(&["\r\n", "\r\n\r\n", "\n", "\r"]));
        }
        interims(&mut draw, &mut bytes);
        let framing = Framing::new(&mut draw);
        let status = head(&mut draw, &framing, &mut bytes);
        let has_none = is_head || ["204", "304"].contains(&status);
        if !(has_none && draw.chance(70)) {
            body(&mut draw, &framing, &mut bytes);
        }
        if draw.chance(8) {
            push(
                &mut bytes,
                draw.pick(&[
                    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
                    "x",
                    "\r\n",
                    "0\r\n\r\n",
                ]),
            );
        }
        if draw.chance(6) {
            bytes.truncate(draw.below(bytes.len() + 1));
        }
        if !draw.is_calm && draw.chance(30) {
            for _ in 0..1 + draw.below(2) {
                mutate(&mut draw, &mut bytes);
            }
        }
        let cuts = match draw.below(3) {
            0 => Vec::new(),
            1 => vec![draw.below(bytes.len() + 1)],
            _ => (0..draw.below(60)).map(|_| 1 + draw.below(6)).collect(),
        };
        Case { is_head, bytes, cuts, closes: draw.chance(40) }
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        let cut = move |length: usize| {
            let (piece, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            piece
        };
        self.cuts.iter().copied().chain([usize::MAX]).map(cut)
    }
}

/// What the head says about the body.
struct Framing {
    fields: Vec<String>,
    body: Form,
}

enum Form {
    None,
    Bytes(usize),
    Chunks,
}

impl Framing {
    fn new(draw: &mut Draw) -> Framing {
        let length = draw.below(40);
        let (fields, body) = match draw.below(100) {
            0..32 => (vec![format!("content-length: {length}")], Form::Bytes(length)),
            32..62 => (vec!["transfer-encoding: chunked".to_owned()], Form::Chunks),
            62..72 => (Vec::new(), Form::Bytes(length)),
            72..76 => (Vec::new(), Form::None),
            76..86 => {
                let form = draw.pick(&LENGTHS).replace('N', &length.to_string());
                (
                    form.split('|').map(|it| format!("content-length: {it}")).collect(),
                    Form::Bytes(length),
                )
            }
            86..95 => {
                let form = draw.pick(&CODINGS).split('|');
                (form.map(|it| format!("transfer-encoding: {it}")).collect(), Form::Chunks)
            }
            _ => {
                let both =
                    [format!("content-length: {length}"), "transfer-encoding: chunked".into()];
                (both.into(), Form::Chunks)
            }
        };
        Framing { fields, body }
    }
}

/// Lengths, valid and not: N is the length, and a bar separates fields.
const LENGTHS: [&str; 22] = [
    "N, N",
    "N|N",
    "N,N|N",
    "N , N",
    "N, 0N",
    "N|0N",
    "0N",
    "00000000000000000000000N",
    "N, 1N",
    "N|1N",
    "+N",
    "-N",
    "0xN",
    "N N",
    "N,",
    ",N",
    "",
    "N;",
    "18446744073709551615",
    "18446744073709551613",
    "18446744073709551616",
    "\u{e9}",
];

const CODINGS: [&str; 14] = [
    "Chunked",
    "CHUNKED",
    " chunked\t",
    "gzip, chunked",
    "chunked, gzip",
    "gzip",
    "identity",
    "chunked, chunked",
    "chunked|chunked",
    "gzip|chunked",
    "chunked|gzip",
    "xchunked",
    "chunked;q=1",
    "",
];

fn interims(draw: &mut Draw, bytes: &mut Vec<u8>) {
    if !draw.chance(12) {
        return;
    }
    let count = if draw.chance(6) { 31 + draw.below(4) } else { 1 + draw.below(3) };
    for _ in 0..count {
        push(
            bytes,
            match count > 3 || draw.chance(70) {
                true => draw.pick(&[
                    "HTTP/1.1 100 Continue\r\n\r\n",
                    "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
                    "HTTP/1.0 102 Processing\r\nconnection: close\r\n\r\n",
                ]),
                false => draw.pick(&[
                    "HTTP/1.1 199 x\r\n\r\n\r\n",
                    "HTTP/1.1 100 Continue\r\ncontent-length: 0\r\n\r\n",
                    "HTTP/1.1 103 x\r\ncontent-length: 2\r\n\r\n",
                    "HTTP/1.1 103 x\r\ncontent-length: x\r\n\r\n",
                    "HTTP/1.1 100 Continue\r\ntransfer-encoding: chunked\r\n\r\n",
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
                    "HTTP/1.1 103 Early Hints\nlink: </a>\r\n\r\n",
                ]),
            },
        );
    }
}

/// Returns the status.
fn head(draw: &mut Draw, framing: &Framing, bytes: &mut Vec<u8>) -> &'static str {
    let version = draw.mostly(
        90,
        "HTTP/1.1",
        &["HTTP/1.0", "HTTP/1.0", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1", "ICY"],
    );
    let gap = draw.mostly(98, " ", &["  ", "\t", ""]);
    let status = draw.mostly(70, "200", &STATUSES);
    let reason =
        draw.mostly(60, " OK", &["", " ", " Fine", " a\tb", " \u{e9}", " \u{1}", "  OK", "OK"]);
    push(bytes, &format!("{version}{gap}{status}{reason}"));
    line_end(draw, bytes);
    let mut fields = framing.fields.clone();
    for _ in 0..draw.below(4) {
        fields.push(draw.mostly(85, "x-a: 1", &FIELDS).to_owned());
    }
    if draw.chance(20) {
        fields.push(draw.pick(&CONNECTIONS).to_owned());
    }
    match draw.below(500) {
        0 => fields.push(format!("x-long: {}", "a".repeat(70_000))),
        1 => fields.push("x-many: 1\r\n".repeat(300).trim_ascii_end().to_owned()),
        2 => fields.push("x-many: 1\r\n".repeat(200).trim_ascii_end().to_owned()),
        _ => {}
    }
    while !fields.is_empty() {
        push(bytes, &fields.swap_remove(draw.below(fields.len())));
        line_end(draw, bytes);
    }
    line_end(draw, bytes);
    status
}

const STATUSES: [&str; 17] = [
    "204", "204", "205", "304", "304", "206", "404", "503", "599", "600", "999", "099", "000",
    "20", "2000", "2x0", "101",
];

const FIELDS: [&str; 22] = [
    "x-b:",
    "x-b: \u{e9}",
    "x-b:\t1\t",
    "x-b:  1  ",
    "x-b: a\r\n folded",
    "x-b: a\r\n\tfolded",
    " x-b: 1",
    "x-b : 1",
    "x-b\t: 1",
    ": 1",
    "x-",
    "x b: 1",
    "x-b: \u{1}",
    "x-b: \0",
    "x-b: \x7f",
    "x-b: a\rb",
    "x\u{e9}: 1",
    "set-cookie: a=b\r\nset-cookie: c=d",
    "X-A: 2",
    "x(b): 1",
    "keep-alive: timeout=5",
    "upgrade: x",
];

const CONNECTIONS: [&str; 10] = [
    "connection: close",
    "connection: keep-alive",
    "Connection: Keep-Alive",
    "connection: x, Close ,y",
    "connection: keep-alive, close",
    "connection: close\r\nconnection: keep-alive",
    "connection: keep-alive\r\nconnection: close",
    "connection: \u{e9}, close",
    "connection: closed",
    "connection: upgrade",
];

fn line_end(draw: &mut Draw, bytes: &mut Vec<u8>) {
    push(bytes, draw.mostly(99, "\r\n", &["\n", "\n", "\r", "\r\r\n", "\n\r", ""]));
}

fn body(draw: &mut Draw, framing: &Framing, bytes: &mut Vec<u8>) {
    match framing.body {
        Form::None => {}
        Form::Bytes(length) => {
            let length = match draw.below(10) {
                0 => draw.below(length + 1),
                1 => length + 1 + draw.below(4),
                _ => length,
            };
            bytes.extend((0..length).map(|at| b'a' + (at % 26) as u8));
        }
        Form::Chunks => {
            for _ in 0..draw.below(4) {
                chunk(draw, bytes);
            }
            push(
                bytes,
                draw.mostly(94, "0\r\n", &["0;e=1\r\n", "000\r\n", "0\n", "", "0 \r\n", "-0\r\n"]),
            );
            if draw.chance(20) {
                for _ in 0..1 + draw.below(2) {
                    push(bytes, draw.mostly(60, "x-sum: 5\r\n", &TRAILERS));
                }
            }
            push(bytes, draw.mostly(97, "\r\n", &["\n", "", "\r"]));
        }
    }
}

const TRAILERS: [&str; 12] = [
    "x-b:\r\n",
    "content-length: 5\r\n",
    "x-b: \u{e9}\r\n",
    "x-b: 1\n",
    "x-b : 1\r\n",
    "x-b: a\r\n b\r\n",
    "x-b\r\n",
    "x-b: \u{1}\r\n",
    " x-b: 1\r\n",
    "\n",
    "x-b: a\rb\r\n",
    ": 1\r\n",
];

fn chunk(draw: &mut Draw, bytes: &mut Vec<u8>) {
    let length = 1 + draw.below(30);
    let size = match draw.below(100) {
        0..60 => format!("{length:x}"),
        60..80 => format!("{length:X}"),
        80..90 => format!("{length:04x}"),
        90..92 => format!("{length:016x}"),
        92..94 => format!("{length:020x}"),
        94 => format!("{length:x}0000000000000000"),
        95 => "ffffffffffffffff".to_owned(),
        _ => draw.pick(&[" ", "+", "-", "0x"]).to_string() + &format!("{length:x}"),
    };
    push(bytes, &size);
    if draw.chance(1) && draw.chance(30) {
        let long = if draw.chance(50) { 3_000 } else { 20_000 };
        push(bytes, &format!(";e={}", "x".repeat(long)));
    }
    push(bytes, draw.mostly(90, "", &EXTENSIONS));
    push(bytes, draw.mostly(98, "\r\n", &["\n", "\r", "\r\r\n", ""]));
    bytes.extend((0..length).map(|at| b'A' + (at % 26) as u8));
    push(bytes, draw.mostly(98, "\r\n", &["\n", "\r", "", "x\r\n", " \r\n"]));
}

const EXTENSIONS: [&str; 13] = [
    ";a=",
    ";a=\"q;\\\"\"",
    " ;a",
    "\t; a = ",
    ";",
    " ",
    "\t",
    " 5",
    ";\u{1}",
    ";\u{e9}",
    ";a\rb",
    ";a\nb",
    "g",
];

const SPECIAL: &[u8] = b"\r\n \t:;,0159af\0\x7f\xff";

/// Changes a byte, or takes it away, or doubles it.
fn mutate(draw: &mut Draw, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = draw.below(bytes.len());
    match draw.below(4) {
        0 => drop(bytes.remove(at)),
        1 => bytes.insert(at, bytes[at]),
        2 => bytes[at] = SPECIAL[draw.below(SPECIAL.len())],
        _ => bytes[at] = draw.below(256) as u8,
    }
}

fn push(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(text.as_bytes());
}
