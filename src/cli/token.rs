//! `tollgate token`: tokens for development, signed with a key that is given.

mod recipient;

use std::{io::Write, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value, json};
use tollgate_clock::Clock;
use tollgate_identity::{Algorithm, SigningKey, TokenHeader};
use tollgate_keyword::Keyword;
use tollgate_yaml::{Sources, parse_duration};

use self::recipient::Recipient;
use super::Failure;

/// Largest key file that is read.
const MAX_KEY_FILE_BYTES: u64 = 64 * 1024;
/// How long a token is good.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Mint a token for development, signed with a key that you give
///
/// The token is written to standard output, for use in a shell:
/// curl -H "Authorization: Bearer $(tollgate token --private-key dev.pem --sub 42)" …
///
/// Issuer, audience and type are those that the policy wants: the one that --policy names, or those
/// of the settings that TOLLGATE_CONFIG names or that are in the usual places. If the policy would
/// refuse the token, the reason is written to standard error, and the command exits with 1.
///
/// Of an issuer with tenants, --claim tid=acme chooses the tenant: NAME is the claim in braces in
/// the policy's `issuer`. Without it, the tenant is the first that the policy lists, or one called
/// `tenant`.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    key: KeyArguments,
    /// The policy that is to take the token: a policy file, a folder of them, or a settings file
    #[arg(long, value_name = "PATH")]
    policy: Option<PathBuf>,
    /// Signature algorithm; by default one that the policy allows and the key can do
    #[arg(long, value_name = "ALG")]
    algorithm: Option<Algorithm>,
    /// Name of the key in the token's header; by default its thumbprint, as `tollgate jwks` writes
    /// it
    #[arg(long)]
    kid: Option<String>,
    /// Who the token is about
    #[arg(long)]
    sub: String,
    /// The claim `plan`, which the example policy takes the tier from
    #[arg(long)]
    plan: Option<String>,
    /// The issuer, by its name in the policy or by its claim `iss`; by default the policy's only
    /// one
    #[arg(long)]
    issuer: Option<String>,
    /// The claim `aud`; by default the first that the issuer's tokens may be for
    #[arg(long)]
    audience: Option<String>,
    /// How long it is good, from now; by default 1h, or the policy's `max_lifetime` if that is
    /// shorter
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    expires_in: Option<Duration>,
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
    let recipient = Recipient::find(arguments.policy.as_deref(), arguments.issuer.as_deref())?;
    let key = signing_key(arguments, &recipient)?;
    let kid = arguments.kid.as_deref();
    let kid = kid.or_else(|| key.key_id.as_deref().filter(|name| recipient.takes_key_id(name)));
    let header = TokenHeader { kid, typ: recipient.token_type() };
    let claims = claims(arguments, &recipient);
    let token = key.sign_with(header, &claims).context("cannot sign")?;
    writeln!(output, "{token}")?;
    Ok(recipient.check(&token, Clock::System.now())?)
}

fn claims(arguments: &Arguments, recipient: &Recipient) -> Map<String, Value> {
    let now = Clock::System.now().as_micros() / 1_000_000;
    let lifetime = arguments.expires_in.unwrap_or_else(|| recipient.lifetime(LIFETIME));
    let mut claims = Map::new();
    if let Some(issuer) = recipient.issuer() {
        claims.insert("iss".into(), json!(issuer));
    }
    if let Some(audience) = arguments.audience.as_deref().or(recipient.audience()) {
        claims.insert("aud".into(), json!(audience));
    }
    claims.insert("sub".into(), json!(arguments.sub));
    if let Some(plan) = &arguments.plan {
        claims.insert("plan".into(), json!(plan));
    }
    claims.insert("iat".into(), json!(now));
    claims.insert("exp".into(), json!(now.saturating_add(lifetime.as_secs())));
    claims.extend(arguments.claims.iter().cloned());
    if let Some(tenants) = recipient.tenants() {
        tenants.complete(&mut claims);
    }
    claims
}

fn signing_key(arguments: &Arguments, recipient: &Recipient) -> anyhow::Result<SigningKey> {
    let key = &arguments.key;
    let sources = Sources::system();
    let read = |path: &PathBuf| {
        let content = sources.read(path, MAX_KEY_FILE_BYTES);
        content.with_context(|| format!("cannot read {}", path.display()))
    };
    let secret = match (&key.private_key, &key.secret_file, &key.secret_env) {
        (Some(path), _, _) => {
            let pem = read(path)?;
            let sign = |algorithm| SigningKey::from_pem(&pem, algorithm);
            let key = in_best_algorithm(arguments.algorithm, recipient, sign);
            return key.with_context(|| format!("cannot use {}", path.display()));
        }
        (_, Some(path), _) => read(path)?.trim_ascii_end().to_vec(),
        (_, _, Some(name)) => sources
            .variable(name)
            .ok_or_else(|| anyhow!("environment variable `{name}` is not set"))?
            .into_bytes(),
        _ => bail!("no key: give --private-key, --secret-file or --secret-env"),
    };
    let sign = |algorithm: Option<Algorithm>| {
        SigningKey::from_secret(&secret, algorithm.unwrap_or(Algorithm::HS256))
    };
    Ok(in_best_algorithm(arguments.algorithm, recipient, sign)?)
}

/// The key with the algorithm that was asked for, else the first that the policy allows, else the
/// key's own.
fn in_best_algorithm<E>(
    asked: Option<Algorithm>,
    recipient: &Recipient,
    key: impl Fn(Option<Algorithm>) -> Result<SigningKey, E>,
) -> Result<SigningKey, E> {
    if asked.is_some() {
        return key(asked);
    }
    let allowed = Algorithm::all().filter(|algorithm| recipient.allows(*algorithm));
    let mut fitting = allowed.filter_map(|algorithm| key(Some(algorithm)).ok());
    fitting.next().map_or_else(|| key(None), Ok)
}

fn parse_claim(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    if name.is_empty() {
        return Err("a claim has a name: write NAME=VALUE".into());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
    Ok((name.to_owned(), value))
}
