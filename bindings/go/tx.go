// SPDX-License-Identifier: BSD-3-Clause

package ato

// #include "calls.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// A Tx is a transaction: reads of any mapped files and writes to one of them, which become one atomic, durable step. Until then nobody
// sees the writes; all that it has read is as it was at one moment. It lives as long as the function of Update runs; calls after that
// return os.ErrClosed.
type Tx struct {
	mu      sync.Mutex
	handle  C.uintptr_t // 0: it is over
	refused bool
	used    map[*Map]bool // what it cannot do without: they are neither closed nor collected meanwhile
}

// TxOptions say how a transaction is made. Zero is each one's default.
type TxOptions struct {
	ReadCommitted bool          // reads are not checked again later: two may show different moments; for a ReadOnly Map
	Relaxed       bool          // as Options.Relaxed, for this transaction
	Wait          time.Duration // how long a call waits for a page that others hold: 1 ms by default
	MaxBytes      int64         // how much it may write, in bytes of whole pages: 1 GiB by default
}

const patience = 10 * time.Second

// Update runs fn in a transaction and commits it, if fn returns nil. If others were in its way, all of that runs again, whatever fn
// returned, until ctx is done; if ctx has no deadline for 10 seconds at most, and then the error is EAGAIN. So what fn changes outside the
// mappings has to be right after any number of runs.
//
// If fn returns an error, panics, or calls runtime.Goexit, the transaction has no effect; nor has it when ctx is done before the
// commit. The goroutine stays on its thread meanwhile; fn does not wait for other goroutines that write to the same pages. opts may be nil.
func Update(ctx context.Context, opts *TxOptions, fn func(tx *Tx) error) error {
	var o TxOptions
	if opts != nil {
		o = *opts
	}
	raw := C.struct_ato_tx_options{wait_ms: milliseconds(o.Wait), max_bytes: C.uint64_t(o.MaxBytes)}
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	if o.ReadCommitted {
		raw.flags |= C.ATO_TX_READ_COMMITTED
	}
	if o.Relaxed {
		raw.flags |= C.ATO_RELAXED
	}
	_, limited := ctx.Deadline()
	// The library counts refusals, and finds deadlocks, by threads: other goroutines' transactions must not share this one's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for began := time.Now(); ; {
		refused, err := attempt(ctx, &raw, fn)
		if !refused || !limited && time.Since(began) >= patience {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %v", ctx.Err(), err)
		}
	}
}

func attempt(ctx context.Context, raw *C.struct_ato_tx_options, fn func(tx *Tx) error) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	tx := &Tx{used: map[*Map]bool{}}
	if err := call(func() C.int { return C.tx_begin(&tx.handle, raw) }); err != nil {
		return false, err
	}
	defer tx.end(false)
	err := fn(tx)
	if err == nil {
		if err = ctx.Err(); err == nil {
			err = tx.end(true)
		}
	}
	return tx.refused, err
}

// end commits the transaction or aborts it. A commit that fails leaves it open.
func (tx *Tx) end(commits bool) error {
	err := tx.do(func() C.int {
		if commits {
			return C.tx_commit(tx.handle)
		}
		return C.tx_abort(tx.handle)
	})
	if err == nil || !commits {
		tx.mu.Lock()
		tx.handle, tx.used = 0, nil
		tx.mu.Unlock()
	}
	return err
}

func (tx *Tx) do(f func() C.int) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.handle == 0 {
		return os.ErrClosed
	}
	err := call(f)
	tx.refused = tx.refused || errors.Is(err, syscall.EAGAIN)
	return err
}

func (tx *Tx) use(m *Map, off int64, n int, f func(at unsafe.Pointer) C.int) error {
	tx.mu.Lock()
	used := tx.used[m]
	tx.mu.Unlock()
	if err := m.enter(used); err != nil {
		return err
	}
	defer m.leave()
	if m.isOutside(off, n) {
		return m.outside(off, n)
	}
	return m.explain(tx.do(func() C.int {
		tx.used[m] = true
		return f(unsafe.Add(m.base, off))
	}), off, n)
}

// Read reads all of p. It sees the transaction's own writes.
func (tx *Tx) Read(m *Map, p []byte, off int64) error {
	return tx.use(m, off, len(p), func(at unsafe.Pointer) C.int {
		if len(p) == 0 {
			return 0
		}
		return C.tx_copy(tx.handle, first(p), at, C.size_t(len(p)))
	})
}

// Write writes p, to be committed. EXDEV: the transaction has written to another file already.
func (tx *Tx) Write(m *Map, p []byte, off int64) error {
	return tx.use(m, off, len(p), func(at unsafe.Pointer) C.int {
		if len(p) == 0 {
			return 0
		}
		return C.tx_copy(tx.handle, at, first(p), C.size_t(len(p)))
	})
}

// Size returns the size of the file as the transaction sees it. Two transactions cannot both append at the same end.
func (tx *Tx) Size(m *Map) (int64, error) {
	var size C.off_t
	err := tx.use(m, 0, 0, func(at unsafe.Pointer) C.int { return C.tx_size(tx.handle, at, &size) })
	return int64(size), err
}

// Truncate makes the file longer or shorter, to be committed.
func (tx *Tx) Truncate(m *Map, size int64) error {
	return tx.use(m, 0, 0, func(at unsafe.Pointer) C.int {
		return C.tx_truncate(tx.handle, at, C.off_t(size))
	})
}
