// SPDX-License-Identifier: BSD-3-Clause

package ato

// #include "calls.h"
import "C"

import (
	"context"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// A ReadPolicy says how reads treat bytes whose valid copy lies in the reflection.
type ReadPolicy int

// Zero is what $ATO_READ_POLICY names, or lazy.
const (
	ReadLazy   ReadPolicy = C.ATO_READ_LAZY   // the first read of such a page copies it to the file
	ReadGather ReadPolicy = C.ATO_READ_GATHER // reads take the bytes from where they are
	ReadEager  ReadPolicy = C.ATO_READ_EAGER  // each write copies what it wrote to the file before it returns
)

// A Domain says how bytes become durable.
type Domain int

// Zero is what $ATO_DURABILITY names, or as the medium is.
const (
	DomainPmem    Domain = C.ATO_DOMAIN_PMEM    // persistent memory: survives a power cut
	DomainEadr    Domain = C.ATO_DOMAIN_EADR    // the same, with caches of the CPU that are flushed at a power cut
	DomainDisk    Domain = C.ATO_DOMAIN_DISK    // a disk: survives a power cut
	DomainProcess Domain = C.ATO_DOMAIN_PROCESS // survives a kill of the process, not a crash of the kernel
)

// A Prefer says which side is right where a file and its reflection do not belong together.
type Prefer int

// Zero is neither: mapping the file is ESTALE.
const (
	PreferFile       Prefer = C.ATO_PREFER_FILE       // the file as it is; the reflection is set aside
	PreferReflection Prefer = C.ATO_PREFER_REFLECTION // what the reflection holds, and the file's bytes elsewhere
)

// Options say how a file is mapped. Zero is each one's default, or what the environment says (ato_mmap_opt(3)).
type Options struct {
	Size     int64 // a file that is missing is made, and one that is shorter gets this size in bytes
	MaxSize  int64 // what the file may grow to: 1 GiB by default, or its size if that is more; takes address space only
	ReadOnly bool  // open the file for reading only
	// Close keeps the reflection: it and the next Open take no time, but other programs do not see what lies in it.
	KeepReflection bool
	Domain         Domain
	ReadPolicy     ReadPolicy
	Sparse         bool // a new reflection takes space only for pages that were written: for few updates far apart
	// On a disk, writes do not wait for it: a power cut may take the newest ones, those since this time, and never a part of one. A
	// kill takes nothing. Sync makes all of them durable.
	Relaxed       time.Duration
	Prefer        Prefer
	ReflectionDir string // in place of .ato beside the file
	LogDir        string // the same for the log of a file on a disk: on persistent memory a write waits for no disk
	LogBytes      int64  // of a new log, all that it ever gets
	SnapshotBytes int64  // shared memory, at most, for what snapshots see and others have changed
	AnyFileSystem bool   // use file systems of a network, and FUSE, too: safe only if no other machine uses the file
}

// A Map is a mapped file. It is safe for concurrent use. After Close its calls return os.ErrClosed.
//
// A Map that is not reachable any more is closed by the garbage collector, some time later; one that is open when the process ends is
// as after a kill: what was written is durable, and the file is mapped again or deployed before other programs see it.
type Map struct {
	name   string
	length uintptr // of the addresses: what the file may grow to
	mode   C.int

	mu      sync.Mutex
	base    unsafe.Pointer // nil: closed
	calls   int            // under way
	closing bool           // Close waits for them
	idle    sync.Cond      // there are none, or Close has returned
}

// Open opens a file, and maps all of it. With a Size it makes one that does not exist. opts may be nil.
func Open(name string, opts *Options) (*Map, error) {
	flag := os.O_RDWR
	if opts != nil && opts.ReadOnly {
		flag = os.O_RDONLY
	} else if opts != nil && opts.Size > 0 {
		flag |= os.O_CREATE
	}
	f, err := os.OpenFile(name, flag, 0o666)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return New(f, opts)
}

// New maps an open file, all of it. The file may be closed then.
func New(f *os.File, opts *Options) (*Map, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Size < 0 || o.MaxSize < 0 || o.LogBytes < 0 || o.SnapshotBytes < 0 ||
		strings.ContainsRune(o.ReflectionDir+o.LogDir, 0) {
		return nil, &Error{syscall.EINVAL, f.Name() + ": a size is negative, or a folder's name has a zero byte"}
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	length := o.MaxSize
	if length == 0 {
		length = 1 << 30
	}
	for _, least := range []int64{info.Size(), o.Size} {
		if length < least {
			length = least
		}
	}
	raw := C.struct_ato_options{
		read_policy:    C.int(o.ReadPolicy),
		domain:         C.int(o.Domain),
		flags:          C.uint(o.Prefer),
		max_size:       C.size_t(length),
		log_bytes:      C.uint64_t(o.LogBytes),
		snapshot_bytes: C.uint64_t(o.SnapshotBytes),
	}
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	if o.Sparse {
		raw.format = C.ATO_FORMAT_SPARSE
	}
	if o.Relaxed > 0 {
		raw.flags |= C.ATO_RELAXED
		raw.relaxed_ms = milliseconds(o.Relaxed)
	}
	if o.AnyFileSystem {
		raw.flags |= C.ATO_ANY_FILE_SYSTEM
	}
	if o.ReflectionDir != "" {
		raw.reflection_dir = C.CString(o.ReflectionDir)
		defer C.free(unsafe.Pointer(raw.reflection_dir))
	}
	if o.LogDir != "" {
		raw.log_dir = C.CString(o.LogDir)
		defer C.free(unsafe.Pointer(raw.log_dir))
	}
	m := &Map{name: f.Name(), length: uintptr(length), mode: C.ATO_UNMAP_SPATIAL}
	m.idle.L = &m.mu
	if o.KeepReflection {
		m.mode = C.ATO_UNMAP_FAST
	}
	var base unsafe.Pointer
	err = call(func() C.int { return C.map_file(&base, raw.max_size, C.int(f.Fd()), &raw) })
	runtime.KeepAlive(f)
	if err != nil {
		return nil, err
	}
	m.base = base
	// Not in the finalizer itself, where others would wait for it.
	runtime.SetFinalizer(m, func(m *Map) { go m.Close() })
	if size, err := m.Size(); err != nil || size < o.Size {
		if err == nil {
			err = m.grow(o.Size)
		}
		if err != nil {
			m.Close()
			return nil, err
		}
	}
	return m, nil
}

// grow makes the file longer, unless others have done so meanwhile.
func (m *Map) grow(least int64) error {
	return Update(context.Background(), nil, func(tx *Tx) error {
		size, err := tx.Size(m)
		if err != nil || size >= least {
			return err
		}
		return tx.Truncate(m, least)
	})
}

// Whole ones, and not zero, which stands for a default.
func milliseconds(t time.Duration) C.uint64_t {
	return C.uint64_t((t + time.Millisecond - 1) / time.Millisecond)
}

// use runs f with the address of n bytes at off, which lie in the mapping; whether the file is so long, the library checks. The Map is not
// closed meanwhile.
func (m *Map) use(off int64, n int, f func(at unsafe.Pointer) C.int) error {
	if err := m.enter(false); err != nil {
		return err
	}
	defer m.leave()
	if m.isOutside(off, n) {
		return m.outside(off, n)
	}
	return m.explain(call(func() C.int { return f(unsafe.Add(m.base, off)) }), off, n)
}

func (m *Map) isOutside(off int64, n int) bool {
	return off < 0 || uintptr(off) > m.length || uintptr(n) > m.length-uintptr(off)
}

// enter begins a call. While Close waits, transactions that have used the Map go on: others' calls may wait for their pages.
func (m *Map) enter(used bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.base == nil || m.closing && !used {
		return os.ErrClosed
	}
	m.calls++
	return nil
}

func (m *Map) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls--; m.calls == 0 {
		m.idle.Broadcast()
	}
}

// Close unmaps the file, and makes it an ordinary one if no other process has it mapped. It waits for calls that are under way, and new
// ones return os.ErrClosed. EBUSY: a snapshot, or a transaction that used the Map, is open; then so is the Map. After another error it
// is closed, and no byte is lost: the next Open goes on. A second Close does nothing.
func (m *Map) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.closing {
		m.idle.Wait()
	}
	if m.base == nil {
		return nil
	}
	for m.closing = true; m.calls > 0; {
		m.idle.Wait()
	}
	err := m.explain(call(func() C.int { return C.unmap(m.base, C.size_t(m.length), m.mode) }), 0, 0)
	m.closing = false
	m.idle.Broadcast()
	if e, ok := err.(*Error); ok && e.Errno == syscall.EBUSY {
		return err
	}
	m.base = nil
	runtime.SetFinalizer(m, nil)
	return err
}

// ReadAt reads len(p) bytes of one moment: never half of a write. At the end of the file it returns fewer, with io.EOF.
func (m *Map) ReadAt(p []byte, off int64) (int, error) {
	size, err := m.Size()
	if err != nil {
		return 0, err
	}
	short := int64(len(p)) > size-off && off >= 0
	if short && off >= size {
		return 0, io.EOF
	} else if short {
		p = p[:size-off]
	}
	if len(p) > 0 {
		err = m.use(off, len(p), func(at unsafe.Pointer) C.int {
			return C.copy(first(p), at, C.size_t(len(p)))
		})
	}
	if err != nil {
		return 0, err
	} else if short {
		return len(p), io.EOF
	}
	return len(p), nil
}

// WriteAt writes p as one atomic step, of any length: durable when it returns, unless the Map is relaxed. It does not make the file longer:
// beyond the end it is EFAULT.
func (m *Map) WriteAt(p []byte, off int64) (int, error) {
	if err := m.use(off, len(p), func(at unsafe.Pointer) C.int {
		if len(p) == 0 {
			return 0
		}
		return C.copy(at, first(p), C.size_t(len(p)))
	}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// A Range is bytes and where they belong in a file.
type Range struct {
	Off int64
	P   []byte
}

// WriteRanges writes several ranges as one atomic step (ato_writev(3)). If they overlap, the later one wins.
func (m *Map) WriteRanges(ranges ...Range) error {
	total := 0
	for _, r := range ranges {
		total += len(r.P)
		if m.isOutside(r.Off, len(r.P)) {
			return m.outside(r.Off, len(r.P))
		}
	}
	if total == 0 {
		return m.use(0, 0, func(unsafe.Pointer) C.int { return 0 })
	}
	// C memory: an array that C gets must not point to bytes of Go.
	const each = C.size_t(unsafe.Sizeof(C.struct_ato_iovec{}))
	memory := C.malloc(C.size_t(len(ranges))*each + C.size_t(total))
	defer C.free(memory)
	iov := unsafe.Slice((*C.struct_ato_iovec)(memory), len(ranges))
	next := unsafe.Add(memory, C.size_t(len(ranges))*each)
	return m.use(0, 0, func(at unsafe.Pointer) C.int {
		for i, r := range ranges {
			copy(unsafe.Slice((*byte)(next), len(r.P)), r.P)
			iov[i] = C.struct_ato_iovec{unsafe.Add(at, r.Off), next, C.size_t(len(r.P))}
			next = unsafe.Add(next, len(r.P))
		}
		return C.writev(&iov[0], C.int(len(iov)))
	})
}

// Size returns the file's size in bytes.
func (m *Map) Size() (int64, error) {
	var size C.off_t
	err := m.use(0, 0, func(at unsafe.Pointer) C.int { return C.file_size(at, &size) })
	return int64(size), err
}

// Truncate makes the file longer, with zeros, or shorter: atomic and durable (ato_ftruncate(3)).
func (m *Map) Truncate(size int64) error {
	return m.use(0, 0, func(at unsafe.Pointer) C.int { return C.truncate_to(at, C.off_t(size)) })
}

// Sync makes all relaxed writes to the file durable. Others are so already.
func (m *Map) Sync() error {
	return m.use(0, 0, func(at unsafe.Pointer) C.int {
		return C.msync_all(at, C.size_t(m.length))
	})
}

// Deploy copies what lies in the reflection to the file itself, where other programs see it until the next write there.
func (m *Map) Deploy(off int64, n int) error {
	return m.use(off, n, func(at unsafe.Pointer) C.int { return C.deploy(at, C.size_t(n)) })
}

// Stats are counters and states of a mapped file in this process (ato_stat(3)).
type Stats struct {
	Domain                                              Domain
	ReadPolicy                                          ReadPolicy
	Size, SlicesInReflection, ReflectionBytes           uint64
	Writes, BytesWritten, Reads, BytesRead              uint64
	BytesToMedia, Flips, DeployedSlices, ReadRetries    uint64
	CommitsSingle, CommitsRTM, CommitsJournal, RTMAbort uint64
}

// Stat returns them.
func (m *Map) Stat() (Stats, error) {
	var s C.struct_ato_stat
	s.struct_size = C.size_t(unsafe.Sizeof(s))
	err := m.use(0, 0, func(at unsafe.Pointer) C.int { return C.stat_of(at, &s) })
	return Stats{
		Domain(s.domain), ReadPolicy(s.read_policy),
		uint64(s.size), uint64(s.slices_in_reflection), uint64(s.reflection_bytes),
		uint64(s.writes), uint64(s.bytes_written), uint64(s.reads), uint64(s.bytes_read),
		uint64(s.bytes_to_media), uint64(s.flips), uint64(s.deployed_slices), uint64(s.read_retries),
		uint64(s.commits_single), uint64(s.commits_rtm), uint64(s.commits_journal), uint64(s.rtm_aborts),
	}, err
}
