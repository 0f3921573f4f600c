/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines.h"

#include "../bench.h"

namespace engine
{

const std::vector<Kind> ENGINES = {
    /* what the medium allows */
    FLOOR,
    RAW,
    /* libato */
    ATO,
    ATO_GATHER,
    ATO_EAGERLY,
    ATO_LANES,
    ATO_RTM,
    /* libpmemobj */
    PMEMOBJ,
    FALLBACK_PMEMOBJ,
    FALLBACK_PMEMOBJ_REDO,
    /* system calls */
    MSYNC,
    PWRITE,
    /* Libnvmmio's scheme */
    HYBRID_LOG,
    HYBRID_UNDO,
    HYBRID_REDO,
    /* NOVA's atomic mmap; vNVML's scheme */
    REPLICA,
    REDO_CACHE,
};

const Kind &kind(const std::string &name)
{
    for (const Kind &one : ENGINES)
        if (one.name == name)
            return one;
    bench::fail("there is no engine %s", name.c_str());
}

const char *name_of(Domain domain)
{
    return domain == Domain::pmem ? "pmem" : domain == Domain::disk ? "disk" : "process";
}

const char *name_of(Promise promise, Domain domain)
{
    const bool kills = domain == Domain::process;
    switch (promise) {
    case Promise::none:
        return "nothing";
    case Promise::durable:
        return kills ? "survives a kill, not atomic" : "durable, not atomic";
    case Promise::page:
        return kills ? "survives a kill, each page atomic" : "durable, each page atomic";
    case Promise::shared:
        return kills ? "atomic for all threads together, survives a kill"
                     : "atomic for all threads together, and durable";
    case Promise::atomic:
        break;
    }
    return kills ? "atomic, survives a kill" : "atomic and durable";
}

} // namespace engine
