//! What is kept of denials, and what is grouped.

use tollgate_response::Rejection;

use super::*;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn entry(caller: Option<&str>, path: &str, time: Timestamp) -> DenialEntry {
    DenialEntry {
        seq: 0,
        group: 0,
        time,
        last: time,
        count: 1,
        caller: caller.map(str::to_owned),
        address: [192, 0, 2, 1].into(),
        policy: Some("api".into()),
        limit: Some("core, search".into()),
        counters: Vec::new(),
        reason: "limit",
        tier: None,
        method: "GET".into(),
        path: path.into(),
        request_id: format!("{}", time.as_micros()),
        status: None,
    }
}

fn add(denials: &Denials, entry: DenialEntry) {
    let who = denials.hasher.hash_one((&entry.caller, entry.address));
    let alike = denials.hasher.hash_one((who, &entry.path));
    let noted = Noted { who, alike, entry: Arc::new(entry) };
    denials.ring.lock().add(noted);
}

fn all(denials: &Denials) -> Vec<Arc<DenialEntry>> {
    denials.after(0, &DenialFilter::default(), usize::MAX).entries
}

/// A worker notes a request of this client, to this path.
fn note(denials: &Denials, worker: &WorkerDenials, client: u8, path: &str, now: Timestamp) {
    let (parts, ()) = http::Request::get(path).body(()).unwrap().into_parts();
    let request = DeniedRequest {
        parts: &parts,
        state: &RequestState::default(),
        action: &Action::Refuse(Rejection::Denied),
        address: [192, 0, 2, client].into(),
        request_id: &HeaderValue::from_static("id"),
        name: &|_, _| {},
    };
    denials.note(worker, &request, now);
}

#[test]
fn newer_ones_that_fit_are_found_oldest_first() {
    let denials = Denials::default();
    for seq in 1..=20 {
        let caller = (seq % 2 == 0).then(|| format!("user:{}", seq % 10));
        add(&denials, entry(caller.as_deref(), &format!("/{seq}"), START));
    }
    let found = |seq, caller: Option<&str>, limit: Option<&str>, most| {
        let [caller, limit] = [caller, limit].map(|text| text.map(str::to_owned));
        let found = denials.after(seq, &DenialFilter { caller, limit, policy: None }, most);
        assert_eq!((found.latest, found.left_out), (20, 0));
        found.entries.iter().map(|entry| entry.seq).collect::<Vec<_>>()
    };
    assert_eq!(found(17, None, None, 10), [18, 19, 20]);
    assert_eq!(found(0, None, None, 2), [19, 20]);
    assert_eq!(found(0, Some("user:4"), None, 10), [4, 14]);
    assert_eq!(found(18, Some("client.ip:192.0.2.1"), Some("search"), 10), [19, 20]);
    assert_eq!(found(0, None, Some("sear"), 10), [0; 0]);
    assert_eq!(found(20, None, None, 10), [0; 0]);
}

#[test]
fn repeated_denials_of_a_caller_are_one_entry_for_a_minute() {
    let denials = Denials::default();
    for second in 0..90 {
        add(&denials, entry(Some("user:1"), "/", START + Duration::from_secs(second)));
    }
    add(&denials, entry(Some("user:2"), "/", START + Duration::from_secs(90)));
    add(&denials, entry(Some("user:1"), "/other", START + Duration::from_secs(90)));
    add(&denials, entry(Some("user:1"), "/", START + Duration::from_secs(91)));
    let at = |second| START + Duration::from_secs(second);
    let found = all(&denials);
    let shown = found.iter().map(|own| (own.seq, own.group, own.count, own.time, own.last));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            (60, 1, 60, at(0), at(59)),
            (91, 91, 1, at(90), at(90)),
            (92, 92, 1, at(90), at(90)),
            (93, 61, 31, at(60), at(91)),
        ]
    );
    assert_eq!(found[3].request_id, format!("{}", at(91).as_micros()), "of the latest");
}

#[test]
fn caller_that_is_denied_all_the_time_does_not_push_the_others_out() {
    let denials = Denials::default();
    let worker = denials.notes();
    note(&denials, &worker, 1, "/", START);
    for number in 0..5_000_u32 {
        let now = START + Duration::from_millis(10 * u64::from(number));
        note(&denials, &worker, 2, &format!("/{number}"), now);
        if number == 2_500 {
            note(&denials, &worker, 3, "/", now);
        }
    }
    let found = all(&denials);
    let of = |client| {
        found.iter().filter(|own| own.address == IpAddr::from([192, 0, 2, client])).count()
    };
    assert_eq!([of(1), of(2), of(3)], [1, KEPT_OF_A_CALLER, 1]);
    assert_eq!(denials.totals(), (5_002, 0));
}

#[test]
fn denial_that_comes_while_the_ring_is_read_is_not_lost() {
    let denials = Denials::default();
    let worker = denials.notes();
    note(&denials, &worker, 1, "/", START);
    {
        let _reader = denials.ring.lock();
        let _half = worker.queue[0].lock();
        note(&denials, &worker, 2, "/", START + Duration::from_secs(5));
    }
    let found = denials.after(0, &DenialFilter::default(), usize::MAX);
    assert_eq!((found.entries.len(), found.latest, found.left_out), (2, 2, 0));
}

#[test]
fn storm_of_one_request_is_counted_exactly() {
    let denials = Denials::default();
    let workers = [denials.notes(), denials.notes()];
    for number in 0..4_000_u64 {
        let now = START + Duration::from_millis(number);
        note(&denials, &workers[(number % 2) as usize], 1, "/path?key=secret", now);
    }
    let found = denials.after(0, &DenialFilter::default(), usize::MAX);
    assert_eq!(found.left_out, 0);
    let [only] = &found.entries[..] else { panic!("{found:?}") };
    assert_eq!(
        (only.count, &*only.path, only.reason, only.seq),
        (4_000, "/path", "deny", found.latest)
    );
}

#[test]
fn storm_makes_no_more_than_a_thousand_entries_a_second() {
    let denials = Denials::default();
    let worker = denials.notes();
    for second in 0..3 {
        let now = START + Duration::from_secs(second);
        (0..5_000).for_each(|_| note(&denials, &worker, 1, "/", now));
    }
    let found = denials.after(0, &DenialFilter::default(), usize::MAX);
    let counted: u64 = found.entries.iter().map(|entry| entry.count).sum();
    assert_eq!(counted + found.left_out, 15_000);
    assert!((3_000..=3_010).contains(&counted), "{counted}");
}

#[test]
fn queue_and_ring_are_bounded_and_what_is_left_out_is_counted() {
    let denials = Denials::default();
    let worker = denials.notes();
    for number in 0..100 {
        note(&denials, &worker, 1, &format!("/{number}"), START);
    }
    for client in 2..=255 {
        note(&denials, &worker, client, "/", START);
    }
    let found = denials.after(0, &DenialFilter::default(), usize::MAX);
    let left_out = (100 - MAX_QUEUED_OF_A_CALLER) + (254 + MAX_QUEUED_OF_A_CALLER - MAX_QUEUED);
    assert_eq!((found.entries.len(), found.left_out), (MAX_QUEUED, left_out as u64));
    for number in 0..2_000 {
        let time = START + Duration::from_secs(number);
        add(&denials, entry(Some(&format!("user:{number}")), "/", time));
    }
    assert_eq!(all(&denials).len(), KEPT_DENIALS);
}

#[test]
fn long_texts_are_cut_at_a_letter() {
    assert_eq!(cut("aéé", 4), "aé");
    assert_eq!(cut("abc", 4), "abc");
}
