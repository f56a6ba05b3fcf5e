//! `tollgate top`: the callers that use the limits of a running proxy most.

use std::io::{self, Write};

use tollgate_keyword::Keyword;
use tollgate_settings::Permission;

use super::{
    Failure,
    call::{Where, encoded},
    counted, table,
};
use crate::callers::top::{TopCaller, TopReport};

/// Show the callers that use limits most
///
/// Queries the admin listener of a running proxy for the callers with the highest use, or with the
/// most denials, of each limit; of limits that count by something else, such as organisations, for
/// these. Values of headers and cookies are shown as hashes. Only those that weigh most are kept,
/// in bounded memory: a count may be too high, and the true one is at least what the last column
/// has. It is about this one proxy, whatever the store.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    place: Where,
    /// Rank by units charged, by requests denied, or by those that limits in shadow mode would deny
    #[arg(long, value_parser = ["units", "denials", "would_be_denials"], default_value = "units")]
    by: String,
    /// Only this limit
    #[arg(long, value_name = "NAME")]
    limit: Option<String>,
    /// Only this policy
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Of how many minutes, 1 to 60; the last one is the one that has begun
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    minutes: u64,
    /// How many callers at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    top: u64,
    /// Show everything, as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let Arguments { place, by, limit, policy, minutes, top, json } = arguments;
    let mut path = format!("/callers?by={by}&minutes={minutes}&top={top}");
    for (name, value) in [("limit", limit), ("policy", policy)] {
        if let Some(value) = value {
            path = format!("{path}&{name}={}", encoded(value));
        }
    }
    let target = place.target(Permission::Read)?;
    target.show(&path, *json, output, write_report)?;
    Ok(())
}

fn write_report(output: &mut dyn Write, report: &TopReport) -> io::Result<()> {
    let TopReport { by, minutes, callers, limits, .. } = report;
    let what = by.keyword().replace('_', " ");
    let minutes = counted(*minutes as usize, "minute");
    if limits.is_empty() {
        return writeln!(output, "the policies have no limits");
    }
    if callers.is_empty() {
        writeln!(output, "no {what} in {minutes}")?;
    } else {
        let head = ["caller", "limit", "tier", &what, "at least"].map(String::from);
        let row = |caller: &TopCaller| {
            let TopCaller { name, policy, limit, tier, count, error } = caller;
            let limit = format!("{policy}/{limit}");
            let tier = tier.clone().unwrap_or_default();
            [name.clone(), limit, tier, count.to_string(), (count - error).to_string()]
        };
        table::write(output, &head, callers.iter().map(row))?;
    }
    for own in limits {
        let (policy, limit, total) = (&own.policy, &own.limit, own.total);
        write!(output, "{policy}/{limit}: {total} {what} in {minutes}")?;
        if own.unlisted > 0 {
            write!(output, ", at most {} of a caller that is not listed", own.unlisted)?;
        }
        writeln!(output)?;
        for near in &own.near {
            let (tier, now, before) = (&near.tier, near.this_minute, near.last_minute);
            writeln!(
                output,
                "  callers of tier {tier} past 80 %: {now} this minute, {before} the last"
            )?;
        }
    }
    Ok(())
}
