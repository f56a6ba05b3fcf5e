//! A report as workflow commands of GitHub Actions, which shows them beside the lines.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use tollgate_keyword::Keyword;

use super::{finding::Finding, report::Report};

pub(super) fn write(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    for finding in report.findings() {
        writeln!(output, "{}", command(&finding))?;
    }
    Ok(())
}

/// `::error file=api.yaml,line=3,col=5,title=bad-configuration::what is wrong`.
fn command(finding: &Finding) -> String {
    let place = match (finding.line, finding.column) {
        (Some(line), Some(column)) => format!(",line={line},col={column}"),
        _ => String::new(),
    };
    format!(
        "::{} file={}{place},title={}::{}",
        finding.severity.keyword(),
        escaped(&finding.file, &PROPERTY),
        escaped(finding.rule, &PROPERTY),
        escaped(&finding.text(), &DATA),
    )
}

/// What would end a command's message, or a property of it. The percent sign comes first.
const DATA: [(char, &str); 3] = [('%', "%25"), ('\r', "%0D"), ('\n', "%0A")];
const PROPERTY: [(char, &str); 5] =
    [('%', "%25"), ('\r', "%0D"), ('\n', "%0A"), (':', "%3A"), (',', "%2C")];

fn escaped<'t>(text: &'t str, escapes: &[(char, &str)]) -> Cow<'t, str> {
    escapes.iter().fold(Cow::Borrowed(text), |text, (from, to)| match text.contains(*from) {
        true => Cow::Owned(text.replace(*from, to)),
        false => text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::finding::Severity;

    fn finding(file: &str, message: &str) -> Finding {
        Finding {
            file: file.to_owned(),
            line: Some(3),
            column: Some(5),
            severity: Severity::Error,
            rule: "bad-configuration",
            message: message.to_owned(),
            help: Some("write: a, b".to_owned()),
        }
    }

    #[test]
    fn command_has_the_place_and_the_message_with_its_help() {
        let expected =
            "::error file=api.yaml,line=3,col=5,title=bad-configuration::wrong%0Awrite: a, b";
        assert_eq!(command(&finding("api.yaml", "wrong")), expected);
    }

    #[test]
    fn whole_file_has_no_line() {
        let whole = Finding { line: None, column: None, ..finding("api.yaml", "wrong") };
        let expected = "::error file=api.yaml,title=bad-configuration::wrong%0Awrite: a, b";
        assert_eq!(command(&whole), expected);
    }

    #[test]
    fn nothing_ends_a_command_early() {
        let command = command(&finding("a:b,c%\n.yaml", "100%\r\n::error::mine"));
        let expected = "::error file=a%3Ab%2Cc%25%0A.yaml,line=3,col=5,title=bad-configuration::\
                        100%25%0D%0A::error::mine%0Awrite: a, b";
        assert_eq!(command, expected);
    }
}
