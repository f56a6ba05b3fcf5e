//! What is left of a drive when its process or the power ends.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::drive::Record;

/// What the system writes at once.
pub(crate) const PAGE: usize = 4096;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is killed: all that it has written is there.
    Killed(u64),
    /// The power fails. Of what was not synced, the seed says what is there.
    PowerCut(u64),
}

/// What a killed process has written and not synced.
#[derive(Debug)]
pub(crate) struct Unsynced {
    /// From the drive's folder.
    pub(crate) path: PathBuf,
    /// What was synced of it.
    pub(crate) synced: Vec<u8>,
}

impl Ending {
    /// How much is written of so many bytes when it comes in the middle.
    pub(crate) fn part_of(self, bytes: usize) -> usize {
        let (Ending::Killed(seed) | Ending::PowerCut(seed)) = self;
        Dice(seed).below(bytes + 1)
    }
}

/// Writes what is left of a folder to another one, which must not exist.
///
/// # Errors
/// Those of the system.
pub(crate) fn write(
    folder: &Path,
    record: &Record,
    ending: Ending,
    to: &Path,
) -> io::Result<Vec<Unsynced>> {
    let mut image = Image { folder, record, ending, to, unsynced: Vec::new() };
    image.write_folder(Path::new(""))?;
    Ok(image.unsynced)
}

struct Image<'i> {
    folder: &'i Path,
    record: &'i Record,
    ending: Ending,
    to: &'i Path,
    unsynced: Vec<Unsynced>,
}

impl Image<'_> {
    fn write_folder(&mut self, path: &Path) -> io::Result<()> {
        let folder = self.folder.join(path);
        fs::create_dir_all(self.to.join(path))?;
        let known = fs::metadata(&folder).ok().and_then(|it| self.record.folders.get(&it.ino()));
        let mut names: BTreeSet<OsString> =
            known.into_iter().flat_map(|it| it.keys()).cloned().collect();
        for entry in fs::read_dir(&folder)? {
            names.insert(entry?.file_name());
        }
        for name in names {
            let path = path.join(&name);
            let present = fs::metadata(folder.join(&name)).ok();
            let number = present.as_ref().map(MetadataExt::ino);
            let synced = known.and_then(|known| known.get(&name)).copied();
            let mut dice = self.dice(&path).filter(|_| number != synced);
            // What became of the name was not synced.
            let is_lost = dice.as_mut().is_some_and(|dice| dice.below(2) == 0);
            let number = if is_lost { synced } else { number };
            match (number, present) {
                (None, _) => {}
                (Some(number), Some(present)) if present.ino() == number => {
                    match present.is_dir() {
                        true => self.write_folder(&path)?,
                        false => self.write_file(&path, number)?,
                    }
                }
                (Some(number), _) => {
                    if let Some(file) = self.record.files.get(&number) {
                        fs::write(self.to.join(path), &file.bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn write_file(&mut self, path: &Path, number: u64) -> io::Result<()> {
        let bytes = fs::read(self.folder.join(path))?;
        let synced = self.record.files.get(&number).map_or(&[][..], |file| &file.bytes);
        let left = match self.dice(path) {
            Some(mut dice) => torn(synced, &bytes, &mut dice),
            None => {
                if synced != bytes {
                    let (path, synced) = (path.to_owned(), synced.to_vec());
                    self.unsynced.push(Unsynced { path, synced });
                }
                bytes
            }
        };
        fs::write(self.to.join(path), left)
    }

    /// What decides about a name; none: all of it is left. It does not depend on other names: some
    /// are made up anew each time.
    fn dice(&self, path: &Path) -> Option<Dice> {
        let Ending::PowerCut(seed) = self.ending else { return None };
        let mix = |mixed: u64, byte: &u8| (mixed ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        Some(Dice(path.as_os_str().as_encoded_bytes().iter().fold(seed, mix)))
    }
}

/// What is left of a file of which this was synced and that was written.
fn torn(synced: &[u8], written: &[u8], dice: &mut Dice) -> Vec<u8> {
    let more = written.len().saturating_sub(synced.len());
    match dice.below(4) {
        0 => synced.to_vec(),
        1 => written.to_vec(),
        2 if more > 0 => written[..synced.len() + dice.below(more)].to_vec(),
        _ => {
            // Pages are written in any order.
            let mut left = written.to_vec();
            for (page, bytes) in left.chunks_mut(PAGE).enumerate() {
                if dice.below(2) == 0 {
                    let old = synced.get(page * PAGE..).unwrap_or_default();
                    let old = &old[..old.len().min(bytes.len())];
                    bytes.fill(0);
                    bytes[..old.len()].copy_from_slice(old);
                }
            }
            left
        }
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * most.max(1) as u128) >> 64) as usize
    }
}
