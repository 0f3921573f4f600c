# SPDX-License-Identifier: BSD-3-Clause Prints `SUITE PATH` for each script of the suite `veryquick` and of all scripts,
# as SQLite's own permutations.test lists them.
#
# usage: testfixture scripts.tcl FOLDER-OF-TESTS

set tests [lindex $argv 0]
set argv {}
set argv0 $tests/scripts ;# permutations.test finds the others beside it, and by another name runs none
source $tests/permutations.test
array set veryquick $::testspec(veryquick)
foreach script $veryquick(-files) {
  puts "veryquick [file normalize [file join $tests $script]]"
}
foreach script $alltests {
  puts "all [file normalize [file join $tests $script]]"
}
