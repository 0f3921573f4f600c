/* SPDX-License-Identifier: BSD-3-Clause */
#include "steps.h"

#include "support/faults.h"

namespace engines_test
{

void watch_medium(Watcher watcher)
{
    engine::watcher = watcher;
}

void watch_libato(Watcher watcher)
{
    static support::FsFaults files;
    static support::PersistFaults stores;
    files.before = [watcher](const support::FsCall &) {
        watcher(engine::Step::copy, nullptr, 0);
        return support::GO_ON;
    };
    stores.before = [watcher](const support::PersistCall &) {
        watcher(engine::Step::copy, nullptr, 0);
        return support::GO_ON;
    };
}

} // namespace engines_test
