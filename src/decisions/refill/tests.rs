use std::collections::HashMap;

use proptest::prelude::*;
use tollgate_wire::resp::{Bounds, Decoded, decode};

use super::*;

const BOUNDS: Bounds = Bounds { arguments: 64, argument_bytes: 1000, command_bytes: 10_000 };

/// A command as it is read from the wire.
fn parse(line: &str, verb: Verb, unit: Unit) -> Result<Request, Mistake> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    match decode(bytes.as_bytes(), &BOUNDS).unwrap() {
        Decoded::Command(arguments, _) => Request::parse(&arguments, verb, unit),
        Decoded::Partial(_) => panic!("{line}"),
    }
}

#[test]
fn arguments_are_read_as_the_original_reads_them() {
    use Unit::{Milliseconds, Seconds};
    use Verb::{Peek, Reduce};
    let table = [
        ("rl.get abc 10 60", Peek, Seconds, (10, 60_000, 10, 0, None, false)),
        ("rl.pget abc 10 500", Peek, Milliseconds, (10, 500, 10, 0, None, false)),
        (
            "rl.reduce abc 10 500 REFILL 5 take 2 at 1005",
            Reduce,
            Seconds,
            (10, 500_000, 5, 2, Some(1_005_000), false),
        ),
        (
            "rl.preduce abc 20 500 at 1005 take 2",
            Reduce,
            Milliseconds,
            (20, 500, 20, 2, Some(1005), false),
        ),
        (
            "rl.get abc 10 700 REFILL 3 at 2005",
            Peek,
            Seconds,
            (10, 700_000, 3, 0, Some(2_005_000), false),
        ),
        ("rl.pget abc 20 700 at 3005", Peek, Milliseconds, (20, 700, 20, 0, Some(3005), false)),
        (
            "rl.reduce abc 20 700 STRICT at 3005 REFILL 4",
            Reduce,
            Milliseconds,
            (20, 700, 4, 1, Some(3005), true),
        ),
        (
            "rl.preduce abc 20 700000 at 3005000 REFILL 4 TAKE 3 STRICT",
            Reduce,
            Milliseconds,
            (20, 700_000, 4, 3, Some(3_005_000), true),
        ),
        ("rl.reduce a 5 1 take 2 TAKE 3", Reduce, Seconds, (5, 1000, 5, 3, None, false)),
    ];
    for (line, verb, unit, (max, refill_millis, refill, take, at, strict)) in table {
        let expected = Request { max, refill_millis, refill, take, at, strict };
        assert_eq!(parse(line, verb, unit), Ok(expected), "{line}");
    }
}

#[test]
fn refills_keep_their_phase() {
    let request =
        Request { max: 1000, refill_millis: 60_000, refill: 100, take: 0, at: None, strict: false };
    let bucket = Bucket { amount: 100, mark: 2000, full_at: 0, session_started: 0 };
    for (at, expected) in
        [(53_000, (100, 2000)), (123_000, (300, 122_000)), (1_312_000, (1000, 1_262_000))]
    {
        assert_eq!(request.refilled(&bucket, at), expected, "at {at}");
    }
}

#[test]
fn bucket_has_faded_when_it_was_idle_long_enough_to_be_full() {
    let request =
        Request { max: 100, refill_millis: 60_000, refill: 5, take: 1, at: None, strict: false };
    let taken = request.take(None, 1_000_000);
    let minutes = |idle: i64| 1_000_000 + idle * 60_000;
    let faded = |now| taken.bucket.unwrap().full_at <= now;
    assert_eq!((faded(minutes(30)), faded(minutes(10))), (true, false));
    assert_eq!((faded(minutes(20)), faded(minutes(20) - 1)), (true, false));
}

#[test]
fn strict_never_takes_refills_back() {
    let strict =
        Request { max: 1, refill_millis: 1000, refill: 1, take: 1, at: Some(9000), strict: true };
    let bucket = strict.take(None, 0).bucket.unwrap();
    let older = Request { at: Some(5000), ..strict }.take(Some(&bucket), 0);
    assert_eq!((older.before, older.bucket.unwrap().mark), (0, 9000));
}

#[test]
fn extremes_do_not_overflow() {
    for (max, refill, millis) in [(i64::MAX, 1, 1), (i64::MAX, i64::MAX, 1), (1, i64::MAX, 1000)] {
        let request = Request {
            max,
            refill,
            refill_millis: millis,
            take: i64::MAX,
            at: Some(i64::MAX),
            strict: true,
        };
        let first = Request { at: Some(0), ..request }.take(None, i64::MAX).bucket.unwrap();
        assert_eq!(first.full_at, request.full_after());
        let taken = request.take(Some(&first), 0);
        assert!((0..=max).contains(&taken.before));
    }
}

/// resp.md 1.4 word for word, with numbers that cannot overflow; but no bucket goes back in time.
#[derive(Default)]
struct Model(HashMap<(u8, Request), (i128, i128, i128)>);

impl Model {
    fn take(&mut self, name: u8, request: Request, now: i64) -> (i64, i64) {
        let [max, refill, time, take] =
            [request.max, request.refill, request.refill_millis, request.take].map(i128::from);
        let at = i128::from(request.at.unwrap_or(now));
        let key = (name, Request { take: 0, at: None, strict: false, ..request });
        let stored = self.0.get(&key).copied();
        let at = stored.map_or(at, |(_, last, _)| at.max(last));
        let (adjusted, mark) = match stored {
            None => (max, at),
            Some((amount, last, _)) => {
                let n = (at - last).max(0) / time;
                (max.min(amount + n * refill), last + n * time)
            }
        };
        let started = match stored {
            Some((_, _, started)) if adjusted < take => started,
            _ => at,
        };
        if take > 0 {
            let amount = (adjusted - take).max(0);
            let mark = if request.strict && amount == 0 { mark.max(at) } else { mark };
            self.0.insert(key, (amount, mark, started));
        }
        (adjusted as i64, started as i64)
    }
}

impl std::hash::Hash for Request {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.max, self.refill, self.refill_millis).hash(state);
    }
}

fn requests() -> impl Strategy<Value = (u8, Request, i64)> {
    let at = prop::option::of(0i64..40_000);
    let parameters =
        prop::sample::select(vec![(1, 1, 1000), (10, 3, 5000), (10, 10, 1), (7, 2, 300)]);
    (0u8..3, parameters, 0i64..12, at, any::<bool>(), 0i64..900).prop_map(
        |(name, (max, refill, refill_millis), take, at, strict, step)| {
            (name, Request { max, refill, refill_millis, take, at, strict }, step)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// 200 histories of 500 commands.
    #[test]
    fn prop_it_replies_as_the_model(history in prop::collection::vec(requests(), 500)) {
        let mut model = Model::default();
        let mut buckets: HashMap<(u8, Request), Bucket> = HashMap::new();
        let mut now = 0;
        for (name, request, step) in history {
            now += step;
            let key = (name, Request { take: 0, at: None, strict: false, ..request });
            let taken = request.take(buckets.get(&key), now);
            let told = (taken.before, taken.session_started);
            prop_assert_eq!(told, model.take(name, request, now), "{:?} at {}", request, now);
            taken.bucket.map(|bucket| buckets.insert(key, bucket));
        }
    }
}
