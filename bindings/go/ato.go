// SPDX-License-Identifier: BSD-3-Clause

// Package ato makes writes to memory-mapped files atomic but lazy: it is libato, a C library for Linux on x86-64.
//
// Each write happens wholly or not at all, even if the process is killed, the kernel crashes or the power fails, at nearly the price
// of making the bytes durable. How far "durable" reaches depends on the medium: on persistent memory and disks it survives a power cut, on
// a tmpfs a kill. Several processes may use a file at once, and any number of goroutines.
//
//	m, err := ato.Open("data", &ato.Options{Size: 1 << 20}) // without a Size a missing file is an error
//	...
//	_, err = m.WriteAt(record, 4090)            // atomic and durable
//	_, err = m.ReadAt(record, 4090)             // of one moment: never half of a write
//	err = ato.Update(ctx, nil, func(tx *ato.Tx) error {
//		if err := tx.Read(m, counter, 64); err != nil {
//			return err
//		}
//		counter[0]++
//		return tx.Write(m, counter, 64)         // runs again if others were in its way
//	})
//	err = m.Close()                             // an ordinary file again
//
// Bytes are copied out of the file and into it. No slice points into the mapping: it would change under the program, and end with
// Close. So the mappings of libato that take plain stores (ATO_PLAIN_STORES) are not for Go.
//
// Between the first Open and the last Close other programs see old bytes, and so they do after a kill, until the file is mapped
// again or "ato deploy FILE" was called. What each call does in detail is in the man pages of libato, whose names are in the comments.
//
// The package needs cgo, and libato 0.1 where pkg-config finds it. The module lies in libato's sources:
//
//	go mod edit -require libato/ato@v0.0.0 -replace libato/ato=PATH/bindings/go
//
// libato installs a handler of SIGBUS, on the alternate stack, that
// hands on to Go's what is not its own. SQLite uses libato by its VFS: examples/sqlite.
package ato

// #cgo pkg-config: libato
// #include "calls.h"
import "C"

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"unsafe"
)

// Version is the version of libato that this package is for.
const Version = "0.1.0"

// LibraryVersion returns the version of the library that the program runs with.
func LibraryVersion() string {
	return C.GoString(C.ato_version())
}

// Error is why a call of the library failed. Nothing has changed then, except after EIO (ato(7)). errors.Is finds its number:
// errors.Is(err, syscall.ENOSPC).
type Error struct {
	Errno    syscall.Errno
	Sentence string // what is wrong with which file, and what to do
}

func (e *Error) Error() string { return e.Sentence }

// Unwrap returns the number.
func (e *Error) Unwrap() error { return e.Errno }

// call runs f, which makes a call of the library and returns 0 or -errno. The sentence of a failure belongs to the thread.
func call(f func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if r := f(); r < 0 {
		return &Error{syscall.Errno(-r), words.Replace(C.GoString(C.ato_errormsg()))}
	}
	return nil
}

// What the library's sentences call otherwise.
var words = strings.NewReplacer("ATO_TX_READ_COMMITTED", "TxOptions.ReadCommitted",
	"ATO_PREFER_FILE", "PreferFile", "ATO_PREFER_REFLECTION", "PreferReflection")

var address = regexp.MustCompile("the mapping at 0x[0-9a-f]+")

// explain names the file and offsets, in place of addresses.
func (m *Map) explain(err error, off int64, n int) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	if e.Errno == syscall.EFAULT {
		return m.outside(off, n)
	}
	return &Error{e.Errno, address.ReplaceAllLiteralString(e.Sentence, m.name)}
}

func (m *Map) outside(off int64, n int) error {
	what := "a range is"
	if n > 0 {
		what = fmt.Sprintf("%d bytes at %d are", n, off)
	}
	return &Error{syscall.EFAULT, m.name + ": " + what + " not within the file"}
}

// first returns the address of the first byte of p, which is not empty.
func first(p []byte) unsafe.Pointer { return unsafe.Pointer(&p[0]) }
