/* SPDX-License-Identifier: BSD-3-Clause */
/* The engines: each is a source of that name in this folder. */
#ifndef ATO_BENCHMARKS_ENGINES_ENGINES_H
#define ATO_BENCHMARKS_ENGINES_ENGINES_H

#include "engine.h"

namespace engine
{

extern const Kind RAW;

} // namespace engine

#endif
