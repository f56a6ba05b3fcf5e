//! Enums each of whose variants has a keyword in files, in messages and in reports.
//!
//! [`Keyword`] and the macro that implements it, [`keywords!`], are all there is. They stand below
//! the crates that define such enums and the one that reads files, so that an algorithm or a path
//! rule says its own words, and knows no YAML.

/// An enum each of whose variants has a keyword in files. Implement it with [`keywords!`].
pub trait Keyword: Copy + 'static {
    /// All keywords with their variants, in the order in which messages and editors list them.
    const KEYWORDS: &'static [(&'static str, Self)];

    /// The keyword of this variant.
    fn keyword(self) -> &'static str;

    /// The variant with this keyword.
    fn from_keyword(text: &str) -> Option<Self> {
        Self::KEYWORDS.iter().find(|(keyword, _)| *keyword == text).map(|(_, variant)| *variant)
    }
}

/// Implements [`Keyword`]. A variant without a keyword does not compile.
#[macro_export]
macro_rules! keywords {
    ($type:ty { $($variant:ident = $keyword:literal),+ $(,)? }) => {
        impl $crate::Keyword for $type {
            const KEYWORDS: &'static [(&'static str, Self)] =
                &[$(($keyword, Self::$variant)),+];

            fn keyword(self) -> &'static str {
                match self {
                    $(Self::$variant => $keyword),+
                }
            }
        }
    };
}
