//! `tollgate explain`: how a request would be handled, and why.

mod text;

use std::{io::Write, net::IpAddr, path::PathBuf, sync::Arc};

use anyhow::Context;
use http::{Method, StatusCode};
use serde_json::{Map, Value};
use tollgate_clock::Clock;
use tollgate_gate::Shared;
use tollgate_preview::{
    Explanation,
    explain::{Counters, Question, explain},
};
use tollgate_settings::Permission;

use super::{
    Failure,
    call::{CALL_TIMEOUT, Target, TokenFile, refusal},
    configured::{Configured, sources_of},
    settings_file::SettingsFile,
    write_json,
};

/// Explain how a request would be handled
///
/// Shows which policy and which route the request takes and why not an earlier one, who its caller
/// is and how the caller is identified, which limits apply, and the decision. Nothing is charged,
/// and nothing is sent to an upstream. Tokens and keys are never shown.
///
/// Reads the policies from files. With --admin, queries a running proxy instead, which also has the
/// current counters.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    settings: SettingsFile,
    /// A policy file, or a folder of them, in place of those that the settings name
    #[arg(long, value_name = "PATH", conflicts_with_all = ["config", "admin"])]
    policy: Option<PathBuf>,
    /// Ask the proxy whose admin listener is there; with --config, by the token of those settings
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
    #[command(flatten)]
    admin_token: TokenFile,
    #[command(flatten)]
    credential: Credential,
    /// The address that the request comes from; 127.0.0.1
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// A header of the request
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The request's method
    method: String,
    /// Its URL; or only path and query, if there is one policy
    url: String,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct Credential {
    /// Its token
    #[arg(long)]
    token: Option<String>,
    /// The claims of a token that counts as verified: '{"sub": "42"}'
    #[arg(long, value_name = "JSON", value_parser = parse_claims)]
    claims: Option<Map<String, Value>>,
    /// Its API key
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    if arguments.admin.is_none() && arguments.admin_token.is_named() {
        let text = "--token-file is for the token of --admin: write a caller's with --token\n";
        return Err(Failure::Usage(text.into()));
    }
    let question = question(arguments);
    let explanation = match &arguments.admin {
        Some(address) => ask(address, arguments, &question)?,
        None => find_out(arguments, &question)?,
    };
    match arguments.json {
        true => write_json(output, &explanation),
        false => Ok(text::write(output, &explanation)?),
    }
}

fn question(arguments: &Arguments) -> Question {
    let Credential { token, claims, api_key } = &arguments.credential;
    Question {
        method: arguments.method.clone(),
        url: arguments.url.clone(),
        token: token.clone(),
        claims: claims.clone(),
        api_key: api_key.clone(),
        address: arguments.address,
        headers: arguments.headers.clone(),
    }
}

/// From the files, with counters that nothing was charged to.
fn find_out(arguments: &Arguments, question: &Question) -> Result<Explanation, Failure> {
    let path = match &arguments.policy {
        Some(policy) => policy.clone(),
        None => arguments.settings.find()?,
    };
    let Configured { settings, policies, .. } = Configured::read(&path, &sources_of(&[&path])?)?;
    let settings = settings.as_ref().map(|(_, settings)| settings);
    let shared = Shared::rehearsing(settings, Clock::System).context("cannot start")?;
    shared.install(policies);
    Ok(explain(&Arc::new(shared), question, Counters::Fresh).map_err(anyhow::Error::from)?)
}

/// Of a running proxy.
fn ask(address: &str, arguments: &Arguments, question: &Question) -> Result<Explanation, Failure> {
    let question = serde_json::to_vec(question).map_err(anyhow::Error::from)?;
    let Arguments { settings, admin_token, .. } = arguments;
    let target = Target::at(address, admin_token, settings, Permission::Read)?;
    let (status, body) = target.call(&Method::POST, "/explain", question, CALL_TIMEOUT)?;
    if status == StatusCode::OK {
        return Ok(serde_json::from_slice(&body).context("its answer cannot be read")?);
    }
    Err(refusal(status, &body).context(format!("{address} does not explain this")).into())
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn parse_claims(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}
