//! Names that no other has, of limits, upstreams and hosts.

/// The length of a name.
const MAX_NAME: usize = 64;
/// What is left of it for a number that makes it another one.
const MAX_NUMBER: usize = 6;

/// Names that are taken.
#[derive(Debug, Default)]
pub(crate) struct Names(Vec<String>);

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
        let name = name.trim_matches('-');
        let name = if name.is_empty() { "limit" } else { name };
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        let name = names.find(|name| !self.0.contains(name)).unwrap_or_default();
        self.0.push(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_letters_and_differ() {
        let mut names = Names::default();
        for (written, expected) in
            [("shop/api rps", "shop-api-rps"), ("shop--api-rps", "shop-api-rps-2"), ("*", "limit")]
        {
            assert_eq!(names.take(written), expected);
        }
        assert!(names.take(&"a".repeat(100)).len() <= MAX_NAME);
    }
}
