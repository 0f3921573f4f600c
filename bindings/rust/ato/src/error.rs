// SPDX-License-Identifier: BSD-3-Clause
//! Errors: the number and the sentence that the library gave.
use ato_sys::{EAGAIN, EFAULT, EIO};
use std::{ffi::CStr, fmt, io, path::Path};

/// What the calls of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. It is shown by the library's sentence: what is wrong with which file, and what to do. Nothing has changed then, except after `EIO` (`ato.h`, Durability).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub(crate) errno: i32,
    pub(crate) sentence: String,
}

impl Error {
    /// Of the call of the library that this thread has just made.
    pub(crate) fn last() -> Self {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(EIO);
        // SAFETY: a string that is valid until the thread's next call.
        let said = unsafe { CStr::from_ptr(ato_sys::ato_errormsg()) }.to_string_lossy();
        let (before, after) = said.split_once(" at 0x").unwrap_or((&said, "")); // an address tells nothing here
        let sentence = before.to_string() + after.trim_start_matches(|c: char| c.is_ascii_hexdigit());
        Self { errno, sentence: sentence.replace("ATO_TX_READ_COMMITTED", "TransactionOptions::read_committed") }
    }

    /// The library names a range by addresses.
    pub(crate) fn of_range(mut self, offset: u64, n: usize) -> Self {
        if self.errno == EFAULT {
            self.sentence = format!("{n} bytes at {offset} are not within the file");
        }
        self
    }

    pub(crate) fn of_path(error: &io::Error, path: &Path) -> Self {
        Self { errno: error.raw_os_error().unwrap_or(EIO), sentence: format!("{}: {error}", path.display()) }
    }

    /// The error's number: `EAGAIN`, `ENOSPC`, ...
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// Is it `EAGAIN`? In a transaction: others were in its way, and it has to run again from its beginning, as [`crate::run`] does.
    pub fn is_again(&self) -> bool {
        self.errno == EAGAIN
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Error {}

/// The kind is that of the number; the sentence stays.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(io::Error::from_raw_os_error(error.errno).kind(), error)
    }
}
