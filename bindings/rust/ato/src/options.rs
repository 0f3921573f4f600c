// SPDX-License-Identifier: BSD-3-Clause
//! How a file is mapped.
use crate::{run, Error, Mapping, PlainStores, Result};
use ato_sys::*;
use std::os::unix::{ffi::OsStrExt, io::AsRawFd};
use std::{ffi::CString, fs::File, path::Path, path::PathBuf, time::Duration};

/// How reads treat bytes whose valid copy lies in the reflection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPolicy {
    /// The first read of such a page copies it to the file.
    Lazy = ATO_READ_LAZY as isize,
    /// Reads take the bytes from where they are.
    Gather = ATO_READ_GATHER as isize,
    /// Each write copies what it wrote to the file before it returns.
    Eager = ATO_READ_EAGER as isize,
}

/// How bytes become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Persistent memory: survives a power cut.
    Pmem = ATO_DOMAIN_PMEM as isize,
    /// The same, with caches of the CPU that are flushed at a power cut.
    Eadr = ATO_DOMAIN_EADR as isize,
    /// A disk: survives a power cut.
    Disk = ATO_DOMAIN_DISK as isize,
    /// Survives a kill of the process, not a crash of the kernel.
    Process = ATO_DOMAIN_PROCESS as isize,
}

/// Which side is right where a file and its reflection do not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefer {
    /// The file as it is; the reflection is set aside.
    File = ATO_PREFER_FILE as isize,
    /// What the reflection holds, and the file's bytes elsewhere.
    Reflection = ATO_PREFER_REFLECTION as isize,
}

/// How to map a file: `Options { size: 4096, ..Options::default() }`. Zero, `None` and `false` are the library's defaults, or what
/// the environment says (`ato_mmap_opt(3)`).
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A file that is shorter gets this size in bytes when it is mapped; one that does not exist is made, unless this is 0.
    pub size: u64,
    /// What the file may grow to, in bytes: 1 GiB by default, or its size if that is more. It takes address space only.
    pub max_size: u64,
    /// Opens the file for reading only.
    pub read_only: bool,
    /// The end of the mapping keeps the reflection: unmapping and mapping again take no time. Other programs do not see what lies in
    /// it. Otherwise, when the last mapping of a file ends, it is copied to the file and removed: the file is an ordinary one.
    pub keep_reflection: bool,
    /// How bytes become durable: as the medium is, by default.
    pub domain: Option<Domain>,
    /// How reads treat bytes in the reflection: lazily by default.
    pub read_policy: Option<ReadPolicy>,
    /// A new reflection takes space only for pages that were written: for few updates far apart.
    pub sparse: bool,
    /// On a disk, writes and transactions do not wait for it: a power cut may take the newest ones, those since the time given here
    /// and never a part of one. A kill takes nothing. [`Mapping::sync`] makes all of them durable.
    pub relaxed: Option<Duration>,
    /// Which side is right where file and reflection do not belong together, which is `ESTALE` by default.
    pub prefer: Option<Prefer>,
    /// The folder of the reflection, in place of `.ato` beside the file.
    pub reflection_dir: Option<PathBuf>,
    /// The same for the log of a file on a disk: on persistent memory a write waits for no disk.
    pub log_dir: Option<PathBuf>,
    /// Bytes of a new log, all that it ever gets.
    pub log_bytes: u64,
    /// Shared memory, at most, for what snapshots see and others have changed.
    pub snapshot_bytes: u64,
    /// Uses file systems of a network, and FUSE, too: safe only if no other machine uses the file.
    pub any_file_system: bool,
}

impl Options {
    /// Opens the file, makes it if it does not exist and has a [`size`](Self::size) here, and maps it.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Mapping> {
        self.map(&self.file(path.as_ref())?)
    }
    /// Maps an open file, all of it. The file may be closed then.
    pub fn map(&self, file: &File) -> Result<Mapping> {
        self.make(file, 0, 0)
    }
    /// As [`open`](Self::open), for a program that stores by plain instructions.
    pub fn open_plain(&self, path: impl AsRef<Path>) -> Result<PlainStores> {
        self.make(&self.file(path.as_ref())?, ATO_PLAIN_STORES, ATO_UNMAP_DISCARD).map(PlainStores)
    }

    fn file(&self, path: &Path) -> Result<File> {
        let (mut how, writes) = (File::options(), !self.read_only);
        how.read(true).write(writes).create(writes && self.size > 0);
        how.open(path).map_err(|error| Error::of_path(&error, path))
    }

    fn make(&self, file: &File, flags: c_uint, unmap: c_int) -> Result<Mapping> {
        let flag = |yes: bool, flag: c_uint| if yes { flag } else { 0 };
        let folders = [c_path(&self.reflection_dir)?, c_path(&self.log_dir)?];
        let pointer = |folder: &Option<CString>| folder.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        let length = file.metadata().map_err(|error| Error::of_path(&error, Path::new("the file")))?.len();
        let max_size = if self.max_size == 0 { 1 << 30 } else { self.max_size }.max(length).max(self.size) as usize;
        let raw = ato_options {
            read_policy: self.read_policy.map_or(ATO_READ_DEFAULT, |policy| policy as c_int),
            domain: self.domain.map_or(ATO_DOMAIN_AUTO, |domain| domain as c_int),
            format: if self.sparse { ATO_FORMAT_SPARSE } else { ATO_FORMAT_DEFAULT },
            flags: flags
                | self.prefer.map_or(0, |side| side as c_uint)
                | flag(self.relaxed.is_some(), ATO_RELAXED)
                | flag(self.any_file_system, ATO_ANY_FILE_SYSTEM),
            max_size,
            reflection_dir: pointer(&folders[0]),
            log_dir: pointer(&folders[1]),
            log_bytes: self.log_bytes,
            snapshot_bytes: self.snapshot_bytes,
            relaxed_ms: self.relaxed.map_or(0, milliseconds),
            ..ato_options::default()
        };
        // SAFETY: `raw` and the folders' names are valid during the call.
        let base = unsafe { ato_mmap_opt(max_size, file.as_raw_fd(), 0, &raw) };
        if base == MAP_FAILED {
            return Err(Error::last());
        }
        let mapping = Mapping {
            base,
            length: max_size,
            unmap: unmap | if self.keep_reflection { ATO_UNMAP_FAST } else { ATO_UNMAP_SPATIAL },
        };
        let is_shorter = mapping.size()? < self.size;
        if is_shorter && flags & ATO_PLAIN_STORES != 0 {
            mapping.set_size(self.size)?;
        } else if is_shorter {
            // Others may make it longer meanwhile, which a transaction does not cut off.
            run(|tx| if tx.size(&mapping)? < self.size { tx.set_size(&mapping, self.size) } else { Ok(()) })?;
        }
        Ok(mapping)
    }
}

/// Whole ones; 0, which stands for a default, only of 0.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(!time.is_zero() as u64)
}

fn c_path(path: &Option<PathBuf>) -> Result<Option<CString>> {
    let name = path.as_ref().map(|path| CString::new(path.as_os_str().as_bytes())).transpose();
    name.map_err(|_| Error { errno: EINVAL, sentence: format!("{path:?}: a name has no zero bytes") })
}
