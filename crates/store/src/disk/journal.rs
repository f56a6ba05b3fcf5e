//! The journal: what was written since the tables, in the order in which it was written.
//!
//! A journal is a file of frames, each with a number and a checksum. A frame that was not written
//! whole is recognized, and was never acknowledged. Frames hold absolute states, so those behind a
//! damaged one are still good.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use memchr::memmem;
use xxhash_rust::xxh3::xxh3_64;

/// How a journal begins.
const MAGIC: &[u8; 20] = b"tollgate journal 1\n\0";

/// How a frame begins.
const MARK: &[u8; 4] = b"\xF7TG\n";

/// The fields before the bytes of a frame: mark, length, number and checksum.
const HEAD_BYTES: usize = 4 + 4 + 8 + 8;

/// The longest frame. A counter takes at most 240 kB, and frames are ended long before this.
const MAX_FRAME: usize = 1 << 28;

/// What the system writes at once.
const PAGE: usize = 4096;

/// A journal that is written.
#[derive(Debug)]
pub(super) struct Journal {
    file: Arc<File>,
    /// Its number: later journals have greater ones.
    pub(super) id: u64,
    /// Bytes of complete frames. What is behind them was not written whole.
    pub(super) complete: u64,
    is_torn: bool,
    next_frame: u64,
    frame: Vec<u8>,
}

impl Journal {
    /// Creates the journal with this number in a folder.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn create(folder: &Path, id: u64) -> io::Result<Journal> {
        let path = path_of(folder, id);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let begun = file.write_all(MAGIC).and_then(|()| File::open(folder)?.sync_all());
        if let Err(error) = begun {
            // Nothing is in it yet, and the next try must not find it.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        let complete = MAGIC.len() as u64;
        let file = Arc::new(file);
        Ok(Journal { file, id, complete, is_torn: false, next_frame: 0, frame: Vec::new() })
    }

    /// Appends a frame. It outlives the process then; what is not synced may be lost with the
    /// power.
    ///
    /// # Errors
    /// Those of the system. The frame counts as not written then.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.mend()?;
        let number = self.next_frame;
        self.frame.clear();
        self.frame.extend(MARK);
        self.frame.extend((bytes.len() as u32).to_le_bytes());
        self.frame.extend(number.to_le_bytes());
        self.frame.extend(checksum(self.id, number, bytes).to_le_bytes());
        self.frame.extend(bytes);
        self.is_torn = true;
        (&*self.file).write_all(&self.frame)?;
        self.is_torn = false;
        self.complete += self.frame.len() as u64;
        self.next_frame += 1;
        Ok(())
    }

    /// The file, to be synced by another thread.
    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Removes what was not written whole.
    fn mend(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.complete)?;
            (&*self.file).seek(SeekFrom::Start(self.complete))?;
            self.is_torn = false;
        }
        Ok(())
    }
}

/// What was found in a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replay {
    /// Frames that were read.
    pub(super) frames: u64,
    /// Bytes at the end that are not a complete frame: the write was interrupted, and never
    /// acknowledged.
    pub(super) torn: u64,
    /// Parts that are not complete frames.
    pub(super) gaps: Vec<Gap>,
}

/// A part of a journal that is not as it was written: where it begins and ends, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Whether it looks as if it had not reached the disk before the power failed, and not as if it
    /// had been changed.
    pub(super) is_unwritten: bool,
}

/// Reads a journal, and passes the bytes of each complete frame to `each`. Only the last journal of
/// a folder may end with a write that was interrupted.
///
/// # Errors
/// Those of the system, and [`io::ErrorKind::InvalidData`] if the file is not a journal.
pub(super) fn replay(
    folder: &Path,
    id: u64,
    is_last: bool,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Replay> {
    let mut bytes = Vec::new();
    File::open(path_of(folder, id))?.read_to_end(&mut bytes)?;
    let mut replayed = Replay::default();
    // Frames say themselves which journal they are of, so those behind a damaged beginning count.
    let begun = bytes.strip_prefix(MAGIC);
    let mut rest = begun.unwrap_or(&bytes);
    let mut bad = begun.is_none().then_some(0);
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        match frame(id, rest) {
            Some((frame, behind)) => {
                replayed.gaps.extend(bad.take().map(|begin| gap(&bytes, begin, at)));
                each(frame)?;
                replayed.frames += 1;
                rest = behind;
            }
            None => {
                bad.get_or_insert(at);
                let next = memmem::find(rest.get(1..).unwrap_or_default(), MARK);
                rest = next.and_then(|ahead| rest.get(1 + ahead..)).unwrap_or_default();
            }
        }
    }
    if let Some(begin) = bad.filter(|begin| *begin < bytes.len()) {
        let gap = gap(&bytes, begin, bytes.len());
        match gap.is_unwritten {
            true if is_last => replayed.torn = gap.end - gap.begin,
            false if begin == 0 => {
                let message = "not a journal of tollgate";
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            _ => replayed.gaps.push(gap),
        }
    }
    Ok(replayed)
}

fn gap(bytes: &[u8], begin: usize, end: usize) -> Gap {
    let part = bytes.get(begin..end).unwrap_or_default();
    let is_cut = end == bytes.len() && is_cut(part);
    let is_unwritten = is_cut || has_unwritten_page(part, begin);
    Gap { begin: begin as u64, end: end as u64, is_unwritten }
}

/// Whether bytes at the end are those of a journal or a frame of which the rest is missing.
fn is_cut(tail: &[u8]) -> bool {
    match tail.split_first_chunk::<HEAD_BYTES>() {
        None => tail.starts_with(MARK) || MARK.starts_with(tail) || MAGIC.starts_with(tail),
        Some((head, rest)) => {
            let length = head.strip_prefix(MARK).and_then(|head| head.first_chunk());
            length.is_some_and(|length| u32::from_le_bytes(*length) as usize > rest.len())
        }
    }
}

/// Whether all bytes of a page are zero in a part that begins here. A system writes pages in any
/// order: those that it had not written when the power failed read as zeros.
fn has_unwritten_page(part: &[u8], begin: usize) -> bool {
    let to_page = (PAGE - begin % PAGE).min(part.len());
    let (first, others) = part.split_at(to_page);
    let is_zero = |page: &[u8]| !page.is_empty() && page.iter().all(|byte| *byte == 0);
    is_zero(first) || others.chunks(PAGE).any(is_zero)
}

/// Cuts off bytes at the end of a journal.
///
/// # Errors
/// Those of the system.
pub(super) fn cut(folder: &Path, id: u64, torn: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path_of(folder, id))?;
    let length = file.metadata()?.len();
    file.set_len(length.saturating_sub(torn))?;
    file.sync_all()
}

/// The numbers of the journals in a folder, in ascending order.
///
/// # Errors
/// Those of the system.
pub(super) fn journals(folder: &Path) -> io::Result<Vec<u64>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix("journal-"));
        ids.extend(id.and_then(|id| id.parse::<u64>().ok()));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// The last of these journals that anything was written to; none: no one has anything. Those behind
/// it were made ahead.
pub(super) fn last_written(folder: &Path, ids: &[u64]) -> Option<u64> {
    let is_written = |id: &&u64| {
        fs::metadata(path_of(folder, **id)).is_ok_and(|file| file.len() > MAGIC.len() as u64)
    };
    ids.iter().rev().find(is_written).copied()
}

/// The file of a journal.
pub(super) fn path_of(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("journal-{id}"))
}

/// The first frame of some bytes, and what is behind it.
fn frame(id: u64, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let head = head.strip_prefix(MARK)?;
    let (length, head) = head.split_first_chunk()?;
    let (number, head) = head.split_first_chunk()?;
    let (sum, _) = head.split_first_chunk()?;
    let length = u32::from_le_bytes(*length) as usize;
    let (frame, behind) = rest.split_at_checked(length).filter(|_| length <= MAX_FRAME)?;
    let is_whole = checksum(id, u64::from_le_bytes(*number), frame) == u64::from_le_bytes(*sum);
    is_whole.then_some((frame, behind))
}

/// A frame's checksum also covers where the frame is: one of an earlier file is not taken for one
/// of this file.
fn checksum(id: u64, number: u64, bytes: &[u8]) -> u64 {
    xxh3_64(bytes) ^ xxh3_64(&[id.to_le_bytes(), number.to_le_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(folder: &Path, id: u64, is_last: bool) -> (Vec<Vec<u8>>, Replay) {
        let mut frames = Vec::new();
        let replayed = replay(folder, id, is_last, |frame| {
            frames.push(frame.to_vec());
            Ok(())
        });
        (frames, replayed.unwrap())
    }

    fn written(folder: &Path) -> Vec<u8> {
        let mut journal = Journal::create(folder, 3).unwrap();
        for frame in [&b"first"[..], b"", &[7; 1000], b"last"] {
            journal.append(frame).unwrap();
        }
        fs::read(path_of(folder, 3)).unwrap()
    }

    #[test]
    fn frames_are_read_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path());
        let (frames, replayed) = frames(folder.path(), 3, true);
        assert_eq!(frames, [b"first".to_vec(), Vec::new(), vec![7; 1000], b"last".to_vec()]);
        assert_eq!(replayed, Replay { frames: 4, ..Replay::default() });
        assert_eq!(journals(folder.path()).unwrap(), [3]);
    }

    #[test]
    fn torn_end_is_left_out_wherever_it_is_torn() {
        let folder = tempfile::tempdir().unwrap();
        let whole = written(folder.path());
        for length in 0..whole.len() {
            fs::write(path_of(folder.path(), 3), &whole[..length]).unwrap();
            let (read, replayed) = frames(folder.path(), 3, true);
            assert!(read.len() < 4 && replayed.gaps.is_empty(), "{length}");
            cut(folder.path(), 3, replayed.torn).unwrap();
            let (again, replayed) = frames(folder.path(), 3, true);
            assert_eq!((again, replayed.torn), (read, 0), "{length}");
        }
    }

    #[test]
    fn damage_is_reported_with_its_place_and_frames_behind_it_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let whole = written(folder.path());
        let last_frame = whole.len() - HEAD_BYTES - 4;
        // The length of the last frame cannot be told from that of one that was not written whole.
        let length = last_frame + 4..last_frame + 8;
        for at in (0..whole.len()).filter(|at| !length.contains(at)) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(path_of(folder.path(), 3), changed).unwrap();
            let (frames, replayed) = frames(folder.path(), 3, true);
            assert_eq!(frames.last().unwrap() == b"last", at < last_frame, "{at}");
            let [gap] = replayed.gaps[..] else { panic!("{at}: {replayed:?}") };
            assert!(gap.begin <= at as u64 && at as u64 <= gap.end && !gap.is_unwritten, "{at}");
            assert_eq!(frames.len(), if at < MAGIC.len() { 4 } else { 3 }, "{at}");
        }
    }

    #[test]
    fn pages_that_were_lost_with_the_power_are_told_from_those_that_were_changed() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path(), 3).unwrap();
        let long = vec![7; 3 * PAGE];
        for frame in [&long, &long, &b"last".to_vec()] {
            journal.append(frame).unwrap();
        }
        let whole = fs::read(path_of(folder.path(), 3)).unwrap();
        let ends = [long.len() + HEAD_BYTES + MAGIC.len(), whole.len() - HEAD_BYTES - 4];
        // With the last frame behind them, and without it.
        for (length, is_torn) in [(whole.len(), false), (ends[1], true)] {
            for page in 0..length.div_ceil(PAGE) {
                let place = page * PAGE..((page + 1) * PAGE).min(length);
                let mut lost = whole[..length].to_vec();
                lost[place.clone()].fill(0);
                fs::write(path_of(folder.path(), 3), lost).unwrap();
                let (_, replayed) = frames(folder.path(), 3, true);
                assert!(replayed.gaps.iter().all(|gap| gap.is_unwritten), "{page}");
                let is_at_end = is_torn && place.end > ends[0];
                assert_eq!(replayed.torn > 0, is_at_end || place.end == length, "{page}");
                let (_, replayed) = frames(folder.path(), 3, false);
                assert!(replayed.torn == 0 && !replayed.gaps.is_empty(), "{page}");
            }
        }
    }

    #[test]
    fn frame_that_was_not_written_whole_is_removed_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path(), 0).unwrap();
        journal.append(b"first").unwrap();
        journal.file.write_all(b"\xF7TG\nhalf of a frame").unwrap();
        journal.is_torn = true;
        journal.append(b"second").unwrap();
        let (read, replayed) = frames(folder.path(), 0, true);
        assert_eq!(read, [b"first".to_vec(), b"second".to_vec()]);
        assert_eq!(replayed.torn, 0);
    }

    #[test]
    fn frames_of_another_journal_and_other_files_are_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let whole = written(folder.path());
        fs::write(path_of(folder.path(), 4), &whole).unwrap();
        assert_eq!(frames(folder.path(), 4, true).1.frames, 0);
        fs::write(path_of(folder.path(), 5), "version: 1\n").unwrap();
        assert!(replay(folder.path(), 5, true, |_| Ok(())).is_err());
    }
}
