// SPDX-License-Identifier: BSD-3-Clause
#![doc = include_str!("../README.md")]
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

mod error;
mod mapping;
mod options;
mod snapshot;
mod stores;
mod transaction;

pub use ato_sys::ato_stat as Stat;
pub use error::{Error, Result};
pub use mapping::{Flags, Mapping};
pub use options::{Domain, Options, Prefer, ReadPolicy};
pub use snapshot::Snapshot;
pub use stores::PlainStores;
pub use transaction::{run, Transaction, TransactionOptions};

/// The version of the library that the program runs with: `"0.1.0"`.
pub fn version() -> &'static str {
    // SAFETY: a constant string of ASCII characters.
    unsafe { std::ffi::CStr::from_ptr(ato_sys::ato_version()) }.to_str().unwrap_or("")
}
