//! The replication offsets of a primary over time, which show how far a replica is behind.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::server_report::ReplicaLink;

/// Offsets of a primary that are kept.
const KEPT: usize = 128;

/// The offsets of one primary at the instants at which it was queried.
#[derive(Debug, Default)]
pub(super) struct ReplicationMarks {
    /// When a worker last began a query.
    last_query: Option<Instant>,
    /// Its replication ID: offsets under another one cannot be compared.
    replication_id: String,
    /// When it was queried, and its offset: the latest query for each offset, oldest first.
    marks: VecDeque<(Instant, u64)>,
}

impl ReplicationMarks {
    /// Whether a query is due `now`; if so, the calling worker must make it.
    pub(super) fn is_due(&mut self, now: Instant, pause: Duration) -> bool {
        let is_due = self.last_query.is_none_or(|at| now.duration_since(at) >= pause / 2);
        if is_due {
            self.last_query = Some(now);
        }
        is_due
    }

    /// Records the offset of a primary that was queried at the instant `queried`.
    pub(super) fn note(
        &mut self,
        queried: Instant,
        Progress { replication_id, offset }: &Progress,
    ) {
        let continues = self.replication_id == *replication_id
            && self.marks.back().is_none_or(|(_, before)| before <= offset);
        if !continues {
            self.marks.clear();
            self.replication_id.clone_from(replication_id);
        }
        if self.marks.back().is_some_and(|(_, before)| before == offset) {
            self.marks.pop_back();
        }
        if self.marks.len() >= KEPT {
            self.marks.pop_front();
        }
        self.marks.push_back((queried, *offset));
    }

    /// How far a replica with this progress is behind, and the instant before which it has
    /// everything, if that is known.
    pub(super) fn locate(&self, replica: &Progress) -> (ReplicaLink, Option<Instant>) {
        let (Some((oldest, _)), Some((newest, _))) = (self.marks.front(), self.marks.back()) else {
            return (ReplicaLink::Unknown, None);
        };
        if self.replication_id != replica.replication_id {
            return (ReplicaLink::Down, None);
        }
        let mut reached = self.marks.iter().rev().filter(|(_, mark)| *mark <= replica.offset);
        match reached.next() {
            Some((at, _)) => (ReplicaLink::Up(newest.duration_since(*at)), Some(*at)),
            // It is behind by at least this much.
            None => (ReplicaLink::Up(newest.duration_since(*oldest)), None),
        }
    }
}

/// An offset under a replication ID.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) replication_id: String,
    pub(super) offset: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(replication_id: &str, offset: u64) -> Progress {
        Progress { replication_id: replication_id.to_owned(), offset }
    }

    /// A primary that was queried once a second and had these offsets.
    fn written(begun: Instant, offsets: &[u64]) -> ReplicationMarks {
        let mut written = ReplicationMarks::default();
        for (second, offset) in (0..).zip(offsets) {
            written.note(begun + SECOND * second, &at("a", *offset));
        }
        written
    }

    #[test]
    fn replica_is_as_old_as_the_last_query_whose_offset_it_has_reached() {
        let begun = Instant::now();
        let written = written(begun, &[100, 150, 150, 200]);
        for (offset, behind, reached) in
            [(200, 0, 3), (250, 0, 3), (199, 1, 2), (150, 1, 2), (149, 3, 0), (100, 3, 0)]
        {
            let (link, current_at) = written.locate(&at("a", offset));
            assert_eq!(link, ReplicaLink::Up(SECOND * behind), "{offset}");
            assert_eq!(current_at, Some(begun + SECOND * reached), "{offset}");
        }
        let (link, current_at) = written.locate(&at("a", 99));
        assert_eq!((link, current_at), (ReplicaLink::Up(SECOND * 3), None), "its age is not known");
    }

    #[test]
    fn idle_primary_has_replicas_that_are_not_behind() {
        let begun = Instant::now();
        let written = written(begun, &[100; 1_000]);
        let (link, current_at) = written.locate(&at("a", 100));
        assert_eq!(
            (link, current_at),
            (ReplicaLink::Up(Duration::ZERO), Some(begun + SECOND * 999))
        );
        assert_eq!(written.marks.len(), 1);
    }

    #[test]
    fn marks_of_a_busy_primary_are_bounded() {
        let offsets: Vec<u64> = (0..1_000).collect();
        let written = written(Instant::now(), &offsets);
        assert_eq!(written.marks.len(), KEPT);
        assert_eq!(written.locate(&at("a", 999)).0, ReplicaLink::Up(Duration::ZERO));
    }

    #[test]
    fn replica_with_another_replication_id_does_not_replicate() {
        let begun = Instant::now();
        let mut written = written(begun, &[100, 200]);
        assert_eq!(written.locate(&at("b", 200)), (ReplicaLink::Down, None));
        // Another server has replaced it, or it was restarted.
        for (id, offset) in [("b", 300), ("b", 10)] {
            written.note(begun + SECOND * 5, &at(id, offset));
            assert_eq!(written.marks.len(), 1);
            assert_eq!(written.locate(&at("a", 900)), (ReplicaLink::Down, None));
            assert_eq!(written.locate(&at("b", offset)).0, ReplicaLink::Up(Duration::ZERO));
        }
        let nothing = ReplicationMarks::default();
        assert_eq!(nothing.locate(&at("a", 1)), (ReplicaLink::Unknown, None));
    }

    #[test]
    fn only_one_worker_queries() {
        let mut written = ReplicationMarks::default();
        let begun = Instant::now();
        assert!(written.is_due(begun, SECOND));
        assert!(!written.is_due(begun + SECOND / 4, SECOND));
        assert!(written.is_due(begun + SECOND / 2, SECOND));
    }
}
