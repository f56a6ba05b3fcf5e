//! Output that never blocks the writer: lines go to a thread of their own over a bounded channel,
//! and are dropped and counted when the reader at the other end does not keep up.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

/// The writing end. Clones write to the same output.
#[derive(Clone)]
pub struct Pipe {
    sender: SyncSender<Piece>,
    /// Lines that were dropped and not reported yet.
    dropped: Arc<AtomicU64>,
    /// Lines that were ever dropped.
    total: Arc<AtomicU64>,
}

enum Piece {
    Lines(Vec<u8>),
    /// To be answered once everything before it was written.
    Flush(SyncSender<()>),
}

/// Pieces in flight; with their size, the bound on memory.
const MAX_PIECES: usize = 256;

impl Pipe {
    /// Starts writing to `output`. `lost` is called now and then with the number of lines dropped.
    pub fn start(
        mut output: impl Write + Send + 'static,
        lost: impl Fn(u64) + Send + 'static,
    ) -> Pipe {
        let (sender, receiver) = sync_channel(MAX_PIECES);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        thread::spawn(move || {
            for piece in receiver {
                match piece {
                    // An error means that the reader is gone; the process goes on without it.
                    Piece::Lines(lines) => {
                        if output.write_all(&lines).and_then(|()| output.flush()).is_err() {
                            return;
                        }
                    }
                    Piece::Flush(written) => drop(written.send(())),
                }
                match counted.swap(0, Ordering::Relaxed) {
                    0 => {}
                    lines => lost(lines),
                }
            }
        });
        Pipe { sender, dropped, total: Arc::default() }
    }

    /// Sends a piece of so many lines, or drops it if there is no room.
    pub fn send(&self, piece: Vec<u8>, lines: u64) {
        if self.sender.try_send(Piece::Lines(piece)).is_err() {
            self.dropped.fetch_add(lines, Ordering::Relaxed);
            self.total.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// How many lines were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Waits until what was sent is written, but no longer than `limit`. Returns whether it is.
    pub fn flush(&self, limit: Duration) -> bool {
        const PAUSE: Duration = Duration::from_millis(5);
        let deadline = Instant::now() + limit;
        let (written, done) = sync_channel(1);
        let mut piece = Piece::Flush(written);
        while let Err(error) = self.sender.try_send(piece) {
            match error {
                TrySendError::Full(unsent) if Instant::now() < deadline => piece = unsent,
                _ => return false,
            }
            thread::park_timeout(PAUSE);
        }
        done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
    }

    /// A writer of one line, which is sent when it is dropped.
    pub fn line(&self) -> LineWriter {
        LineWriter { pipe: self.clone(), bytes: Vec::new() }
    }
}

/// A line that is being written.
pub struct LineWriter {
    pipe: Pipe,
    bytes: Vec<u8>,
}

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.pipe.send(std::mem::take(&mut self.bytes), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;

    /// An output that blocks until the test lets it write.
    struct Stuck(Arc<Mutex<Vec<u8>>>, mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.1.recv();
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn full_pipe_drops_lines_and_counts_them() {
        let written = Arc::default();
        let lost = Arc::new(AtomicU64::new(0));
        let (go, stuck) = mpsc::channel();
        let count = Arc::clone(&lost);
        let pipe = Pipe::start(Stuck(Arc::clone(&written), stuck), move |lines| {
            count.fetch_add(lines, Ordering::Relaxed);
        });
        for _ in 0..2 * MAX_PIECES {
            writeln!(pipe.line(), "x").unwrap();
        }
        assert!(!pipe.flush(Duration::ZERO));
        drop(go);
        assert!(pipe.flush(Duration::from_secs(10)));
        let lines = written.lock().unwrap().len() as u64 / 2;
        assert_eq!(lines + lost.load(Ordering::Relaxed), 2 * MAX_PIECES as u64);
        assert_eq!(pipe.dropped(), lost.load(Ordering::Relaxed));
        assert!(lines < 2 * MAX_PIECES as u64);
    }
}
