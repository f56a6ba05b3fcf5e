//! Commands on strings, and on keys whatever they hold.

use super::{
    command_error::CommandError,
    keyspace::{Keys, Value},
    numbers,
    reply::Reply,
};

/// `GET key`.
pub(super) fn get(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    Ok(keys.string(&words[1])?.map_or(Reply::Nil, |value| Reply::Bulk(value.clone())))
}

/// `SET key value [NX] [PX milliseconds]`.
pub(super) fn set(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let (mut only_new, mut millis) = (false, None);
    let mut options = words[3..].iter();
    while let Some(option) = options.next() {
        match option.to_ascii_uppercase().as_slice() {
            b"NX" => only_new = true,
            b"PX" => millis = Some(options.next().ok_or(CommandError::Syntax)?),
            _ => return Err(CommandError::Syntax),
        }
    }
    let expires_at = millis.map(|millis| after(keys.now(), millis)).transpose()?;
    if only_new && keys.contains(&words[1]) {
        return Ok(Reply::Nil);
    }
    keys.set(&words[1], Value::String(words[2].clone()), expires_at);
    Ok(Reply::ok())
}

/// The instant that comes so many milliseconds after another, which must be a later one.
fn after(now: i64, millis: &[u8]) -> Result<i64, CommandError> {
    let millis = numbers::integer(millis)?;
    let later = (millis > 0).then(|| now.checked_add(millis)).flatten();
    later.ok_or(CommandError::InvalidExpiry("set"))
}

/// `GETRANGE key first last`.
pub(super) fn get_range(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let (first, last) = (numbers::integer(&words[2])?, numbers::integer(&words[3])?);
    let Some(value) = keys.string(&words[1])? else { return Ok(Reply::Bulk(Vec::new())) };
    let is_reversed = first < 0 && last < 0 && first > last;
    // An end before the beginning is the beginning.
    let last = if last < -(value.len() as i64) { 0 } else { last };
    let positions = match is_reversed {
        true => 0..0,
        false => numbers::positions(first, last, value.len()),
    };
    Ok(Reply::Bulk(value[positions].to_vec()))
}

/// `SETRANGE key offset value`.
pub(super) fn set_range(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let offset = numbers::integer(&words[2])?;
    let offset = usize::try_from(offset).map_err(|_| CommandError::OffsetOutOfRange)?;
    let mut value = keys.string(&words[1])?.cloned().unwrap_or_default();
    let written = &words[3];
    if !written.is_empty() {
        let end = offset + written.len();
        value.resize(value.len().max(end), 0);
        value[offset..end].copy_from_slice(written);
        keys.replace(&words[1], Value::String(value.clone()));
    }
    Ok(Reply::count(value.len()))
}

/// `STRLEN key`.
pub(super) fn length(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    Ok(Reply::count(keys.string(&words[1])?.map_or(0, Vec::len)))
}

/// `DEL key…`.
pub(super) fn delete(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    Ok(Reply::count(words[1..].iter().filter(|key| keys.remove(key)).count()))
}

/// `PEXPIRE key milliseconds`.
pub(super) fn expire(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    if let Some(option) = words.get(3) {
        let option = String::from_utf8_lossy(option).into_owned();
        return Err(CommandError::UnsupportedOption(option));
    }
    let millis = numbers::integer(&words[2])?;
    let at = keys.now().checked_add(millis).ok_or(CommandError::InvalidExpiry("pexpire"))?;
    Ok(Reply::Integer(keys.expire(&words[1], at).into()))
}
