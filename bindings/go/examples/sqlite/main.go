// SPDX-License-Identifier: BSD-3-Clause

// mattn/go-sqlite3 through libato's VFS: a transaction needs no journal and, but on a disk, no system call; after a kill or a power cut
// it is there wholly or not at all.
//
//	go run -tags libsqlite3 . FILE [EXTENSION]
//
// EXTENSION is the path of libato_sqlite, where the linker does not find it by its name. The tag has the program use SQLite of the
// system. (Without it the package's own SQLite is in the program, which works as well.)
package main

import (
	"database/sql"
	"fmt"
	"log"
	"net/url"
	"os"

	"github.com/mattn/go-sqlite3"
)

// register registers the VFS, for all connections of the process from now on. Call it once, before databases are opened through it.
func register(extension string) error {
	sql.Register("sqlite3 with libato", &sqlite3.SQLiteDriver{Extensions: []string{extension}})
	db, err := sql.Open("sqlite3 with libato", ":memory:")
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Ping()
}

func run(file, extension string) error {
	if err := register(extension); err != nil {
		return err
	}
	uri := url.URL{Scheme: "file", Opaque: url.PathEscape(file), RawQuery: "vfs=ato&_busy_timeout=5000"}
	db, err := sql.Open("sqlite3", uri.String())
	if err != nil {
		return err
	}
	defer db.Close() // or the database is not an ordinary one: the end of a program in Go does not close it
	if _, err = db.Exec("CREATE TABLE IF NOT EXISTS visits(name TEXT PRIMARY KEY, times INTEGER) WITHOUT ROWID"); err != nil {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, name := range []string{"one", "two", "one"} {
		if _, err = tx.Exec("INSERT INTO visits VALUES(?, 1) ON CONFLICT DO UPDATE SET times = times + 1", name); err != nil {
			return err
		}
	}
	if err = tx.Commit(); err != nil { // durable
		return err
	}
	rows, err := db.Query("SELECT name, times FROM visits ORDER BY name")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var times int
		if err = rows.Scan(&name, &times); err != nil {
			return err
		}
		fmt.Println(name, times)
	}
	if err = rows.Err(); err != nil {
		return err
	}
	var stat string
	if err = db.QueryRow("PRAGMA ato_stat").Scan(&stat); err != nil {
		return err
	}
	fmt.Println(stat)
	return nil
}

func main() {
	extension := "libato_sqlite"
	switch len(os.Args) {
	case 3:
		extension = os.Args[2]
	case 2:
	default:
		log.Fatal("usage: sqlite FILE [EXTENSION]")
	}
	if err := run(os.Args[1], extension); err != nil {
		log.Fatal(err)
	}
}
