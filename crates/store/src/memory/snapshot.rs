//! The file that counters are kept in from one start to the next.
//!
//! A header, blocks of counters, and a SHA-256 of all of it at the end: a file that is truncated or
//! foreign is recognized before any counter is loaded. A new file is written beside the old one and
//! replaces it once it is on the disk, so that there is a complete file at all times.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use aws_lc_rs::digest;
use tollgate_clock::Timestamp;
use tollgate_limit::Bytes;

/// How the file begins, before the number of its format.
const MAGIC: &[u8; 18] = b"tollgate counters\n";
const FORMAT: u32 = 2;

const HEADER_BYTES: usize = MAGIC.len() + 4 + 16 + 8;
const DIGEST_BYTES: usize = 32;

/// The fields before the counters of a block: shard, kind, count and length.
const BLOCK_HEAD_BYTES: usize = 2 + 1 + 4 + 4;

/// Counters of one shard and one algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The index of the shard.
    pub(crate) shard: u16,
    /// The [number](tollgate_limit::AlgorithmKind::number) of the algorithm.
    pub(crate) kind: u8,
    /// The number of counters.
    pub(crate) count: u32,
    /// The counters.
    pub(crate) bytes: Vec<u8>,
}

/// Why no counters can be loaded from a file. The message says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    /// It does not begin as a snapshot does.
    #[error("not a file of saved counters: name another, or move this one away")]
    Foreign,
    /// Another version wrote it.
    #[error("saved in format {0}, and only format {FORMAT} is known: it will be replaced")]
    Format(u32),
    /// It is truncated or changed.
    #[error("torn or changed since it was saved: it will be replaced")]
    Torn,
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Writes a snapshot.
pub(crate) struct Writer {
    file: BufWriter<File>,
    digest: digest::Context,
    /// Where it is written until it is complete.
    draft: PathBuf,
    target: PathBuf,
}

impl Writer {
    /// Begins a snapshot that will be at `target`, of counters whose keys were hashed with
    /// `secret`.
    ///
    /// # Errors
    /// Those of the system, and if `target` is a foreign file.
    pub(crate) fn create(target: &Path, secret: [u8; 16], now: Timestamp) -> io::Result<Writer> {
        if is_foreign(target) {
            return Err(io::Error::other(SnapshotError::Foreign));
        }
        let mut draft = target.as_os_str().to_owned();
        // The name is this process' own: another process may begin a snapshot at the same time.
        draft.push(format!(".{}.new", std::process::id()));
        let draft = PathBuf::from(draft);
        // A draft that was left behind is of no use. It is removed, never opened, as it may be a
        // link.
        let _ = fs::remove_file(&draft);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let mut writer = Writer {
            file: BufWriter::new(file),
            digest: digest::Context::new(&digest::SHA256),
            draft,
            target: target.to_owned(),
        };
        writer.write(MAGIC)?;
        writer.write(&FORMAT.to_le_bytes())?;
        writer.write(&secret)?;
        writer.write(&now.as_micros().to_le_bytes())?;
        Ok(writer)
    }

    /// Adds counters.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn block(&mut self, block: &Block) -> io::Result<()> {
        let length = u32::try_from(block.bytes.len())
            .map_err(|_| io::Error::other("more counters in a block than a snapshot can hold"))?;
        self.write(&block.shard.to_le_bytes())?;
        self.write(&[block.kind])?;
        self.write(&block.count.to_le_bytes())?;
        self.write(&length.to_le_bytes())?;
        self.write(&block.bytes)
    }

    /// Completes the snapshot and moves it to its target.
    ///
    /// # Errors
    /// Those of the system; the file that was there before is still there then.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let digest = self.digest.clone().finish();
        self.file.write_all(digest.as_ref())?;
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.draft, &self.target)?;
        // The rename is on the disk once the folder is.
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.file.write_all(bytes)
    }
}

/// A complete snapshot.
pub(crate) struct Snapshot {
    /// The secret that keys were hashed with.
    pub(crate) secret: [u8; 16],
    /// When it was taken.
    pub(crate) taken: Timestamp,
    file: BufReader<File>,
    /// Bytes of blocks that have not been read.
    left: u64,
}

/// Opens the snapshot at `path`, if there is one, and verifies its digest.
///
/// # Errors
/// [`SnapshotError`].
pub(crate) fn read(path: &Path) -> Result<Option<Snapshot>, SnapshotError> {
    if is_foreign(path) {
        return Err(SnapshotError::Foreign);
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let length = file.metadata()?.len();
    let mut file = BufReader::with_capacity(1 << 16, file);
    let mut header = Vec::with_capacity(HEADER_BYTES);
    file.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut header)?;
    let mut rest = Bytes(header.get(MAGIC.len()..).ok_or(SnapshotError::Torn)?);
    let format = rest.u32().ok_or(SnapshotError::Torn)?;
    if format != FORMAT {
        return Err(SnapshotError::Format(format));
    }
    let secret = rest.array().ok_or(SnapshotError::Torn)?;
    let taken = rest.u64().map(Timestamp::from_micros).ok_or(SnapshotError::Torn)?;

    let around = (HEADER_BYTES + DIGEST_BYTES) as u64;
    let left = length.checked_sub(around).ok_or(SnapshotError::Torn)?;
    check(&mut file, &header, left)?;
    file.seek(io::SeekFrom::Start(HEADER_BYTES as u64))?;
    Ok(Some(Snapshot { secret, taken, file, left }))
}

/// Whether there is a file that does not begin as a snapshot does, not even as a truncated one.
fn is_foreign(path: &Path) -> bool {
    let mut start = Vec::new();
    let file = File::open(path).map(|file| file.take(MAGIC.len() as u64));
    let is_read = file.and_then(|mut file| file.read_to_end(&mut start)).is_ok();
    is_read && !MAGIC.starts_with(&start)
}

/// Verifies that the digest at the end matches all bytes before it.
fn check(file: &mut impl Read, header: &[u8], mut left: u64) -> Result<(), SnapshotError> {
    let mut digest = digest::Context::new(&digest::SHA256);
    digest.update(header);
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let part = buffer.get_mut(..room).unwrap_or_default();
        file.read_exact(part)?;
        digest.update(part);
        left -= room as u64;
    }
    let mut written = [0; DIGEST_BYTES];
    file.read_exact(&mut written)?;
    match digest.finish().as_ref() == written {
        true => Ok(()),
        false => Err(SnapshotError::Torn),
    }
}

impl Snapshot {
    /// The next block; none after the last.
    ///
    /// # Errors
    /// Those of the system, or [`SnapshotError::Torn`] if the file was changed after it was opened.
    pub(crate) fn next_block(&mut self) -> Result<Option<Block>, SnapshotError> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut head = [0; BLOCK_HEAD_BYTES];
        self.take(head.len())?;
        self.file.read_exact(&mut head)?;
        let mut head = Bytes(&head);
        let mut fields = || {
            let shard = head.array().map(u16::from_le_bytes)?;
            let kind = head.array::<1>()?;
            Some((shard, kind, head.u32()?, head.u32()?))
        };
        let (shard, [kind], count, length) = fields().ok_or(SnapshotError::Torn)?;
        // Checked first, so that a wrong length allocates no more memory than the file has bytes.
        self.take(length as usize)?;
        let mut bytes = vec![0; length as usize];
        self.file.read_exact(&mut bytes)?;
        Ok(Some(Block { shard, kind, count, bytes }))
    }

    fn take(&mut self, bytes: usize) -> Result<(), SnapshotError> {
        self.left = self.left.checked_sub(bytes as u64).ok_or(SnapshotError::Torn)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 16] = [7; 16];
    const TAKEN: Timestamp = Timestamp::from_secs(1_790_000_000);

    fn blocks() -> [Block; 2] {
        [
            Block { shard: 3, kind: 1, count: 2, bytes: vec![1, 2, 3] },
            Block { shard: 1023, kind: 6, count: 0, bytes: Vec::new() },
        ]
    }

    fn save(path: &Path) -> io::Result<()> {
        let mut writer = Writer::create(path, SECRET, TAKEN)?;
        for block in &blocks() {
            writer.block(block)?;
        }
        writer.finish()
    }

    fn load(path: &Path) -> Result<Vec<Block>, SnapshotError> {
        let mut snapshot = read(path)?.expect("it was saved");
        assert_eq!((snapshot.secret, snapshot.taken), (SECRET, TAKEN));
        let mut blocks = Vec::new();
        while let Some(block) = snapshot.next_block()? {
            blocks.push(block);
        }
        Ok(blocks)
    }

    #[test]
    fn what_was_saved_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        assert!(read(&path).unwrap().is_none(), "no file is no error");
        save(&path).unwrap();
        save(&path).unwrap();
        assert_eq!(load(&path).unwrap(), blocks());
        let files: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(files.len(), 1, "no draft is left");
    }

    #[test]
    fn only_the_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        save(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn torn_file_is_refused_wherever_it_is_torn() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        save(&path).unwrap();
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let error = read(&path).err().unwrap_or_else(|| panic!("{length} bytes were read"));
            assert!(matches!(error, SnapshotError::Torn), "{length}: {error}");
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        save(&path).unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, changed).unwrap();
            assert!(read(&path).is_err(), "byte {at}");
        }
        fs::write(&path, [whole.as_slice(), b"x"].concat()).unwrap();
        assert!(matches!(read(&path), Err(SnapshotError::Torn)));
    }

    #[test]
    fn files_of_others_and_of_later_versions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        for foreign in ["x", "tollgate: counters", &"version: 1\n".repeat(100)] {
            fs::write(&path, foreign).unwrap();
            assert!(matches!(read(&path), Err(SnapshotError::Foreign)));
            assert!(save(&path).is_err(), "a file of another program is never overwritten");
            assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
        }
        fs::remove_file(&path).unwrap();
        save(&path).unwrap();
        let mut later = fs::read(&path).unwrap();
        later[MAGIC.len()] = 3;
        fs::write(&path, later).unwrap();
        assert!(matches!(read(&path), Err(SnapshotError::Format(3))));
    }

    #[test]
    fn failure_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        assert!(save(&folder.path().join("missing/counters")).is_err());
        save(&path).unwrap();
        let draft = format!("counters.{}.new", std::process::id());
        fs::create_dir(folder.path().join(draft)).unwrap();
        assert!(save(&path).is_err());
        assert_eq!(load(&path).unwrap(), blocks());
    }
}
