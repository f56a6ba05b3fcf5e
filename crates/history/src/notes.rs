//! What a reader of a report has to know of the files: a sentence for each kind, and not for each
//! file, of which there may be many.

use std::mem::discriminant;

/// What has to be known of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note {
    /// The format does not say of which end of a request its times are.
    NoSide,
    /// The times have no offset from UTC.
    NoOffset,
    /// At this line, a clock without an offset went back by an hour.
    WentBack(u64),
    /// Of so many requests the client is written as a name.
    NamedClients(u64),
    /// Of so many requests the client is of a list of forwarded addresses.
    ForwardedClients(u64),
    /// Of so many requests the duration could not be read.
    UnreadDurations(u64),
    /// Requests could not be kept until they were in order.
    Overflowed,
    /// Its lines are in no order of time.
    Sorted,
}

/// What has to be known of one file or of several.
struct Group {
    note: Note,
    /// The name of the first file.
    first: String,
    /// How many files there are besides.
    others: usize,
}

/// The sentences: of the same kind, one that names the first file.
pub(super) fn sentences(notes: impl Iterator<Item = (String, Note)>) -> Vec<String> {
    let mut groups: Vec<Group> = Vec::new();
    for (first, note) in notes {
        match groups.iter_mut().find(|group| discriminant(&group.note) == discriminant(&note)) {
            Some(group) => {
                group.others += 1;
                group.note = group.note.and(note);
            }
            None => groups.push(Group { note, first, others: 0 }),
        }
    }
    groups.iter().map(Group::sentence).collect()
}

impl Note {
    /// This and the same of another file.
    fn and(self, other: Note) -> Note {
        match (self, other) {
            (Note::NamedClients(one), Note::NamedClients(other)) => Note::NamedClients(one + other),
            (Note::ForwardedClients(one), Note::ForwardedClients(other)) => {
                Note::ForwardedClients(one + other)
            }
            (Note::UnreadDurations(one), Note::UnreadDurations(other)) => {
                Note::UnreadDurations(one + other)
            }
            (one, _) => one,
        }
    }
}

impl Group {
    fn sentence(&self) -> String {
        let Group { note, first, others } = self;
        let files = match others {
            0 => first.clone(),
            1 => format!("{first} and 1 other"),
            _ => format!("{first} and {others} others"),
        };
        match note {
            Note::NoSide => format!(
                "{files}: the format does not say whether its times are those of the request (Apache) \
                 or of the end of the response (nginx); they are taken as those of the request."
            ),
            Note::NoOffset => format!(
                "{files}: the times do not say their offset from UTC, and are taken as UTC; where the \
                 clock was changed between two files, the requests of one are an hour off."
            ),
            Note::WentBack(line) => {
                let file = if *others > 0 { format!(" of {first}") } else { String::new() };
                format!(
                    "{files}: the clock went back by an hour at line {line}{file}, as at the end of \
                     daylight saving time; times from there on are taken as an hour later."
                )
            }
            Note::NamedClients(requests) => format!(
                "{files}: of {requests} requests the client is written as a name and not as an \
                 address, so no limit can count them by address."
            ),
            Note::ForwardedClients(requests) => format!(
                "{files}: of {requests} requests the client is the first address of the list that \
                 proxies forward (X-Forwarded-For): a client can write one into it unless the first \
                 proxy replaces what comes."
            ),
            Note::UnreadDurations(requests) => format!(
                "{files}: of {requests} requests the duration is in no form that is read; they count \
                 as if they had taken no time."
            ),
            Note::Sorted => format!(
                "{files}: the lines were newest first, as in exports, or in no order of time, and \
                 were sorted."
            ),
            Note::Overflowed => format!(
                "{files}: there are more requests in ten seconds than are kept to put them in order; \
                 some may be out of order."
            ),
        }
    }
}
