//! Enums whose variants have names for people.

/// Makes an enum of variants and their names, so that none of its lists can miss one.
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $enum:ident { $($(#[$of_variant:meta])* $variant:ident = $name:literal,)* }
    ) => {
        $(#[$meta])*
        pub enum $enum {
            $($(#[$of_variant])* $variant,)*
        }

        impl $enum {
            /// All of them.
            pub const ALL: [$enum; [$($name),*].len()] = [$($enum::$variant),*];

            /// Its name in metrics, in logs and on the status page.
            pub const fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)*
                }
            }

            /// Its item of a list that has one for each, in the order of [`ALL`](Self::ALL).
            #[expect(non_snake_case, reason = "an item has the name of its variant")]
            pub const fn of<T>(self, list: &[T; Self::ALL.len()]) -> &T {
                let [$($variant),*] = list;
                match self {
                    $($enum::$variant => $variant,)*
                }
            }
        }
    };
}
pub(crate) use named;
