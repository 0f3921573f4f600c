// SPDX-License-Identifier: BSD-3-Clause
//! A mapped file: reads copy out of it, writes copy into it. No reference points into it, since others change it.
use crate::{Error, Options, Result, Stat};
use ato_sys::*;
use std::{mem::ManuallyDrop, ops::BitOr, path::Path};

/// How a write is made; `|` joins them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub(crate) c_uint);

impl Flags {
    /// Copies what was written to the file before the call returns: other programs see it.
    pub const EAGER: Flags = Flags(ATO_EAGER);
    /// Leaves out what the file holds already.
    pub const SKIP_EQUAL: Flags = Flags(ATO_SKIP_EQUAL);
    /// As [`Options::relaxed`], for this write.
    pub const RELAXED: Flags = Flags(ATO_RELAXED);
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A mapped file. Several processes and threads may use one file at once, by one mapping or by several.
///
/// Dropping it unmaps the file ([`Options::keep_reflection`]); if that fails, the library goes on with it when the file is mapped next.
/// [`unmap`](Self::unmap) tells of a failure. A child of fork(2) maps the file itself.
#[derive(Debug)]
pub struct Mapping {
    pub(crate) base: *mut c_void,
    pub(crate) length: usize, // of the addresses: what the file may grow to
    pub(crate) unmap: c_int,
}

// SAFETY: the library's functions may be called from any thread at any time. It is not unmapped while another thread is in a call: that
// takes the mapping itself, and a call borrows it. The bytes behind `base` are accessed by the library alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

pub(crate) fn check(good: bool) -> Result<()> {
    good.then_some(()).ok_or_else(Error::last)
}

impl Mapping {
    /// Maps a file, with all defaults; a shorter one gets `size` bytes. It is made if it does not exist, unless `size` is 0: `ENOENT`.
    pub fn open(path: impl AsRef<Path>, size: u64) -> Result<Self> {
        Options { size, ..Options::default() }.open(path)
    }

    /// The address of `n` bytes from `offset` on, if they lie in this mapping; whether the file is so long, the library checks.
    pub(crate) fn at(&self, offset: u64, n: usize) -> Result<*mut c_void> {
        if offset > self.length as u64 || n > self.length - offset as usize {
            return Err(Error { errno: EFAULT, sentence: String::new() }.of_range(offset, n));
        }
        Ok(self.base.cast::<u8>().wrapping_add(offset as usize).cast())
    }

    fn memcpy(&self, offset: u64, to: *mut c_void, from: *const c_void, n: usize, flags: c_uint) -> Result<()> {
        // SAFETY: the callers pass addresses of this mapping, or of memory of n bytes that is theirs.
        check(n == 0 || !unsafe { ato_memcpy_opt(to, from, n, flags) }.is_null()).map_err(|e| e.of_range(offset, n))
    }
    /// Reads all of `to`: a snapshot of one moment, of any length.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.memcpy(offset, to.as_mut_ptr().cast(), self.at(offset, to.len())?, to.len(), 0)
    }
    /// The same as an array, as of a number: `u64::from_le_bytes(mapping.read_array(0)?)`.
    pub fn read_array<const N: usize>(&self, offset: u64) -> Result<[u8; N]> {
        let mut to = [0; N];
        self.read(offset, &mut to).map(|()| to)
    }
    /// Writes all of `from`, atomically whatever its length: durable when it returns.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.write_with(offset, from, Flags::default())
    }
    /// The same, with flags.
    pub fn write_with(&self, offset: u64, from: &[u8], flags: Flags) -> Result<()> {
        self.memcpy(offset, self.at(offset, from.len())?, from.as_ptr().cast(), from.len(), flags.0)
    }
    /// Copies `n` bytes within the file, atomically. The ranges may overlap.
    pub fn copy(&self, from: u64, to: u64, n: usize) -> Result<()> {
        self.memcpy(from.max(to), self.at(to, n)?, self.at(from, n)?, n, 0)
    }
    /// Writes several ranges, each with its offset, as one atomic step. If they overlap, the later one wins.
    pub fn writev(&self, ranges: &[(u64, &[u8])], flags: Flags) -> Result<()> {
        let mut iov = Vec::with_capacity(ranges.len());
        for &(offset, from) in ranges.iter().filter(|(_, from)| !from.is_empty()) {
            let dst = self.at(offset, from.len())?;
            iov.push(ato_iovec { dst, src: from.as_ptr().cast(), n: from.len() });
        }
        // More than the library takes: -1, which it refuses.
        let count = c_int::try_from(iov.len()).unwrap_or(-1);
        // SAFETY: the ranges, and their bytes, are valid during the call.
        check(iov.is_empty() || unsafe { ato_writev(iov.as_ptr(), count, flags.0) } == 0)
    }

    /// The file's size in bytes.
    pub fn size(&self) -> Result<u64> {
        // SAFETY: an address in the mapping; so it is below.
        u64::try_from(unsafe { ato_size(self.base) }).map_err(|_| Error::last())
    }
    /// Makes the file longer, with zeros, or shorter: atomic and durable.
    pub fn set_size(&self, bytes: u64) -> Result<()> {
        let bytes = off_t::try_from(bytes).unwrap_or(off_t::MAX);
        // SAFETY: see size().
        check(unsafe { ato_ftruncate(self.base, bytes) } == 0)
    }
    /// Makes all relaxed commits to the file durable. Others are so already.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: see size().
        check(unsafe { ato_msync(self.base, self.length, MS_SYNC) } == 0)
    }
    /// Copies what lies in the reflection to the file itself, where other programs see it until the next write there.
    pub fn deploy(&self, offset: u64, n: usize) -> Result<()> {
        // SAFETY: see size().
        check(n == 0 || unsafe { ato_deploy(self.at(offset, n)?, n) } == 0)
    }
    /// Counters and states of the file in this process.
    pub fn stat(&self) -> Result<Stat> {
        let mut stat = Stat::default();
        // SAFETY: `stat` is as long as it says.
        check(unsafe { ato_stat(self.base, &mut stat) } == 0).map(|()| stat)
    }
    /// Where the file is mapped, while this lives: for the calls of `ato_sys` that this crate does not have. Do not load through it: what is
    /// there is old, unless it was deployed, and others change it.
    pub fn as_ptr(&self) -> *mut c_void {
        self.base
    }
    /// Unmaps the file, as dropping does. After an error the addresses stay taken; no byte is lost: the next map goes on.
    pub fn unmap(self) -> Result<()> {
        ManuallyDrop::new(self).end()
    }
    fn end(&self) -> Result<()> {
        // SAFETY: nothing borrows the mapping. A snapshot or transaction that was forgotten (mem::forget()) keeps it mapped: EBUSY.
        check(unsafe { ato_munmap(self.base, self.length, self.unmap) } == 0)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
