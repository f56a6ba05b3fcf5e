//! `tollgate key`: API keys, and the lines by which the proxy knows them.

use std::{
    fs::OpenOptions,
    io::{Read, Write, stdin},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use tollgate_clock::{Clock, Timestamp};
use tollgate_identity::{ApiKeys, MAX_API_KEYS_BYTES, MintError, MintedKey, NewKey};

use super::Failure;

/// More than any secret has.
const MAX_INPUT_BYTES: u64 = 64 * 1024;

/// Mint an API key
///
/// Writes two lines to standard output: the key, which is for the client and cannot be shown again,
/// and the line for the file of keys, which holds only a digest of it. With --append the second
/// goes to the file.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// What finds the key, and the part of it before the dot: letters, digits, `_` and `-`
    #[arg(long)]
    id: String,
    /// The tier of its holder
    #[arg(long)]
    tier: Option<String>,
    /// Its holder
    #[arg(long)]
    owner: Option<String>,
    /// What its holder may do; can be repeated
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Its last day in UTC, or the instant when it ends: 2027-01-01, 2027-01-01T18:00:00Z
    #[arg(long, value_name = "DATE")]
    expires: Option<String>,
    /// Another field, which policies know as `api_key.NAME`; can be repeated
    #[arg(long = "field", value_name = "NAME=TEXT", value_parser = parse_field)]
    fields: Vec<(String, String)>,
    /// Read the secret from standard input, for a key that is in use already. It must be random.
    /// The client shows `ID.SECRET`, which is not written
    #[arg(long)]
    secret_stdin: bool,
    /// Add the line to this file; one that is not there is created, for its owner only
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    if let Some(expires) = &arguments.expires
        && Timestamp::parse_end(expires).is_some_and(|end| end <= Clock::System.now())
    {
        return Err(Failure::Usage(format!("--expires: `{expires}` has passed\n")));
    }
    let MintedKey { key, line } = mint(arguments)?;
    if let Some(file) = &arguments.append {
        append(file, &arguments.id, &line)?;
    }
    if !arguments.secret_stdin {
        writeln!(output, "{key}")?;
    }
    if arguments.append.is_none() {
        writeln!(output, "{line}")?;
    }
    Ok(())
}

fn mint(arguments: &Arguments) -> Result<MintedKey, Failure> {
    let new = NewKey {
        id: arguments.id.clone(),
        tier: arguments.tier.clone(),
        owner: arguments.owner.clone(),
        scopes: arguments.scopes.clone(),
        expires: arguments.expires.clone(),
        fields: arguments.fields.clone(),
    };
    let minted = match arguments.secret_stdin {
        true => {
            let mut secret = String::new();
            let input = stdin().take(MAX_INPUT_BYTES).read_to_string(&mut secret);
            input.context("cannot read the secret")?;
            // Only the end of its line is no part of it.
            new.mint_with(secret.trim_end_matches(['\r', '\n']))
        }
        false => new.mint(),
    };
    minted.map_err(|error| match error {
        MintError::Fields(problems) => problems.into(),
        error => anyhow!(error).context("cannot mint the key").into(),
    })
}

/// Adds a line to a file of keys that is in order and has no key with this id.
fn append(path: &Path, id: &str, line: &str) -> Result<(), Failure> {
    let name = path.display().to_string();
    let mut options = OpenOptions::new();
    let opened = options.read(true).append(true).create(true).mode(0o600).open(path);
    let mut file = opened.with_context(|| format!("cannot open {name}"))?;
    // Else two commands at once could add the same id.
    file.lock().with_context(|| format!("cannot lock {name}"))?;
    let mut text = String::new();
    let read = Read::by_ref(&mut file).take(MAX_API_KEYS_BYTES + 1).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {name}"))?;

    let addition = match text.as_str() {
        "" => format!("keys:\n{line}\n"),
        text if text.ends_with('\n') => format!("{line}\n"),
        _ => format!("\n{line}\n"),
    };
    if !text.is_empty() && ApiKeys::parse(&name, &text)?.get(id).is_some() {
        return Err(anyhow!("`{id}` is in {name} already: take another id, or remove it").into());
    }
    text += &addition;
    // There may be no room for another.
    ApiKeys::parse(&name, &text)?;
    // In one piece, for those who read it at this moment.
    let written = file.write_all(addition.as_bytes()).and_then(|()| file.sync_all());
    Ok(written.with_context(|| format!("cannot write {name}"))?)
}

fn parse_field(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, text)) if !name.is_empty() => Ok((name.to_owned(), text.to_owned())),
        _ => Err("write NAME=TEXT".into()),
    }
}
