# SPDX-License-Identifier: BSD-3-Clause Prints the name of the VFS that a database has by default.
#
# usage: testfixture default.tcl

sqlite3 db default.db
puts [file_control_vfsname db]
db close
