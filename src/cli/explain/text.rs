//! An explanation for people: what was found out in the order in which it was, the end at the end.

use std::io::{self, Write};

use tollgate_preview::{
    Explanation, FoundCaller, FoundLimit, FoundStanding, FoundWindow, Prospect, TakenRoute,
};

/// How far what is said about a thing stands from the edge, where the thing is named.
const INDENT: usize = 10;

pub(super) fn write(output: &mut dyn Write, explanation: &Explanation) -> io::Result<()> {
    let Explanation { request, policy, passed_over, route, caller, limits, prospect } = explanation;
    let host = request.host.as_deref().unwrap_or_default();
    section(output, "request", [format!("{} {host}{}", request.method, request.path)])?;
    item(output, &format!("from {}", request.address))?;
    if let Some(policy) = policy {
        section(output, "policy", [format!("{}: {}", policy.name, policy.because)])?;
    }
    let passed = passed_over.iter().map(|passed| {
        let parts: Vec<String> =
            passed.differs_in.iter().map(|part| format!("{part:?}").to_lowercase()).collect();
        format!("not {}: another {}", passed.route, parts.join(" and another "))
    });
    section(output, "route", route.iter().map(taken).chain(passed))?;
    section(output, "caller", caller.iter().flat_map(caller_lines))?;
    let width = limits.iter().map(|limit| limit.name.len()).max().unwrap_or_default();
    section(output, "limits", limits.iter().flat_map(|limit| limit_lines(limit, width)))?;
    section(output, "would", prospect_lines(prospect))
}

/// A thing that something is said about; nothing, if there is nothing to say.
fn section(
    output: &mut dyn Write,
    title: &str,
    lines: impl IntoIterator<Item = String>,
) -> io::Result<()> {
    for (at, line) in lines.into_iter().enumerate() {
        match at {
            0 => writeln!(output, "{title:<INDENT$}{line}")?,
            _ => item(output, &line)?,
        }
    }
    Ok(())
}

fn item(output: &mut dyn Write, line: &str) -> io::Result<()> {
    writeln!(output, "{:INDENT$}{line}", "")
}

fn taken(route: &TakenRoute) -> String {
    let TakenRoute { route, auth, scopes } = route;
    match scopes.is_empty() {
        true => format!("{route}, auth {auth}"),
        false => format!("{route}, auth {auth}, scopes {}", scopes.join(" ")),
    }
}

fn caller_lines(found: &FoundCaller) -> Vec<String> {
    let FoundCaller { credential, issuer, claims, caller, rule, tier, tier_because, problem } =
        found;
    let mut lines = vec![caller.clone().unwrap_or_else(|| "not known".into())];
    if let Some(rule) = rule {
        lines.push(format!("by the rule {rule}"));
    }
    if let (Some(tier), Some(because)) = (tier, tier_because) {
        lines.push(format!("tier {tier}: {because}"));
    }
    let credential = credential.as_deref().unwrap_or("none");
    lines.push(match issuer {
        Some(issuer) => format!("credential: {credential}, of {issuer}"),
        None => format!("credential: {credential}"),
    });
    lines.extend(claims.iter().map(|(name, value)| format!("{name} is {value}")));
    lines.extend(problem.iter().map(|problem| format!("problem: {problem}")));
    lines
}

fn limit_lines(limit: &FoundLimit, width: usize) -> Vec<String> {
    let FoundLimit { name, role, per, counter, windows, cost, notes } = limit;
    let mut facts: Vec<String> = role.iter().cloned().collect();
    if !per.is_empty() {
        facts.push(format!("per {}", per.join(", ")));
    }
    facts.extend(cost.map(|cost| format!("costs {cost}")));
    // What does not apply has nothing but the reason.
    let mut notes = notes.iter();
    if facts.is_empty() {
        facts.extend(notes.next().cloned());
    }
    // Of a limit by caller, that is the caller.
    let is_said = |name: &&String| per.first().is_some_and(|own| *own == format!("caller {name}"));
    let counter = counter.iter().filter(|name| !is_said(name));
    let counter = counter.map(|name| format!("counted as {name}"));
    let more = windows.iter().map(window_line).chain(notes.cloned()).chain(counter);
    let mut lines = vec![format!("{name:<width$}  {}", facts.join(", "))];
    lines.extend(more.map(|line| format!("{:width$}  {line}", "")));
    lines
}

fn window_line(window: &FoundWindow) -> String {
    let FoundWindow { rate, is_candidate, fits, standing, .. } = window;
    let mut line = match is_candidate {
        true => format!("{rate} (a candidate)"),
        false => rate.clone(),
    };
    if let Some(FoundStanding { limit, used, remaining, reset }) = standing {
        line += &format!(": {used} of {limit} used, {remaining} left, full again at {reset}");
    }
    if !fits {
        line += ": NO ROOM";
    }
    line
}

fn prospect_lines(prospect: &Prospect) -> Vec<String> {
    match prospect {
        Prospect::Forward { upstream, server, target, sets, removes } => {
            let mut lines = vec![format!("go to upstream {upstream} at {server} for {target}")];
            lines.extend(sets.iter().map(|(name, value)| format!("with {name}: {value}")));
            if !removes.is_empty() {
                lines.push(format!("without {}", removes.join(", ")));
            }
            lines
        }
        Prospect::Answer { status, reason, retry_after, .. } => {
            let wait = retry_after.map(|secs| format!("; to come back after {secs}s"));
            vec![format!("be answered {status}: {reason}{}", wait.unwrap_or_default())]
        }
    }
}
