//! A request as a line of JSON, for those that memory does not hold.

use std::{
    borrow::Cow,
    io::{self, Write},
    net::IpAddr,
    time::Duration,
};

use http::{HeaderValue, Method, uri::PathAndQuery};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tollgate_clock::Timestamp;
use tollgate_usage::logged::{LoggedCost, LoggedUse};

use super::{OwnFields, Place, Record, Target};

/// A request.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept<'r> {
    micros: u64,
    file: u32,
    line: u64,
    client: Option<IpAddr>,
    #[serde(borrow)]
    method: Cow<'r, str>,
    host: Option<Cow<'r, str>>,
    target: Cow<'r, str>,
    status: Option<u16>,
    took: Option<Duration>,
    costs: Vec<KeptCost<'r>>,
    request_bytes: Option<u64>,
    response_bytes: Option<u64>,
    user_agent: Option<Cow<'r, str>>,
    referer: Option<Cow<'r, str>>,
    own: Option<KeptOwn<'r>>,
    fields: Vec<Option<Cow<'r, str>>>,
}

/// What it has cost a limit.
#[derive(Serialize, Deserialize)]
struct KeptCost<'r> {
    limit: Option<Cow<'r, str>>,
    units: Option<u64>,
    reserved: Option<u64>,
}

/// What only a log of tollgate says.
#[derive(Serialize, Deserialize)]
struct KeptOwn<'r> {
    caller: Option<Cow<'r, str>>,
    tier: Option<Cow<'r, str>>,
    facts: Option<Map<String, Value>>,
    denied: Option<Cow<'r, str>>,
    asked_by: Option<Cow<'r, str>>,
    stands_for: u32,
}

impl<'r> Kept<'r> {
    pub(super) fn of(record: &'r Record) -> Kept<'r> {
        // They were made of texts.
        let text = |value: &'r Option<HeaderValue>| {
            value.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()))
        };
        Kept {
            micros: record.time.as_micros(),
            file: record.place.file,
            line: record.place.line,
            client: record.client,
            method: record.method.as_str().into(),
            host: text(&record.host),
            target: record.target.as_str().into(),
            status: record.status,
            took: record.took,
            costs: record.used.costs.iter().map(KeptCost::of).collect(),
            request_bytes: record.used.request_bytes,
            response_bytes: record.used.response_bytes,
            user_agent: text(&record.user_agent),
            referer: text(&record.referer),
            own: record.own.as_ref().map(KeptOwn::of),
            fields: record.fields.iter().map(|field| field.as_deref().map(Cow::from)).collect(),
        }
    }

    pub(super) fn write(&self, output: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *output, self)?;
        output.write_all(b"\n")
    }

    /// The request of a line.
    ///
    /// # Errors
    /// If the line was not written by [`Kept::write`].
    pub(super) fn read(line: &'r [u8]) -> io::Result<Box<Record>> {
        let kept: Kept<'r> = serde_json::from_slice(line)?;
        let value = |text: Option<Cow<'r, str>>| HeaderValue::from_str(&text?).ok();
        Ok(Box::new(Record {
            time: Timestamp::from_micros(kept.micros),
            place: Place { file: kept.file, line: kept.line },
            client: kept.client,
            method: Method::from_bytes(kept.method.as_bytes()).map_err(io::Error::other)?,
            host: value(kept.host),
            target: match PathAndQuery::try_from(&*kept.target) {
                Ok(target) => Target::Valid(target),
                Err(_) => Target::Invalid(kept.target.into()),
            },
            status: kept.status,
            took: kept.took,
            used: LoggedUse {
                costs: kept.costs.into_iter().map(KeptCost::into_cost).collect(),
                request_bytes: kept.request_bytes,
                response_bytes: kept.response_bytes,
                took: kept.took,
            },
            user_agent: value(kept.user_agent),
            referer: value(kept.referer),
            own: kept.own.map(KeptOwn::into_fields),
            fields: kept.fields.into_iter().map(|field| field.map(Box::from)).collect(),
        }))
    }
}

impl<'r> KeptCost<'r> {
    fn of(cost: &'r LoggedCost) -> KeptCost<'r> {
        let LoggedCost { limit, units, reserved } = cost;
        KeptCost { limit: limit.as_deref().map(Cow::from), units: *units, reserved: *reserved }
    }

    fn into_cost(self) -> LoggedCost {
        let KeptCost { limit, units, reserved } = self;
        LoggedCost { limit: limit.map(Box::from), units, reserved }
    }
}

impl<'r> KeptOwn<'r> {
    fn of(own: &'r OwnFields) -> KeptOwn<'r> {
        KeptOwn {
            caller: own.caller.as_deref().map(Cow::from),
            tier: own.tier.as_deref().map(Cow::from),
            facts: own.facts.clone(),
            denied: own.denied.as_deref().map(Cow::from),
            asked_by: own.asked_by.as_deref().map(Cow::from),
            stands_for: own.stands_for,
        }
    }

    fn into_fields(self) -> OwnFields {
        OwnFields {
            caller: self.caller.map(|text| (&*text).into()),
            tier: self.tier.map(|text| (&*text).into()),
            facts: self.facts,
            denied: self.denied.map(Box::from),
            asked_by: self.asked_by.map(Box::from),
            stands_for: self.stands_for,
        }
    }
}
