// SPDX-License-Identifier: BSD-3-Clause

package ato

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// child is this program as another process, which does what TestMain says.
func child(t testing.TB, what, name string) *exec.Cmd {
	self, err := os.Executable()
	must(t, err)
	c := exec.Command(self)
	c.Env = append(os.Environ(), "ATO_CHILD="+what, "ATO_FILE="+name)
	c.Stderr = os.Stderr
	return c
}

func TestMain(m *testing.M) {
	what := os.Getenv("ATO_CHILD")
	if what == "" {
		os.Exit(m.Run())
	}
	file, err := Open(os.Getenv("ATO_FILE"), &Options{Size: 100 * 4096})
	if err == nil {
		t := &testing.T{}
		if what == "transfers" {
			transfers(t, file, 200, 77)
			write(t, file, 8, "done")
			err = file.Close()
		} else {
			err = records(file)
		}
		if t.Failed() {
			os.Exit(1)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const places = 4

func place(i uint64) int64 { return 100 + int64(i%places)*3*4096 }

func number(i uint64) []byte {
	p := make([]byte, 8)
	binary.LittleEndian.PutUint64(p, i)
	return p
}

// record is of three or four pages.
func record(i uint64) []byte { return bytes.Repeat(number(i), 1250) }

// records writes records, by one call or another, and says each number when it is durable.
func records(m *Map) error {
	newest, _, err := newest(m)
	for i := newest + 1; err == nil; i++ {
		p := record(i)
		switch i % 3 {
		case 0:
			_, err = m.WriteAt(p, place(i))
		case 1:
			err = m.WriteRanges(Range{place(i), p[:5000]}, Range{place(i) + 5000, p[5000:]})
		case 2:
			err = Update(background, nil, func(tx *Tx) error {
				for _, r := range []Range{{0, number(i)}, {place(i), p}, {99 * 4096, number(i)}} {
					if err := tx.Write(m, r.P, r.Off); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err == nil {
			_, err = os.Stdout.Write(number(i))
		}
	}
	return err
}

// newest returns the largest number of a record, and whether one is torn.
func newest(m *Map) (most uint64, torn bool, err error) {
	p := make([]byte, 10_000)
	for i := uint64(0); i < places; i++ {
		if _, err = m.ReadAt(p, place(i)); err != nil {
			return
		}
		n := binary.LittleEndian.Uint64(p)
		torn = torn || !bytes.Equal(p, record(n))
		if n > most {
			most = n
		}
	}
	return
}

func TestAfterAKillEachRecordIsWholeAndNoneIsLost(t *testing.T) {
	memory, err := os.MkdirTemp("/dev/shm", "ato-go-kill-")
	must(t, err)
	defer os.RemoveAll(memory)
	folders := []string{t.TempDir(), memory}
	for round := 0; round < 30; round++ {
		name := filepath.Join(folders[round%2], "data")
		c := child(t, "records", name)
		said, err := c.StdoutPipe()
		must(t, err)
		must(t, c.Start())
		last := make([]byte, 8)
		if _, err = io.ReadFull(said, last); err != nil {
			t.Fatal("it is not at work", err)
		}
		time.Sleep(time.Duration(round*997%5000) * time.Microsecond)
		must(t, c.Process.Kill())
		rest, err := io.ReadAll(said)
		must(t, err)
		_ = c.Wait()
		if n := len(rest) / 8 * 8; n > 0 {
			last = rest[n-8 : n]
		}
		durable := binary.LittleEndian.Uint64(last)

		m := open(t, name, &Options{KeepReflection: true})
		n, torn, err := newest(m)
		must(t, err)
		if torn || n != durable && n != durable+1 {
			t.Fatalf("round %d: torn %t, %d was durable, %d is there", round, torn, durable, n)
		}
		a, b := make([]byte, 8), make([]byte, 8)
		_, err = m.ReadAt(a, 0)
		must(t, err)
		_, err = m.ReadAt(b, 99*4096)
		must(t, err)
		if !bytes.Equal(a, b) {
			t.Fatalf("round %d: half of a transaction", round)
		}
		must(t, m.Close())
	}
}
