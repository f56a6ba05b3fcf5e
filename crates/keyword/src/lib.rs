//! Enums each of whose variants has a keyword in files, in messages and in reports.
//!
//! [`Keyword`] and the macro that implements it, [`keywords!`], are all there is. They stand below
//! the crates that define such enums and the one that reads files, so that an algorithm or a path
//! rule says its own words, and knows no YAML.

/// An enum each of whose variants has a keyword. Implement it with [`keywords!`].
pub trait Keyword: Copy + 'static {
    /// All keywords with their variants, in the order in which messages and editors list them.
    const KEYWORDS: &'static [(&'static str, Self)];

    /// The keyword of this variant.
    fn keyword(self) -> &'static str;

    /// All variants, in the order of their keywords.
    fn all() -> impl Iterator<Item = Self> {
        Self::KEYWORDS.iter().map(|(_, variant)| *variant)
    }

    /// The variant with this keyword.
    fn from_keyword(text: &str) -> Option<Self> {
        Self::KEYWORDS.iter().find(|(keyword, _)| *keyword == text).map(|(_, variant)| *variant)
    }
}

/// Implements [`Keyword`]. A variant without a keyword does not compile.
///
/// An enum of many variants is defined in the macro, so that each is named once:
/// `keywords! { pub enum Door { Open = "open", Closed = "closed" } }`.
#[macro_export]
macro_rules! keywords {
    (
        $(#[$of_enum:meta])*
        $visibility:vis enum $enum:ident {
            $($(#[$of_variant:meta])* $variant:ident = $keyword:literal),+ $(,)?
        }
    ) => {
        $(#[$of_enum])*
        $visibility enum $enum {
            $($(#[$of_variant])* $variant),+
        }

        $crate::keywords! { $enum { $($variant = $keyword),+ } }
    };
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
