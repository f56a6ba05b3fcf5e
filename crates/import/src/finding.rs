//! What became of a part of the configuration: a row of the table that an import prints.

use std::fmt;

use tollgate_printable::printable;

/// What became of it. In the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It is not in the policy, or does nothing where it stands.
    LeftOut,
    /// The policy has something that differs, which the row says in words and numbers.
    Nearly,
    /// The policy does the same.
    Same,
}

/// A part of the configuration, and what the policy has of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What became of it.
    pub verdict: Verdict,
    /// Where it is: `site.conf:12:5`.
    pub place: String,
    /// What is written there, without secrets.
    pub there: String,
    /// What the policy has instead, and how it differs.
    pub here: String,
}

impl Verdict {
    /// The same, or nearly.
    pub(crate) fn same_if(is_same: bool) -> Self {
        if is_same { Verdict::Same } else { Verdict::Nearly }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::LeftOut => "left out",
            Verdict::Nearly => "nearly the same",
            Verdict::Same => "the same",
        })
    }
}

impl Finding {
    /// Something that is the same here.
    pub(crate) fn same(
        place: impl Into<String>,
        there: impl Into<String>,
        here: impl Into<String>,
    ) -> Self {
        // A row is one line, whatever names there are in the files.
        let line = |text: String| printable(&text).into_owned();
        let (place, there, here) = (line(place.into()), line(there.into()), line(here.into()));
        Finding { verdict: Verdict::Same, place, there, here }
    }

    /// Something that differs here; `here` says what the policy has, and the difference.
    pub(crate) fn nearly(
        place: impl Into<String>,
        there: impl Into<String>,
        here: impl Into<String>,
    ) -> Self {
        Finding { verdict: Verdict::Nearly, ..Finding::same(place, there, here) }
    }

    /// Something that is the same, but for what the notes say.
    pub(crate) fn but_for(
        notes: &[String],
        place: impl Into<String>,
        there: impl Into<String>,
        here: impl Into<String>,
    ) -> Self {
        let verdict = Verdict::same_if(notes.is_empty());
        let here = notes.iter().fold(here.into(), |here, note| format!("{here}; {note}"));
        Finding { verdict, ..Finding::same(place, there, here) }
    }

    /// Something that the policy does not have; `here` says why, and what it means.
    pub(crate) fn left_out(
        place: impl Into<String>,
        there: impl Into<String>,
        here: impl Into<String>,
    ) -> Self {
        Finding { verdict: Verdict::LeftOut, ..Finding::same(place, there, here) }
    }
}
