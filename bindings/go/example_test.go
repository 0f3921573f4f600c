// SPDX-License-Identifier: BSD-3-Clause

package ato_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"libato/ato"
)

func folder() string {
	name, err := os.MkdirTemp("", "ato-example-")
	if err != nil {
		log.Fatal(err)
	}
	return name
}

func Example() {
	name := filepath.Join(folder(), "data")
	defer os.RemoveAll(filepath.Dir(name))

	m, err := ato.Open(name, &ato.Options{Size: 1 << 20}) // made if it does not exist
	if err != nil {
		log.Fatal(err)
	}
	record := []byte("a record on two pages")
	if _, err = m.WriteAt(record, 4090); err != nil { // atomic and durable
		log.Fatal(err)
	}
	if _, err = m.ReadAt(record, 4090); err != nil { // of one moment
		log.Fatal(err)
	}
	if err = m.Close(); err != nil { // an ordinary file again
		log.Fatal(err)
	}
	fmt.Printf("%s\n", record)
	// Output: a record on two pages
}

// A counter and the sum of what it was, which change as one step.
func ExampleUpdate() {
	name := filepath.Join(folder(), "totals")
	defer os.RemoveAll(filepath.Dir(name))
	m, err := ato.Open(name, &ato.Options{Size: 16})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	var runs, sum uint64
	for i := 0; i < 3; i++ {
		err = ato.Update(context.Background(), nil, func(tx *ato.Tx) error {
			p := make([]byte, 16)
			if err := tx.Read(m, p, 0); err != nil {
				return err
			}
			runs = binary.LittleEndian.Uint64(p) + 1
			sum = binary.LittleEndian.Uint64(p[8:]) + runs
			binary.LittleEndian.PutUint64(p, runs)
			binary.LittleEndian.PutUint64(p[8:], sum)
			return tx.Write(m, p, 0)
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(runs, sum)
	// Output: 3 6
}

// A snapshot is the file as it was, whatever others write.
func ExampleMap_Snapshot() {
	name := filepath.Join(folder(), "data")
	defer os.RemoveAll(filepath.Dir(name))
	m, err := ato.Open(name, &ato.Options{Size: 4096})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := m.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close() // before m
	if _, err = m.WriteAt([]byte("new"), 0); err != nil {
		log.Fatal(err)
	}
	old := make([]byte, 3)
	if _, err = s.ReadAt(old, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", old)
	// Output: "\x00\x00\x00"
}
