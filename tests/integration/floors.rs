//! The rooms of `src` stand on floors: what a room needs stands below it, never above.
//!
//! A circle of rooms cannot be read, moved or tested apart from the rest. So this test reads what
//! each file of `src` names of other rooms, and holds it against [`FLOORS`]. A change that needs
//! another arrow adds it here, with a thought: does what both rooms need belong to a room below
//! both, or may the caller pass it in?

/// What the files of `src` name of each other.
mod imports;
/// Whether each file is compiled.
mod modules;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use self::imports::{File, Import, files};

/// A room: a module directly below the crate's root, with its files.
struct Room {
    name: &'static str,
    /// The rooms that it may import: all of them stand above it in the list, which is a floor
    /// below.
    below: &'static [&'static str],
    /// What it holds, for the reader of a failure.
    holds: &'static str,
}

/// The rooms from the lowest floor up.
#[rustfmt::skip]
const FLOORS: &[Room] = &[
    Room { name: "clock", below: &[],
           holds: "the time, and the only place that asks the system for it" },
    Room { name: "pipe", below: &[],
           holds: "output that never blocks a request" },
    Room { name: "outbound", below: &[],
           holds: "HTTP to servers beside the path of requests: issuers, the collector of traces" },
    Room { name: "printable", below: &[],
           holds: "text as people may see it: it drives no terminal" },
    Room { name: "yaml", below: &["printable"],
           holds: "text to typed values, every problem with its place, and the files it is read from" },
    Room { name: "wire", below: &[],
           holds: "the grammar of what clients send; bytes in, facts or violations out" },
    Room { name: "resp", below: &[],
           holds: "the Redis protocol: commands in, replies out" },
    Room { name: "envoy", below: &[],
           holds: "the messages that Envoy asks with, and the frames of gRPC" },
    Room { name: "deadline", below: &[],
           holds: "one timer a worker; it is made from durations, not from settings" },
    Room { name: "panics", below: &["pipe"],
           holds: "the panic hook, and what it logs" },
    Room { name: "warning", below: &["clock", "yaml"],
           holds: "the kinds of warnings; who has the settings decides whether one holds" },
    Room { name: "sketch", below: &["clock"],
           holds: "which callers use a limit most, in bounded memory, with error bounds" },
    Room { name: "history", below: &["clock", "printable"],
           holds: "access logs of the past, read and merged; it knows no policies" },
    Room { name: "metrics", below: &["sketch"],
           holds: "what each worker counts of requests, by words of the policy" },
    Room { name: "trace", below: &["clock", "metrics", "outbound"],
           holds: "spans of requests, and how they are exported; it knows no routes, servers or counters" },
    Room { name: "limit", below: &["clock"],
           holds: "the algorithms: pure functions of a state, a cost and an instant" },
    Room { name: "access_log", below: &["clock", "metrics", "pipe"],
           holds: "a line a request" },
    Room { name: "events", below: &["access_log", "clock", "panics", "pipe"],
           holds: "the log of events" },
    Room { name: "identity", below: &["clock", "limit", "outbound", "yaml"],
           holds: "who is calling; it knows tokens and addresses, not routes" },
    Room { name: "policy", below: &["clock", "identity", "limit", "warning", "wire", "yaml"],
           holds: "a policy file, compiled; it describes, and holds no state of servers or counters" },
    Room { name: "settings", below: &["access_log", "clock", "deadline", "identity", "policy", "trace", "warning", "wire", "yaml"],
           holds: "what needs a restart to change" },
    Room { name: "store", below: &["clock", "limit", "metrics", "settings", "trace"],
           holds: "the counters; it knows charges, not routes or requests" },
    Room { name: "downstream", below: &["clock", "identity", "settings", "wire"],
           holds: "what is known of a client's connection" },
    Room { name: "upstream", below: &["deadline", "downstream", "identity", "metrics", "policy", "trace"],
           holds: "the servers that requests are forwarded to, and their state" },
    Room { name: "response", below: &["access_log", "clock", "downstream", "identity", "limit", "metrics", "policy", "store", "trace", "upstream", "wire"],
           holds: "the only place that knows status codes and limit headers" },
    Room { name: "gate", below: &["access_log", "clock", "downstream", "envoy", "identity", "limit", "metrics", "panics", "policy", "response", "settings", "sketch", "store", "trace", "upstream", "wire"],
           holds: "the life of a request, and the calls of programs that charge limits by name" },
    Room { name: "preview", below: &["clock", "downstream", "gate", "identity", "limit", "policy", "response", "settings", "store", "upstream", "wire", "yaml"],
           holds: "what would happen: diff, explain and the tests of policies, without charging" },
    Room { name: "simulate", below: &["clock", "gate", "history", "identity", "limit", "policy", "preview", "printable", "response", "settings", "store", "wire", "yaml"],
           holds: "what limits would have done to requests of the past" },
    Room { name: "callers", below: &["clock", "gate", "identity", "limit", "policy", "preview", "settings", "sketch", "store"],
           holds: "the counters of one caller by its name: how they stand, and resetting them; the callers that use most" },
    Room { name: "server", below: &["access_log", "deadline", "downstream", "gate", "identity", "panics", "response", "settings", "upstream", "wire"],
           holds: "listeners, workers and connections" },
    Room { name: "decisions", below: &["access_log", "clock", "deadline", "downstream", "gate", "identity", "limit", "metrics", "resp", "server", "settings", "upstream"],
           holds: "listeners at which other programs ask, and the commands of each" },
    Room { name: "reload", below: &["clock", "gate", "policy", "preview", "settings", "warning", "yaml"],
           holds: "another configuration put in force under traffic" },
    Room { name: "admin", below: &["access_log", "callers", "clock", "downstream", "events", "gate", "identity", "metrics", "policy", "preview", "reload", "server", "settings", "sketch", "store", "trace", "upstream", "wire", "yaml"],
           holds: "metrics, health and inspection" },
    Room { name: "cli", below: &["access_log", "admin", "callers", "clock", "decisions", "events", "gate", "history", "identity", "pipe", "policy", "preview", "reload", "server", "settings", "simulate", "store", "warning", "yaml"],
           holds: "the commands, a file each" },
];

/// The files of `src`, read once for all tests.
static FILES: LazyLock<Vec<File>> = LazyLock::new(files);

#[test]
fn rooms_import_only_rooms_below_them() {
    let mut faults = Vec::new();
    for file in FILES.iter() {
        let Some(room) = FLOORS.iter().find(|room| room.name == file.room()) else {
            faults.push(format!(
                "{} is in the room `{}`, which is not in FLOORS of tests/integration/floors.rs: give \
                 it a floor, and say what it holds",
                file.shown,
                file.room()
            ));
            continue;
        };
        faults.extend(file.imports.iter().filter_map(|import| fault(room, file, import)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// What is wrong with an import of a room's file, if anything is.
fn fault(room: &Room, file: &File, import: &Import) -> Option<String> {
    let other = import.path.first()?;
    if other == room.name || room.below.contains(&other.as_str()) {
        return None;
    }
    let holds = FLOORS.iter().find(|room| room.name == other).map_or("", |room| room.holds);
    Some(format!(
        "{}:{}: `{}` may not import `{}` ({}).\n`{other}` holds {holds}; `{}` holds {}.\nMove what both \
         need to a room below both, or have the caller pass it in. If the arrow is right, add it to \
         FLOORS in tests/integration/floors.rs.",
        file.shown,
        import.line,
        room.name,
        other,
        import.path.join("::"),
        room.name,
        room.holds,
    ))
}

#[test]
fn floors_have_no_circle_and_no_unused_arrow() {
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in FILES.iter() {
        let others = file.imports.iter().filter_map(|import| import.path.first().cloned());
        used.entry(file.room().to_owned()).or_default().extend(others);
    }
    for (floor, room) in FLOORS.iter().enumerate() {
        assert!(used.contains_key(room.name), "there is no room `{}` in src", room.name);
        for below in room.below {
            let stands = FLOORS.iter().position(|other| other.name == *below);
            assert!(
                stands.is_some_and(|stands| stands < floor),
                "FLOORS lets `{}` import `{below}`, which does not stand below it",
                room.name
            );
            assert!(
                used[room.name].contains(*below),
                "FLOORS lets `{}` import `{below}`, which it does not: remove the arrow",
                room.name
            );
        }
    }
}

/// Two files that need each other are one idea in two places. A file and those in the folder of its
/// name are a type and its helpers, and may.
#[test]
fn files_of_a_room_form_no_circle() {
    let arrows: BTreeMap<&str, BTreeSet<&str>> = FILES
        .iter()
        .map(|file| {
            let needed = FILES.iter().filter(|other| {
                file.room() == other.room()
                    && !file.is_kin_of(other)
                    && file.imports.iter().any(|import| import.file == other.shown)
            });
            (file.shown.as_str(), needed.map(|other| other.shown.as_str()).collect())
        })
        .collect();
    let circles: Vec<String> = arrows
        .keys()
        .filter_map(|start| shortest_circle(&arrows, start))
        .filter(|circle| circle.iter().min() == circle.first())
        .map(|circle| circle.join(" -> "))
        .collect();
    assert!(
        circles.is_empty(),
        "these files need each other; move what they share to a file of its own:\n{}",
        circles.join("\n")
    );
}

/// The shortest way from a file back to itself.
fn shortest_circle<'f>(
    arrows: &BTreeMap<&'f str, BTreeSet<&'f str>>,
    start: &'f str,
) -> Option<Vec<&'f str>> {
    let mut paths = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while !paths.is_empty() {
        let mut longer = Vec::new();
        for path in paths {
            for next in &arrows[path[path.len() - 1]] {
                if *next == start {
                    return Some(path);
                }
                if seen.insert(*next) {
                    longer.push([&path[..], &[*next]].concat());
                }
            }
        }
        paths = longer;
    }
    None
}
