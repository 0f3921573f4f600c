// SPDX-License-Identifier: BSD-3-Clause
//! The declarations of libato's headers `ato.h` and `ato_engine.h`, as they are in C. What each function does, its errors, and what
//! is durable when it returns stands there and in its man page. The crate `ato` is the safe interface.
//!
//! libato is found by `pkg-config`; with the feature `vendored` it is compiled from the sources in this crate. A process should have it
//! once: do not use `vendored` in a program that also loads `libato_sqlite.so` and maps the same files.
//!
//! A panic must not leave a function that is passed to the library: these are `extern "C"`.
#![allow(non_camel_case_types)]

pub use std::os::raw::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

/// `off_t` of Linux on x86-64.
pub type off_t = i64;

/// The version of the headers that this crate declares.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

macro_rules! constants {
    ($type:ty: $($name:ident = $value:expr),* $(,)?) => { $(#[allow(missing_docs)] pub const $name: $type = $value;)* };
}
constants! { c_int:
    ATO_READ_DEFAULT = 0, ATO_READ_LAZY = 1, ATO_READ_GATHER = 2, ATO_READ_EAGER = 3,
    ATO_DOMAIN_AUTO = 0, ATO_DOMAIN_PMEM = 1, ATO_DOMAIN_EADR = 2, ATO_DOMAIN_DISK = 3, ATO_DOMAIN_PROCESS = 4,
    ATO_FORMAT_DEFAULT = 0, ATO_FORMAT_DENSE = 1, ATO_FORMAT_SPARSE = 2, ATO_FORMAT_LOG = 4,
    ATO_UNMAP_FAST = 0, ATO_UNMAP_SPATIAL = 1, ATO_UNMAP_DISCARD = 2,
    ATO_LOG_ERROR = 0, ATO_LOG_WARNING = 1, ATO_LOG_INFO = 2,
    PROT_READ = 1, PROT_WRITE = 2, MAP_SHARED = 1, MS_ASYNC = 1, MS_SYNC = 4, SEEK_END = 2, SEEK_DATA = 3,
    EIO = 5, EAGAIN = 11, EFAULT = 14, EINVAL = 22,
}
constants! { c_uint:
    ATO_NO_RTM = 0x1, ATO_PREFER_FILE = 0x2, ATO_PREFER_REFLECTION = 0x4, ATO_EPOCHS = 0x8, ATO_BORROW_FD = 0x10,
    ATO_ANY_FILE_SYSTEM = 0x20, ATO_NO_FAULT_HANDLER = 0x40, ATO_PLAIN = 0x80, ATO_MASK_FIRST = 0x100, ATO_RELAXED = 0x200,
    ATO_PLAIN_STORES = 0x400, ATO_EAGER = 0x1, ATO_SKIP_EQUAL = 0x2, ATO_TX_READ_COMMITTED = 0x1, ATO_TX_EARLY = 0x100,
}
pub const ATO_SHARED_MAX: usize = 65536;
/// What `ato_mmap()` returns when it fails.
pub const MAP_FAILED: *mut c_void = !0usize as *mut c_void;

macro_rules! sized {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => { $(
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs)]
        pub struct $name { pub struct_size: usize, $(pub $field: $type),* }
        /// Zeros, which are the defaults, with its `struct_size`.
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: zeros are a value of each field: integers, raw pointers, optional functions.
                let zeros: Self = unsafe { std::mem::zeroed() };
                Self { struct_size: std::mem::size_of::<Self>(), ..zeros }
            }
        }
    )* };
}
sized! {
    ato_options {
        read_policy: c_int, domain: c_int, format: c_int, flags: c_uint, max_size: usize, reflection_dir: *const c_char,
        guard_offset: off_t, guard_plain: *const c_void, guard_bytes: usize, log_dir: *const c_char, log_bytes: u64,
        snapshot_bytes: u64, relaxed_ms: u64,
    }
    ato_unmap_options {
        mode: c_int, threads: c_uint, progress: Option<unsafe extern "C" fn(arg: *mut c_void, done: u64, total: u64)>,
        progress_arg: *mut c_void, guard_plain: *const c_void,
    }
    ato_tx_options { flags: c_uint, wait_ms: u64, max_bytes: u64, run_ms: u64 }
    ato_stat {
        domain: c_int, format: c_int, read_policy: c_int, size: u64, slices_in_reflection: u64, reflection_bytes: u64, writes: u64,
        bytes_written: u64, reads: u64, bytes_read: u64, bytes_to_media: u64, flips: u64, commits_single: u64, commits_rtm: u64,
        commits_journal: u64, rtm_aborts: u64, deployed_slices: u64, read_retries: u64, guard_offset: u64, guard_bytes: c_uint,
        guard_plain: [c_uchar; 16],
    }
}

/// One range of `ato_writev()`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[rustfmt::skip]
pub struct ato_iovec { pub dst: *mut c_void, pub src: *const c_void, pub n: usize }

/// What `ato_tx_commit_early()` promises.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[rustfmt::skip]
pub struct ato_promise { pub number: c_ulonglong, pub end: c_ulonglong }

/// The handle of a transaction.
#[repr(C)]
pub struct ato_tx([u8; 0]);

/// The handle of a snapshot.
#[repr(C)]
pub struct ato_snapshot([u8; 0]);

extern "C" {
    pub fn ato_version() -> *const c_char;
    pub fn ato_mmap(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    pub fn ato_mmap_opt(length: usize, fd: c_int, offset: off_t, opt: *const ato_options) -> *mut c_void;
    pub fn ato_munmap(addr: *mut c_void, length: usize, mode: c_int) -> c_int;
    pub fn ato_munmap_opt(addr: *mut c_void, length: usize, opt: *const ato_unmap_options) -> c_int;
    pub fn ato_memcpy(dst: *mut c_void, src: *const c_void, n: usize) -> *mut c_void;
    pub fn ato_memcpy_opt(dst: *mut c_void, src: *const c_void, n: usize, flags: c_uint) -> *mut c_void;
    pub fn ato_memset(dst: *mut c_void, c: c_int, n: usize) -> *mut c_void;
    pub fn ato_writev(iov: *const ato_iovec, count: c_int, flags: c_uint) -> c_int;
    pub fn ato_deploy(addr: *const c_void, n: usize) -> c_int;
    pub fn ato_reclaim(addr: *mut c_void, n: usize) -> c_int;
    pub fn ato_snapshot_begin(addr: *const c_void) -> *mut ato_snapshot;
    pub fn ato_snapshot_read(snapshot: *mut ato_snapshot, dst: *mut c_void, offset: off_t, n: usize) -> isize;
    pub fn ato_snapshot_seek(snapshot: *mut ato_snapshot, offset: off_t, whence: c_int) -> off_t;
    pub fn ato_snapshot_end(snapshot: *mut ato_snapshot) -> c_int;
    pub fn ato_msync(addr: *mut c_void, n: usize, flags: c_int) -> c_int;
    pub fn ato_plain_discard(addr: *mut c_void, n: usize) -> c_int;
    pub fn ato_set_read_policy(addr: *mut c_void, policy: c_int) -> c_int;
    pub fn ato_ftruncate(addr: *mut c_void, size: off_t) -> c_int;
    pub fn ato_tx_begin(flags: c_uint) -> *mut ato_tx;
    pub fn ato_tx_begin_opt(opt: *const ato_tx_options) -> *mut ato_tx;
    pub fn ato_tx_run(
        run: Option<unsafe extern "C" fn(tx: *mut ato_tx, arg: *mut c_void) -> c_int>,
        arg: *mut c_void,
        opt: *const ato_tx_options,
    ) -> c_int;
    pub fn ato_tx_memcpy(tx: *mut ato_tx, dst: *mut c_void, src: *const c_void, n: usize, flags: c_uint)
        -> *mut c_void;
    pub fn ato_tx_ftruncate(tx: *mut ato_tx, addr: *mut c_void, size: off_t) -> c_int;
    pub fn ato_tx_size(tx: *mut ato_tx, addr: *const c_void) -> off_t;
    pub fn ato_tx_commit(tx: *mut ato_tx) -> c_int;
    pub fn ato_tx_abort(tx: *mut ato_tx) -> c_int;
    pub fn ato_stat(addr: *const c_void, st: *mut ato_stat) -> c_int;
    pub fn ato_size(addr: *const c_void) -> off_t;
    pub fn ato_errormsg() -> *const c_char;
    pub fn ato_set_log(
        log: Option<unsafe extern "C" fn(arg: *mut c_void, level: c_int, sentence: *const c_char)>,
        arg: *mut c_void,
    );

    // ato_engine.h
    pub fn ato_set_guard(addr: *mut c_void, offset: off_t, plain: *const c_void, n: usize) -> c_int;
    pub fn ato_read_original(dst: *mut c_void, src: *const c_void, n: usize) -> c_int;
    pub fn ato_settle(addr: *const c_void) -> c_int;
    pub fn ato_check(addr: *const c_void) -> c_int;
    pub fn ato_snapshot_is_newest(snapshot: *const ato_snapshot) -> c_int;
    pub fn ato_tx_commit_early(tx: *mut ato_tx, promise: *mut ato_promise) -> c_int;
    pub fn ato_visible(addr: *const c_void, promise: *mut ato_promise) -> c_int;
    pub fn ato_await(addr: *const c_void, promise: *const ato_promise) -> c_int;
    pub fn ato_read_newest(dst: *mut c_void, src: *const c_void, n: usize) -> *mut c_void;
    pub fn ato_snapshot_newest(addr: *const c_void) -> *mut ato_snapshot;
    pub fn ato_shared(fd: c_int, bytes: usize) -> *mut c_void;
    pub fn ato_shared_end(fd: c_int, memory: *mut c_void, bytes: usize, is_last: c_int) -> c_int;
    pub fn ato_shared_check(memory: *const c_void) -> c_int;
    pub fn ato_log(level: c_int, sentence: *const c_char);
}
