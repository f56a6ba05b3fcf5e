//! What cannot be read: lines, files and their ends.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::{super::*, Logs, combined};

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
}

#[test]
fn bad_lines_are_counted_and_say_what_is_wrong() {
    const CLF: &str = "192.0.2.1 - - [21/Nov/2026:08:41:00 +0000]";
    for (format, line, expected) in [
        (Format::Combined, "hello", "form of common or combined"),
        (Format::Combined, "192.0.2.1 - - [21/Nov/2026:08:41:00 +0000] \"GET /", "cut off"),
        (Format::Combined, &format!("{CLF} \"-\" 408 -"), "no request line"),
        (Format::Combined, &format!("{CLF} \"\" 400 0"), "no request line"),
        (Format::Combined, &format!(r#"{CLF} "\x16\x03\x01\x02" 400 157"#), "not HTTP"),
        (Format::Combined, &format!("{CLF} \"GET\" 400 0"), "no target"),
        (Format::Combined, &format!("{CLF} \"GET index.html HTTP/1.0\" 400 0"), "slash"),
        (Format::Combined, &format!("{CLF} \"GET / HTTP/1.0\" OK 0"), "form of"),
        (
            Format::Combined,
            "192.0.2.1 - - [31/Nov/2026:08:41:00 +0000] \"GET / HTTP/1.0\" 200 0",
            "its time",
        ),
        (Format::Combined, "\u{0}\u{0}", "NUL"),
        (Format::Combined, &format!("{CLF} \"GET /\u{0} HTTP/1.0\" 200 0"), "NUL"),
        (Format::TollgateJson, "{\"time\":\"2026", "cut off"),
        (Format::TollgateJson, "{\"time\":\"2026-11-21T08:41:00.123Z\"}", "missing field"),
        (
            Format::TollgateText,
            "2026-11-21T08:41:00.123Z 1f0c 203.0.113.7",
            "text line of tollgate",
        ),
        (
            Format::NginxJson,
            r#"{"time_iso8601":"2026-11-21T08:41:00Z","request":"","status":"400"}"#,
            "no request line",
        ),
        (
            Format::NginxJson,
            r#"{"time_iso8601":"2026-11-21T08:41:00Z","request":"\x16"}"#,
            "escape=json",
        ),
        (Format::NginxJson, r#"{"remote_addr":"192.0.2.1","request":"GET / HTTP/1.1"}"#, "no time"),
        (Format::Caddy, r#"{"ts":1646861401,"request":{"method":"GET"}}"#, "no path"),
        (
            Format::Envoy,
            "[2016-04-15T20:17:00.310Z] \"- - HTTP/1.1\" 400 DPE 0 11 0 - \"-\" \"-\" \"-\" \"-\" \"-\"",
            "no request line",
        ),
        (Format::Envoy, "[2016-04-15T20:17:00.310Z] \"GET / HTTP/1.1\" 200", "Envoy's default"),
        (Format::Haproxy, "Feb  6 12:14:14 localhost haproxy[14389]: Proxy in started.", "httplog"),
        (
            Format::Haproxy,
            r#"1.2.3.4:5 [06/Feb/2009:12:14:14.655] in in/<NOSRV> -1/-1/-1/-1/0 400 0 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>""#,
            "<BADREQ>",
        ),
        (
            Format::Haproxy,
            r"1.2.3.4:5 [06/Feb/2009:12:14:14.655] in s/a 0/0/7007 212 -- 0/0/0/0/3 0/0",
            "tcplog",
        ),
    ] {
        let outcome = Logs::of(format!("{line}\n")).format(format).read();
        let reasons = outcome.reasons();
        assert!(reasons.len() == 1 && reasons[0].1.contains(expected), "{line}: {reasons:?}");
        assert_eq!(outcome.summary.bad, 1);
    }
}

#[test]
fn bad_lines_between_good_ones_are_shown_with_their_places() {
    let mut text =
        combined(0, "/a") + "\n\r\n  \n" + &"x".repeat(500) + "\r\n" + &combined(1, "/b");
    for _ in 0..20 {
        text += "garbage\n";
    }
    let outcome = Logs::of(text).read();
    assert_eq!(outcome.targets(), ["/a", "/b"]);
    let summary = outcome.summary;
    assert_eq!((summary.lines, summary.bad, summary.bad_lines.len()), (23, 21, 10));
    let first = &summary.bad_lines[0];
    assert_eq!((first.line, first.text.len()), (5, 200));
    assert!(first.file.ends_with("0.log"));
}

#[test]
fn bytes_that_are_no_text_are_harmless() {
    let mut bytes = vec![0; 5000];
    bytes.extend(combined(0, "/a").into_bytes());
    bytes.extend(b"192.0.2.1 - - [21/Nov/2026:08:00:01 +0000] \"GET /\xff HTTP/1.1\" 200 5\n");
    let outcome = Logs::of(bytes).read();
    assert_eq!(outcome.targets(), ["/a", "/\u{fffd}"]);
    assert_eq!(outcome.summary.bad, 0);
}

#[test]
fn a_hole_in_front_of_a_line_is_no_part_of_it() {
    for length in [5, 128 * 1024, 128 * 1024 - 10, 3_000_000] {
        let hole = vec![0; length];
        let good = combined(1, "/b");
        let start = [&hole[..], good.as_bytes()].concat();
        let outcome = Logs::of(start).read();
        assert_eq!(outcome.targets(), ["/b"], "{length}");
        assert_eq!(outcome.summary.bad, 0, "{length}");
        let within = [combined(0, "/a").as_bytes(), &hole, good.as_bytes()].concat();
        let outcome = Logs::of(within).read();
        assert_eq!(outcome.targets(), ["/a", "/b"], "{length}");
        assert_eq!(outcome.summary.bad, 0, "{length}");
        for end in ["", "\n"] {
            let last = [good.as_bytes(), &hole, end.as_bytes()].concat();
            let outcome = Logs::of(last).read();
            assert_eq!(outcome.targets(), ["/b"], "{length}");
            assert!(outcome.reasons()[0].1.contains("NUL"), "{length}");
            let only = [&hole, end.as_bytes()].concat();
            let outcome = Logs::of(only).read();
            assert_eq!((outcome.summary.lines, outcome.summary.bad), (1, 1), "{length}");
        }
    }
}

#[test]
fn contents_that_do_not_fit_their_checksum_are_damaged() {
    let mut bytes = zstd(&combined(0, "/a"));
    let outcome = Logs::of(&bytes).read();
    assert_eq!(outcome.summary.bad, 0);
    // The checksum is the last four bytes.
    *bytes.last_mut().unwrap() ^= 1;
    let outcome = Logs::of(&bytes).read();
    assert_eq!(outcome.targets(), ["/a"]);
    assert!(outcome.reasons()[0].1.contains("damaged"), "{:?}", outcome.reasons());
}

#[test]
fn what_drives_a_terminal_is_not_printed() {
    let open = |file: &str| {
        let options = ReadOptions { files: vec![file.into()], ..ReadOptions::default() };
        History::open(&options).err().unwrap().to_string()
    };
    for error in [
        Logs::of("\u{1b}]0;title\u{7}\u{1b}[31m \u{202e}\"x\" what is this\n").error(),
        open("/nowhere/\u{1b}[31m\u{202e}.log"),
        Logs::of("a\u{1b}[31m,\u{202e}b\n1,2\n").format(Format::Csv).error(),
    ] {
        assert!(!error.contains(|c: char| c.is_control() || c == '\u{202e}'), "{error}");
        assert!(error.contains("\\u{1b}[31m") && error.contains("\\u{202e}"), "{error}");
    }
}

#[test]
fn lines_of_more_than_a_mebibyte_are_bad() {
    let long = |length: usize| combined(1, &format!("/{}", "x".repeat(length)));
    let text = combined(0, "/a")
        + &long(900_000)
        + &long(3_000_000)
        + &combined(2, "/b")
        + &long(1_048_577);
    let outcome = Logs::of(text.trim_end()).read();
    assert_eq!(outcome.targets().len(), 3);
    let lines: Vec<_> =
        outcome.reasons().iter().map(|(line, reason)| (*line, reason.contains("1 MiB"))).collect();
    assert_eq!(lines, [(3, true), (5, true)]);
    assert!(outcome.summary.bad_lines[0].text.starts_with("192.0.2.1"));
}

#[test]
fn compressed_files_are_read_whatever_their_name() {
    let (a, b) = (combined(0, "/a"), combined(1, "/b"));
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9];
    for (what, bytes) in [
        ("gzip", gzip(&(a.clone() + &b))),
        ("members of gzip", [gzip(&a), gzip(&b)].concat()),
        ("zstd", zstd(&(a.clone() + &b))),
        ("frames of zstd", [zstd(&a), skippable.to_vec(), zstd(&b)].concat()),
        (
            "frames of zstd, of which one is skipped first",
            [skippable.to_vec(), zstd(&a), zstd(&b)].concat(),
        ),
    ] {
        let outcome = Logs::of(bytes).read();
        assert_eq!(outcome.targets(), ["/a", "/b"], "{what}");
        assert_eq!(outcome.summary.bad, 0, "{what}");
    }
}

#[test]
fn of_a_compressed_file_that_is_cut_off_the_start_counts() {
    let text: String =
        (0..20_000).map(|at| combined(at / 20, &format!("/{}", at * 7919))).collect();
    for (what, bytes) in [("gzip", gzip(&text)), ("zstd", zstd(&text))] {
        let cut = &bytes[..bytes.len() / 2];
        let outcome = Logs::of(cut).read();
        let read = outcome.records.len();
        assert!((1000..20_000).contains(&read), "{what}: {read}");
        assert_eq!(outcome.summary.bad, 1, "{what}");
        let (line, reason) = outcome.reasons()[0];
        assert!(reason.contains("ends here, in the midst"), "{what}: {reason}");
        assert_eq!(line, read as u64 + 1, "{what}");
    }
}

#[test]
fn files_that_cannot_be_read_say_what_to_do() {
    let logs = Logs::of("what is this\n");
    let unknown = logs.error();
    for part in ["0.log", "--format", "tollgate-json, ", "csv", "--column time=", "what is this"] {
        assert!(unknown.contains(part), "{unknown}");
    }
    for (bytes, expected) in [
        (&b"\xfd7zXZ\x00rest"[..], "xz -dc FILE | tollgate simulate --log -"),
        (b"BZh91AY", "bzip2 -dc"),
    ] {
        let error = Logs::of(bytes).error();
        assert!(error.contains(expected), "{error}");
    }
    let error = Logs::of("a,b\n1,2\n")
        .columns(&[("time", "a"), ("path", "url")])
        .format(Format::Csv)
        .error();
    assert!(error.contains("--column path=NAME") && error.contains("a, b"), "{error}");
    let error = Logs::of("a,b\n1,2\n").columns(&[("time", "a"), ("path", "url")]).error();
    assert!(error.contains("--column path=NAME"), "{error}");
    let error = Logs::of("when,path\n1,2\n").format(Format::Csv).error();
    assert!(error.contains("--column time=NAME"), "{error}");

    let open = |file: &str| {
        let options = ReadOptions { files: vec![file.into()], ..ReadOptions::default() };
        format!("{:#}", anyhow::Error::from(History::open(&options).err().unwrap()))
    };
    assert!(open("/nowhere/x.log").contains("cannot open /nowhere/x.log: No such file"));
    assert!(open("/tmp").contains("it is a directory: name the files in it"));
    let none = History::open(&ReadOptions::default()).err().unwrap();
    assert!(matches!(none, HistoryError::Nothing));
}

#[test]
fn rows_of_a_csv_that_do_not_fit_are_bad() {
    let csv = "time,path\n1795250460,/a\n1795250461\n\"1795250462,/b\n1795250463,/c,d\n,/d\n1795250464,\n";
    let outcome = Logs::of(csv).read();
    assert_eq!(outcome.targets(), ["/a"]);
    let expected = ["1 fields", "quote is not closed", "3 fields", "no time", "no request line"];
    for ((line, reason), expected) in outcome.reasons().iter().zip(expected) {
        assert!(reason.contains(expected), "{line}: {reason}");
    }
    assert_eq!(outcome.summary.bad, 5);
}

#[test]
fn a_frame_that_is_cut_off_gives_all_that_was_whole() {
    // More than a decoder holds back.
    let text: String = (0..3000).map(|second| combined(second, &format!("/{second}"))).collect();
    let whole = zstd(&text);
    // In the checksum; in the last block; between blocks, somewhere.
    for (cut, least) in [(2, 3000), (10, 1000), (whole.len() / 3, 1000)] {
        let outcome = Logs::of(&whole[..whole.len() - cut]).read();
        assert!(outcome.records.len() >= least, "{cut}: {}", outcome.records.len());
        assert_eq!(outcome.summary.bad, 1, "{cut}");
        assert!(outcome.summary.bad_lines[0].reason.contains("ends here"), "{cut}");
    }
}
