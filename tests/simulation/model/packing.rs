//! `struct.pack` and `struct.unpack`, as far as scripts use them: numbers with the least byte
//! first.

use mlua::{Error, Lua, Result, Value, Variadic};

/// An item of a format.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    /// An unsigned integer of so many bytes.
    Integer(usize),
    Double,
    /// A byte that is skipped.
    Padding,
}

impl Item {
    fn size(self) -> usize {
        match self {
            Item::Integer(size) => size,
            Item::Double => size_of::<f64>(),
            Item::Padding => 1,
        }
    }
}

/// Reads a format.
fn items(format: &[u8]) -> Result<Vec<Item>> {
    let mut letters = format.strip_prefix(b"<").unwrap_or_default().iter().peekable();
    let mut items = Vec::new();
    while let Some(letter) = letters.next() {
        items.push(match letter {
            b'B' => Item::Integer(1),
            b'd' => Item::Double,
            b'x' => Item::Padding,
            b'I' => {
                let size = letters.next_if(|size| matches!(size, b'1'..=b'8'));
                Item::Integer(size.map_or(4, |size| usize::from(size - b'0')))
            }
            _ => {
                return Err(Error::runtime(format!("invalid format option '{}'", *letter as char)));
            }
        });
    }
    Ok(items)
}

/// `struct.pack(format, number…)`.
pub(super) fn pack(lua: &Lua, arguments: Variadic<Value>) -> Result<mlua::LuaString> {
    let arguments = Arguments { lua, function: "pack", values: &arguments };
    let format = items(&arguments.text(1)?.as_bytes())?;
    let (mut packed, mut at) = (Vec::new(), 1);
    for item in format {
        if item == Item::Padding {
            packed.push(0);
            continue;
        }
        at += 1;
        let number = arguments.number(at)?;
        match item {
            Item::Double => packed.extend_from_slice(&number.to_le_bytes()),
            _ => packed.extend_from_slice(&integer(number).to_le_bytes()[..item.size()]),
        }
    }
    lua.create_string(packed)
}

/// A number as C makes an unsigned integer of it.
fn integer(number: f64) -> u64 {
    if number < 0.0 { number as i64 as u64 } else { number as u64 }
}

/// `struct.unpack(format, text[, position])`: the numbers, and the position after them.
pub(super) fn unpack(lua: &Lua, arguments: Variadic<Value>) -> Result<Variadic<Value>> {
    let arguments = Arguments { lua, function: "unpack", values: &arguments };
    let format = arguments.text(1)?;
    let text = arguments.text(2)?;
    let text = text.as_bytes();
    let position = if arguments.values.len() < 3 { 1.0 } else { arguments.number(3)? };
    let mut position = (position as usize).saturating_sub(1);
    let mut numbers = Variadic::new();
    for item in items(&format.as_bytes())? {
        let bytes = text
            .get(position..position + item.size())
            .ok_or_else(|| arguments.bad(2, "data string too short"))?;
        position += item.size();
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        match item {
            Item::Integer(_) => numbers.push(Value::Number(u64::from_le_bytes(padded) as f64)),
            Item::Double => numbers.push(Value::Number(f64::from_le_bytes(padded))),
            Item::Padding => {}
        }
    }
    numbers.push(Value::Integer(position as i64 + 1));
    Ok(numbers)
}

/// The arguments of a function, which count from one.
struct Arguments<'a> {
    lua: &'a Lua,
    function: &'static str,
    values: &'a [Value],
}

impl Arguments<'_> {
    fn text(&self, at: usize) -> Result<mlua::LuaString> {
        let value = self.values.get(at - 1).cloned().unwrap_or(Value::Nil);
        self.lua.coerce_string(value)?.ok_or_else(|| self.unexpected(at, "string"))
    }

    fn number(&self, at: usize) -> Result<f64> {
        let value = self.values.get(at - 1).cloned().unwrap_or(Value::Nil);
        self.lua.coerce_number(value)?.ok_or_else(|| self.unexpected(at, "number"))
    }

    fn unexpected(&self, at: usize, expected: &str) -> Error {
        let found = self.values.get(at - 1).map_or("nil", Value::type_name);
        self.bad(at, &format!("{expected} expected, got {found}"))
    }

    fn bad(&self, at: usize, problem: &str) -> Error {
        let function = self.function;
        Error::runtime(format!("bad argument #{at} to '{function}' ({problem})"))
    }
}
