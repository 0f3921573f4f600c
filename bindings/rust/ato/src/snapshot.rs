// SPDX-License-Identifier: BSD-3-Clause
//! The file as it was at one moment.
use crate::{Error, Mapping, Result};
use ato_sys::*;
use std::{marker::PhantomData, ptr::NonNull};

/// A file as it was when [`Mapping::snapshot`] was called. It blocks no writer. The mapping stays while there is one.
#[derive(Debug)]
pub struct Snapshot<'m> {
    handle: NonNull<ato_snapshot>,
    size: u64,
    mapping: PhantomData<&'m Mapping>,
}

// SAFETY: several threads may read it at once, and any one ends it.
unsafe impl Send for Snapshot<'_> {}
// SAFETY: as above.
unsafe impl Sync for Snapshot<'_> {}

impl Mapping {
    /// Begins a snapshot: the file as a whole, as it is now, whatever others write. Needs Linux 4.16.
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        // SAFETY: an address in the mapping.
        let handle = NonNull::new(unsafe { ato_snapshot_begin(self.base) }).ok_or_else(Error::last)?;
        let mut snapshot = Snapshot { handle, size: 0, mapping: PhantomData };
        // SAFETY: the snapshot is open, and no other thread has it.
        let size = unsafe { ato_snapshot_seek(handle.as_ptr(), 0, SEEK_END) };
        snapshot.size = u64::try_from(size).map_err(|_| Error::last())?;
        Ok(snapshot)
    }
}

impl Snapshot<'_> {
    /// The size of the file.
    pub fn size(&self) -> u64 {
        self.size
    }
    /// Copies what there is from `offset` on. Returns how many bytes: fewer than asked for at the end of the file. `ESTALE`: the
    /// memory for what others change was used up ([`crate::Options::snapshot_bytes`]).
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let from = off_t::try_from(offset).unwrap_or(off_t::MAX);
        if to.is_empty() {
            return Ok(0);
        }
        // SAFETY: the snapshot is open; `to` is memory of its length that nobody else has.
        let n = unsafe { ato_snapshot_read(self.handle.as_ptr(), to.as_mut_ptr().cast(), from, to.len()) };
        usize::try_from(n).map_err(|_| Error::last())
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // SAFETY: it is open, and ends here.
        unsafe { ato_snapshot_end(self.handle.as_ptr()) };
    }
}
