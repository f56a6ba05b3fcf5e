//! Clocks that are set, and clocks that are wrong.

use super::{Logs, combined};

/// A line of HAProxy at a second of the local day.
fn local(second: u32, took: u32, target: &str) -> String {
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "192.0.2.1:33317 [25/Oct/2026:{hour:02}:{minute:02}:{second:02}.000] in b/s 0/0/0/0/{took} 200 5 \
         - - ---- 1/1/1/1/0 0/0 \"GET {target} HTTP/1.1\"\n"
    )
}

const THREE: u32 = 3 * 3600;

#[test]
fn the_hour_that_a_clock_goes_back_by_is_not_judged_twice() {
    // From one to three o'clock, and from two to four.
    let seconds = (3600..THREE).chain(THREE - 3600..4 * 3600).step_by(10);
    let text: String = seconds.map(|second| local(second, 5, "/")).collect();
    let outcome = Logs::of(text).read();
    let steps: Vec<_> = outcome
        .records
        .windows(2)
        .map(|pair| pair[1].time.saturating_since(pair[0].time).as_secs())
        .collect();
    assert!(steps.iter().all(|step| *step == 10), "{steps:?}");
    assert_eq!((outcome.summary.late, outcome.summary.reordered), (0, 0));
    let notes = outcome.summary.notes.join("\n");
    assert!(notes.contains("went back by an hour at line 721,"), "{notes}");
}

#[test]
fn a_step_is_seen_in_a_log_of_few_lines() {
    for pause in [60, 300, 660, 1200, 1800, 2400, 3000] {
        // At three o'clock, between the fourth line and the fifth, the clock shows two again.
        let real = (0..12).map(|number| THREE + number * pause + pause / 2 - 4 * pause);
        let shown: Vec<u32> =
            real.map(|second| if second < THREE { second } else { second - 3600 }).collect();
        let text: String = shown.iter().map(|second| local(*second, 5, "/")).collect();
        let outcome = Logs::of(text).read();
        let notes = outcome.summary.notes.join("\n");
        assert!(notes.contains("went back by an hour"), "{pause}: {notes}");
        let times: Vec<u64> =
            outcome.records.iter().map(|record| record.time.as_micros() / 1_000_000).collect();
        let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.iter().all(|own| *own == u64::from(pause)), "{pause}: {pauses:?}");
    }
}

/// The same line on a Thursday.
fn thursday(second: u32, took: u32) -> String {
    local(second, took, "/").replace("25/Oct/2026", "26/Nov/2026")
}

#[test]
fn what_looks_like_a_step_is_none() {
    let hour = 3600;
    let at = |second: u32| thursday(second, 0);
    let run = |from: u32, to: u32| (from..to).map(at).collect::<String>();
    let one_behind_the_other = run(14 * hour, 15 * hour) + &run(8 * hour, 14 * hour + 600);
    let ended_together: String = (0..20).map(|_| thursday(13 * hour, 3_600_000)).collect();
    let ended_together = run(13 * hour, 14 * hour) + &ended_together + &run(14 * hour, 15 * hour);
    let one_ahead =
        run(14 * hour, 14 * hour + 99) + &at(15 * hour + 99) + &run(14 * hour + 99, 15 * hour);
    let clocks: String = (0..40)
        .map(|number| {
            run((14 + number % 2) * hour + number * 5, (14 + number % 2) * hour + number * 5 + 5)
        })
        .collect();
    for (what, text) in [
        ("one behind the other", one_behind_the_other),
        ("ended together", ended_together),
        ("one ahead", one_ahead),
        ("two clocks", clocks),
    ] {
        let outcome = Logs::of(text).read();
        let notes = outcome.summary.notes.join("\n");
        assert!(!notes.contains("went back"), "{what}: {notes}");
    }
}

#[test]
fn requests_that_began_before_a_step_stay_before_it() {
    let mut text: String = (THREE - 60..THREE).map(|second| local(second, 0, "/before")).collect();
    text += &local(THREE - 3600, 0, "/after");
    text += &local(THREE - 4, 5000, "/over");
    for second in 1..10 {
        text += &local(THREE - 3600 + second, 0, "/after");
    }
    text += &local(THREE - 1, 12_000, "/over");
    for second in 10..60 {
        text += &local(THREE - 3600 + second, 0, "/after");
    }
    let outcome = Logs::of(text).read();
    let over: Vec<_> = outcome
        .records
        .iter()
        .filter(|record| record.target.as_str() == "/over")
        .map(|record| record.time.to_string())
        .collect();
    assert_eq!(over, ["2026-10-25T02:59:56.000Z", "2026-10-25T02:59:59.000Z"]);
    let last = outcome.records.last().unwrap();
    assert_eq!(last.time.to_string(), "2026-10-25T03:00:59.000Z");
    assert_eq!(outcome.summary.late, 0);
}

#[test]
fn a_line_that_was_written_a_little_late_hides_no_step() {
    let mut text: String = (THREE - 60..THREE - 2).map(|second| local(second, 0, "/")).collect();
    text += &local(THREE - 3600, 0, "/");
    text += &local(THREE - 1, 0, "/");
    text += &(1..60).map(|second| local(THREE - 3600 + second, 0, "/")).collect::<String>();
    let outcome = Logs::of(text).read();
    assert_eq!((outcome.summary.late, outcome.summary.reordered), (0, 0));
    assert_eq!(outcome.records.last().unwrap().time.to_string(), "2026-10-25T03:00:59.000Z");
}

#[test]
fn lines_of_another_clock_and_single_ones_are_no_step() {
    let now = |second: u32| local(THREE + second, 0, "/a");
    let before = |second: u32| local(THREE - 3600 + second, 0, "/b");
    let mixed: String = (0..100).flat_map(|second| [now(second), before(second)]).collect();
    let single: String =
        (0..100).map(now).collect::<String>() + &before(99) + &now(100) + &now(101) + &now(102);
    let at_end: String = (0..100).map(now).collect::<String>() + &before(99);
    for (what, text, late) in [("mixed", mixed, 90), ("single", single, 1), ("end", at_end, 1)] {
        let outcome = Logs::of(text).read();
        let notes = outcome.summary.notes.join("\n");
        assert!(!notes.contains("went back"), "{what}: {notes}");
        assert_eq!(outcome.summary.late, late, "{what}");
        let last = outcome.records.last().unwrap();
        assert!(last.time.to_string().as_str() < "2026-10-25T03:02", "{what}: {}", last.time);
    }
}

#[test]
fn a_step_of_a_time_with_an_offset_is_told_as_it_is() {
    let before: String = (0..100).map(|second| combined(second, "/")).collect();
    let after = before.replace("2026:08:", "2026:07:");
    let outcome = Logs::of(before + &after).read();
    assert_eq!(outcome.summary.late, 100);
}

#[test]
fn one_wrong_clock_does_not_end_the_sorting() {
    let pairs = (0..50).flat_map(|at| [at * 10 + 9, at * 10]);
    let pairs: String = pairs.map(|second| combined(second, "/")).collect();
    let future = combined(0, "/z").replace("2026", "2096");
    for text in
        [future.clone() + &pairs, pairs.clone() + &future + &pairs.replace("2026:08:", "2026:09:")]
    {
        let outcome = Logs::of(text).read();
        assert_eq!(outcome.summary.late, 0);
        assert_eq!(outcome.records.last().unwrap().target.as_str(), "/z");
    }
}
