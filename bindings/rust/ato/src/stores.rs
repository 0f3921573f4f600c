// SPDX-License-Identifier: BSD-3-Clause
//! A mapped file that the program stores to by plain instructions.
use crate::{mapping::check, Mapping, Result};
use ato_sys::*;
use std::{ops::Deref, slice, sync::atomic::AtomicU64};

/// A mapped file that a program loads from and stores to by plain instructions; [`commit`](Self::commit) makes what it has stored one
/// atomic, durable step ([`crate::Options::open_plain`]; `ATO_PLAIN_STORES` in `ato.h`).
///
/// A page without stores of this process shows at once what other processes commit. So there is no safe `&[u8]`: use
/// [`words`](Self::words), or raw pointers. Dropped, it forgets what was not committed. Threads that store must not block SIGSEGV.
/// ```
/// # let folder = std::env::temp_dir().join(format!("ato-doc-plain-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// use std::sync::atomic::Ordering::Relaxed;
/// let counters = ato::Options { size: 1 << 20, ..Default::default() }.open_plain(folder.join("counters"))?;
/// // SAFETY: no other program cuts the file.
/// for counter in unsafe { counters.words()? } {
///     counter.fetch_add(1, Relaxed);
/// }
/// counters.commit()?; // all of them or none
/// # drop(counters);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<_, ato::Error>(())
/// ```
#[derive(Debug)]
pub struct PlainStores(pub(crate) Mapping);

impl PlainStores {
    /// The file's bytes, as words that may be loaded and stored while others do so. Bytes after the last whole word are left out.
    ///
    /// A word that lies behind the end, if the file is made shorter by libato, holds anything, and is not committed.
    ///
    /// # Safety
    ///
    /// Nobody cuts the file without libato while the slice is in use, as `File::set_len` does: an access there is SIGBUS, as with any
    /// mapped file.
    //
    // The slice: the addresses are mapped, readable and writable, as long as the mapping lives, which the slice borrows.
    // `base` is aligned to 1 GiB. Other threads access the bytes by these words, or by unsafe code; the kernel and other processes
    // change whole pages beneath, which is as if another thread stored: what atomics allow.
    pub unsafe fn words(&self) -> Result<&[AtomicU64]> {
        let words = self.0.size()? as usize / 8;
        Ok(unsafe { slice::from_raw_parts(self.0.at(0, words * 8)?.cast(), words) })
    }
    /// Commits what was stored, as one atomic step: durable when it returns. Other threads that store meanwhile wait.
    pub fn commit(&self) -> Result<()> {
        self.msync(0, self.length, MS_SYNC)
    }
    /// The same; does not wait for a disk ([`crate::Options::relaxed`]).
    pub fn commit_relaxed(&self) -> Result<()> {
        self.msync(0, self.length, MS_ASYNC)
    }
    /// Commits what was stored to the pages of a range, as one step. Stores to other pages stay for a later commit.
    pub fn commit_range(&self, offset: u64, n: usize) -> Result<()> {
        self.at(offset, n)?;
        let before = offset as usize % 4096; // msync(2) asks for the beginning of a page
        self.msync(offset - before as u64, n + before, MS_SYNC)
    }
    fn msync(&self, offset: u64, n: usize, flags: c_int) -> Result<()> {
        // SAFETY: an address in the mapping.
        check(unsafe { ato_msync(self.at(offset, n)?, n, flags) } == 0)
    }
    /// Forgets what was stored since the last commit.
    pub fn discard(&self) -> Result<()> {
        // SAFETY: an address in the mapping. words() and raw pointers see other bytes then, as after a commit of others.
        check(unsafe { ato_plain_discard(self.base, self.length) } == 0)
    }
    /// Unmaps the file, and forgets what was not committed, as dropping does.
    pub fn unmap(self) -> Result<()> {
        self.0.unmap()
    }
}

/// The mapping's other calls. `read` reads what is committed, `set_size` makes the file longer with the next commit, writes are `EINVAL`. Loads
/// and stores through `as_ptr` are the caller's `unsafe`: other processes and threads change these bytes.
impl Deref for PlainStores {
    type Target = Mapping;
    fn deref(&self) -> &Mapping {
        &self.0
    }
}
