//! The kinds of differences, each with its reason, and what a response must have to be of it.

use super::{
    clients::{End, Outcome},
    naive::{Flaw, Reading},
    responses::Case,
};

/// Why this codec makes something else of a response than hyper's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    BareLineFeed,
    TwoFramings,
    OtherCoding,
    UnreadLength,
    OtherDigits,
    InterimContent,
    Switch,
    UnknownStatus,
    ManyInterims,
    LargeHead,
    ContentAfterNoContent,
    UnreadClose,
    SpaceAfterSize,
    ManyDigits,
    ControlInExtension,
    BareLineFeedInTrailers,
    GreatestLength,
    IncompleteHead,
    FirstBytes,
}

impl Class {
    pub(super) const ALL: &[Class] = &[
        Class::BareLineFeed,
        Class::TwoFramings,
        Class::OtherCoding,
        Class::UnreadLength,
        Class::OtherDigits,
        Class::InterimContent,
        Class::Switch,
        Class::UnknownStatus,
        Class::ManyInterims,
        Class::LargeHead,
        Class::ContentAfterNoContent,
        Class::UnreadClose,
        Class::SpaceAfterSize,
        Class::ManyDigits,
        Class::ControlInExtension,
        Class::BareLineFeedInTrailers,
        Class::GreatestLength,
        Class::IncompleteHead,
        Class::FirstBytes,
    ];

    /// The class of a difference; none if it is in none.
    pub(super) fn of(case: &Case, ours: &Outcome, hypers: &Outcome) -> Option<Class> {
        let reading = Reading::of(&case.bytes);
        let mut classes = Class::ALL.iter().copied();
        classes.find(|class| class.is_shown_by(ours, hypers) && class.is_in(case, &reading))
    }

    /// Whether the outcomes differ as they do in this class.
    fn is_shown_by(self, ours: &Outcome, hypers: &Outcome) -> bool {
        let is_refused = ours.end == End::Fails && ours.head.is_none();
        let is_same_head = ours.head.is_some() && ours.head == hypers.head;
        match self {
            Class::BareLineFeed => is_refused,
            Class::TwoFramings
            | Class::OtherCoding
            | Class::UnreadLength
            | Class::OtherDigits
            | Class::Switch
            | Class::UnknownStatus => is_refused && hypers.head.is_some(),
            // hyper may still wait for the response after it, or not like that.
            Class::InterimContent | Class::ManyInterims | Class::LargeHead => is_refused,
            Class::ContentAfterNoContent | Class::UnreadClose => {
                is_same_head && ours.end == End::Closes && hypers.end == End::Keeps
            }
            Class::SpaceAfterSize
            | Class::ManyDigits
            | Class::ControlInExtension
            | Class::BareLineFeedInTrailers => is_same_head && ours.end == End::Fails,
            Class::GreatestLength => hypers.end == End::Fails && hypers.head.is_none(),
            Class::IncompleteHead => {
                ours.end == End::Waits && ours.head.is_none() && hypers.end == End::Fails
            }
            Class::FirstBytes => is_refused && hypers.end == End::Waits,
        }
    }

    /// Whether the response has what makes the difference.
    fn is_in(self, case: &Case, reading: &Reading) -> bool {
        let head = &reading.head;
        let lengths = head.lengths();
        let coding = head.values("transfer-encoding");
        let is_bodiless = case.is_head || [204, 304].contains(&head.status);
        match self {
            Class::BareLineFeed => reading.has_bare_line_feed,
            Class::TwoFramings => !coding.is_empty() && !lengths.is_empty(),
            Class::OtherCoding => {
                let is_chunked = coding.len() == 1 && coding[0].eq_ignore_ascii_case("chunked");
                !coding.is_empty() && (!is_chunked || is_bodiless && head.is_http10)
            }
            Class::UnreadLength => {
                let number = lengths.first().and_then(|length| length.parse::<u64>().ok());
                let is_sound = number.is_some() && lengths[0].bytes().all(|it| it.is_ascii_digit());
                is_bodiless && !(is_sound && lengths.iter().all(|it| *it == lengths[0]))
            }
            Class::OtherDigits => {
                let numbers: Vec<_> = lengths.iter().map(|it| it.parse::<u64>().ok()).collect();
                numbers.iter().all(|number| number.is_some() && *number == numbers[0])
                    && lengths.iter().any(|length| *length != lengths[0])
            }
            Class::InterimContent => reading.interims.iter().any(|interim| {
                !interim.values("transfer-encoding").is_empty()
                    || interim.lengths().iter().any(|length| length.parse() != Ok(0))
            }),
            Class::Switch => head.status == 101,
            Class::UnknownStatus => head.status > 599,
            Class::ManyInterims => reading.interims.len() > 32,
            Class::LargeHead => head.bytes > 64 * 1024 - 2,
            Class::ContentAfterNoContent => {
                let is_empty = lengths.first().is_none_or(|length| length.parse() == Ok(0));
                head.status == 204 && !(is_empty && coding.is_empty())
            }
            Class::UnreadClose => {
                let values = head.values("connection");
                values.iter().any(|value| !value.is_ascii() && value.contains("close"))
            }
            Class::SpaceAfterSize => reading.flaw() == Some(Flaw::SpaceAfterSize),
            Class::ManyDigits => reading.flaw() == Some(Flaw::ManyDigits),
            Class::ControlInExtension => reading.flaw() == Some(Flaw::ControlInExtension),
            Class::BareLineFeedInTrailers => reading.flaw() == Some(Flaw::BareLineFeedInTrailers),
            Class::GreatestLength => {
                lengths.iter().any(|length| length.parse().is_ok_and(|it: u64| it > u64::MAX - 2))
            }
            Class::IncompleteHead => !reading.is_complete,
            Class::FirstBytes => !reading.is_complete && !case.bytes.starts_with(b"HTTP/1."),
        }
    }

    /// The row of the table in the note.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Class::BareLineFeed => {
                "a bare line feed in a head | takes it for the end of a line, which RFC 9112 section \
                 2.2 lets it | refuses it: another reader may see other fields"
            }
            Class::TwoFramings => {
                "Content-Length beside Transfer-Encoding | reads the chunks (RFC 9112 section 6.3) | \
                 refuses it: who reads the length sees another response"
            }
            Class::OtherCoding => {
                "a transfer coding other than `chunked` once, or in HTTP/1.0 without a body | reads \
                 chunks if they come last, else until the connection closes | refuses it: none was \
                 asked for"
            }
            Class::UnreadLength => {
                "lengths that are no number or differ, to HEAD or in a 204 or 304 | passes them on \
                 unread | refuses them: who gets the head may believe one"
            }
            Class::OtherDigits => {
                "one length in other digits (`5, 05`) | compares numbers | refuses it: some read octal"
            }
            Class::InterimContent => {
                "an interim response (1xx) that declares content | passes over its head | refuses it: \
                 the content would be the next response"
            }
            Class::Switch => {
                "101 that was not asked for | returns it | refuses it: nobody speaks what would follow"
            }
            Class::UnknownStatus => {
                "a status above 599 | returns it | refuses it: no class says what it means"
            }
            Class::ManyInterims => {
                "more than 32 interim responses | passes over them for ever | refuses them: nothing \
                 comes of what is sent"
            }
            Class::LargeHead => {
                "a head above 64 KiB | reads it if its buffer has room, which grows in steps | refuses \
                 it, wherever it is cut"
            }
            Class::ContentAfterNoContent => {
                "204 that declares content | keeps the connection | closes it: the content may still \
                 come, as the next response"
            }
            Class::UnreadClose => {
                "`close` beside bytes that are not ASCII | does not read the field | closes the \
                 connection, as the server does"
            }
            Class::SpaceAfterSize => {
                "white space after a chunk's size, and no extension | skips it | refuses it: the \
                 grammar has none there"
            }
            Class::ManyDigits => {
                "a chunk's size of more than 16 digits | skips zeros without end | refuses it: other \
                 readers overflow"
            }
            Class::ControlInExtension => {
                "a control byte in a chunk's extension | skips it | refuses it: a bare carriage return \
                 ends the line for some"
            }
            Class::BareLineFeedInTrailers => {
                "a bare line feed in trailers | takes it for a part of a line, or for its end | \
                 refuses it, as in a head"
            }
            Class::GreatestLength => {
                "a length of 2⁶⁴ - 2 or - 1 | refuses it: it uses these numbers itself | waits for as \
                 many bytes"
            }
            Class::IncompleteHead => {
                "a malformed head that is not complete | refuses it at once if it comes in one piece | \
                 refuses it when it is complete, too large or late: it is parsed once"
            }
            Class::FirstBytes => {
                "first bytes of no version, in pieces | waits for a whole head | refuses them at once"
            }
        }
    }
}
