// SPDX-License-Identifier: BSD-3-Clause

// A program in Go that knows nothing of libato. For preload_test.py.
package main

import (
	"database/sql"
	"fmt"
	"log"
	"os"

	_ "github.com/mattn/go-sqlite3"
)

func main() {
	db, err := sql.Open("sqlite3", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	if _, err = db.Exec("CREATE TABLE t(a); INSERT INTO t VALUES(1)"); err != nil {
		log.Fatal(err)
	}
	var stat string
	if err = db.QueryRow("PRAGMA ato_stat").Scan(&stat); err != nil && err != sql.ErrNoRows {
		log.Fatal(err)
	}
	fmt.Println(stat)
	if err = db.Close(); err != nil {
		log.Fatal(err)
	}
}
