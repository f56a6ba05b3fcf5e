//! Lines of nginx in annotations: what of them refuses, limits, or does something else.

use super::paths::{literal_pattern, regex_patterns};
use crate::words;

/// A directive, with what is in its braces.
#[derive(Debug, Default)]
struct Directive {
    words: Vec<String>,
    block: Vec<Directive>,
}

/// What a snippet does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Snippet {
    /// Directives that may refuse requests, or change where they go.
    pub(super) guards: Vec<String>,
    /// Patterns of its locations; none: they cannot be said.
    pub(super) locations: Vec<(String, Option<Vec<String>>)>,
    /// `limit_req`, `limit_conn`, and their zones.
    pub(super) limits: Vec<String>,
    pub(super) status: Option<u16>,
    /// Names of the others.
    pub(super) others: Vec<String>,
}

/// The most directives that are read.
const MAX_DIRECTIVES: usize = 10_000;

/// Directives that may refuse a request, or are programs that may.
const GUARDS: &str = "\
    allow deny internal limit_except modsecurity proxy_pass return rewrite satisfy secure_link \
    ssl_verify_client valid_referers";

impl Snippet {
    /// Reads a snippet; what cannot be read may refuse anything.
    pub(super) fn read(text: &str) -> Self {
        let mut snippet = Snippet::default();
        match directives(text) {
            Some(directives) => directives.iter().for_each(|own| snippet.note(own)),
            None => snippet.guards.push("braces or quotes that are not closed".to_owned()),
        }
        snippet
    }

    fn note(&mut self, directive: &Directive) {
        let mut words = directive.words.iter().map(String::as_str);
        let name = words.next().unwrap_or_default();
        let last = directive.words.last().map(String::as_str).unwrap_or_default();
        let is_program = name.contains("_by_lua") || name.starts_with("js_");
        match name {
            "limit_req_status" | "limit_conn_status" => self.status = last.parse().ok(),
            "limit_req" | "limit_conn" | "limit_req_zone" | "limit_conn_zone" | "limit_rate"
            | "limit_rate_after" | "limit_req_dry_run" | "limit_conn_dry_run" => {
                self.limits.push(directive.words.join(" "));
            }
            // It only answers in place of errors.
            "location" if last.starts_with('@') => self.note_other(directive),
            "location" => {
                let words: Vec<&str> = words.collect();
                self.locations.push((directive.words.join(" "), location(&words)));
            }
            "if" if !directive.block.iter().any(Directive::refuses) => {
                self.others.push(name.to_owned());
                directive.block.iter().for_each(|own| self.note_other(own));
            }
            "if" => self.guards.push(format!("if with {}", directive.refusal())),
            _ if words::has(GUARDS, name) || name.starts_with("auth_") || is_program => {
                self.guards.push(name.to_owned());
            }
            _ => self.note_other(directive),
        }
    }

    fn note_other(&mut self, directive: &Directive) {
        let name = directive.words.first().cloned().unwrap_or_default();
        if !self.others.contains(&name) {
            self.others.push(name);
        }
    }
}

impl Directive {
    /// Whether a directive within `if` may refuse a request or lead it elsewhere: not one that only
    /// redirects or answers well.
    fn refuses(&self) -> bool {
        let name = self.words.first().map(String::as_str).unwrap_or_default();
        match name {
            "return" => !self.words.get(1).is_some_and(|status| status.starts_with(['2', '3'])),
            "set" | "add_header" | "more_set_headers" | "more_clear_headers"
            | "proxy_set_header" | "break" | "access_log" | "expires" => false,
            _ => true,
        }
    }

    fn refusal(&self) -> String {
        let first = self.block.iter().find(|own| own.refuses());
        first.and_then(|own| own.words.first()).cloned().unwrap_or_default()
    }
}

/// The patterns of a location.
fn location(words: &[&str]) -> Option<Vec<String>> {
    match words {
        ["=", path] => Some(vec![literal_pattern(path, "Exact")?]),
        ["^~", path] => Some(vec![literal_pattern(path, "")?]),
        ["~" | "~*", regex] if regex.starts_with("^/") => regex_patterns(regex),
        [path] if path.starts_with('/') => Some(vec![literal_pattern(path, "")?]),
        _ => None,
    }
}

/// The directives of a text; none: a brace or a quote is missing, or they are very many.
fn directives(text: &str) -> Option<Vec<Directive>> {
    let mut open: Vec<Vec<Directive>> = vec![Vec::new()];
    let mut heads: Vec<Vec<String>> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut count = 0;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '#' => while letters.next_if(|own| *own != '\n').is_some() {},
            ';' => {
                let words = std::mem::take(&mut words);
                open.last_mut()?.push(Directive { words, block: Vec::new() });
                count += 1;
            }
            '{' => {
                heads.push(std::mem::take(&mut words));
                open.push(Vec::new());
                count += 1;
            }
            '}' => {
                let (block, words) = (open.pop()?, heads.pop()?);
                open.last_mut()?.push(Directive { words, block });
            }
            quote @ ('"' | '\'') => {
                let mut word = String::new();
                loop {
                    match letters.next()? {
                        '\\' => word.extend(['\\', letters.next()?]),
                        own if own == quote => break,
                        own => word.push(own),
                    }
                }
                words.push(word);
            }
            own if own.is_whitespace() => {}
            own => {
                let mut word = String::from(own);
                // `{` right behind `$` belongs to a variable.
                while let Some(own) = letters.next_if(|own| {
                    let is_variable = *own == '{' && word.ends_with('$');
                    !own.is_whitespace() && *own != ';' && (*own != '{' || is_variable)
                }) {
                    word.push(own);
                    if own == '\\' {
                        word.extend(letters.next());
                    }
                }
                words.push(word);
            }
        }
        if count > MAX_DIRECTIVES {
            return None;
        }
    }
    let is_whole = heads.is_empty() && words.is_empty();
    open.pop().filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_limits_and_locations_are_found() {
        let snippet = Snippet::read(
            "# deny all;\nmore_set_headers \"X: {;}\"; server_tokens off;\n\
             location ~ ^/(ping|ready) { deny all; return 404; }\nlocation = /x{ return 200 'a'; }\n\
             location ~* \\.php$ { deny all; }\nlimit_req zone=a burst=5;\nlimit_req_status 429;\n\
             if ($request_method = OPTIONS) { return 204; }\nif ($a) { return 403; }\n\
             auth_basic off; access_by_lua_block { ngx.exit(403); }\nset $a ${b};\nlocation @x { return 200; }\n",
        );
        assert_eq!(snippet.guards, ["if with return", "auth_basic", "access_by_lua_block"]);
        let patterns: Vec<Option<Vec<String>>> =
            snippet.locations.into_iter().map(|(_, patterns)| patterns).collect();
        let some = |own: &[&str]| Some(own.iter().map(|own| (*own).to_owned()).collect());
        assert_eq!(patterns, [some(&["/ping*/**", "/ready*/**"]), some(&["/x"]), None]);
        assert_eq!(snippet.limits, ["limit_req zone=a burst=5"]);
        assert_eq!(snippet.status, Some(429));
        assert_eq!(
            snippet.others,
            ["more_set_headers", "server_tokens", "if", "return", "set", "location"]
        );
    }

    #[test]
    fn what_cannot_be_read_may_refuse_anything() {
        for text in ["location / {", "a 'b", "deny all", "}"] {
            assert_eq!(Snippet::read(text).guards.len(), 1, "{text}");
        }
    }
}
