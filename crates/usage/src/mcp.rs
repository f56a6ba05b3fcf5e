//! What a request of the Model Context Protocol asks for: the JSON-RPC messages in its body.
//!
//! The protocol's transport "Streamable HTTP", revisions 2025-03-26 to 2026-07-28: a client sends
//! each message in a POST. Since 2026-07-28 fields of the request's head repeat what is called, so
//! that proxies need not read bodies; what they say counts for nothing here, as a client may name a
//! cheap tool in the head and call a dear one in the body. They only have to agree.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use thiserror::Error;

use crate::members::{Unread, elements, members};

/// The messages of a request, in their order. None: it has no body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    list: Vec<Message>,
    /// Whether they are in an array.
    is_batch: bool,
    /// Whether the request is of a revision whose requests repeat in their head what they call.
    is_recent: bool,
}

/// Whom a response is for that is made in place of that to some messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipients<'m> {
    /// The ids of the messages that want one, as they are written; none: it is not known.
    pub ids: Vec<Option<&'m str>>,
    /// Whether they are in an array.
    pub is_batch: bool,
    /// Whether the client knows that it may have any status.
    pub is_recent: bool,
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// What it calls; none: it is a response, or the request has no message.
    pub method: Option<Box<str>>,
    /// Which tool, prompt or resource, where the method names one.
    pub name: Option<Box<str>>,
    /// Its id, as it is written: a text or a number. None: it wants no response.
    pub id: Option<Box<str>>,
    /// Whether there is something here that cannot be read: it may be anything.
    pub is_unread: bool,
}

/// Why messages are refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MessageError {
    /// Two readers may see two values.
    #[error("`{0}` is there twice, or in other letters, in a message")]
    Ambiguous(&'static str),
    /// What may be called or named is a text.
    #[error("`{0}` in a message is not a text")]
    NotText(&'static str),
    /// There are too many of them.
    #[error("more than {MAX_MESSAGES} messages in a batch")]
    TooMany,
    /// The head says something else than the body, or nothing.
    #[error("the field `{field}` does not agree with the message in the body")]
    Field {
        /// The field.
        field: &'static str,
        /// The id of the message, as it is written.
        id: Option<Box<str>>,
    },
}

/// Fields of a request's head that repeat what its message says: the only value of each, if there
/// is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepeatedFields<'h> {
    /// `MCP-Protocol-Version`.
    pub version: Option<&'h [u8]>,
    /// `Mcp-Method`.
    pub method: Option<&'h [u8]>,
    /// `Mcp-Name`.
    pub name: Option<&'h [u8]>,
}

/// Messages of a request. Batches were possible up to revision 2025-03-26.
const MAX_MESSAGES: usize = 32;

/// Bytes of an id that is given back.
const MAX_ID: usize = 256;

/// The methods that name something, with the member that does.
const NAMING: [(&str, &str); 3] =
    [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")];

/// The first revision whose requests repeat what they call in their head.
const FIRST_WITH_FIELDS: &[u8] = b"2026-07-28";

/// What encloses a value of a field that is no plain text.
const ENCODED: (&[u8], &[u8]) = (b"=?base64?", b"?=");

const MCP_METHOD: &str = "Mcp-Method";
const MCP_NAME: &str = "Mcp-Name";

impl Messages {
    /// The messages in a whole body. None: there are none, or it is no JSON.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn read(body: &[u8]) -> Result<Option<Messages>, MessageError> {
        let Ok(text) = std::str::from_utf8(body) else { return Ok(None) };
        // Some readers take a mark before it, as RFC 8259 section 8.1 lets them.
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let batch = elements(text, MAX_MESSAGES);
        let is_batch = batch.is_some();
        let texts = batch.unwrap_or_else(|| vec![text]);
        if texts.len() > MAX_MESSAGES {
            return Err(MessageError::TooMany);
        }
        let mut list = Vec::with_capacity(texts.len());
        for text in texts {
            match Message::read(text)? {
                Some(message) => list.push(message),
                None => return Ok(None),
            }
        }
        Ok((!list.is_empty()).then_some(Messages { list, is_batch, is_recent: false }))
    }

    /// What is in a body that cannot be read.
    pub fn unread() -> Messages {
        let message = Message { is_unread: true, ..Message::default() };
        Messages { list: vec![message], ..Messages::default() }
    }

    /// Each message; one without a method for a request that has none.
    pub fn each(&self) -> &[Message] {
        const NONE: &[Message] =
            &[Message { method: None, name: None, id: None, is_unread: false }];
        match self.list.as_slice() {
            [] => NONE,
            list => list,
        }
    }

    /// Whom a response is for that is made in their place; none: it is for no message.
    pub fn recipients(&self) -> Option<Recipients<'_>> {
        let calls =
            self.list.iter().filter(|message| message.method.is_some() || message.is_unread);
        let mut ids: Vec<_> = calls.map(|message| message.id.as_deref()).collect();
        if ids.is_empty() {
            return None;
        }
        if ids.iter().any(Option::is_some) {
            ids.retain(Option::is_some);
        } else {
            ids.truncate(1);
        }
        let Messages { is_batch, is_recent, .. } = *self;
        Some(Recipients { ids, is_batch, is_recent })
    }

    /// Checks that the head repeats what they say, if it has to, or does.
    ///
    /// # Errors
    /// [`MessageError::Field`].
    pub fn check_fields(&mut self, fields: RepeatedFields<'_>) -> Result<(), MessageError> {
        let has_to = fields.version.is_some_and(|version| version >= FIRST_WITH_FIELDS);
        self.is_recent = has_to || fields.method.is_some();
        for Message { method, name, id, .. } in &self.list {
            let Some(method) = method else { continue };
            let error = |field| Err(MessageError::Field { field, id: id.clone() });
            if disagrees(fields.method, method.as_bytes(), has_to) {
                return error(MCP_METHOD);
            }
            let names = NAMING.iter().any(|(naming, _)| **naming == **method);
            let name = name.as_deref().unwrap_or_default();
            if names && disagrees(fields.name, name.as_bytes(), has_to) {
                return error(MCP_NAME);
            }
        }
        Ok(())
    }
}

impl MessageError {
    /// Whom a response is for that says so.
    pub fn recipients(&self) -> Recipients<'_> {
        let id = match self {
            MessageError::Field { id, .. } => id.as_deref(),
            MessageError::Ambiguous(_) | MessageError::NotText(_) | MessageError::TooMany => None,
        };
        Recipients { ids: vec![id], is_batch: false, is_recent: true }
    }
}

impl Message {
    /// None: it is no message.
    fn read(text: &str) -> Result<Option<Message>, MessageError> {
        let [method, params, id] = match members(text, ["method", "params", "id"]) {
            Ok(found) => found,
            Err(Unread::NoObject) => return Ok(None),
            Err(Unread::Ambiguous(name)) => return Err(MessageError::Ambiguous(name)),
        };
        let Some(method) = method else {
            return Ok(Some(Message::default()));
        };
        let method = in_text(method).ok_or(MessageError::NotText("method"))?;
        let naming = NAMING.iter().find(|(naming, _)| *naming == &*method);
        let name = match (naming, params) {
            (Some((_, member)), Some(params)) => match members(params, [*member]) {
                Ok([Some(name)]) => Some(in_text(name).ok_or(MessageError::NotText(member))?),
                Ok([None]) => None,
                Err(Unread::NoObject) => return Ok(None),
                Err(Unread::Ambiguous(name)) => return Err(MessageError::Ambiguous(name)),
            },
            _ => None,
        };
        let is_fit = |id: &&str| !id.starts_with(['{', '[', 't', 'f']) && id.len() <= MAX_ID;
        let id = id.filter(is_fit).map(Box::from);
        Ok(Some(Message { method: Some(method), name, id, is_unread: false }))
    }

    /// The tool that it calls.
    pub fn tool(&self) -> Option<&str> {
        match self.method.as_deref() {
            Some("tools/call") => self.name.as_deref(),
            _ => None,
        }
    }
}

/// Whether a field says something else than the body, or nothing where it has to say it.
fn disagrees(field: Option<&[u8]>, body: &[u8], has_to: bool) -> bool {
    match field {
        None => has_to,
        Some(value) => *plain(value) != *body,
    }
}

/// A value of a field without its encoding.
fn plain(value: &[u8]) -> Cow<'_, [u8]> {
    let (before, after) = ENCODED;
    let inside = value.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    match inside.map(|inside| STANDARD.decode(inside)) {
        Some(Ok(plain)) => Cow::Owned(plain),
        Some(Err(_)) | None => Cow::Borrowed(value),
    }
}

fn in_text(json: &str) -> Option<Box<str>> {
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Option<Messages>, MessageError> {
        Messages::read(body.as_bytes())
    }

    fn call(name: &str) -> Message {
        Message {
            method: Some("tools/call".into()),
            name: Some(name.into()),
            id: Some("7".into()),
            is_unread: false,
        }
    }

    const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"arguments":{"name":"x"},"name":"render"}}"#;

    #[test]
    fn messages_are_read_alone_and_in_batches() {
        let one = read(CALL).unwrap().unwrap();
        assert_eq!((one.each(), one.is_batch), ([call("render")].as_slice(), false));
        assert_eq!(read(&format!("\u{FEFF} {CALL}\n")).unwrap().unwrap(), one);
        let batch = format!(r#"[{CALL},{{"method":"ping","id":"a"}},{{"id":1,"result":{{}}}}]"#);
        let batch = read(&batch).unwrap().unwrap();
        assert_eq!(batch.each().len(), 3);
        let ids = vec![Some("7"), Some("\"a\"")];
        let expected = Recipients { ids, is_batch: true, is_recent: false };
        assert_eq!(batch.recipients(), Some(expected));
    }

    #[test]
    fn what_is_no_message_is_none() {
        for body in [
            "[{\"method\":\"ping\"},7]",
            "[{\"method\":\"ping\"},[]]",
            "{\"method\":\"tools/call\",\"params\":[\"a\"]}",
            "",
            "[]",
            "7",
            "\"x\"",
            "{",
            "[{}",
            "method=ping",
            "[1]",
        ] {
            assert_eq!(read(body), Ok(None), "{body}");
        }
        assert_eq!(Messages::read(b"{\"method\":\"\xFF\"}"), Ok(None));
        let response = read(r#"{"id":1,"result":{}}"#).unwrap().unwrap();
        assert_eq!((response.each()[0].method.as_deref(), response.recipients()), (None, None));
    }

    #[test]
    fn what_two_readers_may_see_otherwise_is_refused() {
        for (body, name) in [
            (r#"{"method":"ping","method":"tools/call"}"#, "method"),
            (r#"{"Method":"tools/call","method":"ping"}"#, "method"),
            (r#"{"method":"tools/call","params":{"name":"a","name":"b"}}"#, "name"),
            (r#"{"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}}"#, "params"),
            (r#"{"method":"resources/read","params":{"uri":"a","URI":"b"}}"#, "uri"),
            (r#"[{"method":"ping","id":1,"id":2}]"#, "id"),
        ] {
            assert_eq!(read(body), Err(MessageError::Ambiguous(name)), "{body}");
        }
        assert_eq!(read(r#"{"method":1}"#), Err(MessageError::NotText("method")));
        let many = vec![CALL; MAX_MESSAGES + 1].join(",");
        assert_eq!(read(&format!("[{many}]")), Err(MessageError::TooMany));
    }

    #[test]
    fn ids_are_given_back_as_they_are_written() {
        for (id, expected) in [
            ("1", Some("1")),
            ("-1.50", Some("-1.50")),
            (r#""\u0061""#, Some(r#""\u0061""#)),
            ("null", None),
            ("{}", None),
            ("true", None),
        ] {
            let body = format!(r#"{{"id":{id},"method":"ping"}}"#);
            let messages = read(&body).unwrap().unwrap();
            assert_eq!(messages.recipients().unwrap().ids, [expected], "{id}");
        }
    }

    #[test]
    fn fields_of_the_head_have_to_agree() {
        let fields = |version, method, name| RepeatedFields { version, method, name };
        let check = |body: &str, fields| read(body).unwrap().unwrap().check_fields(fields);
        let new = Some(b"2026-07-28".as_slice());
        let (tools_call, render) = (Some(b"tools/call".as_slice()), Some(b"render".as_slice()));
        for agreed in [
            fields(None, None, None),
            fields(Some(b"2025-11-25"), None, None),
            fields(new, tools_call, render),
            fields(None, tools_call, Some(b"=?base64?cmVuZGVy?=")),
        ] {
            assert_eq!(check(CALL, agreed), Ok(()), "{agreed:?}");
        }
        for (own, field) in [
            (fields(new, None, render), MCP_METHOD),
            (fields(new, tools_call, None), MCP_NAME),
            (fields(None, Some(b"tools/list"), None), MCP_METHOD),
            (fields(None, None, Some(b"Render")), MCP_NAME),
            (fields(None, None, Some(b"=?base64?cmVuZGVyyy?=")), MCP_NAME),
            (fields(None, None, Some(b"=?BASE64?cmVuZGVy?=")), MCP_NAME),
        ] {
            let expected = Err(MessageError::Field { field, id: Some("7".into()) });
            assert_eq!(check(CALL, own), expected, "{own:?}");
        }
        let uri = r#"{"method":"resources/read","params":{"uri":"file:///a"}}"#;
        assert_eq!(check(uri, fields(None, None, Some(b"file:///a"))), Ok(()));
        assert!(check(uri, fields(None, None, Some(b"file:///b"))).is_err());
        let ping = r#"{"method":"ping"}"#;
        assert_eq!(check(ping, fields(new, Some(b"ping"), Some(b"anything"))), Ok(()));
    }
}
