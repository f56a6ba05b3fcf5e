//! `tollgate jwks`: several public keys as one JWK Set.

use std::{io::Write, path::PathBuf};

use anyhow::{Context, anyhow};
use tollgate_identity::{Algorithm, PublicJwk, jwk_set};
use tollgate_yaml::Sources;

use super::{Failure, write_json};

/// Largest key file that is read.
const MAX_KEY_FILE_BYTES: u64 = 64 * 1024;

/// Make a JWK Set of public keys
///
/// Reads public keys and certificates in PEM form, and writes a set for `jwks_file` of a policy, or
/// for an issuer's `jwks_url`, to standard output. Each key is named by its thumbprint (RFC 7638),
/// and `tollgate token` writes the same name into tokens. Private keys are refused.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// PEM files with public keys (RSA, EC P-256 or P-384, Ed25519) or certificates
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The algorithm of RSA keys: RS256, PS256, …; other keys have only one
    #[arg(long, visible_alias = "alg", value_name = "ALG")]
    algorithm: Option<Algorithm>,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let sources = Sources::system();
    let mut keys: Vec<(PublicJwk, &PathBuf)> = Vec::new();
    for file in &arguments.files {
        let name = file.display();
        let pem = sources.read(file, MAX_KEY_FILE_BYTES);
        let pem = pem.with_context(|| format!("cannot read {name}"))?;
        for key in PublicJwk::from_pem(&pem).with_context(|| format!("cannot use {name}"))? {
            // Two keys of one name are both left out by those who read the set.
            if let Some((_, other)) = keys.iter().find(|(known, _)| *known == key) {
                let other = other.display();
                return Err(anyhow!("{name} has the same key as {other}: leave one out").into());
            }
            keys.push((key, file));
        }
    }
    let keys: Vec<PublicJwk> = keys.into_iter().map(|(key, _)| key).collect();
    if let Some(algorithm) = arguments.algorithm
        && !keys.iter().any(|key| key.supports(algorithm))
    {
        return Err(anyhow!("{algorithm} cannot be done with any of these keys").into());
    }
    let set = jwk_set(&keys, arguments.algorithm);
    write_json(output, &set)
}
