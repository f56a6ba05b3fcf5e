//! The functions of the C library by which the standard library changes files. A binary may have
//! its own: these ask the [drive](crate::Drive) of the file, if it has one, and then the kernel.
//!
//! A library that asks the kernel itself is not seen here. In the store that is only how `tempfile`
//! renames a file, between two syncs.

use std::{
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    io::IoSlice,
    os::{fd::BorrowedFd, unix::ffi::OsStrExt},
    path::Path,
    slice,
};

use rustix::{fs, io, io::Errno};

use crate::drive::{Change, of_file, of_path};

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// # Safety
/// As of the function of this name in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(file: c_int, bytes: *const c_void, count: usize) -> isize {
    // SAFETY: the caller says that there are so many bytes.
    let bytes = unsafe { bytes_of(bytes, count) };
    let written = with(file, |file| put(file, bytes, |bytes| io::write(file, bytes)));
    returned(written.map(|count| count as i64)) as isize
}

/// # Safety
/// As of the function of this name in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pwrite64(
    file: c_int,
    bytes: *const c_void,
    count: usize,
    at: i64,
) -> isize {
    // SAFETY: the caller says that there are so many bytes.
    let bytes = unsafe { bytes_of(bytes, count) };
    let write = |file: BorrowedFd<'_>| put(file, bytes, |bytes| io::pwrite(file, bytes, at as u64));
    returned(with(file, write).map(|count| count as i64)) as isize
}

/// # Safety
/// As of the function of this name in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn writev(file: c_int, parts: *const c_void, count: c_int) -> isize {
    // SAFETY: the caller says that there are so many parts. An `IoSlice` is one of them.
    let parts = match count {
        ..=0 => &[],
        _ => unsafe { slice::from_raw_parts(parts.cast::<IoSlice<'_>>(), count as usize) },
    };
    let written = with(file, |file| match of_file(file) {
        None => io::writev(file, parts),
        // A write may be short.
        Some(_) => {
            let first = parts.iter().find(|part| !part.is_empty());
            put(file, first.map_or(&[], |part| part), |bytes| io::write(file, bytes))
        }
    });
    returned(written.map(|count| count as i64)) as isize
}

/// # Safety
/// As of the function of this name in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fsync(file: c_int) -> c_int {
    returned(with(file, |file| sync(file, || fs::fsync(file))).map(|()| 0)) as c_int
}

/// # Safety
/// As of the function of this name in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    returned(with(file, |file| sync(file, || fs::fdatasync(file))).map(|()| 0)) as c_int
}

/// # Safety
/// As of the function of this name in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ftruncate64(file: c_int, length: i64) -> c_int {
    let truncate = |file: BorrowedFd<'_>| {
        let perform = || fs::ftruncate(file, length as u64);
        match of_file(file) {
            Some((drive, path)) => drive.change(Change::Other, &path, perform),
            None => perform(),
        }
    };
    returned(with(file, truncate).map(|()| 0)) as c_int
}

/// # Safety
/// As of the function of this name in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller says that these are strings.
    let (from, to) = unsafe { (path_of(from), path_of(to)) };
    let perform = || fs::rename(from, to);
    let renamed = match of_path(to) {
        Some(drive) => drive.change(Change::Other, to, perform),
        None => perform(),
    };
    returned(renamed.map(|()| 0)) as c_int
}

/// # Safety
/// As of the function of this name in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller says that this is a string.
    let path = unsafe { path_of(path) };
    let perform = || fs::unlink(path);
    let removed = match of_path(path) {
        Some(drive) => drive.change(Change::Other, path, perform),
        None => perform(),
    };
    returned(removed.map(|()| 0)) as c_int
}

fn put(
    file: BorrowedFd<'_>,
    bytes: &[u8],
    perform: impl Fn(&[u8]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    match of_file(file) {
        Some((drive, path)) => drive.write(&path, bytes, perform),
        None => perform(bytes),
    }
}

fn sync(file: BorrowedFd<'_>, perform: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    match of_file(file) {
        // The drive is not of this world: nothing has to reach a disk.
        Some((drive, path)) => drive.change(Change::Sync(file), &path, || Ok(())),
        None => perform(),
    }
}

/// # Safety
/// There must be so many bytes.
unsafe fn bytes_of<'b>(bytes: *const c_void, count: usize) -> &'b [u8] {
    match count {
        0 => &[],
        // SAFETY: the caller says so.
        _ => unsafe { slice::from_raw_parts(bytes.cast(), count) },
    }
}

/// # Safety
/// It must be a string of C.
unsafe fn path_of<'p>(path: *const c_char) -> &'p Path {
    // SAFETY: the caller says so.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()))
}

fn with<T>(file: c_int, call: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
    match file {
        ..0 => Err(Errno::BADF),
        // SAFETY: it is used for this call only; the kernel says if it is not open.
        _ => call(unsafe { BorrowedFd::borrow_raw(file) }),
    }
}

/// What the function returns.
fn returned(result: Result<i64, Errno>) -> i64 {
    result.unwrap_or_else(|error| {
        // SAFETY: it is this thread's own.
        unsafe { *__errno_location() = error.raw_os_error() };
        -1
    })
}
