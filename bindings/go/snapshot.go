// SPDX-License-Identifier: BSD-3-Clause

package ato

// #include "calls.h"
import "C"

import (
	"io"
	"os"
	"runtime"
	"sync"
	"unsafe"
)

// A Snapshot is a file as it was at one moment, for as long as it is open. It blocks no writer, and is safe for concurrent use. The Map
// cannot be closed while it has one.
type Snapshot struct {
	mu     sync.RWMutex // locked for reading during a call, for writing by Close
	handle C.uintptr_t  // 0: closed
	size   int64
	m      *Map // which must not be collected before
}

// Snapshot begins one: the file as it is now, whatever others write. It needs Linux 4.16.
func (m *Map) Snapshot() (*Snapshot, error) {
	var size C.off_t
	var handle C.uintptr_t
	err := m.use(0, 0, func(at unsafe.Pointer) C.int { return C.snapshot_begin(at, &handle) })
	if err != nil {
		return nil, err
	}
	s := &Snapshot{handle: handle, m: m}
	runtime.SetFinalizer(s, (*Snapshot).Close)
	if err = call(func() C.int { return C.snapshot_size(handle, &size) }); err != nil {
		s.Close()
		return nil, err
	}
	s.size = int64(size)
	return s, nil
}

// Size returns the size of the file then.
func (s *Snapshot) Size() int64 { return s.size }

// ReadAt reads what was there. At the end of the file it returns fewer bytes, with io.EOF. ESTALE: the memory for what others change was
// used up (Options.SnapshotBytes).
func (s *Snapshot) ReadAt(p []byte, off int64) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.handle == 0 {
		return 0, os.ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	var done C.ssize_t
	if err := call(func() C.int {
		return C.snapshot_read(s.handle, first(p), C.off_t(off), C.size_t(len(p)), &done)
	}); err != nil {
		return 0, err
	}
	if int(done) < len(p) {
		return int(done), io.EOF
	}
	return len(p), nil
}

// Close ends it. A second Close does nothing.
func (s *Snapshot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handle == 0 {
		return nil
	}
	handle := s.handle
	s.handle = 0
	runtime.SetFinalizer(s, nil)
	return call(func() C.int { return C.snapshot_end(handle) })
}
