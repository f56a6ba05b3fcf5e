//! In which order requests come, and at which times.

use super::{super::*, Logs, combined};

#[test]
fn files_are_merged_by_time() {
    let outcome = Logs::of(combined(0, "/a") + &combined(10, "/d") + &combined(3000, "/f"))
        .and(combined(1, "/b") + &combined(9, "/c") + &combined(11, "/e"))
        .and("")
        .read();
    assert_eq!(outcome.targets(), ["/a", "/b", "/c", "/d", "/e", "/f"]);
    let places: Vec<_> =
        outcome.records.iter().map(|record| (record.place.file, record.place.line)).collect();
    assert_eq!(places, [(0, 1), (1, 1), (1, 2), (0, 2), (1, 3), (0, 3)]);
    assert_eq!(outcome.summary.reordered, 0);
    assert_eq!(outcome.summary.files[2].format, None);
}

#[test]
fn lines_out_of_order_by_ten_seconds_are_sorted_and_later_ones_are_late() {
    let seconds =
        [(20, "/c"), (10, "/a"), (30, "/d"), (20, "/c2"), (41, "/f"), (19, "/late"), (35, "/e")];
    let lines: String = seconds.iter().map(|(second, target)| combined(*second, target)).collect();
    let outcome = Logs::of(lines).read();
    assert_eq!(outcome.targets(), ["/a", "/c", "/c2", "/d", "/late", "/e", "/f"]);
    assert_eq!((outcome.summary.reordered, outcome.summary.late), (3, 1));
    assert_eq!(outcome.records[4].time.to_string(), "2026-11-21T08:00:30.000Z");
}

#[test]
fn a_log_that_is_newest_first_is_read_as_one_that_is_not() {
    // Two lines of each second: of one instant, the later line is the earlier request.
    let lines: Vec<String> = (0..200).map(|at| combined(at / 2 * 9, &format!("/{at}"))).collect();
    let in_order = Logs::of(lines.concat()).read();
    let reversed = || lines.iter().rev().map(String::as_str).collect::<String>();
    let newest_first = Logs::of(reversed()).read();
    assert_eq!(newest_first.shown(), in_order.shown());
    assert_eq!(newest_first.summary.late, 0);
    let notes = &newest_first.summary.notes;
    assert!(notes.iter().any(|note| note.contains("were sorted")), "{notes:?}");
    let csv = |lines: &mut dyn Iterator<Item = usize>| {
        let lines = lines.map(|at| format!("2026-11-21T08:{:02}:00Z,/{at}\n", at % 60));
        "# an export\ntime,path\n".to_owned() + &lines.collect::<String>()
    };
    let in_order = Logs::of(csv(&mut (0..60))).read();
    assert_eq!(Logs::of(csv(&mut (0..60).rev())).read().shown(), in_order.shown());
    // Both at once, as two exports.
    let merged = Logs::of(lines.concat()).and(reversed()).read();
    assert_eq!((merged.records.len(), merged.summary.late), (400, 0));
}

#[test]
fn lines_in_no_order_are_sorted_where_that_is_asked_for() {
    let lines = |order: &mut dyn Iterator<Item = u32>| {
        order.map(|at| combined(at * 9, &format!("/{at}"))).collect::<String>()
    };
    let in_order = Logs::of(lines(&mut (0..300))).read();
    let mut logs = Logs::of(lines(&mut (0..300).map(|at| at * 7 % 300)));
    assert!(logs.read().summary.is_out_of_order());
    logs.options.sort = true;
    let sorted = logs.read();
    assert_eq!(sorted.shown(), in_order.shown());
    assert!(!sorted.summary.is_out_of_order() && sorted.summary.reordered > 0);
}

#[test]
fn a_change_of_the_offset_is_no_jump() {
    let lines = [
        r#"192.0.2.1 - - [25/Oct/2026:02:59:59 +0200] "GET /a HTTP/1.1" 200 5"#,
        r#"192.0.2.1 - - [25/Oct/2026:02:00:00 +0100] "GET /b HTTP/1.1" 200 5"#,
    ];
    let outcome = Logs::of(lines.join("\n")).read();
    let times: Vec<_> = outcome.records.iter().map(|record| record.time.to_string()).collect();
    assert_eq!(times, ["2026-10-25T00:59:59.000Z", "2026-10-25T01:00:00.000Z"]);
    assert_eq!((outcome.summary.reordered, outcome.summary.late), (0, 0));
}

#[test]
fn a_change_of_the_year_is_no_jump() {
    let line = |date: &str, target: &str| {
        format!(
            "Dec 31 23:59:59 host haproxy[1]: 10.0.1.2:33317 [{date}] in s/a 0/0/0/0/0 200 5 - - ---- \
             1/1/1/1/0 0/0 \"GET {target} HTTP/1.1\"\n"
        )
    };
    let outcome =
        Logs::of(line("31/Dec/2026:23:59:59.900", "/a") + &line("01/Jan/2027:00:00:00.100", "/b"))
            .read();
    assert_eq!(outcome.targets(), ["/a", "/b"]);
    assert_eq!(outcome.records[1].time.to_string(), "2027-01-01T00:00:00.100Z");
    let notes = outcome.summary.notes.join("\n");
    assert!(notes.contains("taken as UTC"), "{notes}");
}

#[test]
fn the_grain_is_the_finest_unit_of_the_times_as_they_are_written() {
    let own = |time: &str| {
        format!(
            r#"{{"time":"{time}","request_id":"1","client":"::1","method":"GET","path":"/","status":200}}"#
        )
    };
    for (line, expected) in [
        (combined(0, "/"), 1.0),
        // The arrival has milliseconds, and the time has not.
        (combined(0, "/").trim_end().to_owned() + " 0.123", 1.0),
        (own("2026-11-21T08:41:00.000Z") + "\n" + &own("2026-11-21T08:41:00.120Z"), 0.001),
        (own("2026-11-21T08:41:00.123456Z"), 0.000_001),
    ] {
        let outcome = Logs::of(&line).read();
        assert_eq!(outcome.summary.files[0].grain_seconds, Some(expected), "{line}");
    }
}

#[test]
fn the_times_of_a_file_may_begin_with_one_of_the_future() {
    let future = combined(0, "/z").replace("2026", "2099");
    let outcome = Logs::of(future + &combined(0, "/a") + &combined(5, "/b")).read();
    assert_eq!(outcome.targets(), ["/a", "/b", "/z"]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        failure_persistence: None, ..Default::default()
    })]

    /// Whatever order the lines are in and however they are spread over files: each is given out or
    /// counted, times never go back, and requests that are at most ten seconds out of order keep
    /// their times.
    #[test]
    fn prop_nothing_is_lost_and_time_never_goes_back(
        seconds in proptest::collection::vec(
            (proptest::option::weighted(0.9, 0..60_u32), 0..3_usize), 1..80)
    ) {
        let mut files = [const { String::new() }; 3];
        for (at, (second, file)) in seconds.iter().enumerate() {
            match second {
                Some(second) => files[*file] += &combined(*second, &format!("/{at}")),
                None => files[*file] += "no line of a log\n",
            }
        }
        // The first file has a known line, so that each has a format.
        let logs = files.iter().fold(Logs::new(), |logs, file| logs.and(file));
        let outcome = logs.format(Format::Combined).read();
        let mut given: Vec<_> = outcome.records.iter().map(|record| record.place).collect();
        given.sort_unstable();
        given.dedup();
        proptest::prop_assert_eq!(given.len(), outcome.records.len());
        let moved = outcome.records.iter().filter(|record| {
            let at: usize = record.target.as_str()[1..].parse().unwrap();
            combined(seconds[at].0.unwrap(), "").split('[').nth(1).unwrap().get(12..20)
                != record.time.to_string().get(11..19)
        });
        proptest::prop_assert_eq!(moved.count() as u64, outcome.summary.late);
    }
}
