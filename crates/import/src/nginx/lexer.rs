//! The words of a configuration, as nginx separates them.
//!
//! `}` and `#` mean something only at the start of a word; `{` ends one, but for that of `${name}`;
//! a backslash keeps the next character in the word, and mostly stays.

use std::{fmt, sync::Arc};

use tollgate_yaml::Problem;

/// Where something is: `site.conf:12:5`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: Arc<str>,
    pub(super) line: usize,
    pub(super) column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Place {
    /// Something wrong there.
    pub(super) fn problem(&self, message: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem::whole_file(&self.to_string(), message, help)
    }
}

/// A word, without its quotes.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) place: Place,
}

/// What a configuration is made of.
#[derive(Clone, Debug)]
pub(super) enum Token {
    Word(Word),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`, and where.
    Close(Place),
}

/// All tokens of a file.
///
/// # Errors
/// The first thing that nginx would not read.
pub(super) fn tokens(name: &str, text: &str) -> Result<Vec<Token>, Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let place = Place { file: name.into(), line: 1, column: 1 };
    let mut lexer = Lexer { letters: text.chars().collect(), at: 0, place, is_lua: false };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next_token(matches!(tokens.last(), Some(Token::Word(_))))? {
        tokens.push(token);
    }
    Ok(tokens)
}

struct Lexer {
    letters: Vec<char>,
    at: usize,
    place: Place,
    /// Whether the next block is a program.
    is_lua: bool,
}

impl Lexer {
    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn take(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += 1;
        match letter {
            '\n' => (self.place.line, self.place.column) = (self.place.line + 1, 1),
            _ => self.place.column += 1,
        }
        Some(letter)
    }

    fn next_token(&mut self, is_within: bool) -> Result<Option<Token>, Problem> {
        while let Some(letter) = self.peek() {
            if letter == '#' {
                while self.peek().is_some_and(|letter| letter != '\n') {
                    self.take();
                }
            } else if !is_space(letter) {
                break;
            } else {
                self.take();
            }
        }
        let place = self.place.clone();
        Ok(Some(match self.peek() {
            None => return Ok(None),
            Some(';') => self.take().map_or(Token::End, |_| Token::End),
            Some('{') => {
                self.take();
                if std::mem::take(&mut self.is_lua) {
                    self.skip_lua(&place)?;
                    return Ok(Some(Token::End));
                }
                Token::Open
            }
            Some('}') => self.take().map_or(Token::End, |_| Token::Close(place)),
            Some(quote @ ('"' | '\'')) => Token::Word(Word { text: self.quoted(quote)?, place }),
            Some(_) => {
                let text = self.bare();
                self.is_lua =
                    !is_within && text.ends_with("_by_lua_block") || is_within && self.is_lua;
                Token::Word(Word { text, place })
            }
        }))
    }

    fn bare(&mut self) -> String {
        let mut text = String::new();
        while let Some(letter) = self.peek() {
            if is_space(letter) || letter == ';' || letter == '{' && !text.ends_with('$') {
                break;
            }
            self.keep(&mut text);
        }
        text
    }

    fn quoted(&mut self, quote: char) -> Result<String, Problem> {
        let place = self.place.clone();
        self.take();
        let mut text = String::new();
        loop {
            match self.peek() {
                None => {
                    return Err(
                        place.problem("the text does not end", format!("write {quote} at its end"))
                    );
                }
                Some(letter) if letter == quote => break,
                Some(_) => self.keep(&mut text),
            }
        }
        self.take();
        match self.peek() {
            Some(letter) if !is_space(letter) && !";{)".contains(letter) => {
                let message = format!("`{letter}` follows a text in quotes");
                Err(self.place.problem(message, "write a space between them, or no quotes"))
            }
            _ => Ok(text),
        }
    }

    /// Takes a letter into a word, or what a backslash and the next one stand for.
    fn keep(&mut self, text: &mut String) {
        let Some(letter) = self.take() else { return };
        if letter != '\\' {
            return text.push(letter);
        }
        match self.take() {
            Some(letter @ ('"' | '\'' | '\\')) => text.push(letter),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('n') => text.push('\n'),
            other => text.extend(std::iter::once('\\').chain(other)),
        }
    }

    /// Up to the bracket that closes a block of Lua.
    fn skip_lua(&mut self, open: &Place) -> Result<(), Problem> {
        let mut depth = 1;
        while depth > 0 {
            match self.take() {
                None => {
                    return Err(open.problem("the block of Lua does not end", "write } at its end"));
                }
                Some('{') => depth += 1,
                Some('}') => depth -= 1,
                Some('-') if self.peek() == Some('-') => {
                    self.take();
                    if !self.skip_long_text() {
                        while self.peek().is_some_and(|letter| letter != '\n') {
                            self.take();
                        }
                    }
                }
                Some('[') => {
                    self.at -= 1;
                    self.place.column -= 1;
                    if !self.skip_long_text() {
                        self.take();
                    }
                }
                Some(quote @ ('"' | '\'')) => {
                    while let Some(letter) = self.take() {
                        if letter == '\\' {
                            self.take();
                        } else if letter == quote || letter == '\n' {
                            break;
                        }
                    }
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Whether a text in long brackets of Lua, `[==[ … ]==]`, begins here; it is skipped.
    fn skip_long_text(&mut self) -> bool {
        let rest = self.letters.get(self.at..).unwrap_or_default();
        let level = rest.iter().skip(1).take_while(|&&letter| letter == '=').count();
        if rest.first() != Some(&'[') || rest.get(level + 1) != Some(&'[') {
            return false;
        }
        let end: Vec<char> = format!("]{}]", "=".repeat(level)).chars().collect();
        while self.at < self.letters.len()
            && self.letters.get(self.at..self.at + end.len()) != Some(&end[..])
        {
            self.take();
        }
        for _ in end {
            self.take();
        }
        true
    }
}

fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        let word = |token: &Token| match token {
            Token::Word(word) => format!("<{}>", word.text),
            Token::End => ";".to_owned(),
            Token::Open => "{".to_owned(),
            Token::Close(_) => "}".to_owned(),
        };
        tokens("f", text).unwrap().iter().map(word).collect()
    }

    #[test]
    fn words_are_those_of_nginx() {
        for (text, expected) in [
            ("a b;c{d;}", "<a><b>;<c>{<d>;}"),
            ("a b#c; # d;\n}", "<a><b#c>;}"),
            ("location /a{}", "<location></a>{}"),
            ("a ${b}c d}e;", "<a><${b}c><d}e>;"),
            (r#"a "b;{#'" 'c"';"#, r#"<a><b;{#'><c">;"#),
            (r"a \.php\d b\;c 'd\'e' \\;", r"<a><\.php\d><b\;c><d'e><\>;"),
            (r#"if ($a = "b") {}"#, "<if><($a><=><b><)>{}"),
            ("\u{feff}a\r\n b;", "<a><b>;"),
            (
                "x_by_lua_block { a = '}' -- }\n b = [[}]] c = [=[ ]] } ]=] { } --[[ } ]] d[1] }a b;",
                "<x_by_lua_block>;<a><b>;",
            ),
            ("set_by_lua_block $x { return '{' } a;", "<set_by_lua_block><$x>;<a>;"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn problems_say_where() {
        for (text, place) in
            [("a\n  \"b", "f:2:3"), ("a 'b'c;", "f:1:6"), ("x_by_lua_block {", "f:1:16")]
        {
            assert_eq!(tokens("f", text).unwrap_err().file(), place, "{text}");
        }
    }
}
