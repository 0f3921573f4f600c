# SPDX-License-Identifier: BSD-3-Clause Runs a script of SQLite's. With the VFS `ato` the script finds an SQLite
# without memory-mapped pages, since that VFS gives out none (xFetch).
#
# usage: testfixture script.tcl SCRIPT

if {$env(ATO_SUITE_VFS) ne "stock"} {
  set sqlite_options(mmap) 0
}
set argv0 [lindex $argv 0]
set argv {}
source $argv0
