//! `tollgate status --fleet`: the proxies that share a Redis, a row each.

use std::io::{self, Write};

use tollgate_keyword::Keyword;

use crate::{
    admin::{FleetReport, ProxySummary},
    cli::{Failure, call::Target, counted, table},
};

pub(super) fn run(target: &Target, json: bool, output: &mut dyn Write) -> Result<(), Failure> {
    target.show("/fleet", json, output, write_report)?;
    Ok(())
}

fn write_report(output: &mut dyn Write, report: &FleetReport) -> io::Result<()> {
    let head = ["proxy", "version", "since", "configuration", "requests/s", "denied", "state"];
    table::write(output, &head.map(String::from), report.proxies.iter().map(row))?;
    for ProxySummary { name, store_problem, reload_problem, .. } in &report.proxies {
        if let Some(problem) = store_problem {
            writeln!(output, "{name}: limits are decided without redis: {problem}")?;
        }
        if let Some(problem) = reload_problem {
            writeln!(output, "{name}: the last reload was refused: {problem}")?;
        }
    }
    if let Some(problem) = &report.problem {
        writeln!(output, "{problem}")?;
    }
    match (report.shared, report.proxies.len()) {
        (false, _) => writeln!(output, "counters are in memory: this proxy knows of no other"),
        (true, 1) => writeln!(output, "no other proxy shares this redis"),
        (true, all) => writeln!(output, "{all} proxies share this redis"),
    }
}

fn row(proxy: &ProxySummary) -> [String; 7] {
    let mut state = vec![proxy.phase.keyword().to_owned()];
    if proxy.store_problem.is_some() {
        state.push("without redis".into());
    }
    if proxy.servers_serving < proxy.servers {
        let all = counted(proxy.servers, "server");
        state.push(format!("{} of {all} serving", proxy.servers_serving));
    }
    if proxy.reload_problem.is_some() {
        state.push("reload refused".into());
    }
    [
        proxy.name.clone(),
        proxy.version.clone(),
        proxy.started.clone(),
        proxy.digest.clone(),
        format!("{:.1}", proxy.requests_per_second),
        format!("{:.1} %", proxy.denied_share * 100.0),
        state.join(", "),
    ]
}
