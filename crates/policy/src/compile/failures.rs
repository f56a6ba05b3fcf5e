//! Health checks, ejection and retries.

use std::{num::NonZeroU32, ops::RangeInclusive, time::Duration};

use http::uri::PathAndQuery;
use tollgate_yaml::{ABOVE_ZERO, Check, Node, Spanned};

use super::{
    Compiler,
    words::{DAY, is_off},
};
use crate::{
    Ejection, HealthCheck, Retries, Statuses,
    file::{RawEjection, RawHealthCheck, RawRetries},
};

/// Answers or failures in a row, at most.
const MAX_IN_A_ROW: u32 = 1000;
const MAX_ATTEMPTS: u32 = 5;
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3600);

impl Compiler<'_> {
    pub(super) fn health_check(&mut self, raw: &RawHealthCheck) -> Option<HealthCheck> {
        let path = self.health_path(&raw.path);
        let host = raw.host.as_ref().and_then(|raw| self.host_field(raw));
        let interval = self.time_or(&raw.interval, INTERVAL, Duration::from_secs(5));
        let timeout = self.duration(&raw.timeout, Duration::from_secs(2));
        let [two, three] = [1, 2].map(|more| NonZeroU32::MIN.saturating_add(more));
        let healthy_after = self.positive(&raw.healthy_after, two, MAX_IN_A_ROW);
        let unhealthy_after = self.positive(&raw.unhealthy_after, three, MAX_IN_A_ROW);
        let statuses = match &raw.status {
            None => Some((200..300).fold(Statuses::default(), Statuses::with)),
            Some(status) if status.value.is_empty() => {
                self.refuse(
                    status.span,
                    "an empty list: no answer would be good",
                    "write at least one: [2xx]",
                );
                None
            }
            Some(status) => self.status_set(&status.value),
        };
        Some(HealthCheck {
            path: path?,
            host,
            interval,
            timeout,
            healthy_after,
            unhealthy_after,
            statuses: statuses?,
        })
    }

    fn health_path(&mut self, raw: &Spanned<String>) -> Option<Box<str>> {
        // What the parser takes and changes is refused, too: a fragment.
        let is_path = raw.value.starts_with('/')
            && raw.value.is_ascii()
            && raw.value.parse::<PathAndQuery>().is_ok_and(|path| path.as_str() == raw.value);
        if !is_path {
            let message = format!("`{}` is not a path", raw.value);
            self.note(raw.span, message, "write a path such as /healthz");
        }
        is_path.then(|| raw.value.as_str().into())
    }

    /// An inner none: no server is ejected.
    pub(super) fn ejection(&mut self, node: Option<&Node>) -> Option<Option<Ejection>> {
        let defaults = Ejection::default();
        let Some(node) = node else { return Some(Some(defaults)) };
        if is_off(node) {
            return Some(None);
        }
        let help = "write `{ failures: 5, time: 10s }`, or off";
        let raw: RawEjection = self.section(node, help)?;
        let failures = self.positive(&raw.failures, defaults.failures, MAX_IN_A_ROW);
        let statuses = self.status_set(raw.status.as_deref().unwrap_or_default());
        let time = match &raw.time {
            None => Some(*defaults.time.start()),
            Some(raw) => self.time(raw, ABOVE_ZERO..=DAY),
        };
        let usual_end = time.map_or(*defaults.time.end(), |time| time.max(*defaults.time.end()));
        let max_time = self.duration(&raw.max_time, usual_end);
        let time = time?..=max_time;
        if let (true, Some(raw)) = (time.is_empty(), &raw.max_time) {
            self.refuse(raw.span, "`max_time` is shorter than `time`", "write a longer one");
        }
        let most = self.number_or(&raw.max_ejected, 1..=100, defaults.most_percent.into());
        let most_percent = most.try_into().ok()?;
        Some(Some(Ejection { failures, statuses: statuses?, time, most_percent }))
    }

    pub(super) fn retries(&mut self, node: Option<&Node>) -> Option<Retries> {
        let defaults = Retries::default();
        let Some(node) = node else { return Some(defaults) };
        if is_off(node) {
            return Some(Retries { attempts: 0, budget_percent: 0, statuses: Statuses::default() });
        }
        let raw: RawRetries = self.section(node, "write `{ attempts: 1, budget: 20 }`, or off")?;
        let attempts = self.number_or(&raw.attempts, 0..=MAX_ATTEMPTS, defaults.attempts.into());
        let budget = self.number_or(&raw.budget, 0..=100, defaults.budget_percent.into());
        let statuses = self.status_set(raw.status.as_deref().unwrap_or_default());
        Some(Retries {
            attempts: attempts.try_into().ok()?,
            budget_percent: budget.try_into().ok()?,
            statuses: statuses?,
        })
    }
}
