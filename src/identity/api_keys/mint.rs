//! New keys, for `tollgate key`. The proxy itself makes none.

use aws_lc_rs::{error::Unspecified, rand};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use thiserror::Error;

use super::{
    ApiKeys, MAX_SECRET_BYTES, MIN_SECRET_BYTES, digest::SecretDigest, file::HEADING, is_secret,
};
use crate::yaml::Problem;

/// What a key is to be; each field as in the file.
#[derive(Clone, Debug, Default)]
pub struct NewKey {
    /// What finds it.
    pub id: String,
    /// The tier of its holder.
    pub tier: Option<String>,
    /// Its holder.
    pub owner: Option<String>,
    /// What its holder may do.
    pub scopes: Vec<String>,
    /// Its last day, or the instant when it ends.
    pub expires: Option<String>,
    /// Texts of the user's own.
    pub fields: Vec<(String, String)>,
}

/// A new key, in the two forms that it has.
pub struct MintedKey {
    /// What the client shows: a secret.
    pub key: String,
    /// What the file holds, in one line.
    pub line: String,
}

/// Why there is no new key.
#[derive(Debug, Error)]
pub enum MintError {
    /// A secret that no key can have.
    #[error(
        "a secret has {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} visible ASCII characters and no dot"
    )]
    Secret,
    /// A field that the file could not have.
    #[error("the key cannot be written")]
    Fields(Vec<Problem>),
    /// No random numbers.
    #[error("generating a secret failed")]
    Random(#[from] Unspecified),
}

impl NewKey {
    /// Makes the key, with a secret of 256 random bits.
    ///
    /// # Errors
    /// [`MintError`].
    pub fn mint(&self) -> Result<MintedKey, MintError> {
        let mut secret = [0; 32];
        rand::fill(&mut secret)?;
        self.mint_with(&URL_SAFE_NO_PAD.encode(secret))
    }

    /// Makes the key with a secret that exists already, which must have been random too.
    ///
    /// # Errors
    /// [`MintError`].
    pub fn mint_with(&self, secret: &str) -> Result<MintedKey, MintError> {
        if !is_secret(secret.as_bytes()) {
            return Err(MintError::Secret);
        }
        let line = self.line(&SecretDigest::new(secret.as_bytes())?);
        // Who reads the file judges what can be written.
        ApiKeys::parse("the new key", &format!("{HEADING}\n{line}\n"))
            .map_err(MintError::Fields)?;
        Ok(MintedKey { key: format!("{}.{secret}", self.id), line })
    }

    /// An item of a YAML list. The digest comes last, as messages about a line end before it.
    fn line(&self, digest: &SecretDigest) -> String {
        let texts = [
            ("id", Some(&self.id)),
            ("tier", self.tier.as_ref()),
            ("owner", self.owner.as_ref()),
            ("expires", self.expires.as_ref()),
        ];
        let entry = |(name, text): (&str, Option<&String>)| {
            text.map(|text| format!("{name}: {}", quoted(text)))
        };
        let mut entries: Vec<String> = texts.into_iter().filter_map(entry).collect();
        if !self.scopes.is_empty() {
            let scopes: Vec<String> = self.scopes.iter().map(|scope| quoted(scope)).collect();
            entries.push(format!("scopes: [{}]", scopes.join(", ")));
        }
        if !self.fields.is_empty() {
            let field =
                |(name, text): &(String, String)| format!("{}: {}", quoted(name), quoted(text));
            let fields: Vec<String> = self.fields.iter().map(field).collect();
            entries.push(format!("fields: {{ {} }}", fields.join(", ")));
        }
        entries.push(format!("digest: \"{digest}\""));
        format!("  - {{ {} }}", entries.join(", "))
    }
}

/// A text in double quotes: what JSON escapes, YAML reads alike.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
