//! New API keys, for `tollgate key`. The proxy itself makes none.

use aws_lc_rs::{error::Unspecified, rand};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use thiserror::Error;
use tollgate_yaml::Problem;

use super::{
    ApiKeys, MAX_SECRET_BYTES, MIN_SECRET_BYTES, digest::SecretDigest, file::HEADING, is_secret,
};

/// The fields of a new key, as in the file.
#[derive(Clone, Debug, Default)]
pub struct NewKey {
    /// Finds the key.
    pub id: String,
    /// The tier of its holder.
    pub tier: Option<String>,
    /// Its holder.
    pub owner: Option<String>,
    /// The scopes of its holder.
    pub scopes: Vec<String>,
    /// Its last day, or the instant when it expires.
    pub expires: Option<String>,
    /// Custom fields.
    pub fields: Vec<(String, String)>,
}

/// A new key: for the client and for the file.
pub struct MintedKey {
    /// The text that the client sends; secret.
    pub key: String,
    /// The line for the file.
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
    /// A field that the file cannot have.
    #[error("the key cannot be written")]
    Fields(Vec<Problem>),
    /// The system gave no random bytes.
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

    /// Makes the key with an existing secret, which must be random too.
    ///
    /// # Errors
    /// [`MintError`].
    pub fn mint_with(&self, secret: &str) -> Result<MintedKey, MintError> {
        if !is_secret(secret.as_bytes()) {
            return Err(MintError::Secret);
        }
        let line = self.line(&SecretDigest::new(secret.as_bytes())?);
        // The parser of the file decides which fields are valid.
        ApiKeys::parse("the new key", &format!("{HEADING}\n{line}\n"))
            .map_err(MintError::Fields)?;
        Ok(MintedKey { key: format!("{}.{secret}", self.id), line })
    }

    /// The key as an item of a YAML list. The digest comes last, since messages cut a line before
    /// it.
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

/// A text in double quotes. YAML reads the escapes of JSON.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
