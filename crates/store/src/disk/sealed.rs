//! Small files that are as they were written, or are known to be damaged: each begins with words
//! that say what it is, and ends with a checksum. They are replaced whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use xxhash_rust::xxh3::xxh3_64;

const SUM_BYTES: usize = 8;

/// Replaces a file of a folder, and returns when that is on the disk itself. Until then it is what
/// it was.
///
/// # Errors
/// Those of the system.
pub(super) fn write(folder: &Path, name: &str, words: &[u8], fields: &[u8]) -> io::Result<()> {
    let mut bytes = [words, fields].concat();
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    replace(folder, name, &bytes)
}

/// Replaces a file of a folder by these bytes, as [`write`] does.
///
/// # Errors
/// Those of the system.
pub(super) fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let draft = folder.join(format!("{name}.new"));
    let _ = fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// What a file of a folder has between its words and its checksum; none: there is no such file.
///
/// # Errors
/// Those of the system, and [`io::ErrorKind::InvalidData`] if it is not as it was written.
pub(super) fn read(folder: &Path, name: &str, words: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let bytes = match fs::read(folder.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let is_whole =
        |(sealed, sum): &(&[u8], &[u8; SUM_BYTES])| xxh3_64(sealed) == u64::from_le_bytes(**sum);
    let sealed = bytes.split_last_chunk().filter(is_whole);
    match sealed.and_then(|(sealed, _)| sealed.strip_prefix(words)) {
        Some(fields) => Ok(Some(fields.to_owned())),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not as it was written")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let read = || read(folder.path(), "name", b"words\n");
        assert_eq!(read().unwrap(), None);
        write(folder.path(), "name", b"words\n", b"first").unwrap();
        write(folder.path(), "name", b"words\n", b"second").unwrap();
        assert_eq!(read().unwrap().unwrap(), b"second");
        let file = folder.path().join("name");
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&file, &changed).unwrap();
            assert!(read().is_err(), "byte {at}");
            fs::write(&file, &whole[..at]).unwrap();
            assert!(read().is_err(), "{at} bytes");
        }
    }
}
