//! The tokens that clients of a listener need: of the admin listener, and of one for programs. They
//! are replaced while the process runs.

mod access;
mod failures;

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    digest::{Digest, SHA256, digest},
};
use tollgate_yaml::{Check, Spanned};

use super::Checker;

pub use self::access::TokenRefusal;
use self::failures::Failures;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// To look.
    Read,
    /// To look and to act.
    Write,
}

/// The tokens that are good now, and the addresses that have sent wrong ones.
pub struct CurrentTokens {
    good: ArcSwap<Tokens>,
    failures: Failures,
}

/// Their hashes.
#[derive(Clone, PartialEq, Eq)]
struct Tokens {
    read: Option<TokenHash>,
    write: Option<TokenHash>,
}

/// Hashes have one length whatever a token's is, so comparing them tells nothing of it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TokenHash([u8; 32]);

/// Fewer could be found by trying, even at three a second and address.
const MIN_TOKEN_BYTES: usize = 16;
/// The head of a request to the admin listener has room for more.
const MAX_TOKEN_BYTES: usize = 1024;
/// A file with a token is not larger, line break included.
pub const MAX_TOKEN_FILE_BYTES: u64 = MAX_TOKEN_BYTES as u64 + 16;

/// The token in the content of a file, without the line break that editors end it with.
///
/// # Errors
/// Why it is no token, as the end of a sentence that begins with the name of the file.
pub fn token_in(content: &[u8]) -> Result<&str, &'static str> {
    let token = content.trim_ascii_end();
    if token.is_empty() {
        return Err("contains no token");
    }
    if token.len() < MIN_TOKEN_BYTES {
        return Err("contains a token of fewer than 16 characters");
    }
    if token.len() > MAX_TOKEN_BYTES {
        return Err("contains a token of more than 1024 characters");
    }
    let token = std::str::from_utf8(token).ok();
    let is_visible = |token: &&str| token.bytes().all(|byte| byte.is_ascii_graphic());
    token.filter(is_visible).ok_or("contains a token with other characters than visible ASCII")
}

impl CurrentTokens {
    fn new(good: Tokens) -> Arc<CurrentTokens> {
        let good = ArcSwap::from_pointee(good);
        Arc::new(CurrentTokens { good, failures: Failures::default() })
    }

    /// What the token allows that a client sends. None: it is not one of these.
    pub(super) fn permission(&self, sent: &[u8]) -> Option<Permission> {
        let tokens = self.good.load();
        let sent = TokenHash::of(sent);
        // Both are always compared.
        let is_write = tokens.write.is_some_and(|token| token.is(&sent));
        let is_read = tokens.read.is_some_and(|token| token.is(&sent));
        match (is_write, is_read) {
            (true, _) => Some(Permission::Write),
            (false, true) => Some(Permission::Read),
            (false, false) => None,
        }
    }

    /// Takes over what `newer` has. Returns whether that is something else.
    pub fn replace_by(&self, newer: &CurrentTokens) -> bool {
        let newer = newer.good.load_full();
        let is_other = *self.good.load_full() != *newer;
        if is_other {
            self.good.store(newer);
        }
        is_other
    }
}

/// What is in it is replaced, never compared: two listeners that both want tokens are alike.
impl PartialEq for CurrentTokens {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for CurrentTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[tokens]")
    }
}

impl TokenHash {
    fn of(token: &[u8]) -> TokenHash {
        let hash: Digest = digest(&SHA256, token);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hash.as_ref());
        TokenHash(bytes)
    }

    /// In constant time.
    fn is(&self, other: &TokenHash) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Checker<'_> {
    /// The tokens in the files. One that cannot be used is left out, and reported.
    pub(super) fn admin_tokens(
        &mut self,
        read_file: Option<&Spanned<String>>,
        write_file: Option<&Spanned<String>>,
    ) -> Arc<CurrentTokens> {
        let read = read_file.map(|file| self.admin_token(file));
        let write = write_file.map(|file| self.admin_token(file));
        if let (Some(Some(read)), Some(Some(write)), Some(place)) = (read, write, read_file)
            && read == write
        {
            let message = format!("`{}` contains the token that also acts", place.value);
            self.refuse(place, message, "write another token into it, or remove this field");
        }
        CurrentTokens::new(Tokens { read: read.flatten(), write: write.flatten() })
    }

    fn admin_token(&mut self, file: &Spanned<String>) -> Option<TokenHash> {
        let content = self.secret_file(file, MAX_TOKEN_FILE_BYTES)?;
        self.token(file, &content)
    }

    /// The token that programs need, in the variable or the file that is named.
    pub(super) fn program_token(
        &mut self,
        variable: Option<&Spanned<String>>,
        file: Option<&Spanned<String>>,
    ) -> Option<Arc<CurrentTokens>> {
        let secret = self.secret(variable, file)?;
        let token = self.token(variable.or(file)?, secret.reveal().as_bytes())?;
        Some(CurrentTokens::new(Tokens { read: None, write: Some(token) }))
    }

    fn token(&mut self, named: &Spanned<String>, content: &[u8]) -> Option<TokenHash> {
        match token_in(content) {
            Ok(token) => Some(TokenHash::of(token.as_bytes())),
            Err(why) => {
                let help = "make one: openssl rand -hex 32";
                self.refuse(named, format!("`{}` {why}", named.value), help);
                None
            }
        }
    }
}
