//! The bytes of a log: a file or standard input, decompressed if it is compressed.
//!
//! The first bytes say how a file is compressed, not its name: rotated logs have any name.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Cursor, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

use super::HistoryError;

/// How much of a compressed file is read at once.
const COMPRESSED_BYTES: usize = 64 * 1024;
/// A block without contents that is the last one of its frame (RFC 8878, 3.1.1.2), and room for a
/// checksum.
const LAST_BLOCK: &[u8] = &[1, 0, 0, 0, 0, 0, 0];
/// Enough to tell every compression that is known.
const MAGIC_BYTES: usize = 6;

/// The bytes of a log.
pub(super) struct Source {
    bytes: Box<dyn Read + Send>,
    /// Whether an error may come from the compression, and so from a file that is cut off.
    pub(super) is_compressed: bool,
    /// Bytes that were read of the file, compressed as they are there.
    pub(super) read: Arc<AtomicU64>,
    /// Bytes of the whole file; none: it is a pipe.
    pub(super) total: Option<u64>,
}

impl Source {
    /// Opens a file; `-` is standard input.
    ///
    /// # Errors
    /// [`HistoryError::Open`], [`HistoryError::Read`] if the first bytes cannot be read, and
    /// [`HistoryError::Compression`].
    pub(super) fn open(path: &Path) -> Result<Source, HistoryError> {
        if path == Path::new("-") {
            return Source::new(Box::new(io::stdin()), None, path);
        }
        let open = || -> io::Result<_> {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                return Err(io::Error::other("it is a directory: name the files in it"));
            }
            Ok((file, metadata.is_file().then_some(metadata.len())))
        };
        let (file, total) =
            open().map_err(|source| HistoryError::Open { file: path.into(), source })?;
        Source::new(Box::new(file), total, path)
    }

    fn new(
        raw: Box<dyn Read + Send>,
        total: Option<u64>,
        path: &Path,
    ) -> Result<Source, HistoryError> {
        let read = Arc::new(AtomicU64::new(0));
        let mut raw = CountingReader { raw, read: Arc::clone(&read) };
        let mut magic = Vec::with_capacity(MAGIC_BYTES);
        raw.by_ref()
            .take(MAGIC_BYTES as u64)
            .read_to_end(&mut magic)
            .map_err(|source| HistoryError::Read { file: path.into(), source })?;
        let compression = Compression::of(&magic);
        let whole = Cursor::new(magic).chain(raw);
        let bytes: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(whole),
            Compression::Gzip => {
                Box::new(MultiGzDecoder::new(BufReader::with_capacity(COMPRESSED_BYTES, whole)))
            }
            Compression::Zstd => {
                Box::new(Zstd::new(BufReader::with_capacity(COMPRESSED_BYTES, whole)))
            }
            Compression::Other(by) => {
                return Err(HistoryError::Compression { file: path.into(), by });
            }
        };
        Ok(Source { bytes, is_compressed: compression != Compression::None, read, total })
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buffer)
    }
}

/// How a file is compressed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
    /// With the program of this name, and not read.
    Other(&'static str),
}

impl Compression {
    fn of(magic: &[u8]) -> Compression {
        match magic {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            // A frame, or one that decoders skip.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Compression::Other("xz"),
            [b'B', b'Z', b'h', ..] => Compression::Other("bzip2"),
            [0x04, 0x22, 0x4d, 0x18, ..] => Compression::Other("lz4"),
            _ => Compression::None,
        }
    }
}

/// Counts what is read.
struct CountingReader {
    raw: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.raw.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Frames of zstd, one after the other: the decoder knows one.
struct Zstd<R: Read> {
    compressed: BufReader<R>,
    decoder: FrameDecoder,
    /// Whether a frame has begun and was not read to its end.
    is_within: bool,
    /// Why it can be decoded no further; what was decoded before is given out first.
    failed: Option<io::Error>,
}

impl<R: Read> Zstd<R> {
    fn new(compressed: BufReader<R>) -> Zstd<R> {
        Zstd { compressed, decoder: FrameDecoder::new(), is_within: false, failed: None }
    }

    /// Begins the next frame that has contents; false: there is none.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.compressed.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.compressed) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.compressed.by_ref().take(length.into());
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    /// Decodes the next block. If that fails, the frame ends with an empty block in its place: the
    /// decoder holds back as much as later blocks may refer to, which can be megabytes of lines,
    /// until the frame ends.
    fn decode(&mut self) {
        let one = || BlockDecodingStrategy::UptoBlocks(1);
        if let Err(error) = self.decoder.decode_blocks(&mut self.compressed, one()) {
            self.failed = Some(io::Error::other(error));
            if !self.decoder.is_finished() {
                let _ = self.decoder.decode_blocks(LAST_BLOCK, one());
            }
        }
    }

    /// Compares what a frame had with its checksum, if it has one: the decoder leaves that to
    /// others.
    fn check(&self) -> io::Result<()> {
        match self.decoder.get_checksum_from_data() {
            Some(sum) if self.decoder.get_calculated_checksum() != Some(sum) => {
                Err(io::Error::other("the checksum is not that of the contents"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_within && !self.begin()? {
                return Ok(0);
            }
            self.is_within = true;
            while self.decoder.can_collect() == 0
                && !self.decoder.is_finished()
                && self.failed.is_none()
            {
                self.decode();
            }
            if self.decoder.can_collect() > 0 || buffer.is_empty() {
                return self.decoder.read(buffer);
            }
            self.is_within = false;
            match self.failed.take() {
                Some(error) => return Err(error),
                None => self.check()?,
            }
        }
    }
}
