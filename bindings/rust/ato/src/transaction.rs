// SPDX-License-Identifier: BSD-3-Clause
//! Several reads and writes as one atomic step.
use crate::{mapping::check, options::milliseconds, Error, Mapping, Result};
use ato_sys::*;
use std::{marker::PhantomData, ptr::NonNull, time::Duration, time::Instant};

/// Reads of any mapped files and writes to one of them, which [`commit`](Self::commit) makes one atomic, durable step. Until then nobody
/// sees the writes; all that it has read is as it was at one moment. Dropped without a commit it has no effect.
///
/// A call fails with `EAGAIN` if others were in its way: then the transaction is refused, and has to run again from its beginning.
/// [`run`] does that. A mapping outlives the transactions that use it:
///
/// ```compile_fail
/// let mut tx = ato::TransactionOptions::default().begin()?;
/// let mapping = ato::Mapping::open("data", 4096)?;
/// tx.write(&mapping, 0, b"it would be unmapped first")?;
/// # Ok::<_, ato::Error>(())
/// ```
#[derive(Debug)]
pub struct Transaction<'m> {
    handle: NonNull<ato_tx>,
    is_refused: bool,
    is_over: bool,
    mappings: PhantomData<&'m Mapping>,
}

// SAFETY: any thread may call on a transaction, one at a time: all calls take it by &mut or by value. A thread that goes on with the
// transaction of another one, by Send, costs a barrier, or is ENOTSUP. The handle is a number, which the library checks.
unsafe impl Send for Transaction<'_> {}
// SAFETY: a shared reference gives no access to the handle.
unsafe impl Sync for Transaction<'_> {}

impl<'m> Transaction<'m> {
    fn noted<T>(&mut self, result: Result<T>) -> Result<T> {
        self.is_refused |= matches!(&result, Err(error) if error.is_again());
        result
    }
    fn copy(&mut self, offset: u64, to: *mut c_void, from: *const c_void, n: usize) -> Result<()> {
        // SAFETY: the callers pass a mapping's address and memory of n bytes that is theirs.
        let done = check(n == 0 || !unsafe { ato_tx_memcpy(self.handle.as_ptr(), to, from, n, 0) }.is_null());
        self.noted(done.map_err(|e| e.of_range(offset, n)))
    }
    /// As [`Mapping::read`]; sees the transaction's own writes.
    pub fn read(&mut self, mapping: &'m Mapping, offset: u64, to: &mut [u8]) -> Result<()> {
        self.copy(offset, to.as_mut_ptr().cast(), mapping.at(offset, to.len())?, to.len())
    }
    /// As [`Mapping::read_array`].
    pub fn read_array<const N: usize>(&mut self, mapping: &'m Mapping, offset: u64) -> Result<[u8; N]> {
        let mut to = [0; N];
        self.read(mapping, offset, &mut to).map(|()| to)
    }
    /// As [`Mapping::write`], to be committed. `EXDEV`: it has written to another file already.
    pub fn write(&mut self, mapping: &'m Mapping, offset: u64, from: &[u8]) -> Result<()> {
        self.copy(offset, mapping.at(offset, from.len())?, from.as_ptr().cast(), from.len())
    }
    /// The size of the file as the transaction sees it. Two transactions cannot both append at the same end.
    pub fn size(&mut self, mapping: &'m Mapping) -> Result<u64> {
        // SAFETY: an address in the mapping; so it is below.
        let size = u64::try_from(unsafe { ato_tx_size(self.handle.as_ptr(), mapping.base) }).map_err(|_| Error::last());
        self.noted(size)
    }
    /// As [`Mapping::set_size`], to be committed.
    pub fn set_size(&mut self, mapping: &'m Mapping, bytes: u64) -> Result<()> {
        let bytes = off_t::try_from(bytes).unwrap_or(off_t::MAX);
        // SAFETY: see size().
        self.noted(check(unsafe { ato_tx_ftruncate(self.handle.as_ptr(), mapping.base, bytes) } == 0))
    }
    /// Commits all writes in one step, durably unless it is relaxed. After an error nothing has changed (but see `EIO` in `ato.h`).
    pub fn commit(mut self) -> Result<()> {
        self.end()
    }
    fn end(&mut self) -> Result<()> {
        // SAFETY: the library checks the handle.
        self.is_over = unsafe { ato_tx_commit(self.handle.as_ptr()) } == 0;
        self.noted(check(self.is_over))
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // SAFETY: the library checks the handle.
            unsafe { ato_tx_abort(self.handle.as_ptr()) };
        }
    }
}

/// How a transaction is made: `TransactionOptions { relaxed: true, ..Default::default() }`. Zero is the library's default.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionOptions {
    /// Reads are not checked again later: two of them may show different moments. Needed for mappings that are read-only.
    pub read_committed: bool,
    /// As [`crate::Options::relaxed`], for this transaction.
    pub relaxed: bool,
    /// How long a call waits for a page that others hold: 1 ms by default.
    pub wait: Duration,
    /// How much it may write, in bytes of whole pages: 1 GiB by default.
    pub max_bytes: u64,
    /// How long [`run`](Self::run) tries: 10 seconds by default.
    pub tries: Duration,
}

impl TransactionOptions {
    /// Begins a transaction.
    pub fn begin<'m>(&self) -> Result<Transaction<'m>> {
        let read_committed = if self.read_committed { ATO_TX_READ_COMMITTED } else { 0 };
        let flags = read_committed | if self.relaxed { ATO_RELAXED } else { 0 };
        let raw =
            ato_tx_options { flags, wait_ms: milliseconds(self.wait), max_bytes: self.max_bytes, ..Default::default() };
        // SAFETY: the options are valid during the call.
        let handle = NonNull::new(unsafe { ato_tx_begin_opt(&raw) }).ok_or_else(Error::last)?;
        Ok(Transaction { handle, is_refused: false, is_over: false, mappings: PhantomData })
    }
    /// As [`run`](fn@run), with these options.
    //
    // Not by ato_tx_run(), whose function a panic must not leave: here it leaves through Transaction's drop().
    pub fn run<'m, T, E: From<Error>>(&self, mut f: impl FnMut(&mut Transaction<'m>) -> Result<T, E>) -> Result<T, E> {
        let limit = if self.tries.is_zero() { Duration::from_secs(10) } else { self.tries };
        let began = Instant::now();
        loop {
            let mut tx = self.begin()?;
            let done = match f(&mut tx) {
                Ok(value) => tx.end().map(|()| value).map_err(E::from),
                failed => failed,
            };
            if !tx.is_refused || began.elapsed() >= limit {
                return done;
            }
        }
    }
}

/// Runs `f` in a transaction and commits it; again if others were in its way, for 10 seconds at most. So what it changes outside
/// the mappings has to be right after any number of runs. An error that it returns, or a panic, ends the transaction without any effect.
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("ato-doc-run-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// let accounts = ato::Mapping::open(folder.join("accounts"), 8192)?;
/// ato::run(|tx| {
///     let [a] = tx.read_array(&accounts, 0)?;
///     let [b] = tx.read_array(&accounts, 4096)?;
///     tx.write(&accounts, 0, &[a + 1])?;
///     tx.write(&accounts, 4096, &[b + 1])
/// })?;
/// assert_eq!(accounts.read_array(4096)?, [1]);
/// # drop(accounts);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<_, ato::Error>(())
/// ```
pub fn run<'m, T, E: From<Error>>(f: impl FnMut(&mut Transaction<'m>) -> Result<T, E>) -> Result<T, E> {
    TransactionOptions::default().run(f)
}
