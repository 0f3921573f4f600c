// SPDX-License-Identifier: BSD-3-Clause
//
// Processes that die in a call, and the state that they leave.
#ifndef ATO_TEST_SUPPORT_DYING_H
#define ATO_TEST_SUPPORT_DYING_H

#include "support/mapped.h"

#include <functional>
#include <string>

struct manifest_record;

namespace support
{

// A process maps the file, does `before`, and dies at the n-th step of `act`, from 0. Returns whether it died, or came to the end.
bool dies_at(int n, const std::string &path, const ato_options &o,
             const std::function<bool(Mapped &)> &act,
             const std::function<bool(Mapped &)> &before = nullptr);

// A process dies in a commit, in domain pmem: pattern(100, 2) at the begin of the file, pattern(100, 3) of its second page. A lane
// has the commit, and no word is stored. Returns CUT.
int die_in_commit(const std::string &path);

// Changes the newer record in the manifest of a file.
void edit_manifest(const std::string &path, const std::function<void(manifest_record &)> &edit);

// The shared memory of a file that is in use, or was.
std::string memory_of(const std::string &path);

} // namespace support

#endif
