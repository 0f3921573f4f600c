/* SPDX-License-Identifier: BSD-3-Clause */
/* The engines: each is a source of that name in this folder. */
#ifndef ATO_BENCHMARKS_ENGINES_ENGINES_H
#define ATO_BENCHMARKS_ENGINES_ENGINES_H

#include "engine.h"

namespace engine
{

/* The first is the one that ratios are to. */
extern const Kind FLOOR, RAW;
extern const Kind ATO, ATO_GATHER, ATO_EAGERLY, ATO_LANES, ATO_RTM;
extern const Kind PMEMOBJ, FALLBACK_PMEMOBJ, FALLBACK_PMEMOBJ_REDO;
extern const Kind MSYNC, PWRITE;
extern const Kind HYBRID_LOG, HYBRID_UNDO, HYBRID_REDO;
extern const Kind REPLICA, REDO_CACHE;

} // namespace engine

#endif
