// SPDX-License-Identifier: BSD-3-Clause
//
// The state that a process leaves that died in a commit to two pages.
#ifndef ATO_TEST_SUPPORT_DYING_H
#define ATO_TEST_SUPPORT_DYING_H

#include <functional>
#include <string>

struct manifest_record;

namespace support
{

// A process dies in a commit, in domain pmem: pattern(100, 2) at the begin of the file, pattern(100, 3) of its second page. A lane
// has the commit, and no word is stored. Returns CUT.
int die_in_commit(const std::string &path);

// Changes the newer record in the manifest of a file.
void edit_manifest(const std::string &path, const std::function<void(manifest_record &)> &edit);

// The shared memory of a file that is in use, or was.
std::string memory_of(const std::string &path);

} // namespace support

#endif
