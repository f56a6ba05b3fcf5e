//! `TG.*`: limits of the policies, charged by name.

use std::{net::IpAddr, time::Duration};

use http::StatusCode;
use tollgate_clock::Timestamp;
use tollgate_gate::{Gate, Program};
use tollgate_store::StoreError;
use tollgate_wire::resp::{Arguments, Replies, parse_integer};

use super::{
    calls::{
        Answer, Call, CallAnswer, CallError, Operation, Reason, RefusedCall, WindowStanding,
        answer, refuse,
    },
    named_limits::{ChargeTime, MAX_WAIT, NamedCharge, ReceiptError, parse_instant},
};

/// A command about limits of the policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NamedCommand {
    Charge {
        limit: String,
        key: Vec<u8>,
        cost: Option<u32>,
        tier: Option<String>,
        time: ChargeTime,
    },
    GiveBack {
        receipt: String,
    },
    Standing {
        limit: String,
        key: Vec<u8>,
        tier: Option<String>,
        at: Option<Timestamp>,
    },
    Reset {
        limit: String,
        key: Vec<u8>,
        why: Reason,
    },
    /// It is not written as it has to be.
    Mistaken(Operation, Mistake),
}

/// What is wrong with a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Mistake {
    #[error("wrong number of arguments for '{0}' command")]
    Arguments(&'static str),
    #[error(
        "syntax error: write COST and a number, TIER and a name, WAIT and milliseconds, or AT and an instant"
    )]
    Option,
    #[error("COST is not an integer or out of range: 0 to 2147483647")]
    Cost,
    #[error("WAIT is not an integer or out of range: 0 to 300000 milliseconds")]
    Wait,
    #[error("AT is not an instant: write seconds since 1970, or RFC 3339")]
    At,
    #[error("syntax error: write either WAIT or AT")]
    WaitAndAt,
    #[error("a name of a limit, a receipt and a reason are text")]
    Text,
    #[error("syntax error: write WHY and one line of at most 500 characters")]
    Why,
}

/// What a command came to.
pub(super) type Outcome = Result<Answer, String>;

/// Whether a command is of these.
pub(super) fn is_named(arguments: &Arguments<'_>) -> bool {
    let name = arguments.at(0).unwrap_or_default();
    [&b"tg.charge"[..], b"tg.giveback", b"tg.standing", b"tg.reset"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

impl NamedCommand {
    /// Reads one of these commands.
    pub(super) fn read(arguments: &Arguments<'_>) -> NamedCommand {
        let name = arguments.at(0).unwrap_or_default().to_ascii_lowercase();
        let (operation, read) = match &*name {
            b"tg.charge" => (Operation::Charge, read_charge(arguments)),
            b"tg.giveback" => (Operation::Settle, read_give_back(arguments)),
            b"tg.standing" => (Operation::Standing, read_standing(arguments)),
            _ => (Operation::Reset, read_reset(arguments)),
        };
        read.unwrap_or_else(|mistake| NamedCommand::Mistaken(operation, mistake))
    }

    /// Whether the order in which these run makes no difference to their replies: none waits for
    /// room, and all of them charge, or all only read.
    pub(super) fn may_run_together(commands: &[NamedCommand]) -> bool {
        let charges_at_once = |command: &NamedCommand| {
            matches!(
                command,
                NamedCommand::Charge { time: ChargeTime::Now(Duration::ZERO), .. }
                    | NamedCommand::Charge { time: ChargeTime::At(_), .. }
            )
        };
        let reads = |command: &NamedCommand| matches!(command, NamedCommand::Standing { .. });
        commands.iter().all(charges_at_once) || commands.iter().all(reads)
    }

    /// Has the policies decide.
    pub(super) async fn run(&self, gate: &Gate, address: IpAddr) -> Outcome {
        let program = Program { address, protocol: "redis", user_agent: None };
        let answer = match self {
            NamedCommand::Charge { limit, key, cost, tier, time } => {
                let tier = tier.as_deref();
                let charges = [NamedCharge { limit, key, cost: *cost, tier }];
                answered(gate, Call::Charge(&charges, *time), program).await
            }
            NamedCommand::GiveBack { receipt } => {
                answered(gate, Call::GiveBack(receipt), program).await
            }
            NamedCommand::Standing { limit, key, tier, at } => {
                let of = NamedCharge { limit, key, cost: None, tier: tier.as_deref() };
                answered(gate, Call::Standing(of, *at), program).await
            }
            NamedCommand::Reset { limit, key, why } => {
                let of = NamedCharge { limit, key, cost: None, tier: None };
                answered(gate, Call::Reset(of, why), program).await
            }
            NamedCommand::Mistaken(operation, mistake) => {
                let refused = RefusedCall {
                    method: operation.method(),
                    operation: *operation,
                    status: StatusCode::BAD_REQUEST,
                    error: mistake.to_string(),
                };
                if let (Some(account), _) = refuse(gate, program, refused) {
                    account.end(true);
                }
                return Err(format!("ERR {mistake}"));
            }
        };
        answer.map_err(|error| message_of(&error))
    }

    /// Writes what it came to.
    pub(super) fn reply(&self, outcome: &Outcome, replies: &mut Replies) {
        let answer = match outcome {
            Ok(answer) => answer,
            // A name in it may be a client's.
            Err(error) => return replies.error_about("", error.as_bytes(), ""),
        };
        // Of several windows, the last one is the longest.
        let standing = answer.standings.last();
        let number = |number: Option<u64>| {
            number.map_or(-1, |number| i64::try_from(number).unwrap_or(i64::MAX))
        };
        match self {
            NamedCommand::Charge { .. } => {
                replies.array(5);
                replies.integer(answer.denied.is_none().into());
                replies.integer(number(standing.map(|own| own.standing.remaining.into())));
                let wait = answer.denied.as_ref().and_then(|denied| denied.retry_after);
                // Rounded up: a client that comes a moment too early comes for nothing.
                let wait = wait.map(|wait| wait.as_micros().div_ceil(1000) as u64);
                replies.integer(number(wait));
                replies.integer(number(standing.and_then(WindowStanding::reset)));
                match &answer.receipt {
                    Some(receipt) => replies.bulk(receipt.as_bytes()),
                    None => replies.null(),
                }
            }
            NamedCommand::Standing { .. } => {
                replies.array(4);
                replies.integer(number(standing.map(|own| own.standing.limit.into())));
                replies.integer(number(standing.map(|own| own.standing.used.into())));
                replies.integer(number(standing.map(|own| own.standing.remaining.into())));
                replies.integer(number(standing.and_then(WindowStanding::reset)));
            }
            NamedCommand::GiveBack { .. }
            | NamedCommand::Reset { .. }
            | NamedCommand::Mistaken(..) => replies.simple("OK"),
        }
    }
}

/// Answers a call, and ends it: there is no response whose end it has to wait for.
async fn answered(gate: &Gate, call: Call<'_>, program: Program<'_>) -> Result<Answer, CallError> {
    let CallAnswer { answer, account, .. } = answer(gate, call, program).await;
    if let Some(account) = account {
        account.end(true);
    }
    answer
}

/// An error as clients of Redis know them: a word in capitals first.
fn message_of(error: &CallError) -> String {
    let kind = match error {
        // A 429 over HTTP: others are served.
        CallError::Store(StoreError::NoRoom(reason)) if reason.is_clients_fault() => "LIMITED",
        CallError::Store(_)
        | CallError::NotReset(_)
        | CallError::Receipt(ReceiptError::Store(_)) => "UNAVAILABLE",
        CallError::Named(_) | CallError::Receipt(_) => "ERR",
    };
    format!("{kind} {error}")
}

/// `TG.CHARGE limit key [COST n] [TIER name] [WAIT ms | AT instant]`.
fn read_charge(arguments: &Arguments<'_>) -> Result<NamedCommand, Mistake> {
    if !matches!(arguments.len(), 3..=9) {
        return Err(Mistake::Arguments("tg.charge"));
    }
    let (mut cost, mut tier, mut wait, mut at) = (None, None, None, None);
    let mut rest = arguments.from(3);
    while let Some(option) = rest.next() {
        let value = rest.next().ok_or(Mistake::Option)?;
        let number = || parse_integer(value).and_then(|number| u64::try_from(number).ok());
        if option.eq_ignore_ascii_case(b"cost") {
            let number = number().and_then(|number| i32::try_from(number).ok());
            cost = Some(number.ok_or(Mistake::Cost)?.unsigned_abs());
        } else if option.eq_ignore_ascii_case(b"tier") {
            tier = Some(text(Some(value))?);
        } else if option.eq_ignore_ascii_case(b"wait") {
            let time = number().map(Duration::from_millis).filter(|time| *time <= MAX_WAIT);
            wait = Some(time.ok_or(Mistake::Wait)?);
        } else if option.eq_ignore_ascii_case(b"at") {
            at = Some(instant(value)?);
        } else {
            return Err(Mistake::Option);
        }
    }
    let time = match (wait, at) {
        (wait, None) => ChargeTime::Now(wait.unwrap_or_default()),
        (None, Some(at)) => ChargeTime::At(at),
        (Some(_), Some(_)) => return Err(Mistake::WaitAndAt),
    };
    let limit = text(arguments.at(1))?;
    Ok(NamedCommand::Charge { limit, key: key(arguments), cost, tier, time })
}

/// `TG.GIVEBACK receipt`.
fn read_give_back(arguments: &Arguments<'_>) -> Result<NamedCommand, Mistake> {
    match arguments.len() {
        2 => Ok(NamedCommand::GiveBack { receipt: text(arguments.at(1))? }),
        _ => Err(Mistake::Arguments("tg.giveback")),
    }
}

/// `TG.STANDING limit key [TIER name] [AT instant]`.
fn read_standing(arguments: &Arguments<'_>) -> Result<NamedCommand, Mistake> {
    if !matches!(arguments.len(), 3 | 5 | 7) {
        return Err(Mistake::Arguments("tg.standing"));
    }
    let (mut tier, mut at) = (None, None);
    let mut rest = arguments.from(3);
    while let (Some(option), Some(value)) = (rest.next(), rest.next()) {
        if option.eq_ignore_ascii_case(b"tier") {
            tier = Some(text(Some(value))?);
        } else if option.eq_ignore_ascii_case(b"at") {
            at = Some(instant(value)?);
        } else {
            return Err(Mistake::Arguments("tg.standing"));
        }
    }
    let limit = text(arguments.at(1))?;
    Ok(NamedCommand::Standing { limit, key: key(arguments), tier, at })
}

/// `TG.RESET limit key [WHY text]`.
fn read_reset(arguments: &Arguments<'_>) -> Result<NamedCommand, Mistake> {
    let why = match (arguments.len(), arguments.at(3)) {
        (3, _) => Reason::default(),
        (5, Some(option)) if option.eq_ignore_ascii_case(b"why") => {
            Reason::parse(&text(arguments.at(4))?).map_err(|_| Mistake::Why)?
        }
        (5, _) => return Err(Mistake::Why),
        _ => return Err(Mistake::Arguments("tg.reset")),
    };
    Ok(NamedCommand::Reset { limit: text(arguments.at(1))?, key: key(arguments), why })
}

fn instant(value: &[u8]) -> Result<Timestamp, Mistake> {
    let instant = std::str::from_utf8(value).ok().and_then(parse_instant);
    instant.ok_or(Mistake::At)
}

fn text(argument: Option<&[u8]>) -> Result<String, Mistake> {
    let text = String::from_utf8(argument.unwrap_or_default().to_vec());
    text.map_err(|_| Mistake::Text)
}

fn key(arguments: &Arguments<'_>) -> Vec<u8> {
    arguments.at(2).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests;
