//! Settings of a process's end: how long it may take, and the handover to a successor.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use tollgate_yaml::Spanned;

use super::Checker;

pub(super) const DEFAULT_DRAIN: Duration = Duration::from_secs(30);
/// How long a process may take to end, and how long it may wait before that.
pub(super) const DRAINS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

impl Checker<'_> {
    pub(super) fn handover(&mut self, raw: Option<&Spanned<String>>) -> Option<PathBuf> {
        let raw = raw?;
        let help = "write the path of a socket, such as /run/tollgate/handover.sock";
        self.socket_path(raw, &raw.value, help)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tollgate_yaml::{Problem, Sources};

    use super::*;
    use crate::{
        Settings,
        listener::MAX_SOCKET_PATH,
        tests::{FILE, rendered},
    };

    fn parse(lines: &str) -> Result<Settings, Vec<Problem>> {
        let text = format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\n{lines}\n");
        Settings::parse(Path::new(FILE), &text, &Sources::system())
    }

    #[test]
    fn no_handover_and_no_delay_by_default() {
        let settings = parse("").unwrap();
        assert_eq!((settings.handover, settings.drain_delay), (None, Duration::ZERO));
        assert_eq!(settings.drain, DEFAULT_DRAIN);
    }

    #[test]
    fn socket_is_beside_the_file_and_times_have_units() {
        let settings = parse("handover: next.sock\ndrain: 1m\ndrain_delay: 5s").unwrap();
        assert_eq!(settings.handover.as_deref(), Some(Path::new("config/next.sock")));
        assert_eq!(settings.drain, Duration::from_secs(60));
        assert_eq!(settings.drain_delay, Duration::from_secs(5));
    }

    #[test]
    fn mistakes_are_reported_with_their_places() {
        let long = "x".repeat(MAX_SOCKET_PATH);
        for (line, expected) in [
            ("drain: soon", "3:8 `soon` is not a time: write a number and a unit, 0s to 1h"),
            ("drain_delay: 2h", "3:14 `2h` is out of range: write a number and a unit, 0s to 1h"),
            (
                "handover: run/",
                "3:11 not the path of a socket: write the path of a socket, such as /run/tollgate/handover.sock",
            ),
            (
                &format!("handover: {long}"),
                "3:11 a path longer than 100 bytes: write the path of a socket, such as /run/tollgate/handover.sock",
            ),
        ] {
            assert_eq!(rendered(&parse(line).unwrap_err()), [expected], "{line}");
        }
    }
}
