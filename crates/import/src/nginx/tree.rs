//! The directives of a configuration, with those of included files in their places.

use std::cell::Cell;

use tollgate_yaml::Problem;

use super::{
    directive::Directive,
    lexer::{Place, Token, Word, tokens},
};
use crate::{Input, Problems, report::Report, words};

/// Blocks within blocks, and files within files.
const MAX_DEPTH: usize = 24;
/// Directives of all files, each as often as it is included.
const MAX_DIRECTIVES: usize = 200_000;
/// What nginx says before each file when it prints its configuration.
const DUMP_MARK: &str = "# configuration file ";
/// Files that come with nginx, and hold nothing that limits or refuses.
const KNOWN_FILES: &str = "\
    fastcgi.conf fastcgi_params koi-utf koi-win mime.types proxy_params scgi_params uwsgi_params \
    win-utf";

/// A file, and whether another one includes it.
struct File {
    name: String,
    directives: Vec<Directive>,
    is_included: Cell<bool>,
}

/// All files.
struct Files {
    files: Vec<File>,
    is_dump: bool,
    count: Cell<usize>,
}

/// All directives of the files, and what is not there.
///
/// # Errors
/// What is wrong with them.
pub(super) fn read(inputs: &[Input], report: &mut Report) -> Result<Vec<Directive>, Problems> {
    let mut problems = Vec::new();
    let mut files = Files { files: Vec::new(), is_dump: false, count: Cell::new(0) };
    for Input { name, text } in inputs {
        let parts = parts(name, text);
        files.is_dump |= parts.len() > 1 || text.starts_with(DUMP_MARK);
        for (name, text) in parts {
            let parsed = match template(&name, &text) {
                Some(problem) => Err(vec![problem]),
                None => parse(&name, &text),
            };
            match parsed {
                Ok(directives) => {
                    files.files.push(File { name, directives, is_included: Cell::new(false) });
                }
                Err(found) => problems.extend(found),
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    // What a dump holds beside its first file, that file includes.
    let roots = files.files.iter().take(if files.is_dump { 1 } else { usize::MAX });
    let mut expanded = Vec::new();
    for file in roots {
        let directives = files.expand(&file.directives, 0, report);
        expanded.push((file, directives.map_err(|problem| vec![problem])?));
    }
    expanded.retain(|(file, _)| !file.is_included.get());
    Ok(expanded.into_iter().flat_map(|(_, directives)| directives).collect())
}

impl Files {
    /// The directives, with those of included files instead of `include`.
    fn expand(
        &self,
        directives: &[Directive],
        depth: usize,
        report: &mut Report,
    ) -> Result<Vec<Directive>, Problem> {
        let mut expanded = Vec::new();
        for directive in directives {
            self.count.set(self.count.get() + 1);
            if depth > 2 * MAX_DEPTH || self.count.get() > MAX_DIRECTIVES {
                let help = "give fewer files, or take out files that include each other";
                return Err(directive
                    .place
                    .problem("too many files and blocks are within each other", help));
            }
            if directive.name != "include" || directive.args.is_empty() {
                let mut directive = directive.clone();
                if let Some(block) = &directive.block {
                    directive.block = Some(self.expand(block, depth + 1, report)?);
                }
                expanded.push(directive);
                continue;
            }
            let wanted = directive.arg(0);
            let found: Vec<&File> =
                self.files.iter().filter(|file| is_named(&file.name, wanted)).collect();
            for file in &found {
                file.is_included.set(true);
                expanded.extend(self.expand(&file.directives, depth + 1, report)?);
            }
            let base = wanted.rsplit('/').next().unwrap_or(wanted);
            let is_harmless = words::has(KNOWN_FILES, base) || wanted.contains("modules-enabled");
            let is_said = report.findings.iter().any(|finding| finding.there == directive.said());
            if found.is_empty() && !self.is_dump && !is_harmless && !is_said {
                report.add(directive.left_out(
                    "no such file is given, and it may limit or refuse: give it as well, or the \
                     output of `nginx -T`",
                ));
            }
        }
        Ok(expanded)
    }
}

/// Whether the file is meant by an `include`: the shorter of both paths is the end of the other. Of
/// one with asterisks, the folder has to be alike as well.
fn is_named(name: &str, wanted: &str) -> bool {
    let parts = |path: &str| -> Vec<String> {
        path.rsplit('/')
            .filter(|part| !part.is_empty() && *part != ".")
            .map(str::to_owned)
            .collect()
    };
    let (name, wanted) = (parts(name), parts(wanted));
    let least = if wanted.iter().any(|part| part.contains('*')) { wanted.len().min(2) } else { 1 };
    !wanted.is_empty()
        && name.len() >= least
        && name.iter().zip(&wanted).all(|(name, wanted)| is_like(name, wanted))
}

/// Whether a name is like one with asterisks.
fn is_like(name: &str, pattern: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// The files that an output of `nginx -T` holds; else the file itself.
fn parts(name: &str, text: &str) -> Vec<(String, String)> {
    let mut parts = vec![(name.to_owned(), String::new())];
    for line in text.split_inclusive('\n') {
        if let Some(path) =
            line.strip_prefix(DUMP_MARK).and_then(|rest| rest.trim_end().strip_suffix(':'))
        {
            parts.push((path.to_owned(), String::new()));
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
        }
    }
    if parts.len() > 1 {
        // Before the first file it says that the syntax is ok.
        parts.remove(0);
    }
    parts
}

/// A problem if the file is still to be filled in.
fn template(name: &str, text: &str) -> Option<Problem> {
    let line = text.lines().position(|line| {
        let is_variable = |rest: &str| {
            let name = rest.split('}').next().unwrap_or_default();
            rest.contains('}')
                && name.len() > 1
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_uppercase() || byte == b'_' || byte.is_ascii_digit())
        };
        !line.trim_start().starts_with('#')
            && (line.contains("{%")
                || line.contains("<%")
                || line.contains("{{") && line.contains("}}")
                || line.split("${").skip(1).any(is_variable))
    })?;
    let place = Place { file: name.into(), line: line + 1, column: 1 };
    Some(place.problem(
        "it is a template, and no configuration yet",
        "fill it in, or give the output of `nginx -T`",
    ))
}

/// The directives of a file.
fn parse(name: &str, text: &str) -> Result<Vec<Directive>, Problems> {
    let mut problems = Vec::new();
    // The blocks that are open, each with its directive.
    let mut open: Vec<(Option<Directive>, Vec<Directive>)> = vec![(None, Vec::new())];
    let mut words: Vec<Word> = Vec::new();
    for token in tokens(name, text).map_err(|problem| vec![problem])? {
        match token {
            Token::Word(word) => words.push(word),
            Token::End => {
                if let (Some(directive), Some((_, block))) =
                    (directive(&mut words), open.last_mut())
                {
                    block.push(directive);
                }
            }
            Token::Open => {
                let Some(directive) = directive(&mut words) else {
                    return Err(vec![Problem::whole_file(
                        name,
                        "a { follows no name",
                        "write what the block is",
                    )]);
                };
                if open.len() > MAX_DEPTH {
                    return Err(vec![
                        directive
                            .place
                            .problem("too many blocks are within each other", "take some out"),
                    ]);
                }
                open.push((Some(directive), Vec::new()));
            }
            Token::Close(place) => {
                unended(&mut words, &mut problems);
                let Some((Some(mut directive), block)) = open.pop() else {
                    problems.push(place.problem("no block is open here", "take the } out"));
                    return Err(problems);
                };
                directive.block = Some(block);
                if let Some((_, outer)) = open.last_mut() {
                    outer.push(directive);
                }
            }
        }
    }
    unended(&mut words, &mut problems);
    for (directive, _) in open.iter().skip(1) {
        if let Some(directive) = directive {
            problems.push(directive.place.problem(
                format!("the block of `{}` does not end", directive.name),
                "write } at its end",
            ));
        }
    }
    match open.into_iter().next() {
        Some((_, directives)) if problems.is_empty() => Ok(directives),
        _ => Err(problems),
    }
}

fn directive(words: &mut Vec<Word>) -> Option<Directive> {
    let mut words = words.drain(..);
    let Word { text: name, place } = words.next()?;
    Some(Directive { name, args: words.map(|word| word.text).collect(), block: None, place })
}

/// Notes words that no semicolon follows.
fn unended(words: &mut Vec<Word>, problems: &mut Problems) {
    if let Some(directive) = directive(words) {
        problems.push(
            directive
                .place
                .problem(format!("`{}` does not end", directive.name), "write ; at its end"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(inputs: &[(&str, &str)]) -> Result<(String, usize), Problems> {
        let inputs: Vec<Input> = inputs
            .iter()
            .map(|(name, text)| Input { name: (*name).into(), text: (*text).into() })
            .collect();
        let mut report = Report::default();
        let all = read(&inputs, &mut report)?;
        fn list(directives: &[Directive]) -> String {
            let name = |directive: &Directive| match &directive.block {
                Some(block) => format!("{}({})", directive.name, list(block)),
                None => directive.name.clone(),
            };
            directives.iter().map(name).collect::<Vec<_>>().join(" ")
        }
        Ok((list(&all), report.findings.len()))
    }

    #[test]
    fn files_that_others_include_stand_where_they_are_included() {
        let main = "http { include conf.d/*.conf; include /etc/nginx/mime.types; z; }";
        for (inputs, expected, missing) in [
            (
                &[("nginx.conf", main), ("x/conf.d/a.conf", "a;"), ("x/conf.d/b.conf", "b;")][..],
                "http(a b z)",
                0,
            ),
            (&[("nginx.conf", main), ("other.conf", "a;")], "http(z) a", 1),
            (
                &[(
                    "-",
                    "nginx: ok\n# configuration file /etc/nginx/nginx.conf:\nhttp { include a*f; include b; }\n\
                # configuration file /etc/nginx/a.conf:\na;\n",
                )],
                "http(a)",
                0,
            ),
        ] {
            assert_eq!(names(inputs).unwrap(), (expected.to_owned(), missing));
        }
    }

    #[test]
    fn what_is_wrong_is_told_at_once_with_its_place() {
        for (text, places) in [
            ("a { b }", &["f:1:5"][..]),
            ("a { b }\nc {\n d", &["f:1:5", "f:3:2", "f:2:1"]),
            ("a;\n}", &["f:2:1"]),
            ("a;\nserver_name {{ name }};", &["f:2:1"]),
            ("listen ${PORT};", &["f:1:1"]),
            ("include f;", &["f:1:1"]),
        ] {
            let problems = names(&[("f", text)]).unwrap_err();
            let found: Vec<&str> = problems.iter().map(Problem::file).collect();
            assert_eq!(found, places, "{text}");
        }
        assert!(names(&[("f", &"a {".repeat(100))]).is_err());
    }

    #[test]
    fn secrets_are_not_said() {
        let (directives, mut words) =
            (parse("f", "proxy_set_header Authorization 'Basic c2VjcmV0';").unwrap(), Vec::new());
        words.push(directives[0].said());
        assert_eq!(words, ["proxy_set_header Authorization …"]);
    }
}
