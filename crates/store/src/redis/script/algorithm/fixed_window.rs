//! Fixed windows: two numbers, the units used and the end.

use smallvec::smallvec;
use tollgate_clock::Timestamp;
use tollgate_limit::{Align, FixedWindow, Window};

use super::{CounterReply, Decided, Numbers, Parameters, Scripted};
use crate::redis::script::{
    argument::{instant, span},
    reply_reader::{BadReply, ReplyReader},
};

impl Scripted for FixedWindow {
    const LUA: &'static str = include_str!("fixed_window.lua");

    fn parameters(&self, near: Timestamp) -> Parameters {
        let [x, y] = match &self.align {
            Align::FirstRequest(_) => [0.0, 0.0],
            Align::Epoch(_) => [-1.0, 0.0],
            Align::Calendar(_) => self.align.ends_near(near).map(instant),
        };
        Parameters { limit: self.limit, span: span(self.align.max_length()), x, y }
    }

    fn encode(&self, window: &Window) -> Option<Numbers> {
        Some(smallvec![window.used.into(), window.reset.as_micros()])
    }

    fn decode(
        &self,
        decided: &Decided<'_>,
        reply: &mut ReplyReader<'_>,
    ) -> Result<CounterReply, BadReply> {
        let window = window(reply)?;
        Ok(CounterReply::of_state(self, &window, self.receipt(&window), decided))
    }

    fn decode_state(&self, reply: &mut ReplyReader<'_>) -> Result<Option<Window>, BadReply> {
        window(reply).map(Some)
    }
}

fn window(reply: &mut ReplyReader<'_>) -> Result<Window, BadReply> {
    Ok(Window { used: reply.count()?, reset: reply.instant()? })
}
