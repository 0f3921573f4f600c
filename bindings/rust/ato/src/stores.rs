// SPDX-License-Identifier: BSD-3-Clause
//! A mapped file that the program stores to by plain instructions.
use crate::{mapping::check, Mapping, Result};
use ato_sys::*;
use std::{ops::Deref, ops::RangeBounds, slice, sync::atomic::AtomicU64};

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
/// for counter in counters.words()? {
///     counter.fetch_add(1, Relaxed);
/// }
/// counters.commit(..)?; // all of them or none
/// # drop(counters);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<_, ato::Error>(())
/// ```
#[derive(Debug)]
pub struct PlainStores(pub(crate) Mapping);

impl PlainStores {
    /// The file's bytes, as words that may be loaded and stored while others do so. Bytes after the last whole word are left out.
    ///
    /// A word that lies behind the end, if another thread makes the file shorter, holds anything. (If another program cuts the file, without
    /// libato, an access there is SIGBUS, as with any mapped file.)
    //
    // SAFETY of the slice: the addresses are mapped, readable and writable, as long as the mapping lives, which the slice borrows.
    // `base` is aligned to 1 GiB. Other threads access the bytes by these words, or by unsafe code; the kernel and other processes
    // change whole pages beneath, which is as if another thread stored: what atomics allow.
    pub fn words(&self) -> Result<&[AtomicU64]> {
        let words = self.0.size()? as usize / 8;
        let base = self.0.at(0, words * 8)?;
        Ok(unsafe { slice::from_raw_parts(base.cast(), words) })
    }
    /// Commits what was stored to the pages of a range, as one atomic step: durable when it returns. Other threads that store there wait.
    pub fn commit(&self, range: impl RangeBounds<u64>) -> Result<()> {
        self.msync(range, MS_SYNC)
    }
    /// The same; does not wait for a disk ([`crate::Options::relaxed`]).
    pub fn commit_relaxed(&self, range: impl RangeBounds<u64>) -> Result<()> {
        self.msync(range, MS_ASYNC)
    }
    fn msync(&self, range: impl RangeBounds<u64>, flags: c_int) -> Result<()> {
        let (at, n) = self.pages(range)?;
        // SAFETY: an address in the mapping.
        check(n == 0 || unsafe { ato_msync(at, n, flags) } == 0)
    }
    /// Forgets what was stored to the pages of a range since the last commit.
    pub fn discard(&self, range: impl RangeBounds<u64>) -> Result<()> {
        let (at, n) = self.pages(range)?;
        // SAFETY: an address in the mapping. words() and raw pointers see other bytes then, as after a commit of others.
        check(n == 0 || unsafe { ato_plain_discard(at, n) } == 0)
    }
    /// The range, from the beginning of its first page on, as msync(2) asks for.
    fn pages(&self, range: impl RangeBounds<u64>) -> Result<(*mut c_void, usize)> {
        let (at, n) = self.0.range(range)?;
        let more = at as usize % 4096;
        Ok((at.cast::<u8>().wrapping_sub(more).cast(), if n == 0 { 0 } else { n + more }))
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
