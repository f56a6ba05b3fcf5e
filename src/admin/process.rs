//! The process in metrics, by the names that Prometheus' client libraries give them. They are read
//! from `/proc` (proc_pid_stat(5)); where that cannot be read, they are left out.

use std::fs;

use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

use super::exposition::{Exposition, MetricKind};

/// What `/proc/self/stat` says.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// In user and system mode, in ticks of the clock.
    cpu_ticks: u64,
    threads: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

/// Its metrics.
pub(super) fn write_metrics(text: &mut Exposition) {
    if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| parse(&stat)) {
        let help = "Seconds of CPU that the process has used, in user and system mode.";
        text.family("process_cpu_seconds_total", MetricKind::Counter, help);
        text.sample_real(&[], stat.cpu_ticks as f64 / clock_ticks_per_second() as f64);
        let help = "Bytes of memory that the process occupies.";
        let bytes = stat.resident_pages.saturating_mul(page_size() as u64);
        text.gauge("process_resident_memory_bytes", help, bytes);
        let help = "Bytes of addresses that the process has.";
        text.gauge("process_virtual_memory_bytes", help, stat.virtual_bytes);
        text.gauge("process_threads", "Threads of the process.", stat.threads);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        text.family("process_open_fds", MetricKind::Gauge, "Open file descriptors.");
        // Without the one that reads the folder.
        text.sample(&[], (open.count() as u64).saturating_sub(1));
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        text.gauge("process_max_fds", "File descriptors that may be open.", most);
    }
}

fn parse(stat: &str) -> Option<Stat> {
    // The second field is the program's name in parentheses, which may itself have some.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The manual counts from 1, and two fields are cut off.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        cpu_ticks: field(14)? + field(15)?,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let numbers: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let stat = format!("1 (a) b (c) S {}", numbers.join(" "));
        let expected =
            Stat { cpu_ticks: 14 + 15, threads: 20, virtual_bytes: 23, resident_pages: 24 };
        assert_eq!(parse(&stat), Some(expected));
        assert_eq!(parse("1 (a) S 4"), None);
    }
}
