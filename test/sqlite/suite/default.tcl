# SPDX-License-Identifier: BSD-3-Clause
# Which VFS has a database by default? Prints its name.
#
# usage: testfixture default.tcl

sqlite3 db default.db
puts [file_control_vfsname db]
db close
