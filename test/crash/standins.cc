// SPDX-License-Identifier: BSD-3-Clause
#include "standins.h"

extern "C" {
#include "lib/recovery/replay.h"
#include "lib/recovery/takeover.h"
#include "reflection/format/journal.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/identity.h"
#include "reflection/recovery/redo.h"
}

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crash
{
namespace standins
{

static std::mutex lock;
static std::vector<Region> regions;
static Random numbers(0);
static uint64_t boot = 1;
static CodeFault code_fault;
static thread_local bool recovers, takes_over; // a file of a dead process; its pages
// Of journals, by the addresses of their lanes: how large the large one is.
static std::map<const char *, uint64_t> known_lanes, full_lanes;

void set_random(uint64_t seed)
{
    numbers = Random(seed);
}

uint64_t get_boot()
{
    return boot;
}

void set_boot(uint64_t number)
{
    boot = number;
}

void fill_journals()
{
    std::lock_guard<std::mutex> hold(lock);
    full_lanes = known_lanes;
}

void set_fault(CodeFault f)
{
    code_fault = f;
}

CodeFault fault()
{
    return code_fault;
}

const Region *region(const void *address)
{
    std::lock_guard<std::mutex> hold(lock);
    const char *a = static_cast<const char *>(address);
    for (const Region &r : regions)
        if (a >= r.begin && a < r.begin + r.bytes)
            return &r;
    return nullptr;
}

static void forget(void *address, size_t n)
{
    char *begin = static_cast<char *>(address), *end = begin + n;
    regions.erase(
        std::remove_if(regions.begin(), regions.end(),
                       [&](const Region &r) { return r.begin < end && r.begin + r.bytes > begin; }),
        regions.end());
    for (auto *lanes : {&known_lanes, &full_lanes})
        lanes->erase(lanes->lower_bound(begin), lanes->lower_bound(end));
}

} // namespace standins
} // namespace crash

using namespace crash;
using namespace crash::standins;

extern "C" {

void *__real_mmap64(void *addr, size_t n, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *addr, size_t n);
bool __real_identity_same_inode(const struct identity *who, const struct manifest_record *record);
bool __real_identity_unwritten(const struct identity *who, const struct manifest_record *record);
uint64_t __real_journal_capacity(const struct journal *j, unsigned lane, unsigned files);
enum journal_finding __real_journal_look(const struct journal *j, unsigned lane,
                                         struct journal_view *v);
int __real_journal_retire(struct journal_writer *w);
int __real_redo_grow(struct redo *r, uint64_t words);
int __real_takeover(struct file *f, uint32_t holder);
int __real_takeover_all(struct file *f);
int __real_takeover_lanes(const struct pairing *pr, uint64_t journal);
int __real_replay_lanes(const struct journal *j, enum replay_step step, struct participants *n,
                        const char *path);
int __real_area_set_journal(const struct persist *p, char *area, uint64_t number, const char *path);

int __wrap_area_note_own(int manifest, struct manifest_record *record);
int __wrap_area_is_copy(int manifest, const struct manifest_record *record);
void *__wrap_mmap64(void *addr, size_t n, int prot, int flags, int fd, off_t offset);
int __wrap_munmap(void *addr, size_t n);
int __wrap_identity_random(void *bytes, size_t n);
void __wrap_identity_boot(uint8_t id[16]);
bool __wrap_persist_rtm_allowed(const struct persist *p);
bool __wrap_identity_same_inode(const struct identity *who, const struct manifest_record *record);
bool __wrap_identity_unwritten(const struct identity *who, const struct manifest_record *record);
uint64_t __wrap_journal_capacity(const struct journal *j, unsigned lane, unsigned files);
enum journal_finding __wrap_journal_look(const struct journal *j, unsigned lane,
                                         struct journal_view *v);
int __wrap_journal_retire(struct journal_writer *w);
int __wrap_redo_grow(struct redo *r, uint64_t words);
int __wrap_takeover(struct file *f, uint32_t holder);
int __wrap_takeover_all(struct file *f);
int __wrap_takeover_lanes(const struct pairing *pr, uint64_t journal);
int __wrap_replay_lanes(const struct journal *j, enum replay_step step, struct participants *n,
                        const char *path);
int __wrap_area_set_journal(const struct persist *p, char *area, uint64_t number, const char *path);

void *__wrap_mmap64(void *addr, size_t n, int prot, int flags, int fd, off_t offset)
{
    void *at = __real_mmap64(addr, n, prot, flags, fd, offset);
    struct stat st;
    if (at == MAP_FAILED)
        return at;
    std::lock_guard<std::mutex> hold(standins::lock);
    forget(at, n);
    if (fd >= 0 && (flags & MAP_SHARED) && fstat(fd, &st) == 0)
        regions.push_back(
            {static_cast<char *>(at), n, st.st_dev, st.st_ino, static_cast<uint64_t>(offset)});
    return at;
}

int __wrap_munmap(void *addr, size_t n)
{
    {
        std::lock_guard<std::mutex> hold(standins::lock);
        forget(addr, n);
    }
    return __real_munmap(addr, n);
}

int __wrap_identity_random(void *bytes, size_t n)
{
    char *to = static_cast<char *>(bytes);
    for (size_t i = 0; i < n; i++)
        to[i] = static_cast<char>(numbers.next());
    return 0;
}

void __wrap_identity_boot(uint8_t id[16])
{
    memset(id, 0, 16);
    memcpy(id, &boot, sizeof(boot));
}

int __wrap_area_note_own(int, struct manifest_record *record)
{
    record->own_inode = OWN;
    return 0;
}

int __wrap_area_is_copy(int, const struct manifest_record *record)
{
    return record->own_inode != OWN;
}

bool __wrap_persist_rtm_allowed(const struct persist *p)
{
    return p->domain == PERSIST_EADR || p->domain == PERSIST_PROCESS;
}

uint64_t __wrap_journal_capacity(const struct journal *j, unsigned lane, unsigned files)
{
    std::lock_guard<std::mutex> hold(standins::lock);
    known_lanes[j->lanes_at] = j->large_bytes;
    auto full = full_lanes.find(j->lanes_at);
    const bool is_full = full != full_lanes.end() && full->second == j->large_bytes;
    return is_full ? 0 : __real_journal_capacity(j, lane, files);
}

int __wrap_redo_grow(struct redo *r, uint64_t words)
{
    return __real_redo_grow(r, words + (1 << 16)); // else a small commit would need no more space
}

// ---- faults of the code -------------------------------------------------------------------------

bool __wrap_identity_same_inode(const struct identity *who, const struct manifest_record *record)
{
    return code_fault == CodeFault::AnyIdentity || __real_identity_same_inode(who, record);
}

bool __wrap_identity_unwritten(const struct identity *who, const struct manifest_record *record)
{
    return code_fault == CodeFault::AnyTime || __real_identity_unwritten(who, record);
}

enum journal_finding __wrap_journal_look(const struct journal *j, unsigned lane,
                                         struct journal_view *v)
{
    enum journal_finding found = __real_journal_look(j, lane, v);
    if (found == JOURNAL_COMMITTED && (code_fault == CodeFault::NoReplay ||
                                       (code_fault == CodeFault::LeftToOthers && takes_over)))
        return JOURNAL_IDLE;
    if (code_fault == CodeFault::NoChecksum && found == JOURNAL_CUT) {
        auto *line = reinterpret_cast<struct journal_commit *>(j->lanes_at + lane * j->lane_bytes);
        if (line->sequence == v->sequence && line->files && line->words) {
            v->nfiles = line->files;
            v->nwords = line->words;
            v->files = reinterpret_cast<struct journal_file *>(line + 2);
            v->words = reinterpret_cast<const struct journal_word *>(v->files + v->nfiles);
            return JOURNAL_COMMITTED;
        }
    }
    return found;
}

int __wrap_journal_retire(struct journal_writer *w)
{
    return code_fault == CodeFault::NeverRetired && !recovers ? 0 : __real_journal_retire(w);
}

static int recovering(bool taking_over, const std::function<int()> &what)
{
    recovers = true;
    takes_over = taking_over;
    int r = what();
    recovers = takes_over = false;
    return r;
}

int __wrap_takeover(struct file *f, uint32_t holder)
{
    return recovering(true, [=] { return __real_takeover(f, holder); });
}

int __wrap_takeover_all(struct file *f)
{
    return recovering(true, [=] { return __real_takeover_all(f); });
}

int __wrap_takeover_lanes(const struct pairing *pr, uint64_t journal)
{
    return recovering(false, [=] { return __real_takeover_lanes(pr, journal); });
}

int __wrap_replay_lanes(const struct journal *j, enum replay_step step, struct participants *n,
                        const char *path)
{
    const bool forgets = code_fault == CodeFault::OneFile && step == REPLAY_COLLECT;
    return __real_replay_lanes(j, step, forgets ? nullptr : n, path);
}

int __wrap_area_set_journal(const struct persist *p, char *area, uint64_t number, const char *path)
{
    if (recovers)
        return __real_area_set_journal(p, area, number, path);
    if (code_fault == (number ? CodeFault::NeverNamed : CodeFault::AlwaysNamed))
        return 0;
    if (code_fault != (number ? CodeFault::NamedLate : CodeFault::UnnamedLate))
        return __real_area_set_journal(p, area, number, path);
    // Not the macro: a fault would be tried at this place.
    persist_ops->store_word(p, reinterpret_cast<uint64_t *>(area),
                            number ? manifest_encode_size(number) : 0);
    return 0;
}

} // extern "C"
