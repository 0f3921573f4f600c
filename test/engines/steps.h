/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of an engine to its media: each copy, flush and fence of its Medium, and each that libato makes (with the seam; of one
 * thread at a time). For forked children only, because it is never undone.
 */
#ifndef ATO_TEST_ENGINES_STEPS_H
#define ATO_TEST_ENGINES_STEPS_H

#include "benchmarks/engines/media.h"

namespace engines_test
{

/* Called before each step, by the thread that makes it. */
using Watcher = void (*)(engine::Step step, const void *at, size_t bytes);

void watch_medium(Watcher watcher);
void watch_libato(Watcher watcher);

} // namespace engines_test

#endif
