//! Names that no other has, of limits, upstreams and hosts.

use std::collections::{BTreeMap, BTreeSet};

/// The length of a name.
const MAX_NAME: usize = 64;
/// What is left of it for a number that makes it another one.
const MAX_NUMBER: usize = 6;

/// Names that are taken.
#[derive(Debug, Default)]
pub(crate) struct Names {
    taken: BTreeSet<String>,
    /// The next number of a name that is there already: files may have thousands of one name.
    next: BTreeMap<String, u64>,
}

impl Names {
    /// A name like `written`, of the letters that names may have, which is taken from now on.
    pub(crate) fn take(&mut self, written: &str) -> String {
        let mut name: String = written
            .chars()
            .map(
                |letter| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' },
            )
            .take(MAX_NAME - MAX_NUMBER)
            .collect();
        while name.contains("--") {
            name = name.replace("--", "-");
        }
        // Names that begin with `_` are those of the proxy itself.
        let name = name.trim_start_matches(['-', '_']).trim_end_matches('-');
        let name = if name.is_empty() { "limit" } else { name };
        if self.taken.insert(name.to_owned()) {
            return name.to_owned();
        }
        let next = self.next.entry(name.to_owned()).or_insert(2);
        loop {
            let numbered = format!("{name}-{next}");
            *next += 1;
            if self.taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_letters_and_differ() {
        let mut names = Names::default();
        for (written, expected) in [
            ("shop/api rps", "shop-api-rps"),
            ("shop--api-rps", "shop-api-rps-2"),
            ("shop-api-rps-3", "shop-api-rps-3"),
            ("shop-api-rps", "shop-api-rps-4"),
            ("*", "limit"),
            ("_", "limit-2"),
            ("-_a", "a"),
        ] {
            assert_eq!(names.take(written), expected);
        }
        assert!(names.take(&"a".repeat(100)).len() <= MAX_NAME);
    }

    #[test]
    fn thousands_of_one_name_are_numbered_at_once() {
        let mut names = Names::default();
        let last = (0..6000).map(|_| names.take("r")).last();
        assert_eq!(last.as_deref(), Some("r-6000"));
    }
}
