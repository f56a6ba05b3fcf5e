//! What the kernel counts for this process, and what the data take on disk.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use anyhow::{Context as _, Result};
use rustix::fs::{Advice, fadvise};

/// The counters of `/proc/self/io`.
#[derive(Clone, Copy)]
pub struct Io {
    /// The bytes that were given to write calls.
    pub wchar: u64,
    /// The bytes that the process makes the device write.
    pub written: u64,
    /// The bytes that read calls returned.
    pub rchar: u64,
    /// The read calls.
    pub reads: u64,
}

impl Io {
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/self/io")?;
        Ok(Self {
            wchar: field(&text, "wchar:")?,
            written: field(&text, "write_bytes:")?,
            rchar: field(&text, "rchar:")?,
            reads: field(&text, "syscr:")?,
        })
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            wchar: self.wchar - before.wchar,
            written: self.written - before.written,
            rchar: self.rchar - before.rchar,
            reads: self.reads - before.reads,
        }
    }
}

/// The most memory that the process has held, and what it holds now, in MiB.
pub fn memory() -> Result<(u64, u64)> {
    let text = fs::read_to_string("/proc/self/status")?;
    Ok((field(&text, "VmHWM:")? / 1024, field(&text, "VmRSS:")? / 1024))
}

/// The processor time that the process has used, in seconds. The kernel counts hundredths.
pub fn cpu_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = text.rsplit_once(')').context("the name is missing")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
}

fn field(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find(|line| line.starts_with(name)).context("a field is missing")?;
    let number = line.split_whitespace().nth(1).context("a field is empty")?;
    Ok(number.parse()?)
}

/// The bytes that the files below a folder take on disk.
pub fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    visit(dir, &mut |path| {
        bytes += fs::metadata(path).map_or(0, |file| file.blocks() * 512);
        Ok(())
    })?;
    Ok(bytes)
}

/// Drops the files below a folder from the kernel's page cache.
pub fn forget_pages(dir: &Path) -> Result<()> {
    visit(dir, &mut |path| {
        let file = File::open(path)?;
        file.sync_all()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    })
}

fn visit(dir: &Path, each: &mut impl FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            visit(&path, each)?;
        } else {
            each(&path)?;
        }
    }
    Ok(())
}
