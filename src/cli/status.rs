//! `tollgate status`: how a running proxy is, and what is wrong with the configuration that it
//! refused last.

mod fleet;

use std::io::Write;

use anyhow::bail;
use tollgate_keyword::Keyword;
use tollgate_settings::Permission;

use super::{Failure, call::Where, counted, reload::write_problems};
use crate::admin::{
    DiskStatus, EndpointStatus, PolicyStatus, RedisStatus, RemoteKeysStatus, RivalStatus, Status,
    StoreStatus, UpstreamStatus,
};

/// Show the status of a running proxy
///
/// Queries its admin listener for the configuration in force, and shows the problems of the last
/// reload if it was refused. Exits with 0 if all is well, with 1 if the last reload was refused or
/// the proxy does not respond.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    place: Where,
    /// Show all proxies that share the Redis of this one
    #[arg(long)]
    fleet: bool,
    /// Show everything, as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let target = arguments.place.target(Permission::Read)?;
    if arguments.fleet {
        return fleet::run(&target, arguments.json, output);
    }
    let status = target.show("/status", arguments.json, output, write_summary)?;
    Ok(verdict(&status)?)
}

fn verdict(status: &Status) -> anyhow::Result<()> {
    if status.refused.is_some() {
        bail!("the last reload was refused: an older configuration is in force");
    }
    Ok(())
}

fn write_summary(output: &mut dyn Write, status: &Status) -> std::io::Result<()> {
    let phase = status.phase.keyword();
    writeln!(output, "tollgate {}, {phase} since {}", status.version, status.started)?;
    let Status { generation, loaded, digest, .. } = status;
    writeln!(output, "configuration: generation {generation} ({digest}), since {loaded}")?;
    let reloads = &status.reloads;
    writeln!(output, "reloads: {} done, {} refused", reloads.done, reloads.failed)?;
    writeln!(output, "metrics: {} series", status.metric_series)?;
    for PolicyStatus { name, hosts, limits, routes } in &status.policies {
        let hosts = if hosts.is_empty() { "all hosts".into() } else { hosts.join(", ") };
        let limits = counted(*limits, "limit");
        let routes = counted(*routes, "route");
        writeln!(output, "policy {name}: {hosts}, {limits}, {routes}")?;
    }
    for upstream in &status.upstreams {
        write_upstream(output, upstream)?;
    }
    write_store(output, &status.store)?;
    for keys in &status.remote_keys {
        let RemoteKeysStatus { url, keys, fetched, last_error, problem, .. } = keys;
        let fetched = fetched.as_deref().unwrap_or("never");
        write!(output, "keys of {url}: {keys}, fetched {fetched}")?;
        match problem.as_ref().or(last_error.as_ref()) {
            Some(error) => writeln!(output, "; {error}")?,
            None => writeln!(output)?,
        }
    }
    if !status.needs_restart.is_empty() {
        writeln!(output, "needs a restart: {}", status.needs_restart.join(", "))?;
    }
    let Some(refused) = &status.refused else { return Ok(()) };
    writeln!(output, "\nrefused at {}:\n", refused.at)?;
    write_problems(output, refused)
}

fn write_upstream(output: &mut dyn Write, upstream: &UpstreamStatus) -> std::io::Result<()> {
    for server in &upstream.servers {
        write!(output, "server {}/{} {}: ", upstream.policy, upstream.name, server.server)?;
        match server.addresses.as_slice() {
            [] => write!(output, "no address")?,
            addresses => {
                let state = |endpoint: &EndpointStatus| match endpoint.address == server.server {
                    true => endpoint.state.clone(),
                    false => format!("{} {}", endpoint.address, endpoint.state),
                };
                let states: Vec<String> = addresses.iter().map(state).collect();
                write!(output, "{}", states.join(", "))?;
            }
        }
        let in_flight: usize = server.addresses.iter().map(|endpoint| endpoint.in_flight).sum();
        let requests = server.requests;
        let failures = server.failures;
        writeln!(output, "; {in_flight} in flight, {requests} requests, {failures} failed")?;
    }
    Ok(())
}

fn write_store(output: &mut dyn Write, store: &StoreStatus) -> std::io::Result<()> {
    write!(output, "store: {}", store.current)?;
    if let Some(next) = &store.next {
        let percent = store.percent.unwrap_or_default();
        let mode = store.mode.as_deref();
        write!(output, ", {percent} % of the callers to {next} ({})", mode.unwrap_or("move"))?;
        if store.unmirrored > 0 {
            write!(output, ", {} decisions that it was not asked for in time", store.unmirrored)?;
        }
    }
    write!(output, ", {} counters in the process", store.counters)?;
    if let Some(watermark) = &store.watermark {
        write!(output, ", {} at times of clients up to {watermark}", store.client_timed)?;
    }
    let unanswered: u64 = store.unanswered.values().sum();
    if unanswered > 0 {
        write!(output, ", {unanswered} decisions that the store did not make")?;
    }
    if store.owed > 0 {
        write!(output, ", {} counters with charges not yet written to redis", store.owed)?;
    }
    writeln!(output)?;
    if let Some(disk) = &store.disk {
        write_disk(output, disk)?;
    }
    for why in &store.alone {
        writeln!(output, "limits are decided without redis: {why}")?;
    }
    for server in &store.servers {
        write_redis(output, server)?;
    }
    for clock in store.clocks.iter().filter(|clock| clock.overruled) {
        let server = &clock.server;
        let apart = clock.ahead_seconds.abs();
        let word = if clock.ahead_seconds > 0.0 { "ahead" } else { "behind" };
        writeln!(output, "  {server}: limits go by its clock; the proxy's is {apart:.1} s {word}")?;
    }
    for RivalStatus { server, shard, used } in &store.rivals {
        writeln!(output, "two primaries of {shard}: {used} is used, {server} is not")?;
    }
    if let Some(obstacle) = &store.move_waits_for {
        let moved = store.moved;
        writeln!(output, "{moved} % are moved, and others are mirrored for now: {obstacle}")?;
    }
    Ok(())
}

fn write_disk(output: &mut dyn Write, disk: &DiskStatus) -> std::io::Result<()> {
    let DiskStatus { path, keys_in_memory, keys_on_disk, .. } = disk;
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
    writeln!(
        output,
        "disk {path}: {keys_in_memory} counters in memory ({} of {} MiB), about {keys_on_disk} on \
         disk ({} MiB), last flush {:.1} s ago",
        megabytes(disk.memory_bytes),
        megabytes(disk.memory_limit_bytes),
        megabytes(disk.tables_bytes + disk.journal_bytes),
        disk.flush_lag_seconds,
    )?;
    if let Some(failure) = &disk.failure {
        writeln!(output, "counters cannot be written to disk: {failure}")?;
    }
    if !disk.open {
        writeln!(output, "another process has taken over the disk of the counters")?;
    }
    if !disk.filter_ready {
        writeln!(output, "the disk is looked through; until then a new caller may need a read")?;
    }
    Ok(())
}

fn write_redis(output: &mut dyn Write, redis: &RedisStatus) -> std::io::Result<()> {
    let RedisStatus { store, server, role, health, since, .. } = redis;
    write!(output, "redis {server} of the {store} store: {role}, {health} since {since}")?;
    match (redis.follows, redis.lag) {
        (Some(true), Some(lag)) => write!(output, ", {lag:.1} s behind")?,
        (Some(false), _) => write!(output, ", does not follow its primary")?,
        _ => {}
    }
    if let Some(words) = &redis.refusal {
        write!(output, ", refuses charges: {words}")?;
    } else if health != "serving"
        && let Some(error) = &redis.last_error
    {
        write!(output, ": {error}")?;
    }
    writeln!(output)
}
