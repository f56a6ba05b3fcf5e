//! Leases: a reply has their number and the receipt of a new one. Their states are never sent.

use tollgate_clock::Timestamp;
use tollgate_limit::{Concurrency, Count, Leases, Receipt, Standing};

use super::{CounterReply, Decided, Numbers, Parameters, Scripted};
use crate::redis::script::{
    argument::span,
    reply_reader::{BadReply, ReplyReader},
};

impl Scripted for Concurrency {
    const LUA: &'static str = include_str!("concurrency.lua");

    fn parameters(&self, _near: Timestamp) -> Parameters {
        Parameters { limit: self.limit, span: span(self.lease), x: 0.0, y: 0.0 }
    }

    fn encode(&self, _leases: &Leases) -> Option<Numbers> {
        None
    }

    fn decode(
        &self,
        decided: &Decided<'_>,
        reply: &mut ReplyReader<'_>,
    ) -> Result<CounterReply, BadReply> {
        let used = reply.count()?;
        let receipt = receipt(reply)?;
        let retry = decided.retry(|cost| self.retry_of(cost, decided.now));
        let standing = Standing { retry, ..self.standing_of(used, decided.now) };
        Ok(CounterReply { count: Count::Concurrency(used), standing, receipt })
    }

    fn decode_state(&self, reply: &mut ReplyReader<'_>) -> Result<Option<Leases>, BadReply> {
        reply.count()?;
        receipt(reply)?;
        Ok(None)
    }
}

fn receipt(reply: &mut ReplyReader<'_>) -> Result<Receipt, BadReply> {
    Ok(Receipt { at: reply.instant()?, number: reply.number()? })
}
