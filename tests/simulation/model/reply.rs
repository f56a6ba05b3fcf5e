//! Replies, and their bytes in both versions of the protocol.

use super::{command_error::CommandError, numbers};

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Status(String),
    /// An error, with its code.
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    /// A text for people.
    Text(String),
    Nil,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// A score of a sorted set.
    Score(f64),
    /// Members of a sorted set with their scores.
    Scored(Vec<(Vec<u8>, f64)>),
}

/// The version of the protocol that a session speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

impl Reply {
    pub(super) fn ok() -> Reply {
        Reply::Status("OK".to_owned())
    }

    pub(super) fn bulk(text: impl Into<String>) -> Reply {
        Reply::Bulk(text.into().into_bytes())
    }

    pub(super) fn count(count: usize) -> Reply {
        Reply::Integer(count as i64)
    }

    /// Its bytes.
    pub(super) fn encode(&self, protocol: Protocol) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(protocol, &mut bytes);
        bytes
    }

    /// The same as scripts and the older protocol know it: without texts, maps and numbers that are
    /// not integers.
    pub(super) fn plain(self) -> Reply {
        match self {
            Reply::Text(text) => Reply::bulk(text),
            Reply::Score(score) => Reply::bulk(numbers::text(score)),
            Reply::Map(pairs) => {
                Reply::Array(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect())
            }
            Reply::Scored(members) => {
                let flat = members.into_iter();
                let flat = flat.flat_map(|(member, score)| {
                    [Reply::Bulk(member), Reply::bulk(numbers::text(score))]
                });
                Reply::Array(flat.collect())
            }
            other => other,
        }
    }

    fn write(&self, protocol: Protocol, bytes: &mut Vec<u8>) {
        match (self, protocol) {
            (Reply::Status(text), _) => line(bytes, '+', text),
            (Reply::Error(text), _) => line(bytes, '-', text),
            (Reply::Integer(number), _) => line(bytes, ':', &number.to_string()),
            (Reply::Bulk(value), _) => {
                line(bytes, '$', &value.len().to_string());
                bytes.extend_from_slice(value);
                bytes.extend_from_slice(b"\r\n");
            }
            (Reply::Array(items), _) => {
                line(bytes, '*', &items.len().to_string());
                items.iter().for_each(|item| item.write(protocol, bytes));
            }
            (Reply::Nil, Protocol::Resp2) => line(bytes, '$', "-1"),
            (Reply::Nil, Protocol::Resp3) => line(bytes, '_', ""),
            (
                Reply::Text(_) | Reply::Map(_) | Reply::Score(_) | Reply::Scored(_),
                Protocol::Resp2,
            ) => {
                self.clone().plain().write(protocol, bytes);
            }
            (Reply::Text(text), Protocol::Resp3) => {
                line(bytes, '=', &(text.len() + 4).to_string());
                line(bytes, 't', &format!("xt:{text}"));
            }
            (Reply::Map(pairs), Protocol::Resp3) => {
                line(bytes, '%', &pairs.len().to_string());
                for (key, value) in pairs {
                    key.write(protocol, bytes);
                    value.write(protocol, bytes);
                }
            }
            (Reply::Score(score), Protocol::Resp3) => line(bytes, ',', &numbers::text(*score)),
            (Reply::Scored(members), Protocol::Resp3) => {
                line(bytes, '*', &members.len().to_string());
                for (member, score) in members {
                    let pair = vec![Reply::Bulk(member.clone()), Reply::Score(*score)];
                    Reply::Array(pair).write(protocol, bytes);
                }
            }
        }
    }
}

impl From<CommandError> for Reply {
    fn from(error: CommandError) -> Reply {
        Reply::Error(error.to_string())
    }
}

fn line(bytes: &mut Vec<u8>, kind: char, text: &str) {
    bytes.extend_from_slice(format!("{kind}{text}\r\n").as_bytes());
}
