//! `tollgate init`: settings and a policy to begin with.

use std::{
    fs::{self, File},
    io::{self, BufRead, IsTerminal, Write, stdin},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use tollgate_policy::load;
use tollgate_settings::Settings;
use tollgate_yaml::{Sources, literal};

use super::{Failure, check::check_settings};

/// Where the files are, in the folder: both are found there without an option.
const SETTINGS_FILE: &str = "tollgate.yaml";
const POLICY_FILE: &str = "policies/api.yaml";

/// What is taken if nobody says otherwise.
const USUAL_UPSTREAM: &str = "http://127.0.0.1:3000";
const USUAL_RATE: &str = "1000/hour";

/// Write settings and a policy to begin with
///
/// Asks for what the options leave open, if somebody is there to answer. Writes tollgate.yaml and
/// policies/api.yaml, which has a test, and checks them. Files that are there stay as they are:
/// then nothing is written.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Where the API is, as `http://127.0.0.1:3000`
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Who issues the tokens, exactly as their claim `iss` says it: its keys are found by OpenID
    /// Connect Discovery. Left out: the limit counts by the client's address
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// Whom the tokens are for, as their claim `aud` says it
    #[arg(long, value_name = "NAME", requires = "issuer")]
    audience: Option<String>,
    /// How many requests a caller has [default: 1000/hour]
    #[arg(long, value_name = "RATE")]
    limit: Option<String>,
    /// Where the proxy listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The folder to write into
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
}

/// What the files are to say.
struct Answers {
    upstream: String,
    issuer: Option<Issuer>,
    rate: String,
    listen: SocketAddr,
}

struct Issuer {
    url: String,
    /// None: nobody knows it yet.
    audience: Option<String>,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    // What is here is shown without a folder.
    let dir = match arguments.dir.as_path() == Path::new(".") {
        true => Path::new(""),
        false => &arguments.dir,
    };
    let files = [dir.join(SETTINGS_FILE), dir.join(POLICY_FILE)];
    if let Some(file) = files.iter().find(|file| file.exists()) {
        let file = file.display();
        return Err(anyhow!("{file} is there already: name another folder by --dir").into());
    }
    let answers = match stdin().is_terminal() {
        true => ask(arguments, &mut Interview { input: &mut stdin().lock(), output })?,
        false => given(arguments)?,
    };
    let [settings_file, policy_file] = &files;
    let (settings, policy) = (answers.settings(), answers.policy());
    let sources = Sources::system();
    Settings::parse(settings_file, &settings, &sources)?;
    load(policy_file, &policy, &sources)?;
    write_new(settings_file, &settings)?;
    if let Err(error) = write_new(policy_file, &policy) {
        // The next attempt is not to find half of them.
        let _ = fs::remove_file(settings_file);
        return Err(error.into());
    }
    writeln!(output, "wrote {} and {}\n", settings_file.display(), policy_file.display())?;
    check_settings(settings_file, output)?;
    let option = match dir.as_os_str().is_empty() {
        true => String::new(),
        false => format!(" --config {}", settings_file.display()),
    };
    writeln!(output, "\nStart it:      tollgate run{option}")?;
    writeln!(output, "Ask it:        curl -i http://{}/", answers.listen)?;
    writeln!(output, "Change limits: edit {}; it is read again", policy_file.display())?;
    Ok(())
}

/// The answers of the options alone.
///
/// # Errors
/// Nothing says where the API is.
fn given(arguments: &Arguments) -> Result<Answers, Failure> {
    let Arguments { upstream, issuer, audience, limit, listen, .. } = arguments;
    let text = "name the API by --upstream, as `--upstream http://127.0.0.1:3000`\n";
    Ok(Answers {
        upstream: upstream.clone().ok_or_else(|| Failure::Usage(text.into()))?,
        issuer: issuer.clone().map(|url| Issuer { url, audience: audience.clone() }),
        rate: limit.clone().unwrap_or_else(|| USUAL_RATE.into()),
        listen: *listen,
    })
}

/// The same, with what the options leave open asked for.
fn ask(arguments: &Arguments, interview: &mut Interview<'_>) -> io::Result<Answers> {
    let Arguments { upstream, issuer, audience, limit, listen, .. } = arguments;
    let upstream = interview.ask("Where is the API?", upstream.as_deref(), USUAL_UPSTREAM)?;
    let question = "Who issues its tokens (their claim `iss`)? Empty: limit by address";
    let issuer = interview.ask(question, issuer.as_deref(), "")?;
    let issuer = match issuer.as_str() {
        "" => None,
        _ => {
            let question = "Whom are they for (their claim `aud`)? Empty: not known yet";
            let audience = interview.ask(question, audience.as_deref(), "")?;
            Some(Issuer { url: issuer, audience: Some(audience).filter(|name| !name.is_empty()) })
        }
    };
    let rate = interview.ask("How many requests has a caller?", limit.as_deref(), USUAL_RATE)?;
    Ok(Answers { upstream, issuer, rate, listen: *listen })
}

/// Questions to a person.
struct Interview<'i> {
    input: &'i mut dyn BufRead,
    output: &'i mut dyn Write,
}

impl Interview<'_> {
    /// What was `given`, or else the answer; `usual` if that is empty.
    fn ask(&mut self, question: &str, given: Option<&str>, usual: &str) -> io::Result<String> {
        if let Some(given) = given {
            return Ok(given.to_owned());
        }
        match usual {
            "" => write!(self.output, "{question}: ")?,
            usual => write!(self.output, "{question} [{usual}]: ")?,
        }
        self.output.flush()?;
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the questions end here"));
        }
        let answer = line.trim();
        Ok(if answer.is_empty() { usual } else { answer }.to_owned())
    }
}

impl Answers {
    fn settings(&self) -> String {
        let listen = self.listen;
        format!(
            "\
# How the proxy runs. A change needs a restart.
version: 1
listeners:
  - {{ address: \"{listen}\" }}
admin: {{ address: 127.0.0.1:9901 }}           # dashboard, metrics, status; this machine only
policies: policies                          # a folder of files, read again when one changes
"
        )
    }

    fn policy(&self) -> String {
        let upstream = literal(&self.upstream);
        let rate = literal(&self.rate);
        let (identity, auth, test) = match &self.issuer {
            Some(issuer) => (
                issuer.identity(),
                "optional",
                "a user is counted, whatever its address\n    \
                 given: { path: /, jwt: { sub: \"42\" } }\n    \
                 expect: { status: 200, caller: \"user:42\"",
            ),
            None => (
                "identity:\n  callers:\n    - { name: address, key: client.ip }\n".to_owned(),
                "none",
                "a client is counted by its address\n    \
                 given: { path: /, address: 192.0.2.1 }\n    \
                 expect: { status: 200, caller: \"address:192.0.2.1\"",
            ),
        };
        format!(
            "\
# Who is calling, what the limits are, which route charges which. It is read again when it changes.
version: 1

upstreams:
  api: {{ servers: [{upstream}] }}

{identity}
limits:                                     # the name is what clients see as x-ratelimit-resource
  core: {{ per: caller, rate: {rate} }}

routes:                                     # the first that matches
  - {{ match: {{ path: \"/**\" }}, auth: {auth}, limits: [core] }}

tests:                                      # run by `tollgate check`, and before a change is taken
  - name: {test}, headers: {{ x-ratelimit-used: 1 }} }}
"
        )
    }
}

impl Issuer {
    fn identity(&self) -> String {
        let url = literal(&self.url);
        let audience = match &self.audience {
            Some(name) => format!("audience: [{}]", literal(name)),
            None => {
                "# audience: [api]                     # their claim `aud`; without it, all pass"
                    .to_owned()
            }
        };
        format!(
            "\
identity:
  jwt:
    - name: main
      issuer: {url}
      discover: true                        # its keys, by OpenID Connect Discovery
      {audience}
  callers:                                  # the first that resolves
    - {{ name: user,    key: jwt.sub }}
    - {{ name: address, key: client.ip }}
"
        )
    }
}

fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    let mut file = File::create_new(path).with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked of one who gives these options and these answers, and what comes of it.
    fn interview(options: Arguments, answers: &str) -> (String, io::Result<Answers>) {
        let mut asked = Vec::new();
        let mut interview = Interview { input: &mut answers.as_bytes(), output: &mut asked };
        let answers = ask(&options, &mut interview);
        (String::from_utf8(asked).unwrap(), answers)
    }

    fn no_options() -> Arguments {
        Arguments {
            upstream: None,
            issuer: None,
            audience: None,
            limit: None,
            listen: "127.0.0.1:8080".parse().unwrap(),
            dir: ".".into(),
        }
    }

    #[test]
    fn empty_answers_are_the_usual_ones() {
        let (_, answers) = interview(no_options(), "\n\n\n");
        let Answers { upstream, issuer, rate, .. } = answers.unwrap();
        assert_eq!((&*upstream, issuer.is_none(), &*rate), (USUAL_UPSTREAM, true, USUAL_RATE));
    }

    #[test]
    fn only_what_no_option_says_is_asked_for() {
        let given = Arguments { upstream: Some("http://a:1".into()), ..no_options() };
        let (asked, answers) = interview(given, "https://id.example.com/\n api \n5/minute\n");
        assert!(!asked.contains("Where is the API?"), "{asked}");
        let Answers { upstream, issuer, rate, .. } = answers.unwrap();
        let issuer = issuer.unwrap();
        assert_eq!((&*upstream, &*rate), ("http://a:1", "5/minute"));
        assert_eq!(
            (&*issuer.url, issuer.audience.as_deref()),
            ("https://id.example.com/", Some("api"))
        );
    }

    #[test]
    fn end_of_input_is_no_answer() {
        let (_, answers) = interview(no_options(), "http://a:1\n");
        assert!(answers.is_err());
    }
}
