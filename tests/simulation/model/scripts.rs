//! Scripts, run by the Lua that Redis has: 5.1.

use std::{cell::RefCell, collections::BTreeMap, fmt};

use mlua::{Error, Function, Lua, LuaOptions, StdLib, Table, Value, Variadic};

use super::{command_error::CommandError, numbers, packing, reply::Reply};

/// The scripts that a server knows, and the Lua that runs them.
pub(super) struct Scripts {
    lua: Lua,
    /// What `prelude.lua` returns: it runs a script.
    runner: Function,
    /// By their hash.
    known: BTreeMap<String, Function>,
}

/// What the Lua of scripts calls their text.
const CHUNK: &str = "@user_script";

/// What executes the commands of a script.
pub(super) type Executor<'e> = dyn FnMut(&[Vec<u8>]) -> Result<Reply, CommandError> + 'e;

impl Scripts {
    /// No script is known.
    pub(super) fn new() -> Scripts {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default()).expect("these are safe");
        let runner = prepare(&lua).expect("prelude.lua can be run");
        Scripts { lua, runner, known: BTreeMap::new() }
    }

    /// Makes a script known, and returns its hash.
    ///
    /// # Errors
    /// It is no Lua.
    pub(super) fn load(&mut self, script: &[u8]) -> Result<String, CommandError> {
        let sha = redis::Script::new(&String::from_utf8_lossy(script)).get_hash().to_owned();
        if !self.known.contains_key(&sha) {
            let function = self.lua.load(script).set_name(CHUNK).into_function();
            let function = function.map_err(|error| match error {
                Error::SyntaxError { message, .. } => CommandError::NotCompiled(message),
                error => CommandError::NotCompiled(error.to_string()),
            })?;
            self.known.insert(sha.clone(), function);
        }
        Ok(sha)
    }

    /// Runs a known script with these keys and arguments.
    ///
    /// # Errors
    /// It is not known.
    pub(super) fn run(
        &self,
        sha: &str,
        [keys, arguments]: [&[Vec<u8>]; 2],
        execute: &mut Executor<'_>,
    ) -> Result<Reply, CommandError> {
        let script = self.known.get(sha).ok_or(CommandError::NoScript)?;
        let strings = |words: &[Vec<u8>]| {
            self.lua.create_sequence_from(words.iter().map(|word| word.as_slice()).map(Bytes))
        };
        let execute = RefCell::new(execute);
        let reply = |words: &[Value]| {
            let reply = words_of(words).and_then(|words| execute.borrow_mut()(&words));
            reply.unwrap_or_else(Reply::from)
        };
        let result = self.lua.scope(|scope| {
            let call =
                scope.create_function(|lua, words: Variadic<Value>| match reply(&words) {
                    Reply::Error(error) => Err(Error::external(Refused(error))),
                    reply => value_of(lua, reply),
                })?;
            let pcall = scope
                .create_function(|lua, words: Variadic<Value>| value_of(lua, reply(&words)))?;
            self.runner.call((script, call, pcall, strings(keys)?, strings(arguments)?))
        });
        let (is_done, result): (bool, Value) = result.expect("the runner catches all errors");
        Ok(match is_done {
            true => reply_of(&result),
            false => failure_reply(sha, &result),
        })
    }
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.keys()).finish()
    }
}

/// Makes what scripts find, and returns the runner.
fn prepare(lua: &Lua) -> mlua::Result<Function> {
    let pack = lua.create_function(packing::pack)?;
    let unpack = lua.create_function(packing::unpack)?;
    let failure = lua.create_function(failure)?;
    let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
    prelude.call((pack, unpack, failure))
}

/// Bytes as a string of Lua.
struct Bytes<'b>(&'b [u8]);

impl mlua::IntoLua for Bytes<'_> {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        lua.create_string(self.0).map(Value::String)
    }
}

/// The words of a command.
fn words_of(words: &[Value]) -> Result<Vec<Vec<u8>>, CommandError> {
    let word = |word: &Value| match word {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(numbers::text(*number as f64).into_bytes()),
        Value::Number(number) => Ok(numbers::text(*number).into_bytes()),
        _ => Err(CommandError::NotAnArgument),
    };
    words.iter().map(word).collect()
}

/// A reply as scripts get it.
fn value_of(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    let with = |name: &str, text: String| {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply.plain() {
        Reply::Status(text) => with("ok", text),
        Reply::Error(text) => with("err", text),
        Reply::Integer(number) => Ok(Value::Integer(number)),
        Reply::Bulk(text) => lua.create_string(text).map(Value::String),
        Reply::Array(items) => {
            let table = lua.create_table()?;
            for (at, item) in items.into_iter().enumerate() {
                table.raw_set(at + 1, value_of(lua, item)?)?;
            }
            Ok(Value::Table(table))
        }
        // Plain replies are no others than these, and nil.
        _ => Ok(Value::Boolean(false)),
    }
}

/// The reply that a script's result means.
fn reply_of(value: &Value) -> Reply {
    match value {
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Integer(*number),
        Value::Number(number) => Reply::Integer(numbers::truncated(*number)),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(table) => {
            let text = |name: &str| {
                let text: Option<mlua::LuaString> = table.raw_get(name).ok();
                text.map(|text| text.to_string_lossy())
            };
            let items = || (1..).map_while(|at| item(table, at)).map(|item| reply_of(&item));
            let error = text("err").map(Reply::Error);
            error
                .or_else(|| text("ok").map(Reply::Status))
                .unwrap_or_else(|| Reply::Array(items().collect()))
        }
        _ => Reply::Nil,
    }
}

/// An item of a sequence; none after its end.
fn item(table: &Table, at: usize) -> Option<Value> {
    table.raw_get(at).ok().filter(|item: &Value| !item.is_nil())
}

/// The error of a command that ends a script.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

/// Why a script has failed, and in which of its lines: called by Lua where it fails.
fn failure(lua: &Lua, error: Value) -> mlua::Result<Table> {
    let line = (1..).map_while(|level| lua.inspect_stack(level, line_of_script)).flatten().next();
    let line = line.unwrap_or_default();
    let failure = match error {
        Value::Table(thrown) => thrown,
        other => {
            let error = match other {
                Value::Error(error) => error_in_line(&error, line),
                other => format!("ERR {}", other.to_string()?),
            };
            let failure = lua.create_table()?;
            failure.raw_set("err", error)?;
            failure
        }
    };
    failure.raw_set("line", line)?;
    Ok(failure)
}

fn line_of_script(place: &mlua::debug::Debug<'_>) -> Option<usize> {
    let is_script = place.source().source.as_deref() == Some(CHUNK);
    place.current_line().filter(|_| is_script)
}

/// The error reply that an error of a function of ours means.
fn error_in_line(error: &Error, line: usize) -> String {
    match error {
        Error::CallbackError { cause, .. } => error_in_line(cause, line),
        Error::ExternalError(refused) => refused.to_string(),
        Error::RuntimeError(message) => format!("ERR user_script:{line}: {message}"),
        other => format!("ERR user_script:{line}: {other}"),
    }
}

/// The reply to the call of a script that has failed.
fn failure_reply(sha: &str, failure: &Value) -> Reply {
    let failure = failure.as_table().expect("a table is what `failure` returns");
    let message: mlua::LuaString = failure.raw_get("err").expect("it has a message");
    let line: usize = failure.raw_get("line").expect("it has a line");
    let message = message.to_string_lossy();
    Reply::Error(format!("{message} script: {sha}, on {CHUNK}:{line}."))
}
