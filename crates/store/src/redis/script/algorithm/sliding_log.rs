//! Sliding logs: a state is the number of the next entry, and then three numbers for each entry.
//! The reply to a charge has only the tail of the log that its standing needs.

use tollgate_clock::Timestamp;
use tollgate_limit::{Count, Entry, Log, LogSummary, Receipt, SlidingLog, Standing, Tail};

use super::{CounterReply, Decided, Numbers, Parameters, Scripted};
use crate::redis::script::{
    argument::span,
    reply_reader::{BadReply, ReplyReader},
};

/// Entries of a log in one call: with as many, a server is busy for less than a millisecond. In a
/// longer log, neighbours are merged.
pub(in crate::redis::script) const MAX_ENTRIES: usize = 1000;

impl Scripted for SlidingLog {
    const LUA: &'static str = include_str!("sliding_log.lua");

    fn parameters(&self, _near: Timestamp) -> Parameters {
        Parameters { limit: self.limit, span: span(self.window), x: 0.0, y: 0.0 }
    }

    fn encode(&self, log: &Log) -> Option<Numbers> {
        let (entries, charges) = log.condensed(MAX_ENTRIES);
        let numbers = entries
            .into_iter()
            .flat_map(|Entry { at, cost, number }| [at.as_micros(), u64::from(cost), number]);
        Some([charges].into_iter().chain(numbers).collect())
    }

    fn decode(
        &self,
        decided: &Decided<'_>,
        reply: &mut ReplyReader<'_>,
    ) -> Result<CounterReply, BadReply> {
        let used = reply.number()?;
        let newest = reply.some_instant()?;
        let leaves_for_one = reply.some_instant()?;
        let leaves_for_cost = reply.some_instant()?;
        let leaves = |at: Timestamp| at + self.window;
        let tail = Tail { used, reset: newest.map(leaves), next: leaves_for_one.map(leaves) };
        let freed = leaves_for_cost.map(leaves);
        let retry = decided.retry(|cost| self.retry_after(freed, cost, decided.now));
        let standing = Standing { retry, ..self.standing_of(&tail, decided.now) };
        let count = Count::SlidingLog(LogSummary {
            used: standing.used,
            newest: newest.unwrap_or_default(),
            expires: tail.reset.unwrap_or_default(),
        });
        let receipt = Receipt { at: reply.instant()?, number: reply.number()? };
        Ok(CounterReply { count, standing, receipt })
    }

    fn decode_state(&self, reply: &mut ReplyReader<'_>) -> Result<Option<Log>, BadReply> {
        let charges = reply.number()?;
        let mut entries = Vec::new();
        while !reply.is_empty() {
            let at = reply.instant()?;
            let cost = u32::from_le_bytes(reply.take()?);
            entries.push(Entry { at, cost, number: reply.number()? });
        }
        Ok(Some(Log::of_entries(entries.into_iter(), charges, self.window)))
    }
}
