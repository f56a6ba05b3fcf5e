//! The second judge finds one wrong answer among right ones. What is right is written down here by
//! hand, for a limit of four units in eight seconds.

use std::time::Duration;

use tollgate_limit::{
    Align, Concurrency, DecidedBy, FixedWindow, Gcra, Key, LimitId, Outcome, Quota, Receipt, Retry,
    SlidingLog, SlidingWindow, Standing, TokenBucket, Verdict,
};

use super::{super::Facts, review};
use crate::{
    ledger::{Admission, Answer, Ledger},
    limits::Limit,
    machine::START,
};

const WINDOW: Duration = Duration::from_secs(8);

/// An answer: when it was given, for what cost, how much is used then, when the limit is whole
/// again, and when a denied cost fits; all in milliseconds since the simulation began, at which a
/// window begins.
type Row = (u64, u32, u32, u64, Option<u64>);

/// The limit, and right answers.
fn histories() -> Vec<(Quota, Vec<Row>)> {
    let refill = Duration::from_secs(4);
    let bucket =
        TokenBucket { capacity: 4, refill: 2, interval: refill, even: false, strict: false };
    let lease = Duration::from_secs(30);
    vec![
        (
            FixedWindow { limit: 4, align: Align::Epoch(WINDOW) }.into(),
            vec![
                (1000, 2, 2, 8000, None),
                (3000, 2, 4, 8000, None),
                (7999, 1, 4, 8000, Some(8000)),
                (8000, 1, 1, 16000, None),
            ],
        ),
        (
            SlidingLog { limit: 4, window: WINDOW }.into(),
            vec![
                (1000, 2, 2, 9000, None),
                (3000, 2, 4, 11000, None),
                (8999, 1, 4, 11000, Some(9000)),
                (9000, 1, 3, 17000, None),
            ],
        ),
        (
            // A quarter of the second window has passed at 10000: three quarters of four are three.
            SlidingWindow::new(4, WINDOW).unwrap().into(),
            vec![
                (1000, 2, 2, 16000, None),
                (3000, 2, 4, 16000, None),
                (9000, 1, 4, 16000, Some(10000)),
                (10000, 1, 4, 24000, None),
            ],
        ),
        (
            // A unit drains in two seconds.
            Gcra::new(4, WINDOW, 4, 4).unwrap().into(),
            vec![
                (1000, 2, 2, 5000, None),
                (3000, 3, 4, 11000, None),
                (4000, 1, 4, 11000, Some(5000)),
                (5000, 1, 4, 13000, None),
            ],
        ),
        (
            // Refills come at 5000 and 9000.
            bucket.into(),
            vec![
                (1000, 2, 2, 5000, None),
                (3000, 2, 4, 9000, None),
                (4999, 1, 4, 9000, Some(5000)),
                (5000, 1, 3, 13000, None),
            ],
        ),
        (
            Concurrency { limit: 4, lease, retry_after: WINDOW }.into(),
            vec![
                (1000, 1, 1, 9000, None),
                (3000, 1, 2, 11000, None),
                (3000, 1, 3, 11000, None),
                (4000, 1, 4, 12000, None),
                (5000, 1, 4, 13000, Some(13000)),
            ],
        ),
    ]
}

/// What the second judge says of answers by Redis.
fn judge_rows(quota: &Quota, rows: &[Row], is_calm: bool) -> Vec<String> {
    let begin = START + to_a_window();
    let instant = |millis: u64| begin + Duration::from_millis(millis);
    let mut ledger = Ledger::default();
    for (millis, cost, used, reset, retry) in rows {
        let first_admission = ledger.admissions.len();
        let at = instant(*millis);
        let elapsed = at.saturating_since(START);
        let standing = Standing {
            limit: 4,
            used: *used,
            remaining: 4 - used,
            reset: instant(*reset),
            next: at,
            retry: retry.map_or(Retry::Now, |retry| Retry::At(instant(retry))),
        };
        let is_admitted = retry.is_none();
        let receipt = is_admitted.then_some(Receipt { at, number: 0 });
        let outcome = Outcome { standing, receipt, decided_by: DecidedBy::Current };
        if is_admitted {
            ledger.admissions.push(Admission {
                limit: (0, 1),
                units: *cost,
                at,
                reset: standing.reset,
                asked: elapsed,
                answered: elapsed,
                decided_by: DecidedBy::Current,
                proxy: 0,
                refunded: None,
                is_late: false,
            });
        }
        ledger.answers.push(Answer {
            caller: 0,
            which: &[1],
            cost: *cost,
            proxy: 0,
            at,
            asked: elapsed,
            answered: elapsed,
            verdict: if is_admitted { Verdict::Allow } else { Verdict::Deny },
            outcomes: [outcome].into_iter().collect(),
            first_admission,
        });
    }
    let key = Key::new(0, 0, LimitId::new("test", "core", "any", 0));
    let limit = Limit { name: "the limit".to_owned(), quota: quota.clone(), key };
    let facts = Facts { is_calm, instances: 1, lives: 1, ..Facts::default() };
    review(&[[limit.clone(), limit]], &ledger, &facts).broken
}

/// From the beginning of simulations to that of a window.
fn to_a_window() -> Duration {
    let window = WINDOW.as_micros() as u64;
    Duration::from_micros(window - START.as_micros() % window)
}

#[test]
fn right_answers_are_not_broken() {
    for (quota, rows) in histories() {
        for is_calm in [true, false] {
            let broken = judge_rows(&quota, &rows, is_calm);
            assert!(broken.is_empty(), "{quota:?}: {broken:#?}");
        }
    }
}

#[test]
fn one_wrong_answer_is_broken() {
    let changes: [fn(&mut Row); 4] = [
        |row| row.2 = if row.2 == 4 { 3 } else { row.2 + 1 },
        |row| row.3 += 1,
        |row| row.4 = row.4.map(|retry| retry + 1),
        // It is denied, or admitted.
        |row| row.4 = if row.4.is_none() { Some(row.3) } else { None },
    ];
    for (quota, rows) in histories() {
        for at in 0..rows.len() {
            for (number, change) in changes.iter().enumerate() {
                let mut wrong = rows.clone();
                change(&mut wrong[at]);
                let is_changed = wrong[at] != rows[at];
                let is_broken = !judge_rows(&quota, &wrong, true).is_empty();
                assert_eq!(is_broken, is_changed, "{quota:?}: change {number} of answer {at}");
            }
        }
    }
}

#[test]
fn answer_out_of_bounds_is_broken() {
    for (quota, rows) in histories() {
        // One unit less than is sure, then a denial for units that nobody has charged. A bucket may
        // have been refilled meanwhile, for all that is known.
        let mut wrong = rows.clone();
        wrong[1].2 -= 1;
        let is_sure = !matches!(quota, Quota::TokenBucket(_));
        let is_broken = !judge_rows(&quota, &wrong, false).is_empty();
        assert_eq!(is_broken, is_sure, "{quota:?}: too little");
        let denied = vec![rows[0], (rows[0].0 + 1, 1, 4, rows[0].3, Some(rows[0].3))];
        assert!(!judge_rows(&quota, &denied, false).is_empty(), "{quota:?}: too much");
    }
}
