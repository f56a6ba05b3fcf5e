//! The effects of a change of policies: on open windows, on the identity of callers, on routing.
//! `tollgate diff` prints them before the change, and each reload logs them.
//!
//! Compiled policies are compared, not their text: the order of keys, comments and explicit
//! defaults make no difference.

mod address_groups;
mod caller_classes;
mod change;
mod labels;
mod overrides;
mod routing;
mod samples;
mod sections;
#[cfg(test)]
mod tests;
mod upstreams;
mod windows;
pub mod words;

use std::fmt;

use serde::Serialize;

use self::change::write_pair;
pub use self::{
    change::Change,
    routing::RouteChange,
    windows::{WindowChange, WindowOutcome},
};
use tollgate_keyword::Keyword;
use tollgate_policy::{HostPattern, Policies, Policy};

/// The most lines that a reload logs, and the most characters of each.
const MAX_LOGGED: usize = 50;
const MAX_LINE: usize = 300;

/// The differences between `old` and `new`.
pub fn diff(old: &Policies, new: &Policies) -> Difference {
    let pairs = pairs(old, new);
    let hosts = hosts(old, new, &pairs);
    let policies = pairs.into_iter().map(|pair| PolicyDifference::of(&pair)).collect();
    Difference { hosts, policies }
}

/// The effects of a change of policies.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Hosts whose policy changes.
    pub hosts: Vec<Change>,
    /// The differences of each policy.
    pub policies: Vec<PolicyDifference>,
}

/// The differences of one policy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PolicyDifference {
    /// Its name after the change.
    pub policy: String,
    /// Whether it is kept, renamed, new or gone.
    pub presence: Presence,
    /// The outcome for each window, including those that are kept.
    pub windows: Vec<WindowChange>,
    /// The identity of callers.
    pub identity: Vec<Change>,
    /// Requests that are handled differently.
    pub routing: Vec<RouteChange>,
    /// False: there are too many routes to compare all requests.
    pub routing_is_complete: bool,
    /// The settings of limits besides their windows.
    pub limits: Vec<Change>,
    /// Denied and exempt callers, what the access log hides, and overrides.
    pub access: Vec<Change>,
    /// How paths and methods are read.
    pub paths: Vec<Change>,
    /// Upstreams.
    pub upstreams: Vec<Change>,
    /// Responses and their headers.
    pub responses: Vec<Change>,
}

/// Whether a policy is there before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// Both.
    #[default]
    Stays,
    /// It had another name before. The name is part of every counter's key.
    Renamed {
        /// The name before.
        from: String,
    },
    /// Only after.
    New,
    /// Only before.
    Gone,
}

impl Difference {
    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.policies.iter().all(PolicyDifference::is_empty)
    }

    /// Logs the changes, one line each. Number and length of the lines are bounded.
    pub fn log(&self) {
        let mut lines: Vec<String> =
            self.hosts.iter().map(|change| format!("hosts: {change}")).collect();
        for policy in &self.policies {
            let items = policy.sections().into_iter().flat_map(|(title, items)| {
                items.into_iter().map(move |item| format!("{}: {title}: {item}", policy.policy))
            });
            lines.extend(items);
        }
        for line in lines.iter().take(MAX_LOGGED) {
            tracing::info!(change = %bounded(line), "policies have changed");
        }
        if lines.len() > MAX_LOGGED {
            let more = lines.len() - MAX_LOGGED;
            tracing::info!(more, "policies have changed; more changes are not logged");
        }
    }
}

impl PolicyDifference {
    fn of(pair: &Pair<'_>) -> PolicyDifference {
        let (name, presence) = match pair {
            Pair { old: Some(old), new: Some(new) } if old.name != new.name => {
                (&new.name, Presence::Renamed { from: old.name.to_string() })
            }
            Pair { old: Some(_), new: Some(new) } => (&new.name, Presence::Stays),
            Pair { old: None, new: Some(new) } => (&new.name, Presence::New),
            Pair { old: Some(old), new: None } => (&old.name, Presence::Gone),
            Pair { old: None, new: None } => return Self::none("", Presence::Stays),
        };
        let Pair { old: Some(old), new: Some(new) } = pair else {
            return Self::none(name, presence);
        };
        // Named one by one, so that a new part of a policy cannot be forgotten here. Beside each
        // part is the section that compares it.
        let Policy {
            name: _,            // presence
            position: _,        // changes nothing
            hosts: _,           // `hosts`, over all policies
            upstreams: _,       // upstreams
            identity: _,        // identity
            limits: _,          // windows, limits, access
            descriptors: _,     // changes no request
            encoded_slash: _,   // paths
            method_override: _, // paths
            exempt: _,          // access
            deny: _,            // access
            router: _,          // routing
            routes: _,          // routing
            responses: _,       // responses
            cors: _,            // responses
            facts: _,           // access
            core: _,            // responses
            tests: _,           // changes no request
            warnings: _,        // changes no request
            notes: _,           // changes no request
            vouchers: _,        // changes no request
            members: _,         // costs name them
        } = new;
        let routing = routing::routing(old, new);
        PolicyDifference {
            windows: windows::windows(old, new),
            identity: sections::identity(old, new),
            routing: routing.changes,
            routing_is_complete: routing.is_complete,
            limits: sections::limits(old, new),
            access: sections::access(old, new),
            paths: sections::paths(old, new),
            upstreams: upstreams::upstreams(old, new),
            responses: sections::responses(old, new),
            ..Self::none(name, presence)
        }
    }

    fn none(policy: &str, presence: Presence) -> PolicyDifference {
        PolicyDifference {
            policy: policy.to_owned(),
            presence,
            routing_is_complete: true,
            ..PolicyDifference::default()
        }
    }

    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.sections().is_empty()
    }

    /// The differences by section, the most important first.
    pub fn sections(&self) -> Vec<(&'static str, Vec<String>)> {
        fn items<T: fmt::Display>(items: &[T]) -> Vec<String> {
            items.iter().map(ToString::to_string).collect()
        }
        let windows: Vec<String> = self
            .windows
            .iter()
            .filter(|change| change.outcome != WindowOutcome::Kept)
            .map(ToString::to_string)
            .collect();
        let mut routing = items(&self.routing);
        if !self.routing_is_complete {
            routing.push("not all requests were compared: there are too many routes".into());
        }
        let presence = match &self.presence {
            Presence::Stays => Vec::new(),
            Presence::Renamed { from } => {
                vec![format!("called {from} before: all its counters start from zero")]
            }
            Presence::New => vec!["new".into()],
            Presence::Gone => vec!["removed: its counters are dropped as they expire".into()],
        };
        let sections = [
            ("policy", presence),
            ("windows", windows),
            ("routing", routing),
            ("identity", items(&self.identity)),
            ("access", items(&self.access)),
            ("limits", items(&self.limits)),
            ("paths", items(&self.paths)),
            ("upstreams", items(&self.upstreams)),
            ("responses", items(&self.responses)),
        ];
        sections.into_iter().filter(|(_, items)| !items.is_empty()).collect()
    }

    /// Limits that change for no caller.
    pub fn kept(&self) -> Vec<&str> {
        let mut kept: Vec<&str> = self.windows.iter().map(|change| &*change.limit).collect();
        kept.sort_unstable();
        kept.dedup();
        let is_kept = |limit: &&str| {
            let mut own = self.windows.iter().filter(|change| change.limit == **limit);
            own.all(|change| change.outcome == WindowOutcome::Kept)
        };
        kept.into_iter().filter(is_kept).collect()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "no difference");
        }
        if !self.hosts.is_empty() {
            writeln!(f, "hosts")?;
            self.hosts.iter().try_for_each(|change| writeln!(f, "  {}", printable(change)))?;
        }
        self.policies
            .iter()
            .filter(|policy| !policy.is_empty())
            .try_for_each(|policy| policy.fmt(f))
    }
}

impl fmt::Display for PolicyDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "policy {}", self.policy)?;
        for (title, items) in self.sections() {
            writeln!(f, "  {title}")?;
            items.iter().try_for_each(|item| writeln!(f, "    {}", printable(item)))?;
            if title == "windows" && !self.kept().is_empty() {
                writeln!(f, "    kept: {}", self.kept().join(", "))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for WindowChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let candidate = if self.is_candidate { "candidate of " } else { "" };
        write!(f, "{} {candidate}{}", self.outcome.keyword(), self.limit)?;
        write!(f, " for {}: ", self.to.join(", "))?;
        write_pair(f, self.before.as_deref(), self.after.as_deref())?;
        if !self.because.is_empty() {
            write!(f, " ({})", self.because.join("; "))?;
        }
        match self.effect.as_str() {
            "" => Ok(()),
            effect => write!(f, ": {effect}"),
        }
    }
}

impl fmt::Display for RouteChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            write!(f, "{} ", self.methods.join(","))?;
        }
        f.write_str(&self.path)?;
        if !self.hosts.is_empty() {
            write!(f, " at {}", self.hosts.join(", "))?;
        }
        if !self.from.is_empty() {
            write!(f, " from {}", self.from.join(", "))?;
        }
        if self.before != self.after {
            let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "no route".into());
            write!(f, ": {} -> {}", name(&self.before), name(&self.after))?;
        }
        match (self.effects.is_empty(), self.before.is_some() && self.after.is_some()) {
            (false, _) => write!(f, ": {}", self.effects.join("; ")),
            (true, true) => f.write_str(": handled the same"),
            (true, false) => Ok(()),
        }
    }
}

/// The text without control characters, which a terminal or a log would interpret.
fn printable(text: &impl ToString) -> String {
    text.to_string().replace(char::is_control, "?")
}

fn bounded(line: &str) -> String {
    let text = printable(&line);
    match text.char_indices().nth(MAX_LINE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// A policy before and after.
struct Pair<'p> {
    old: Option<&'p Policy>,
    new: Option<&'p Policy>,
}

/// Policies of the same name; of the others, those for the same hosts: a file that was renamed.
fn pairs<'p>(old: &'p Policies, new: &'p Policies) -> Vec<Pair<'p>> {
    let by_name = |all: &'p Policies, name: &str| all.iter().find(|own| *own.name == *name);
    let mut pairs: Vec<Pair<'p>> =
        old.iter().map(|own| Pair { old: Some(own), new: by_name(new, &own.name) }).collect();
    for own in new.iter().filter(|own| by_name(old, &own.name).is_none()) {
        let is_predecessor = |pair: &&mut Pair<'p>| {
            pair.new.is_none() && pair.old.is_some_and(|before| before.hosts == own.hosts)
        };
        match pairs.iter_mut().find(is_predecessor) {
            Some(pair) => pair.new = Some(own),
            None => pairs.push(Pair { old: None, new: Some(own) }),
        }
    }
    pairs
}

/// Hosts whose requests are now decided by another policy.
fn hosts(old: &Policies, new: &Policies, pairs: &[Pair<'_>]) -> Vec<Change> {
    let named = old.iter().chain(new.iter()).flat_map(|policy| &policy.hosts).map(Some);
    let is_pair = |before: Option<&Policy>, after: Option<&Policy>| {
        let same = |left: Option<&Policy>, right: Option<&Policy>| match (left, right) {
            (Some(left), Some(right)) => std::ptr::eq(left, right),
            (left, right) => left.is_none() && right.is_none(),
        };
        before.is_none() && after.is_none()
            || pairs.iter().any(|pair| same(pair.old, before) && same(pair.new, after))
    };
    let change = |pattern: Option<&HostPattern>| {
        let sample = pattern.map(samples::host_sample);
        let before = old.for_host(sample.as_deref());
        let after = new.for_host(sample.as_deref());
        let is_other = !(is_pair(before, after) && before.is_some() == after.is_some());
        let name = |policy: Option<&Policy>| policy.map(|policy| format!("policy {}", policy.name));
        is_other.then(|| Change {
            what: pattern.map_or_else(|| "all other hosts".to_owned(), words::host),
            before: name(before),
            after: name(after),
            effect: Some("its limits apply, with their own counters".to_owned())
                .filter(|_| after.is_some()),
        })
    };
    labels::unique(named.chain([None])).into_iter().filter_map(change).collect()
}
