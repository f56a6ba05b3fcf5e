//! Crates stand on crates by Cargo's own graph; the rooms inside a crate stand on floors: what a
//! room needs stands below it, never above.
//!
//! A circle of rooms cannot be read, moved or tested apart from the rest. Cargo allows none between
//! crates. Inside a crate this test reads what each file names of other rooms, and holds it against
//! [`FLOORS`]. A change that needs another arrow adds it here, with a thought: does what both rooms
//! need belong to a room below both, or may the caller pass it in?

/// Whether each crate uses what it depends on.
mod dependencies;
/// What the files of the crates name of each other.
mod imports;
/// Whether each file is compiled.
mod modules;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use self::imports::{File, Import, ROOT, files};

/// A room: a module directly below its crate's root, with its files.
struct Room {
    /// The module, or modules if they may need each other. With the name of its crate, it is the
    /// files that no other room has.
    name: &'static str,
    /// The rooms that it may import: those of its crate stand above it in the list, which is a
    /// floor below. The rooms in `src` also list the crates that they may import, and those
    /// rooms of crates that are public.
    below: &'static [&'static str],
    /// What it holds, for the reader of a failure.
    holds: &'static str,
}

/// The crates that hold several rooms, each with its rooms from the lowest floor up. A file of no
/// room, like each `lib.rs`, may import all of its crate, and all may import it.
#[rustfmt::skip]
const FLOORS: &[(&str, &[Room])] = &[
    ("clock", &[
        Room { name: "clock", below: &[],
               holds: "the time, and the only place that asks the system for it" },
        Room { name: "deadline", below: &[],
               holds: "one timer a worker; it is made from durations, not from settings" },
    ]),
    ("wire", &[
        Room { name: "wire", below: &[],
               holds: "the grammar of what clients send; bytes in, facts or violations out" },
        Room { name: "resp", below: &[],
               holds: "the Redis protocol: commands in, replies out" },
        Room { name: "envoy", below: &[],
               holds: "the messages that Envoy asks with, and the frames of gRPC" },
    ]),
    ("observe", &[
        Room { name: "pipe", below: &[],
               holds: "output that never blocks a request" },
        Room { name: "panics", below: &["pipe"],
               holds: "the panic hook, and what it logs" },
        Room { name: "sketch", below: &[],
               holds: "which callers use a limit most, in bounded memory, with error bounds" },
        Room { name: "metrics", below: &["sketch"],
               holds: "what each worker counts of requests, by words of the policy" },
        Room { name: "trace", below: &["metrics"],
               holds: "spans of requests, and how they are exported; it knows no routes, servers or counters" },
        Room { name: "access_log", below: &["metrics", "pipe"],
               holds: "a line a request" },
        Room { name: "events", below: &["access_log", "panics", "pipe"],
               holds: "the log of events" },
    ]),
    ("store", &[
        Room { name: "memory disk", below: &[],
               holds: "counters in the process, and on its disk: what is on disk comes into memory first" },
        Room { name: "redis", below: &[],
               holds: "counters in Redis, its servers, and the lists that proxies keep there" },
        Room { name: "moving", below: &["redis"],
               holds: "callers moved from one store to another" },
        Room { name: "fleet", below: &["moving", "redis"],
               holds: "what proxies that share a Redis know of each other, and have in common" },
        Room { name: "decide", below: &["memory disk", "moving", "redis"],
               holds: "charges decided by one store or several" },
        Room { name: "fallback", below: &["memory disk", "redis"],
               holds: "going on while Redis does not answer" },
    ]),
    ("upstream", &[
        Room { name: "downstream", below: &[],
               holds: "what is known of a client's connection" },
        Room { name: "upstream", below: &["downstream"],
               holds: "the servers that requests are forwarded to, and their state" },
    ]),
    (ROOT, &[
        Room { name: "guard", below: &[],
               holds: "what web pages of other origins may not ask" },
        Room { name: "decisions", below: &["access_log", "clock", "deadline", "downstream", "envoy", "gate", "guard", "identity", "limit", "metrics", "policy", "resp", "response", "settings", "store", "upstream", "wire"],
               holds: "what other programs ask, over HTTP, by gRPC and by commands, and the listeners of commands" },
        Room { name: "callers", below: &["clock", "decisions", "gate", "identity", "keyword", "limit", "policy", "preview", "settings", "sketch", "store"],
               holds: "the counters of one caller by its name: how they stand, and resetting them; the callers that use most" },
        Room { name: "server", below: &["access_log", "deadline", "decisions", "downstream", "gate", "identity", "panics", "response", "settings", "upstream", "wire"],
               holds: "listeners, workers and connections" },
        Room { name: "reload", below: &["clock", "gate", "keyword", "policy", "preview", "settings", "yaml"],
               holds: "another configuration put in force under traffic" },
        Room { name: "admin", below: &["access_log", "callers", "clock", "downstream", "events", "gate", "guard", "identity", "keyword", "metrics", "observe", "policy", "preview", "reload", "server", "settings", "sketch", "store", "trace", "upstream", "wire"],
               holds: "metrics, health and inspection" },
        Room { name: "cli", below: &["access_log", "admin", "callers", "clock", "decisions", "events", "gate", "history", "identity", "import", "keyword", "pipe", "policy", "preview", "reload", "server", "settings", "simulate", "store", "upstream", "yaml"],
               holds: "the commands, a file each" },
    ]),
];

/// The files of all crates, read once for all tests.
static FILES: LazyLock<Vec<File>> = LazyLock::new(files);

/// The rooms of a crate; none: it is one room.
fn floors(package: &str) -> &'static [Room] {
    FLOORS.iter().find(|(name, _)| *name == package).map_or(&[], |(_, rooms)| rooms)
}

/// The room of a module; none: it is of no room.
fn room(module: &[String]) -> Option<&'static Room> {
    let named = |part: &String| {
        let mut rooms = floors(&module[0]).iter();
        rooms.find(|room| room.name.split(' ').any(|name| name == part))
    };
    module.get(1).and_then(named).or_else(|| named(&module[0]))
}

/// The room or the crate of an import, as [`FLOORS`] names it; none: all may import it.
fn imported<'i>(file: &File, import: &'i Import) -> Option<&'i str> {
    let other = FILES.iter().find(|other| other.shown == import.file)?;
    if file.package() != other.package() {
        let name = room(&import.path).map_or(import.path[0].as_str(), |room| room.name);
        return (file.package() == ROOT).then_some(name);
    }
    room(&other.module).filter(|_| !other.is_head()).map(|room| room.name)
}

#[test]
fn rooms_import_only_rooms_below_them() {
    let mut faults = Vec::new();
    for file in FILES.iter().filter(|file| !file.is_head()) {
        match room(&file.module) {
            Some(room) => {
                faults.extend(file.imports.iter().filter_map(|import| fault(room, file, import)));
            }
            None if file.package() == ROOT => faults.push(format!(
                "{} is in the room `{}`, which is not in FLOORS of tests/integration/floors.rs: give \
                 it a floor, and say what it holds",
                file.shown, file.module[1]
            )),
            None => {}
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// What is wrong with an import of a room's file, if anything is.
fn fault(room: &Room, file: &File, import: &Import) -> Option<String> {
    let other = imported(file, import)?;
    if other == room.name || room.below.contains(&other) {
        return None;
    }
    let mut rooms = FLOORS.iter().flat_map(|(_, rooms)| *rooms);
    let holds = rooms.find(|room| room.name == other);
    let holds = holds.map_or(String::new(), |room| format!("`{other}` holds {}; ", room.holds));
    Some(format!(
        "{}:{}: `{}` may not import `{other}` ({}).\n{holds}`{}` holds {}.\nMove what both need to a \
         room below both, or have the caller pass it in. If the arrow is right, add it to FLOORS in \
         tests/integration/floors.rs.",
        file.shown,
        import.line,
        room.name,
        import.path.join("::"),
        room.name,
        room.holds,
    ))
}

#[test]
fn floors_have_no_circle_and_no_unused_arrow() {
    for (package, rooms) in FLOORS {
        let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for file in FILES.iter().filter(|file| file.package() == *package && !file.is_head()) {
            let Some(room) = room(&file.module) else { continue };
            let others = file.imports.iter().filter_map(|import| imported(file, import));
            used.entry(room.name).or_default().extend(others);
        }
        for (floor, room) in rooms.iter().enumerate() {
            let name = room.name;
            // All of the crate may be in `lib.rs` and the other rooms.
            let is_there = used.contains_key(name) || name == *package;
            assert!(is_there, "there is no room `{name}` in the crate `{package}`");
            for below in room.below {
                let stands = rooms.iter().position(|other| other.name == *below);
                assert!(
                    stands.is_none_or(|stands| stands < floor),
                    "FLOORS lets `{name}` import `{below}`, which does not stand below it",
                );
                assert!(
                    used.get(name).is_some_and(|used| used.contains(below)),
                    "FLOORS lets `{name}` import `{below}`, which it does not: remove the arrow",
                );
            }
        }
    }
}

/// Two files that need each other are one idea in two places. A file and those in the folder of its
/// name are a type and its helpers, and may; a crate's `lib.rs` and its files may too.
#[test]
fn files_of_a_crate_form_no_circle() {
    let arrows: BTreeMap<&str, BTreeSet<&str>> = FILES
        .iter()
        .map(|file| {
            let needed = FILES.iter().filter(|other| {
                file.package() == other.package()
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
