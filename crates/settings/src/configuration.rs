//! Everything that is configured: the settings file, and the policy files that it names.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use tollgate_policy::{MAX_REQUESTS, Policies, Policy, load};
use tollgate_yaml::{Document, Endings, Node, Problem, Sources, Value};

use super::{DEFAULT_POLICIES, Settings, beside};

/// Largest settings or policy file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// How the names of policy files end.
const POLICY_FILES: Endings = Endings(&["yaml", "yml"]);

/// Everything that is configured: the settings and the policies that they name.
pub struct Configuration {
    /// What needs a restart.
    pub settings: Settings,
    /// What does not.
    pub policies: Policies,
}

impl Configuration {
    /// Reads the settings file and all policies that it names.
    ///
    /// # Errors
    /// Every problem of every file.
    pub fn read(file: &Path, sources: &Sources) -> Result<Configuration, Vec<Problem>> {
        let text = read_text(file, sources)?;
        let settings = Settings::parse(file, &text, sources);
        // Mistakes in the settings hide none in the policies.
        match (settings, PoliciesLocation::read(file, &text, sources).policies(sources)) {
            (Ok(settings), Ok(policies)) => Ok(Configuration { settings, policies }),
            (settings, policies) => {
                let problems = [settings.err(), policies.err()];
                Err(problems.into_iter().flatten().flatten().collect())
            }
        }
    }
}

/// Reads the policies that a settings file names, and nothing else of it: neither certificates nor
/// secrets of settings are needed.
///
/// # Errors
/// Every problem of every policy; that the settings are no YAML.
pub fn read_policies_of(file: &Path, sources: &Sources) -> Result<Policies, Vec<Problem>> {
    let text = read_text(file, sources)?;
    Document::parse(&file.display().to_string(), &text).map_err(|problem| vec![problem])?;
    PoliciesLocation::read(file, &text, sources).policies(sources)
}

/// The location of the policies from a settings file, which may have other mistakes.
struct PoliciesLocation<'f> {
    file: &'f Path,
    /// None: it is no YAML.
    document: Option<Document>,
    /// The path as it is written. None: the usual one is meant.
    path: Option<Node>,
}

impl PoliciesLocation<'_> {
    fn read<'f>(file: &'f Path, text: &str, sources: &Sources) -> PoliciesLocation<'f> {
        let document = Document::parse_with(&file.display().to_string(), text, sources).ok();
        let root = document.as_ref().map(Document::root);
        let path = root.and_then(|root| entry(&root.value, "policies")).cloned();
        PoliciesLocation { file, document, path }
    }

    fn policies(&self, sources: &Sources) -> Result<Policies, Vec<Problem>> {
        let written = match self.path.as_ref().map(|node| &node.value) {
            Some(Value::String(path)) => path,
            _ => DEFAULT_POLICIES,
        };
        let path = beside(self.file, written);
        let is_missing = || {
            let is_not_found = |error: std::io::Error| error.kind() == ErrorKind::NotFound;
            sources.list(&path, POLICY_FILES).is_err_and(is_not_found)
                && sources.read(&path, MAX_FILE_BYTES).is_err_and(is_not_found)
        };
        match read_policies(&path, sources) {
            Err(_) if is_missing() => Err(self.refuse_missing(&path).into_iter().collect()),
            policies => policies,
        }
    }

    /// Nothing, if the field `policies` has another problem already.
    fn refuse_missing(&self, path: &Path) -> Option<Problem> {
        const HELP: &str = "write the path of a policy file or a folder, from this file's folder";
        let message = format!("there is no file or folder `{}`", path.display());
        let document = self.document.as_ref()?;
        match &self.path {
            Some(Node { value: Value::String(_), span }) => {
                Some(document.problem(*span, message, HELP))
            }
            Some(_) => None,
            None => {
                let help = "put policies there, or say where they are: `policies: …`";
                Some(Problem::whole_file(document.name(), message, help))
            }
        }
    }
}

/// The value with this name in a mapping.
pub(super) fn entry<'v>(value: &'v Value, name: &str) -> Option<&'v Node> {
    let Value::Mapping(entries) = value else { return None };
    entries.iter().find(|(key, _)| key.value == name).map(|(_, node)| node)
}

/// Reads a policy file, or all `*.yaml` and `*.yml` of a folder in the order of their names. Names
/// that begin with a dot are left out: `.#api.yaml` is the lock of an editor, `._api.yaml` what
/// macOS keeps about a file.
///
/// # Errors
/// Every problem of every file, and hosts that two policies claim.
pub fn read_policies(path: &Path, sources: &Sources) -> Result<Policies, Vec<Problem>> {
    let files = policy_files(path, sources)?;
    let mut policies = Vec::new();
    let mut problems = Vec::new();
    for file in &files {
        match read_text(file, sources).and_then(|text| load(file, &text, sources)) {
            Ok(policy) => policies.push((file, policy)),
            Err(found) => problems.extend(found),
        }
    }
    problems.extend(contested_hosts(&policies));
    problems.extend(contested_domains(&policies));
    problems.extend(contested_names(&policies));
    problems.extend(too_many_tests(&policies));
    match problems.is_empty() {
        true => Ok(Policies::new(policies.into_iter().map(|(_, policy)| policy).collect())),
        false => Err(problems),
    }
}

fn policy_files(path: &Path, sources: &Sources) -> Result<Vec<PathBuf>, Vec<Problem>> {
    let shown = path.display().to_string();
    let refuse = |message: String, help: &str| vec![Problem::whole_file(&shown, message, help)];
    match sources.list(path, POLICY_FILES) {
        Ok(files) if files.is_empty() => {
            Err(refuse("no policies".into(), "put a file that ends in .yaml here"))
        }
        Ok(files) => Ok(files),
        // It is a single file, or missing: reading it shows which.
        Err(error) if matches!(error.kind(), ErrorKind::NotADirectory | ErrorKind::NotFound) => {
            Ok(vec![path.to_owned()])
        }
        Err(error) => Err(refuse(format!("cannot read the folder: {error}"), "check `policies`")),
    }
}

/// Two policies for one host would be decided by the order of their names.
fn contested_hosts(policies: &[(&PathBuf, Policy)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (at, (file, policy)) in policies.iter().enumerate() {
        for (earlier_file, earlier) in policies.iter().take(at) {
            let is_contested = match (policy.hosts.as_slice(), earlier.hosts.as_slice()) {
                ([], []) => true,
                (hosts, others) => hosts.iter().any(|host| others.contains(host)),
            };
            if is_contested {
                problems.push(Problem::whole_file(
                    &file.display().to_string(),
                    format!("{} is for the same hosts", earlier_file.display()),
                    "give each policy `hosts` of its own",
                ));
            }
        }
    }
    problems
}

/// Descriptors of one domain are decided by one policy: all of them or none are charged.
fn contested_domains(policies: &[(&PathBuf, Policy)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (at, (file, policy)) in policies.iter().enumerate() {
        for (earlier_file, earlier) in policies.iter().take(at) {
            let mut domains = policy.descriptors.iter().map(|rule| &*rule.domain);
            let is_there =
                |domain: &&str| earlier.descriptors.iter().any(|rule| *rule.domain == **domain);
            if let Some(domain) = domains.find(is_there) {
                problems.push(Problem::whole_file(
                    &file.display().to_string(),
                    format!("{} has `rls` for domain `{domain}` too", earlier_file.display()),
                    "keep the entries of a domain in one policy",
                ));
            }
        }
    }
    problems
}

/// The first test that sends more requests than the tests of all policies may.
fn too_many_tests(policies: &[(&PathBuf, Policy)]) -> Option<Problem> {
    let mut requests = 0;
    let mut tests = policies.iter().flat_map(|(_, policy)| &policy.tests);
    let excess = tests.find(|test| {
        requests += u64::from(test.repeat);
        requests > MAX_REQUESTS
    })?;
    let message = "the tests of all policies together send too many requests";
    let help = format!("write smaller limits or fewer repeats: {MAX_REQUESTS} in all");
    Some(excess.place.saying(message, help))
}

/// Counters are kept by the policy's name.
fn contested_names(policies: &[(&PathBuf, Policy)]) -> Vec<Problem> {
    let is_taken = |at: usize, policy: &Policy| {
        policies.iter().take(at).any(|(_, earlier)| earlier.name == policy.name)
    };
    let contested = policies.iter().enumerate().filter(|(at, (_, policy))| is_taken(*at, policy));
    contested
        .map(|(_, (file, policy))| {
            let message = format!("another policy is called `{}` too", policy.name);
            Problem::whole_file(&file.display().to_string(), message, "rename one of the files")
        })
        .collect()
}

/// Reads a settings or policy file.
///
/// # Errors
/// One problem, if it cannot be read or is not text.
pub fn read_text(file: &Path, sources: &Sources) -> Result<String, Vec<Problem>> {
    let shown = file.display().to_string();
    let refuse = |message: String, help: &str| vec![Problem::whole_file(&shown, message, help)];
    let content = sources
        .read(file, MAX_FILE_BYTES)
        .map_err(|error| refuse(format!("cannot read: {error}"), "check the path"))?;
    String::from_utf8(content).map_err(|_| refuse("not UTF-8 text".into(), "save it as UTF-8"))
}
