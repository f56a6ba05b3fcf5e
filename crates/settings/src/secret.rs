//! Secrets: settings name a variable or a file that holds one, and it is shown nowhere.

use std::fmt;

use tollgate_policy::published_secret;
use tollgate_yaml::{Check, Spanned, warning::Rule};

use super::Checker;

/// Largest file with a secret that is read.
const MAX_SECRET_FILE_BYTES: u64 = 64 * 1024;

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(Box<str>);

impl Secret {
    /// Hides `text` from here on.
    pub fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    /// The text itself. Never show it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl Checker<'_> {
    /// The secret in the variable or the file that was named, if one of them was.
    pub(super) fn secret(
        &mut self,
        variable: Option<&Spanned<String>>,
        file: Option<&Spanned<String>>,
    ) -> Option<Secret> {
        match (variable, file) {
            (None, None) => None,
            (Some(variable), None) => self.secret_in_variable(variable),
            (None, Some(file)) => self.secret_in_file(file),
            (Some(variable), Some(file)) => {
                let second = if variable.span.start > file.span.start { variable } else { file };
                self.refuse(second, "a secret from two sources", "keep the variable or the file");
                None
            }
        }
    }

    fn secret_in_variable(&mut self, name: &Spanned<String>) -> Option<Secret> {
        let secret = self.variable(name, "set it to the secret")?;
        self.warn_if_published(name, secret.as_bytes());
        Some(Secret::new(&secret))
    }

    fn secret_in_file(&mut self, path: &Spanned<String>) -> Option<Secret> {
        let content = self.secret_file(path, MAX_SECRET_FILE_BYTES)?;
        // Editors end files with a line break that is no part of the secret.
        let secret = std::str::from_utf8(content.trim_ascii_end()).ok();
        if secret.is_none_or(str::is_empty) {
            let message = format!("`{}` contains no secret", path.value);
            self.refuse(path, message, "write the secret into it, as text");
            return None;
        }
        self.warn_if_published(path, content.trim_ascii_end());
        secret.map(Secret::new)
    }

    /// A publicly known secret is no reason to refuse to start: the sample is meant to be tried.
    fn warn_if_published(&mut self, named: &Spanned<String>, secret: &[u8]) {
        if let Some((message, help)) = published_secret(&named.value, secret) {
            self.warn(Rule::PublishedSecret, named, message, help);
        }
    }

    /// Content of a file that no other user should read. If others can, that is only a warning.
    pub(super) fn secret_file(
        &mut self,
        path: &Spanned<String>,
        max_bytes: u64,
    ) -> Option<Vec<u8>> {
        let content = self.file(path, max_bytes)?;
        self.warn_if_open_to_all(path);
        Some(content)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt, path::Path};

    use tollgate_yaml::Sources;

    use crate::{
        Settings,
        tests::{rendered, settings, store},
    };

    /// Each secret of the settings, as it is begun to be written.
    const SECRETS: [&str; 3] = [
        "key_secret",
        "redis: { url: redis://h, password",
        "redis: { url: redis://h, password_env: SET, username",
    ];

    #[test]
    fn every_secret_may_be_in_a_variable_or_a_file_and_a_missing_one_is_reported_at_its_place() {
        let sources = Sources::system()
            .with_variable("SET", "sixteen bytes it is")
            .with_file("config/set", "sixteen bytes it is\n")
            .with_file("config/empty", "\n");
        for secret in SECRETS {
            let close = if secret.contains('{') { " }" } else { "" };
            for (good, bad, message) in [
                ("_env: SET", "_env: TOLLGATE_UNSET", "`TOLLGATE_UNSET` is not set"),
                ("_file: set", "_file: gone", "cannot read `gone`"),
                ("_file: set", "_file: empty", "`empty` contains no secret"),
            ] {
                let good = format!("{secret}{good}{close}");
                assert_eq!(store(&good, &sources).err(), None, "{good}");
                let bad = format!("{secret}{bad}{close}");
                let problems = store(&bad, &sources).unwrap_err();
                let column = 3 + bad.rfind(": ").unwrap() + 2;
                assert_eq!((problems.len(), problems[0].column()), (1, column), "{problems:?}");
                assert!(problems[0].message().contains(message), "{bad}: {}", problems[0]);
            }
        }
    }

    #[test]
    fn secret_file_that_everybody_can_read_is_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "sixteen bytes it is").unwrap();
        let file = folder.path().join("tollgate.yaml");
        let text = settings("key_secret_file: secret");
        let warnings = |mode| {
            std::fs::set_permissions(&secret, Permissions::from_mode(mode)).unwrap();
            let settings = Settings::parse(&file, &text, &Sources::system()).unwrap();
            rendered(settings.warnings.iter().map(|warning| &warning.problem))
        };
        assert_eq!(warnings(0o600), [""; 0]);
        assert_eq!(warnings(0o640), [""; 0]);
        assert_eq!(
            warnings(0o644),
            ["4:20 everybody on this machine can read `secret`: it contains a secret: run \
                 `chmod o-r` on it"]
        );
    }

    #[test]
    fn secret_that_is_published_is_a_warning_wherever_it_is() {
        let own = "sixteen bytes it is";
        let text = |field: &str| settings(&format!("key_secret{field}"));
        for (field, secret, warnings) in [
            ("_env: SET", own, 0),
            ("_env: SET", "published-key-secret", 1),
            ("_file: set", own, 0),
            ("_file: set", "published-key-secret\n", 1),
        ] {
            let sources =
                Sources::system().with_variable("SET", secret).with_file("config/set", secret);
            let file = Path::new("config/tollgate.yaml");
            let settings = Settings::parse(file, &text(field), &sources).unwrap();
            assert_eq!(settings.warnings.len(), warnings, "{field} {:?}", settings.warnings);
        }
    }

    #[test]
    fn what_is_set_in_the_environment_is_used_and_never_shown() {
        let text = "version: 1
listeners: [{ address: \"${HOST}:${PORT}\" }]
workers: ${WORKERS}
drain: ${DRAIN:-5s}
store: { redis: { url: \"redis://:${PASSWORD}@${HOST}\", prefix: \"${PREFIX}\" }, key_secret_file: \"${KEY}\" }
";
        let sources = [
            ("HOST", "127.0.0.9"),
            ("PORT", "8099"),
            ("WORKERS", "3"),
            ("PASSWORD", "hunter2"),
            ("PREFIX", "prefixed"),
            ("KEY", "keyfile"),
        ]
        .into_iter()
        .fold(
            Sources::system().with_file("config/keyfile", "sixteen bytes it is"),
            |s, (name, value)| s.with_variable(name, value),
        );
        let file = Path::new("config/tollgate.yaml");
        let settings = Settings::parse(file, text, &sources).unwrap();
        assert_eq!(settings.listeners[0].address.to_string(), "127.0.0.9:8099");
        assert_eq!((settings.workers, settings.drain.as_secs()), (3, 5));
        let shown = format!("{settings:#?} {:#?}", settings.store);
        let values = ["127.0.0.9", "8099", "hunter2", "prefixed", "keyfile"];
        assert!(values.iter().all(|value| !shown.contains(value)), "{shown}");

        // The same with mistakes: each message that quotes a value.
        let sources = sources
            .with_variable("HOST", "nowhere")
            .with_variable("WORKERS", "99999")
            .with_variable("DRAIN", "tomorrow")
            .with_variable("PREFIX", "{prefixed}")
            .with_variable("KEY", "no/such/keyfile");
        let problems = Settings::parse(file, text, &sources).unwrap_err();
        assert_eq!(
            rendered(&problems),
            [
                "2:24 `${HOST}:${PORT}` is not an address to listen on: write an IP address and a \
                 port: 127.0.0.1:8080, [::]:8080",
                "3:10 expected a whole number from 0 to 65535, found `${WORKERS}`: write a number from 1 to 256",
                "4:8 `${DRAIN:-5s}` is not a time: write a number and a unit, 0s to 1h",
                "5:64 not a prefix: write 1 to 64 of A-Z a-z 0-9 _ . : -",
                "5:96 cannot read `${KEY}`: No such file or directory (os error 2): write a path \
                 from this file's folder",
            ]
        );
    }
}
