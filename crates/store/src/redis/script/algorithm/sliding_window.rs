//! Sliding windows: three numbers, the units of both windows and the expiry.

use smallvec::smallvec;
use tollgate_clock::Timestamp;
use tollgate_limit::{SlidingWindow, Windows};

use super::{CounterReply, Decided, Numbers, Parameters, Scripted};
use crate::redis::script::{
    argument::number,
    reply_reader::{BadReply, ReplyReader},
};

impl Scripted for SlidingWindow {
    const LUA: &'static str = include_str!("sliding_window.lua");

    fn parameters(&self, _near: Timestamp) -> Parameters {
        let steps = self.window.as_micros() as u64 / self.time_grain();
        Parameters { limit: self.limit, span: number(steps), x: number(self.time_grain()), y: 0.0 }
    }

    fn encode(&self, windows: &Windows) -> Option<Numbers> {
        let Windows { current, previous, expires } = *windows;
        Some(smallvec![current.into(), previous.into(), expires.as_micros()])
    }

    fn decode(
        &self,
        decided: &Decided<'_>,
        reply: &mut ReplyReader<'_>,
    ) -> Result<CounterReply, BadReply> {
        let windows = windows(reply)?;
        Ok(CounterReply::of_state(self, &windows, self.receipt(&windows), decided))
    }

    fn decode_state(&self, reply: &mut ReplyReader<'_>) -> Result<Option<Windows>, BadReply> {
        windows(reply).map(Some)
    }
}

fn windows(reply: &mut ReplyReader<'_>) -> Result<Windows, BadReply> {
    Ok(Windows { current: reply.count()?, previous: reply.count()?, expires: reply.instant()? })
}
