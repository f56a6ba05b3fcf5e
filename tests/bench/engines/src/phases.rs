//! The phases of a run. Each is a process of its own and reports lines of a name and its figures.

use std::{
    hint::black_box,
    io::Write as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};

use crate::{
    READY,
    args::Args,
    engine::{self, Clock, Engine},
    histogram::Histogram,
    meter::{self, Io},
    workload::{HALF_OVER, Random, Workload},
};

/// The batches that are written before the process is killed.
const LAST_BATCHES: u64 = 30;

/// The keys that are read with nothing else going on, of each kind.
const QUIET_READS: u64 = 50_000;

/// Runs the phase with this name.
pub fn run(phase: &str, args: &Args) -> Result<()> {
    let work = Workload::new(args);
    match phase {
        "load" => load(args, &work),
        "read" => read(args, &work),
        "crash" => crash(args, &work),
        "end" => end(args, &work),
        "read-after" => read_after(args, &work),
        _ => bail!("unknown phase"),
    }
}

fn report(name: &str, figures: impl std::fmt::Display) {
    println!("{name}\t{figures}");
}

fn report_seconds(name: &str, start: Instant) {
    report(name, format!("{:.2}", start.elapsed().as_secs_f64()));
}

/// Reports the bytes written for each byte of payload: to the device, and to write calls.
fn report_writes(name: &str, io: Io, payload: u64) {
    let share = |bytes: u64| bytes as f64 / payload as f64;
    report(name, format!("{:.2}\t{:.2}", share(io.written), share(io.wchar)));
}

fn report_state(name: &str, args: &Args) -> Result<()> {
    let (peak, now) = meter::memory()?;
    report(&format!("disk after {name} MB"), meter::disk_bytes(&args.dir)? / 1_000_000);
    report(&format!("memory in {name} MiB (peak, now)"), format!("{peak}\t{now}"));
    Ok(())
}

fn load(args: &Args, work: &Workload) -> Result<()> {
    let store = engine::open(args, &Clock::new())?;
    let (start, before) = (Instant::now(), Io::now()?);
    for batch in work.load() {
        store.write(&batch)?;
    }
    report_seconds("load s", start);
    store.settle()?;
    report_seconds("load and settle s", start);
    let payload = args.keys * (16 + args.value as u64);
    report("load: processor s", format!("{:.1}", meter::cpu_seconds()?));
    report_writes("load: bytes written a byte (device, calls)", Io::now()?.since(before), payload);
    report_state("load", args)?;
    update(args, work, &*store)?;
    report_state("updates", args)?;
    let start = Instant::now();
    store.close()?;
    report_seconds("close s", start);
    Ok(())
}

/// Writes the batches while another thread reads.
fn update(args: &Args, work: &Workload, store: &dyn Engine) -> Result<()> {
    let (committed, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let (before, cpu) = (Io::now()?, meter::cpu_seconds()?);
    let start = Instant::now();
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_along(work, store, &committed, &done));
        let written = write_batches(args, work, store, &committed);
        done.store(true, Ordering::Relaxed);
        let (known, absent) = reader.join().expect("the reader does not panic")?;
        report("commit us (p50, p99, p99.9, max, count)", written?.summary());
        report_seconds("updates s", start);
        report("read known key, busy us", known.summary());
        report("read absent key, busy us", absent.summary());
        anyhow::Ok(())
    })?;
    store.settle()?;
    report_seconds("updates and settle s", start);
    report("updates: processor s", format!("{:.1}", meter::cpu_seconds()? - cpu));
    let payload = args.batches * work.batch_bytes();
    report_writes(
        "updates: bytes written a byte (device, calls)",
        Io::now()?.since(before),
        payload,
    );
    Ok(())
}

fn write_batches(
    args: &Args,
    work: &Workload,
    store: &dyn Engine,
    committed: &AtomicU64,
) -> Result<Histogram> {
    let mut commits = Histogram::new();
    for batch in 0..args.batches {
        let begin = Instant::now();
        let writes = work.batch(batch);
        let start = Instant::now();
        store.write(&writes)?;
        commits.record(start.elapsed());
        committed.store(batch + 1, Ordering::Release);
        thread::sleep(Duration::from_millis(args.pace).saturating_sub(begin.elapsed()));
    }
    Ok(commits)
}

/// Reads known and absent keys in turn until the writer is done.
fn read_along(
    work: &Workload,
    store: &dyn Engine,
    committed: &AtomicU64,
    done: &AtomicBool,
) -> Result<(Histogram, Histogram)> {
    let mut random = Random::new(1);
    let (mut known, mut absent) = (Histogram::new(), Histogram::new());
    while !done.load(Ordering::Relaxed) {
        let number = random.below(work.known(committed.load(Ordering::Acquire)));
        time_read(store, &work.key(number), true, &mut known)?;
        time_read(store, &work.absent(random.below(1 << 40)), false, &mut absent)?;
    }
    Ok((known, absent))
}

fn time_read(store: &dyn Engine, key: &[u8; 16], is: bool, times: &mut Histogram) -> Result<()> {
    let start = Instant::now();
    let found = black_box(store.read(key)?);
    times.record(start.elapsed());
    ensure!(found == is, "a read found {found} where it had to find {is}");
    Ok(())
}

fn read(args: &Args, work: &Workload) -> Result<()> {
    meter::forget_pages(&args.dir)?;
    let start = Instant::now();
    let store = engine::open(args, &Clock::new())?;
    report_seconds("open after a clean end, cold s", start);
    let known = work.known(args.batches);
    quiet(store.as_ref(), "known", true, |random| work.key(random.below(known)))?;
    quiet(store.as_ref(), "absent", false, |random| work.absent(random.below(1 << 40)))?;
    let (peak, now) = meter::memory()?;
    report("memory in quiet reads MiB (peak, now)", format!("{peak}\t{now}"));
    store.close()
}

/// Reads keys of one kind with nothing else going on, and counts the calls that it takes.
fn quiet(
    store: &dyn Engine,
    kind: &str,
    is: bool,
    key: impl Fn(&mut Random) -> [u8; 16],
) -> Result<()> {
    let mut random = Random::new(2);
    let mut times = Histogram::new();
    let before = Io::now()?;
    for _ in 0..QUIET_READS {
        time_read(store, &key(&mut random), is, &mut times)?;
    }
    let io = Io::now()?.since(before);
    report(&format!("read {kind} key, quiet us"), times.summary());
    let each = |count: u64| count as f64 / QUIET_READS as f64;
    report(
        &format!("read {kind} key: calls, bytes"),
        format!("{:.3}\t{:.0}", each(io.reads), each(io.rchar)),
    );
    Ok(())
}

fn crash(args: &Args, work: &Workload) -> Result<()> {
    let store = engine::open(args, &Clock::new())?;
    for batch in args.batches..args.batches + LAST_BATCHES {
        store.write(&work.batch(batch))?;
    }
    println!("{READY}");
    std::io::stdout().flush()?;
    loop {
        thread::park();
    }
}

fn end(args: &Args, work: &Workload) -> Result<()> {
    let clock = Clock::new();
    let start = Instant::now();
    let mut store = engine::open(args, &clock)?;
    report_seconds("open after kill -9 s", start);
    let last = args.batches + LAST_BATCHES;
    report("lost of the last batch", lost(work, &*store, last - 1)?);
    store.settle()?;
    let (start, before) = (Instant::now(), Io::now()?);
    clock.set(HALF_OVER);
    store.drop_ended()?;
    report_seconds("drop the ended half s", start);
    let live = work.known(last) / 2;
    let io = Io::now()?.since(before);
    report("drop: MB written (device, calls)", format!("{}\t{}", io.written >> 20, io.wchar >> 20));
    store.close()?;
    report("disk bytes a live key", meter::disk_bytes(&args.dir)? / live);
    report_state("the drop", args)
}

/// The writes of a batch that the store does not hold. A key that comes twice counts once.
fn lost(work: &Workload, store: &dyn Engine, batch: u64) -> Result<usize> {
    let latest: std::collections::HashMap<_, _> = work.batch(batch).into_iter().collect();
    let mut lost = 0;
    for (key, value) in latest {
        lost += usize::from(store.value(&key)? != Some(value));
    }
    Ok(lost)
}

fn read_after(args: &Args, work: &Workload) -> Result<()> {
    meter::forget_pages(&args.dir)?;
    let clock = Clock::new();
    let start = Instant::now();
    let store = engine::open(args, &clock)?;
    report_seconds("open after the drop, cold s", start);
    let live = work.known(args.batches + LAST_BATCHES) / 2;
    quiet(store.as_ref(), "live", true, |random| work.key(random.below(live) * 2 + 1))?;
    quiet(store.as_ref(), "ended", false, |random| work.key(random.below(live) * 2))?;
    report_state("the end", args)?;
    store.close()
}
