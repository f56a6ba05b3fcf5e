//! Token buckets: three numbers, the deficit, the last refill and when the bucket is full.

use smallvec::smallvec;
use tollgate_clock::Timestamp;
use tollgate_limit::{Bucket, TokenBucket};

use super::{CounterReply, Decided, Numbers, Parameters, Scripted};
use crate::redis::script::{
    argument::number,
    reply_reader::{BadReply, ReplyReader},
};

impl Scripted for TokenBucket {
    const LUA: &'static str = include_str!("token_bucket.lua");

    fn parameters(&self, _near: Timestamp) -> Parameters {
        let evenly = if self.even { 2 * self.steps() } else { 0 };
        Parameters {
            limit: self.capacity,
            span: number((self.interval.as_micros() as u64).max(1)),
            x: number(self.refill.into()),
            y: number(evenly + u64::from(self.strict)),
        }
    }

    fn encode(&self, bucket: &Bucket) -> Option<Numbers> {
        let Bucket { deficit, mark, full } = *bucket;
        Some(smallvec![deficit.into(), mark.as_micros(), full.as_micros()])
    }

    fn decode(
        &self,
        decided: &Decided<'_>,
        reply: &mut ReplyReader<'_>,
    ) -> Result<CounterReply, BadReply> {
        let bucket = bucket(reply)?;
        Ok(CounterReply::of_state(self, &bucket, self.receipt(&bucket), decided))
    }

    fn decode_state(&self, reply: &mut ReplyReader<'_>) -> Result<Option<Bucket>, BadReply> {
        bucket(reply).map(Some)
    }
}

fn bucket(reply: &mut ReplyReader<'_>) -> Result<Bucket, BadReply> {
    Ok(Bucket { deficit: reply.count()?, mark: reply.instant()?, full: reply.instant()? })
}
