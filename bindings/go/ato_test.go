// SPDX-License-Identifier: BSD-3-Clause

package ato

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

var background = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t testing.TB, err error, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, not %v", err, want)
	}
}

func open(t testing.TB, name string, opts *Options) *Map {
	t.Helper()
	m, err := Open(name, opts)
	must(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func write(t testing.TB, m *Map, off int64, s string) {
	t.Helper()
	n, err := m.WriteAt([]byte(s), off)
	must(t, err)
	if n != len(s) {
		t.Fatal(n)
	}
}

func holds(t testing.TB, r io.ReaderAt, off int64, s string) {
	t.Helper()
	p := make([]byte, len(s))
	_, err := r.ReadAt(p, off)
	must(t, err)
	if string(p) != s {
		t.Fatalf("%q, not %q", p, s)
	}
}

func TestWhatWasWrittenIsReadAndIsInTheFileAfterwards(t *testing.T) {
	name := filepath.Join(t.TempDir(), "data")
	m := open(t, name, &Options{Size: 10_000})
	write(t, m, 4090, "on two pages")
	write(t, m, 0, "")
	must(t, m.WriteRanges(Range{100, []byte("one")}, Range{200, nil}, Range{8192, []byte("two")}))
	must(t, m.WriteRanges())
	holds(t, m, 4090, "on two pages")
	holds(t, m, 8192, "two\x00")
	s, err := m.Stat()
	must(t, err)
	if s.Writes < 2 || s.Size != 10_000 || s.Domain == 0 {
		t.Fatal(s)
	}
	must(t, m.Deploy(0, 10_000))
	must(t, m.Sync())
	must(t, m.Truncate(9500))
	if err := iotest.TestReader(io.NewSectionReader(m, 0, 9500), content(t, m)); err != nil {
		t.Fatal(err)
	}
	must(t, m.Close())
	p, err := os.ReadFile(name)
	must(t, err)
	if len(p) != 9500 || string(p[100:103]) != "one" || string(p[8192:8195]) != "two" {
		t.Fatal("the file is another one")
	}
}

func content(t testing.TB, m *Map) []byte {
	size, err := m.Size()
	must(t, err)
	p := make([]byte, size)
	_, err = m.ReadAt(p, 0)
	must(t, err)
	return p
}

func TestARangeOutsideIsAnErrorThatNeverReachesAnotherMap(t *testing.T) {
	var maps []*Map
	for _, name := range []string{"a", "b", "c"} {
		maps = append(maps, open(t, filepath.Join(t.TempDir(), name), &Options{Size: 4096, MaxSize: 4096}))
	}
	for _, m := range maps {
		for _, off := range []int64{4096, 1 << 30, 2 << 30, 3 << 30, 1 << 62, -1, -1 << 30, -2 << 30} {
			_, err := m.WriteAt([]byte("x"), off)
			wants(t, err, syscall.EFAULT)
			wants(t, m.WriteRanges(Range{0, []byte("x")}, Range{off, []byte("x")}), syscall.EFAULT)
			wants(t, Update(background, nil, func(tx *Tx) error { return tx.Write(m, []byte("x"), off) }), syscall.EFAULT)
			_, err = m.ReadAt([]byte("x"), off)
			if off < 0 {
				wants(t, err, syscall.EFAULT)
			} else {
				wants(t, err, io.EOF)
			}
		}
		_, err := m.WriteAt([]byte("xy"), 4095)
		wants(t, err, syscall.EFAULT)
		wants(t, m.Deploy(0, -1), syscall.EFAULT)
		holds(t, m, 0, "\x00")
	}
}

func TestErrorsCarryTheNumberAndTheSentence(t *testing.T) {
	name := filepath.Join(t.TempDir(), "data")
	must(t, open(t, name, &Options{Size: 4096}).Close())
	_, err := open(t, name, &Options{ReadOnly: true}).WriteAt([]byte("x"), 0)
	wants(t, err, syscall.EACCES)
	wants(t, err, os.ErrPermission)
	if err.Error() != name+" is for reading only" {
		t.Fatal(err)
	}
	m := open(t, name, nil)
	_, err = m.WriteAt([]byte("xy"), 4095)
	if want := name + ": 2 bytes at 4095 are not within the file"; err == nil || err.Error() != want {
		t.Fatalf("%v, not %s", err, want)
	}
	for _, o := range []*Options{nil, {MaxSize: 4096}, {ReadOnly: true}} {
		missing := filepath.Join(t.TempDir(), "typo")
		_, err = Open(missing, o)
		wants(t, err, os.ErrNotExist)
		_, err = os.Stat(missing)
		wants(t, err, os.ErrNotExist)
	}
	for _, o := range []Options{{ReflectionDir: "/tmp\x00b"}, {LogDir: "\x00"}, {Size: -1}, {MaxSize: -1}} {
		_, err = Open(name, &o)
		wants(t, err, syscall.EINVAL)
	}
	folder, err := os.Open(t.TempDir())
	must(t, err)
	defer folder.Close()
	if _, err = New(folder, nil); err == nil {
		t.Fatal("a folder is mapped")
	}
}

func TestOptionsReachTheLibrary(t *testing.T) {
	folder, err := os.MkdirTemp("/dev/shm", "ato-go-options-")
	must(t, err)
	defer os.RemoveAll(folder)
	name, elsewhere := filepath.Join(folder, "data"), filepath.Join(folder, "elsewhere")
	o := Options{Size: 8192, Domain: DomainPmem, ReadPolicy: ReadGather, Relaxed: 5 * time.Millisecond, ReflectionDir: elsewhere}
	m := open(t, name, &o)
	write(t, m, 0, "x")
	s, err := m.Stat()
	must(t, err)
	left, err := os.ReadDir(elsewhere)
	must(t, err)
	if s.Domain != DomainPmem || s.ReadPolicy != ReadGather || len(left) < 2 {
		t.Fatal(s, left)
	}
	o.Domain = DomainProcess
	_, err = Open(name, &o)
	wants(t, err, syscall.EXDEV)
	o.Relaxed = 2 * time.Hour // at most one
	_, err = Open(name, &o)
	wants(t, err, syscall.EINVAL)
}

func TestAfterCloseEachCallIsAnErrorAndNoCrash(t *testing.T) {
	m := open(t, filepath.Join(t.TempDir(), "data"), &Options{Size: 4096})
	s, err := m.Snapshot()
	must(t, err)
	wants(t, m.Close(), syscall.EBUSY)
	holds(t, m, 0, "\x00")
	must(t, s.Close())
	must(t, s.Close())
	_, err = s.ReadAt(make([]byte, 1), 0)
	wants(t, err, os.ErrClosed)
	var escaped *Tx
	must(t, Update(background, nil, func(tx *Tx) error {
		escaped = tx
		must(t, tx.Write(m, []byte("x"), 0))
		wants(t, m.Close(), syscall.EBUSY)
		return nil
	}))
	wants(t, escaped.Write(m, []byte("y"), 0), os.ErrClosed)
	holds(t, m, 0, "x")
	must(t, m.Close())
	must(t, m.Close())
	_, err = m.ReadAt(make([]byte, 1), 0)
	wants(t, err, os.ErrClosed)
	_, err = m.WriteAt(nil, 0)
	wants(t, err, os.ErrClosed)
	_, err = m.Size()
	wants(t, err, os.ErrClosed)
	_, err = m.Stat()
	wants(t, err, os.ErrClosed)
	_, err = m.Snapshot()
	wants(t, err, os.ErrClosed)
	wants(t, m.WriteRanges(Range{0, []byte("x")}), os.ErrClosed)
	wants(t, m.WriteRanges(), os.ErrClosed)
	wants(t, m.Sync(), os.ErrClosed)
	wants(t, m.Truncate(1), os.ErrClosed)
	wants(t, m.Deploy(0, 1), os.ErrClosed)
	wants(t, Update(background, nil, func(tx *Tx) error { return tx.Read(m, make([]byte, 1), 0) }), os.ErrClosed)
}

func TestCloseWhileOthersCallIsNoCrash(t *testing.T) {
	m := open(t, filepath.Join(t.TempDir(), "data"), &Options{Size: 40_000})
	var wait sync.WaitGroup
	for i := 0; i < 4; i++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			p := make([]byte, 9000)
			for {
				if _, err := m.ReadAt(p, 100); err != nil {
					wants(t, err, os.ErrClosed)
					return
				}
			}
		}()
	}
	time.Sleep(5 * time.Millisecond)
	must(t, m.Close())
	wait.Wait()
}

func TestATransactionGoesOnWhileCloseWaitsForOthers(t *testing.T) {
	m := open(t, filepath.Join(t.TempDir(), "data"), &Options{Size: 4096})
	until := func(is func() bool) {
		for done := false; !done; time.Sleep(time.Millisecond) {
			m.mu.Lock()
			done = is()
			m.mu.Unlock()
		}
	}
	written, closed := make(chan error), make(chan error)
	must(t, Update(background, nil, func(tx *Tx) error {
		must(t, tx.Write(m, []byte("tx"), 0))
		go func() {
			_, err := m.WriteAt([]byte("w"), 0)
			written <- err
		}()
		until(func() bool { return m.calls == 1 })
		go func() { closed <- m.Close() }()
		until(func() bool { return m.closing })
		_, err := m.WriteAt([]byte("late"), 100)
		wants(t, err, os.ErrClosed)
		return tx.Write(m, []byte("more"), 1)
	}))
	must(t, <-written)
	if err := <-closed; err != nil {
		wants(t, err, syscall.EBUSY)
	}
}

func TestATransactionKeepsItsMaps(t *testing.T) {
	name := filepath.Join(t.TempDir(), "data")
	must(t, Update(background, nil, func(tx *Tx) error {
		m, err := Open(name, &Options{Size: 4096})
		must(t, err)
		must(t, tx.Write(m, []byte("kept"), 0))
		for i := 0; i < 5; i++ {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		return nil
	}))
	isClosed(t, name)
}

func TestAMapThatIsNotReachableIsClosed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "data")
	func() {
		m, err := Open(name, &Options{Size: 4096})
		must(t, err)
		write(t, m, 0, "kept")
		_, err = m.Snapshot() // keeps it open until it is collected, too
		must(t, err)
	}()
	isClosed(t, name)
}

func isClosed(t *testing.T, name string) {
	t.Helper()
	for i := 0; ; i++ {
		runtime.GC()
		if p, err := os.ReadFile(name); err == nil && string(p[:4]) == "kept" {
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(name), ".ato", "[0-9]*")); len(left) == 0 {
				return
			}
		}
		if i == 1000 {
			t.Fatal("it is still mapped")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestGoroutinesNeverSeeHalfOfAWrite(t *testing.T) {
	m := open(t, filepath.Join(t.TempDir(), "data"), &Options{Size: 20_000})
	var wait sync.WaitGroup
	for i := 1; i <= 2; i++ {
		wait.Add(2)
		go func(p []byte) {
			defer wait.Done()
			for n := 0; n < 200; n++ {
				m.WriteAt(p, 100)
			}
		}(bytes.Repeat([]byte{byte(i)}, 9000))
		go func() {
			defer wait.Done()
			p := make([]byte, 9000)
			for n := 0; n < 200; n++ {
				_, err := m.ReadAt(p, 100)
				if err != nil || len(bytes.Trim(p, string(p[:1]))) > 0 {
					t.Error("torn", err)
				}
			}
		}()
	}
	wait.Wait()
}

func TestASnapshotStaysAsItWas(t *testing.T) {
	m := open(t, filepath.Join(t.TempDir(), "data"), &Options{Size: 10_000})
	write(t, m, 5000, "before")
	s, err := m.Snapshot()
	must(t, err)
	defer s.Close()
	write(t, m, 5000, "after.")
	must(t, m.Truncate(20_000))
	holds(t, s, 5000, "before")
	n, err := s.ReadAt(make([]byte, 100), 9950)
	if n != 50 || err != io.EOF || s.Size() != 10_000 {
		t.Fatal(n, err)
	}
}

func TestWithoutACommitItHasNoEffect(t *testing.T) {
	m := open(t, filepath.Join(t.TempDir(), "data"), &Options{Size: 8192})
	mine := errors.New("mine")
	change := func(tx *Tx) {
		must(t, tx.Write(m, []byte("change"), 0))
		must(t, tx.Truncate(m, 100_000))
		size, err := tx.Size(m)
		must(t, err)
		p := make([]byte, 6)
		must(t, tx.Read(m, p, 0))
		if size != 100_000 || string(p) != "change" {
			t.Fatal(size, p)
		}
	}
	wants(t, Update(background, nil, func(tx *Tx) error { change(tx); return mine }), mine)
	func() {
		defer func() { _ = recover() }()
		Update(background, nil, func(tx *Tx) error { change(tx); panic(mine) })
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		Update(background, nil, func(tx *Tx) error { change(tx); runtime.Goexit(); return nil })
	}()
	<-done
	ctx, cancel := context.WithCancel(background)
	wants(t, Update(ctx, nil, func(tx *Tx) error { change(tx); cancel(); return nil }), context.Canceled)
	wants(t, Update(ctx, nil, func(tx *Tx) error { t.Error("it runs"); return nil }), context.Canceled)
	holds(t, m, 0, "\x00\x00\x00\x00\x00\x00")
	if size, err := m.Size(); err != nil || size != 8192 {
		t.Fatal(size, err)
	}
	write(t, m, 0, "nothing holds the page")
	must(t, m.Close())
}

func TestARefusedOneRunsAgainAlsoIfItsFunctionSaysThatAllIsWell(t *testing.T) {
	m := open(t, filepath.Join(t.TempDir(), "data"), &Options{Size: 8192})
	runs := 0
	must(t, Update(background, nil, func(tx *Tx) error {
		runs++
		must(t, tx.Read(m, make([]byte, 1), 0))
		if runs < 3 {
			write(t, m, 0, string(rune('0'+runs))) // a plain write of the goroutine itself counts as one of others
		}
		tx.Write(m, []byte{byte('0' + runs)}, 4096)
		return nil
	}))
	holds(t, m, 4096, "3")
	if runs != 3 {
		t.Fatal(runs)
	}
}

func TestItGivesUpWhenItsContextIsDone(t *testing.T) {
	m := open(t, filepath.Join(t.TempDir(), "data"), &Options{Size: 8192})
	must(t, Update(background, nil, func(tx *Tx) error {
		must(t, tx.Write(m, []byte("held"), 0))
		result := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
			defer cancel()
			result <- Update(ctx, nil, func(tx *Tx) error { return tx.Write(m, []byte("mine"), 0) })
		}()
		wants(t, <-result, context.DeadlineExceeded)
		return nil
	}))
	holds(t, m, 0, "held")
}

func TestOtherGoroutinesMayCallOnATransaction(t *testing.T) {
	m := open(t, filepath.Join(t.TempDir(), "data"), &Options{Size: 80_000})
	must(t, Update(background, nil, func(tx *Tx) error {
		var wait sync.WaitGroup
		for i := int64(0); i < 8; i++ {
			wait.Add(1)
			go func(i int64) {
				defer wait.Done()
				if err := tx.Write(m, []byte("x"), i*10_000); err != nil {
					t.Error(err)
				}
			}(i)
		}
		wait.Wait()
		return nil
	}))
	holds(t, m, 70_000, "x")
}

func TestAFileThatAnotherProgramCutIsAnErrorAndNoCrash(t *testing.T) {
	folder, err := os.MkdirTemp("/dev/shm", "ato-go-cut-")
	must(t, err)
	defer os.RemoveAll(folder)
	name := filepath.Join(folder, "data")
	m := open(t, name, &Options{Size: 1 << 20})
	write(t, m, 500_000, "there")
	must(t, os.Truncate(name, 0))
	if _, err := m.ReadAt(make([]byte, 1<<20), 0); err == nil { // without the library's handler: SIGBUS
		t.Fatal("it is read")
	}

	// A SIGBUS that is not libato's is Go's as before.
	f, err := os.Create(filepath.Join(folder, "other"))
	must(t, err)
	defer f.Close()
	p, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	must(t, err)
	defer syscall.Munmap(p)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() == nil {
			t.Fatal("it has no panic")
		}
	}()
	t.Fatal(p[0])
}

// transfers moves 1 from one of 16 accounts to another, each on a page of its own.
func transfers(t testing.TB, m *Map, times int, seed uint64) {
	a, b := make([]byte, 8), make([]byte, 8)
	add := func(tx *Tx, p []byte, off int64, n uint64) error {
		if err := tx.Read(m, p, off); err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)+n)
		return tx.Write(m, p, off)
	}
	for ; times > 0; times-- {
		seed = seed*6364136223846793005 + 1442695040888963407
		if err := Update(background, nil, func(tx *Tx) error {
			if err := add(tx, a, int64(seed>>33%16*4096), ^uint64(0)); err != nil {
				return err
			}
			return add(tx, b, int64(seed>>40%16*4096), 1)
		}); err != nil {
			t.Error(err)
			return
		}
	}
}

func sum(t testing.TB, m *Map) (sum uint64) {
	must(t, Update(background, nil, func(tx *Tx) error {
		sum = 0
		p := make([]byte, 8)
		for i := int64(0); i < 16; i++ {
			if err := tx.Read(m, p, i*4096); err != nil {
				return err
			}
			sum += binary.LittleEndian.Uint64(p)
		}
		return nil
	}))
	return
}

func TestTheSumOfAllAccountsStaysWhateverGoroutinesAndProcessesDo(t *testing.T) {
	name := filepath.Join(t.TempDir(), "data")
	m := open(t, name, &Options{Size: 16 * 4096})
	other := child(t, "transfers", name)
	must(t, other.Start())
	var wait sync.WaitGroup
	for seed := uint64(1); seed < 9; seed++ {
		wait.Add(1)
		go func(seed uint64) {
			defer wait.Done()
			transfers(t, m, 60, seed)
		}(seed)
	}
	for i := 0; i < 100; i++ {
		if s := sum(t, m); s != 0 {
			t.Fatal(s)
		}
	}
	wait.Wait()
	must(t, other.Wait())
	holds(t, m, 8, "done")
	if s := sum(t, m); s != 0 || bytes.Count(content(t, m), []byte{0}) == 16*4096-4 {
		t.Fatal(s)
	}
}

func TestTheVersionsAgree(t *testing.T) {
	build, err := os.ReadFile("../../meson.build")
	must(t, err)
	version := regexp.MustCompile(`version: '([0-9.]+)'`).FindSubmatch(build)[1]
	if string(version) != Version || LibraryVersion() != Version {
		t.Fatalf("%s is meson.build's, %s the package's, %s the library's", version, Version, LibraryVersion())
	}
}

func BenchmarkWriteAt64(b *testing.B) {
	m := open(b, "/dev/shm/ato-go-benchmark", &Options{Size: 4096})
	defer os.Remove("/dev/shm/ato-go-benchmark")
	p := make([]byte, 64)
	for i := 0; i < b.N; i++ {
		m.WriteAt(p, 0)
	}
}
