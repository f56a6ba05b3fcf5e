//! What the body of a request asks for: members of a JSON document, read once, whole.

use std::{borrow::Cow, io::Read};

use flate2::read::MultiGzDecoder;

use crate::{
    coding::ContentCoding,
    json::{Amount, Finder, Found, Lost, Scanner},
    path::{Path, PathError, Paths},
};

/// The members that are looked for in bodies of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members(Paths);

/// What there is at the end of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Member {
    /// Nothing, or `null`.
    Missing,
    /// A number; none: it is negative.
    Number(Option<Amount>),
    /// A text.
    Text(Box<str>),
    /// `true` or `false`.
    Bool(bool),
    /// Something else: an array, an object, or a text that is too long.
    Other,
}

/// What a body has said, for each path in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundMembers {
    members: Vec<Member>,
    /// The paths that lead to, or through, a member which is there twice, or in other letters.
    repeated: Vec<usize>,
}

/// A body that is no JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoJson;

impl Members {
    /// What these paths lead to.
    ///
    /// # Errors
    /// [`PathError::TooMany`].
    pub fn new(paths: &[Path]) -> Result<Members, PathError> {
        Ok(Members(Paths::new(paths)?))
    }

    /// The path of this number.
    pub fn path(&self, number: usize) -> Option<&Path> {
        self.0.get(number)
    }

    /// Looks for them in a whole body.
    ///
    /// # Errors
    /// [`NoJson`].
    pub fn find(&self, body: &[u8]) -> Result<FoundMembers, NoJson> {
        // Some readers take a mark before it, as RFC 8259 section 8.1 lets them.
        let body = body.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(body);
        // The scanner does not look at the encoding.
        if std::str::from_utf8(body).is_err() {
            return Err(NoJson);
        }
        let members = vec![Member::Missing; self.0.count()];
        let mut found = FoundMembers { members, repeated: Vec::new() };
        let mut scanner = Scanner::of_one();
        let read = scanner.read(&self.0, body, &mut found);
        match read.is_ok() && scanner.finish(&self.0, &mut found) {
            true => Ok(found),
            false => Err(NoJson),
        }
    }
}

/// A body without its content coding.
///
/// # Errors
/// [`NoJson`]: it is in a coding other than gzip, or is longer than `max_bytes` without it.
pub fn decoded<'b>(
    body: &'b [u8],
    content_coding: Option<&str>,
    max_bytes: u64,
) -> Result<Cow<'b, [u8]>, NoJson> {
    match ContentCoding::of(content_coding) {
        ContentCoding::Identity => Ok(Cow::Borrowed(body)),
        ContentCoding::Gzip => {
            let mut all = Vec::new();
            let mut decoder = MultiGzDecoder::new(body).take(max_bytes.saturating_add(1));
            match decoder.read_to_end(&mut all) {
                Ok(_) if all.len() as u64 <= max_bytes => Ok(Cow::Owned(all)),
                _ => Err(NoJson),
            }
        }
        ContentCoding::Other => Err(NoJson),
    }
}

impl FoundMembers {
    /// What there is at the end of the path of this number.
    pub fn at(&self, path: usize) -> &Member {
        self.members.get(path).unwrap_or(&Member::Missing)
    }

    /// Whether the path of this number leads to, or through, a member which is there twice, or in
    /// other letters.
    pub fn is_repeated(&self, path: usize) -> bool {
        self.repeated.contains(&path)
    }
}

impl Finder for FoundMembers {
    const MINDS_LETTERS: bool = true;

    fn found(&mut self, path: usize, value: Found<'_>) {
        let Some(member) = self.members.get_mut(path) else { return };
        *member = match value {
            Found::Null => Member::Missing,
            Found::Bool(value) => Member::Bool(value),
            Found::Number(number) => Member::Number(Amount::parse(number)),
            Found::Text(text) => match text.text {
                Some(text) => Member::Text(text.into()),
                None => Member::Other,
            },
            Found::Container => Member::Other,
        };
    }

    fn lost(&mut self, path: usize, why: Lost) {
        if let Some(member) = self.members.get_mut(path) {
            *member = Member::Missing;
        }
        // A client may repeat it as often as its body is long.
        if why == Lost::Repeated && !self.is_repeated(path) {
            self.repeated.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(body: &str) -> Result<FoundMembers, NoJson> {
        let paths = ["model", "max_tokens", "params.name"].map(|path| path.parse().unwrap());
        Members::new(&paths).unwrap().find(body.as_bytes())
    }

    #[test]
    fn members_are_found() {
        let body = r#"{"model":"m","max_tokens":100.0,"params":{"name":null,"x":[{"name":1}]}}"#;
        let found = find(body).unwrap();
        assert_eq!(found.at(0), &Member::Text("m".into()));
        let amount = Amount { units: 100, is_whole: true };
        assert_eq!(found.at(1), &Member::Number(Some(amount)));
        assert_eq!(find(&format!("\u{FEFF}{body}")).unwrap(), found);
        assert_eq!(found.at(2), &Member::Missing);
        assert!((0..3).all(|path| !found.is_repeated(path)));
    }

    #[test]
    fn what_two_readers_may_see_otherwise_is_told() {
        assert!(find(r#"{"max_tokens":1,"max_tokens":2}"#).unwrap().is_repeated(1));
        assert!(find(r#"{"params":{"name":"a"},"params":{}}"#).unwrap().is_repeated(2));
        assert!(find(r#"{"Max_Tokens":1}"#).unwrap().is_repeated(1));
        assert!(find(r#"{"max_tokens":1,"max_toKens":2}"#).unwrap().is_repeated(1));
        assert!(find("{\"max_to\u{212A}ens\":1}").unwrap().is_repeated(1));
        assert!(find(r#"{"PARAMS":{}}"#).unwrap().is_repeated(2));
        assert_eq!(find(r#"{"max_tokens":-1}"#).unwrap().at(1), &Member::Number(None));
    }

    #[test]
    fn what_is_no_json_is_told() {
        for body in ["", "{", "model=m", "{}{}", "{'model':'m'}", "{\"a\":NaN}"] {
            assert_eq!(find(body), Err(NoJson), "{body}");
        }
        assert_eq!(Members::new(&[]).unwrap().find(b"{\"a\":\"\xFF\"}"), Err(NoJson));
    }
}
