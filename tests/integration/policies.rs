//! Policy files: those that we ship, good ones, and bad ones with exactly what is said about them;
//! and the mistakes that newcomers make in a sound policy and in sound settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use tollgate_clock::Timestamp;
use tollgate_policy::{Policies, load};
use tollgate_settings::{Configuration, Settings};
use tollgate_yaml::{Problem, Sources, warning::Rule};

use crate::support::SECRET;

/// 2026-06-01T00:00:00Z.
const NOW: Timestamp = Timestamp::from_secs(1_780_272_000);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All policies in a folder of `tests/policies`, by name.
fn policies(folder: &str) -> Vec<PathBuf> {
    files(&Path::new("tests/policies").join(folder), "yaml")
}

/// All files of a folder that end in this way, by name.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|own| own == ending));
    files.sort();
    assert!(!files.is_empty(), "no files in {}", folder.display());
    files
}

/// The files and variables that the policies name.
fn sources() -> Sources {
    let client = rcgen::generate_simple_self_signed(["client.internal".into()]).unwrap();
    let other = rcgen::KeyPair::generate().unwrap();
    Sources::system()
        .with_file("keys/client.pem", client.cert.pem())
        .with_file("keys/client.key", client.signing_key.serialize_pem())
        .with_file("keys/other.key", other.serialize_pem())
        .with_variable("JWT_SECRET", SECRET)
        .with_variable("SHORT_SECRET", "too short")
        .with_variable("UPSTREAM_HOST", "127.0.0.1")
        .with_variable("HIDDEN", "hunter2")
        .with_file("keys/public.pem", fs::read(root().join("config/keys/public.pem")).unwrap())
        .with_file("keys/garbage.pem", "not a key")
        .with_file("keys/api.yaml", "keys:\n")
        .with_file(
            "keys/secret",
            "forty-eight bytes or more are needed for HS384, so here are some",
        )
}

/// Loads a policy under its bare name, so that what is said about it is the same everywhere.
fn problems(file: &Path) -> Option<String> {
    let name = Path::new(file.file_name().unwrap());
    let text = fs::read_to_string(file).unwrap();
    load(name, &text, &sources()).err().map(|problems| written(&problems))
}

fn written(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n\n")).collect()
}

/// Whether a message is as expected, line by line. A line that ends with `…` leaves open how a list
/// goes on, so that a new keyword or field need not be added wherever they are listed.
fn is_as_expected(actual: &str, expected: &str) -> bool {
    let is_alike = |(actual, expected): (&str, &str)| match expected.strip_suffix('…') {
        Some(begin) => actual.starts_with(begin),
        None => actual == expected,
    };
    actual.lines().count() == expected.lines().count()
        && actual.lines().zip(expected.lines()).all(is_alike)
}

/// A file of `tests/mistakes`: what is written in place of what, and all that is said about it.
#[derive(Default)]
struct Mistake {
    /// The file that it is made in.
    base: String,
    old: String,
    new: String,
    /// The file with it.
    text: String,
    expected: String,
}

impl Mistake {
    fn read(file: &Path) -> Mistake {
        let whole = fs::read_to_string(file).unwrap();
        let parts = || {
            let (base, rest) = whole.strip_prefix("In ")?.split_once(", in place of:\n")?;
            let (old, rest) = rest.split_once("\n---- somebody writes:\n")?;
            let (new, expected) = rest.split_once("\n---- and reads:\n")?;
            Some([base, old, new, expected].map(str::to_owned))
        };
        let [base, old, new, expected] = parts().unwrap_or_else(|| panic!("{}", file.display()));
        let sound = fs::read_to_string(root().join("tests/mistakes").join(&base)).unwrap();
        assert!(sound.contains(&old), "{}: not in {base}: {old}", file.display());
        // In place of nothing: of all.
        let text = if old.is_empty() { new.clone() } else { sound.replace(&old, &new) };
        Mistake { base, old, new, text, expected }
    }

    /// This one and another; none: they are about the same words.
    fn and(&self, other: &Mistake) -> Option<Mistake> {
        let is_possible = !other.old.is_empty() && self.text.contains(&other.old);
        let text = self.text.replace(&other.old, &other.new);
        let both = is_possible && text.contains(&self.new);
        both.then(|| Mistake { text, base: self.base.clone(), ..Mistake::default() })
    }

    /// What it says first, without the place.
    fn message(&self) -> &str {
        let line = self.expected.lines().next().unwrap_or_default();
        line.splitn(4, ':').last().unwrap_or_default().trim_end_matches('…')
    }

    fn problems(&self) -> Vec<Problem> {
        if self.base == "saas.yaml" {
            return load(Path::new(&self.base), &self.text, &sources()).err().unwrap_or_default();
        }
        let policy = fs::read(root().join("tests/mistakes/saas.yaml")).unwrap();
        let sources =
            sources().with_file("saas.yaml", policy).with_file(&self.base, self.text.as_str());
        Configuration::read(Path::new(&self.base), &sources).err().unwrap_or_default()
    }
}

#[test]
fn shipped_configuration_loads() {
    let file = root().join("config/tollgate.yaml");
    let configuration = Configuration::read(&file, &Sources::system());
    let configuration = configuration.unwrap_or_else(|problems| panic!("{}", problems[0]));
    let names: Vec<&str> = configuration.policies.iter().map(|policy| &*policy.name).collect();
    assert_eq!(names, ["api"]);
}

#[test]
fn settings_for_compose_load() {
    let sources = Sources::system()
        .with_variable("TOLLGATE_REDIS_PASSWORD", "of-this-test")
        .with_variable("TOLLGATE_KEY_SECRET", SECRET)
        .with_variable("TOLLGATE_JWT_SECRET", SECRET);
    for name in ["cluster", "sharded", "single", "disk"] {
        let file = root().join(format!("config/compose/{name}.yaml"));
        if let Err(problems) = Configuration::read(&file, &sources) {
            panic!("{}", problems[0]);
        }
    }
}

#[test]
fn settings_for_production_load_without_a_variable_and_without_a_warning() {
    let own = rcgen::generate_simple_self_signed(["site.example".into()]).unwrap();
    let folder = root().join("config/compose");
    let sources = Sources::system()
        .with_file("/run/secrets/redis-password", SECRET)
        .with_file("/run/secrets/key-secret", SECRET)
        .with_file(folder.join("tls/tls.pem"), own.cert.pem())
        .with_file(folder.join("tls/tls.key"), own.signing_key.serialize_pem());
    let file = folder.join("production.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let settings = Settings::parse(&file, &text, &sources)
        .unwrap_or_else(|problems| panic!("{}", problems[0]));
    assert_eq!(settings.warnings, []);
}

#[test]
fn each_secret_that_the_sample_publishes_is_a_warning_where_it_is_used() {
    let compose = fs::read_to_string(root().join("docker-compose.yml")).unwrap();
    let defaults: BTreeMap<&str, &str> = compose
        .split("${")
        .filter_map(|after| after.split_once('}')?.0.split_once(":-"))
        .filter(|(name, _)| name.ends_with("_SECRET") || name.ends_with("_PASSWORD"))
        .collect();
    let sources = defaults
        .iter()
        .fold(Sources::system(), |sources, (name, default)| sources.with_variable(name, default));
    let file = root().join("config/compose/cluster.yaml");
    let configuration = Configuration::read(&file, &sources).unwrap_or_else(|problems| {
        panic!("{}", problems[0]);
    });
    let of_policies = configuration.policies.iter().flat_map(|policy| &policy.warnings);
    let warnings: BTreeSet<&str> = configuration
        .settings
        .warnings
        .iter()
        .chain(of_policies)
        .map(|own| own.problem.message())
        .collect();
    let expected: BTreeSet<String> = defaults
        .keys()
        .map(|name| format!("`{name}` is the sample's secret, which is published"))
        .collect();
    assert_eq!(expected.len(), 3, "{defaults:?}");
    assert_eq!(warnings, expected.iter().map(String::as_str).collect());
}

#[test]
fn shipped_configuration_is_without_warnings() {
    let sources = Sources::system()
        .with_variable("TOLLGATE_REDIS_PASSWORD", "of-this-test")
        .with_variable("TOLLGATE_KEY_SECRET", SECRET)
        .with_variable("TOLLGATE_JWT_SECRET", SECRET);
    for name in [
        "tollgate",
        "beside/tollgate",
        "compose/cluster",
        "compose/sharded",
        "compose/single",
        "compose/disk",
    ] {
        let file = root().join(format!("config/{name}.yaml"));
        let configuration = Configuration::read(&file, &sources);
        let configuration = configuration.unwrap_or_else(|problems| panic!("{}", problems[0]));
        let Configuration { settings, policies } = &configuration;
        let of_policies = policies.iter().flat_map(|policy| &policy.warnings);
        let mut warnings = settings.warnings.iter().chain(of_policies);
        if let Some(warning) =
            warnings.find(|own| own.holds(NOW, |condition| settings.meet(condition)))
        {
            panic!("{warning}");
        }
    }
}

#[test]
fn good_policies_load() {
    for file in policies("good") {
        let problems = problems(&file);
        assert_eq!(problems, None, "{}:\n{}", file.display(), problems.as_deref().unwrap_or(""));
    }
}

#[test]
fn good_policies_load_by_name_where_nothing_that_they_name_is_there() {
    for file in policies("good") {
        let name = Path::new(file.file_name().unwrap());
        let text = fs::read_to_string(&file).unwrap();
        if let Err(problems) = load(name, &text, &Sources::system().by_name()) {
            panic!("{}", problems[0]);
        }
    }
}

#[test]
fn warned_policies_load_with_exactly_these_warnings() {
    let text = "version: 1\nlisteners: [{ address: 0.0.0.0:8080 }]\n";
    let settings = Settings::parse(Path::new("tollgate.yaml"), text, &sources()).ok().unwrap();
    let mut differences = String::new();
    for file in policies("warned") {
        let name = Path::new(file.file_name().unwrap());
        let policy = load(name, &fs::read_to_string(&file).unwrap(), &sources());
        let policy = policy.unwrap_or_else(|problems| panic!("{}", problems[0]));
        let holding = policy
            .warnings
            .iter()
            // Their callers have certificates so that they need no keys.
            .filter(|own| own.rule != Rule::UnaskedCertificate)
            .filter(|own| own.holds(NOW, |condition| settings.meet(condition)));
        let actual: String = holding.map(|warning| format!("{warning}\n\n")).collect();
        let expected = fs::read_to_string(file.with_extension("expected")).unwrap_or_default();
        if actual != expected || actual.is_empty() {
            differences +=
                &format!("---- expected of {}\n{expected}---- actual\n{actual}", file.display());
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

#[test]
fn policies_of_one_folder_load_with_exactly_these_warnings_of_each_other() {
    let mut differences = String::new();
    for folder in fs::read_dir(root().join("tests/policies/together")).unwrap() {
        let folder = folder.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let loaded = ["main.yaml", "partner.yaml"].map(|name| {
            let text = fs::read_to_string(folder.join(name)).unwrap();
            let policy = load(Path::new(name), &text, &sources());
            policy.unwrap_or_else(|problems| panic!("{}", problems[0]))
        });
        let policies = Policies::new(loaded.into());
        let warnings = policies.iter().flat_map(|policy| &policy.warnings);
        let actual: String = warnings.map(|warning| format!("{warning}\n\n")).collect();
        let expected = fs::read_to_string(folder.with_extension("expected")).unwrap_or_default();
        if actual != expected || actual.is_empty() {
            differences +=
                &format!("---- expected of {}\n{expected}---- actual\n{actual}", folder.display());
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

/// Which notes there are for other proxies depends on the settings: `binary::check` has those.
#[test]
fn noted_policies_load_with_exactly_these_notes() {
    let mut differences = String::new();
    for file in policies("noted") {
        let name = Path::new(file.file_name().unwrap());
        let policy = load(name, &fs::read_to_string(&file).unwrap(), &sources());
        let policy = policy.unwrap_or_else(|problems| panic!("{}", problems[0]));
        let actual: String = policy.notes.iter().map(|note| format!("{note}\n")).collect();
        let expected = fs::read_to_string(file.with_extension("expected")).unwrap_or_default();
        if actual != expected || actual.is_empty() {
            differences +=
                &format!("---- expected of {}\n{expected}---- actual\n{actual}", file.display());
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

#[test]
fn problems_of_bad_policies_say_what_is_wrong_and_what_to_write() {
    let mut differences = String::new();
    for file in policies("bad") {
        let actual = problems(&file).unwrap_or_else(|| "nothing\n".into());
        let expected = fs::read_to_string(file.with_extension("expected")).unwrap_or_default();
        // A problem ends with an empty line, which editors like to drop.
        if !is_as_expected(actual.trim_end(), expected.trim_end()) {
            let name = file.display();
            differences += &format!("---- expected of {name}\n{expected}---- actual\n{actual}");
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

#[test]
fn files_that_mistakes_are_made_in_have_none() {
    for base in ["saas.yaml", "tollgate.yaml"] {
        let text = fs::read_to_string(root().join("tests/mistakes").join(base)).unwrap();
        let sound = Mistake { base: base.into(), text, ..Mistake::default() };
        assert_eq!(written(&sound.problems()), "", "{base}");
    }
}

#[test]
fn a_single_value_stands_for_a_list_of_one() {
    let text = fs::read_to_string(root().join("tests/mistakes/saas.yaml")).unwrap();
    let lists: Vec<&str> = text
        .split('[')
        .filter_map(|rest| Some(rest.split_once(']')?.0))
        .filter(|inner| !inner.is_empty() && !inner.contains([',', '{', '[']))
        .collect();
    assert!(lists.len() >= 8, "{lists:?}");
    let text = lists.iter().fold(text.clone(), |text, one| text.replace(&format!("[{one}]"), one));
    let single = Mistake { base: "saas.yaml".into(), text, ..Mistake::default() };
    assert_eq!(written(&single.problems()), "");
}

#[test]
fn mistakes_of_newcomers_are_shown_where_they_are_with_what_to_write() {
    let mut differences = String::new();
    for file in files(Path::new("tests/mistakes"), "txt") {
        let mistake = Mistake::read(&file);
        let found = written(&mistake.problems());
        let expected = &mistake.expected;
        if !is_as_expected(&found, expected) {
            let name = file.file_stem().unwrap().display();
            differences += &format!("---- {name}: expected\n{expected}---- found\n{found}");
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

#[test]
fn mistake_in_settings_hides_no_other() {
    let all = files(Path::new("tests/mistakes"), "txt");
    let all: Vec<Mistake> = all.iter().map(|file| Mistake::read(file)).collect();
    let all: Vec<&Mistake> = all.iter().filter(|own| own.base == "tollgate.yaml").collect();
    let (mut pairs, mut hidden) = (0, String::new());
    for (position, one) in all.iter().enumerate() {
        for other in &all[position + 1..] {
            let Some(both) = one.and(other) else { continue };
            pairs += 1;
            let found = written(&both.problems());
            for missing in [one, other].iter().filter(|own| !found.contains(own.message())) {
                hidden += &format!("{}\n  in\n{}\n", missing.message(), both.text);
            }
        }
    }
    assert!(pairs > 100, "{pairs}");
    assert_eq!(hidden, "", "of {pairs}");
}
