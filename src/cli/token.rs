//! `tollgate token`: tokens for development, signed with a key that is given.

use std::{io::Write, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value, json};

use super::Failure;
use crate::{
    clock::Clock,
    identity::{Algorithm, SigningKey},
    policy::Sources,
};

/// Largest key file that is read.
const MAX_KEY_FILE_BYTES: u64 = 64 * 1024;

/// Mint a token for development, signed with a key that you give
///
/// The token is written to standard output, for use in a shell:
/// curl -H "Authorization: Bearer $(tollgate token --private-key dev.pem --sub 42)" …
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    key: KeyArguments,
    /// Signature algorithm; by default HS256, RS256, ES256, ES384 or EdDSA, as the key allows
    #[arg(long, value_name = "ALG")]
    algorithm: Option<String>,
    /// Name of the key in the token's header
    #[arg(long)]
    kid: Option<String>,
    /// Who the token is about
    #[arg(long)]
    sub: String,
    /// The claim `plan`, which the example policy takes the tier from
    #[arg(long)]
    plan: Option<String>,
    /// The claim `iss`; the example policy's by default
    #[arg(long, default_value = "https://id.example.com/")]
    issuer: String,
    /// The claim `aud`; the example policy's by default
    #[arg(long, default_value = "api")]
    audience: String,
    /// How long it is good, from now
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    expires_in: Duration,
    /// Another claim; the value is read as JSON if it is JSON, else as text
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = parse_claim)]
    claims: Vec<(String, Value)>,
}

/// What to sign with: one of these.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct KeyArguments {
    /// PEM file with the private key to sign with (RSA, EC P-256 or P-384, Ed25519)
    #[arg(long, value_name = "FILE")]
    private_key: Option<PathBuf>,
    /// File with the shared secret to sign with
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Environment variable with the shared secret to sign with
    #[arg(long, value_name = "NAME")]
    secret_env: Option<String>,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let key = signing_key(arguments)?;
    let now = Clock::System.now().as_micros() / 1_000_000;
    let mut claims = Map::new();
    claims.insert("iss".into(), json!(arguments.issuer));
    claims.insert("aud".into(), json!(arguments.audience));
    claims.insert("sub".into(), json!(arguments.sub));
    if let Some(plan) = &arguments.plan {
        claims.insert("plan".into(), json!(plan));
    }
    claims.insert("iat".into(), json!(now));
    claims.insert("exp".into(), json!(now.saturating_add(arguments.expires_in.as_secs())));
    claims.extend(arguments.claims.iter().cloned());
    let token = key.sign(arguments.kid.as_deref(), &claims).context("cannot sign")?;
    Ok(writeln!(output, "{token}")?)
}

fn signing_key(arguments: &Arguments) -> anyhow::Result<SigningKey> {
    let key = &arguments.key;
    let sources = Sources::system();
    let algorithm = match &arguments.algorithm {
        Some(name) => match name.parse::<Algorithm>() {
            Ok(algorithm) => Some(algorithm),
            Err(_) => bail!("`{name}` is not a signature algorithm that is supported"),
        },
        None => None,
    };
    let read = |path: &PathBuf| {
        let content = sources.read(path, MAX_KEY_FILE_BYTES);
        content.with_context(|| format!("cannot read {}", path.display()))
    };
    let secret = match (&key.private_key, &key.secret_file, &key.secret_env) {
        (Some(path), _, _) => {
            let key = SigningKey::from_pem(&read(path)?, algorithm);
            return key.with_context(|| format!("cannot use {}", path.display()));
        }
        (_, Some(path), _) => read(path)?.trim_ascii_end().to_vec(),
        (_, _, Some(name)) => sources
            .variable(name)
            .ok_or_else(|| anyhow!("environment variable `{name}` is not set"))?
            .into_bytes(),
        _ => bail!("no key: give --private-key, --secret-file or --secret-env"),
    };
    Ok(SigningKey::from_secret(&secret, algorithm.unwrap_or(Algorithm::HS256))?)
}

fn parse_claim(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    if name.is_empty() {
        return Err("a claim has a name: write NAME=VALUE".into());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
    Ok((name.to_owned(), value))
}
