//! Meters: three numbers, the level in steps of the time grain, its instant and when it is empty.

use smallvec::smallvec;
use tollgate_clock::Timestamp;
use tollgate_limit::{Algorithm, Gcra, Level};

use super::{CounterReply, Decided, Numbers, Parameters, Scripted};
use crate::redis::script::{
    argument::number,
    reply_reader::{BadReply, ReplyReader},
};

impl Scripted for Gcra {
    const LUA: &'static str = include_str!("gcra.lua");

    fn parameters(&self, _near: Timestamp) -> Parameters {
        Parameters {
            limit: self.limit,
            span: number((self.window.as_micros() as u64 / self.time_grain()).max(1)),
            x: number(self.time_grain()),
            y: number(self.capacity().into()),
        }
    }

    fn encode(&self, level: &Level) -> Option<Numbers> {
        let steps = level.level.div_ceil(self.time_grain());
        Some(smallvec![steps, level.at.as_micros(), level.full.as_micros()])
    }

    fn decode(
        &self,
        decided: &Decided<'_>,
        reply: &mut ReplyReader<'_>,
    ) -> Result<CounterReply, BadReply> {
        let level = level(self, reply)?;
        Ok(CounterReply::of_state(self, &level, self.receipt(&level), decided))
    }

    fn decode_state(&self, reply: &mut ReplyReader<'_>) -> Result<Option<Level>, BadReply> {
        level(self, reply).map(Some)
    }
}

fn level(gcra: &Gcra, reply: &mut ReplyReader<'_>) -> Result<Level, BadReply> {
    let level = reply.number()?.saturating_mul(gcra.time_grain());
    Ok(Level { level, at: reply.instant()?, full: reply.instant()? })
}
