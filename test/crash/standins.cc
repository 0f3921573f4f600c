// SPDX-License-Identifier: BSD-3-Clause
#include "standins.h"

extern "C" {
#include "lib/recovery/takeover.h"
#include "reflection/format/lane.h"
#include "reflection/media/domain.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/identity.h"
#include "reflection/recovery/replay.h"
}

#include <algorithm>
#include <cstring>
#include <functional>
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
static bool stored_log;
static CodeFault code_fault;
static thread_local bool recovers, takes_over; // a file of a dead process; its pages
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

void set_stored_log(bool stored)
{
    stored_log = stored;
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
}

} // namespace standins
} // namespace crash

using namespace crash;
using namespace crash::standins;

extern "C" {

void *__real_mmap64(void *addr, size_t n, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *addr, size_t n);
enum persist_domain __real_domain_of(int fd);
bool __real_identity_same_inode(const struct identity *who, const struct manifest_record *record);
bool __real_identity_unwritten(const struct identity *who, const struct manifest_record *record);
enum lane_finding __real_lane_look(const struct lane *lane, struct lane_view *v);
int __real_lane_retire(struct lane_writer *w);
int __real_replay_all(const struct pairing *own);
int __real_takeover(struct file *f, uint32_t holder);
int __real_takeover_all(struct file *f);

int __wrap_area_note_own(int manifest, struct manifest_record *record);
int __wrap_area_is_copy(int manifest, const struct manifest_record *record);
void *__wrap_mmap64(void *addr, size_t n, int prot, int flags, int fd, off_t offset);
int __wrap_munmap(void *addr, size_t n);
enum persist_domain __wrap_domain_of(int fd);
int __wrap_identity_random(void *bytes, size_t n);
void __wrap_identity_boot(uint8_t id[16]);
bool __wrap_persist_rtm_allowed(const struct persist *p);
bool __wrap_identity_same_inode(const struct identity *who, const struct manifest_record *record);
bool __wrap_identity_unwritten(const struct identity *who, const struct manifest_record *record);
enum lane_finding __wrap_lane_look(const struct lane *lane, struct lane_view *v);
int __wrap_lane_retire(struct lane_writer *w);
int __wrap_replay_all(const struct pairing *own);
int __wrap_takeover(struct file *f, uint32_t holder);
int __wrap_takeover_all(struct file *f);

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
    else if (fd < 0)
        regions.push_back({static_cast<char *>(at), n, 0, 0, 0});
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

enum persist_domain __wrap_domain_of(int fd)
{
    char path[4096];
    const ssize_t n =
        readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path) - 1);
    if (!stored_log)
        return __real_domain_of(fd);
    path[std::max<ssize_t>(n, 0)] = '\0';
    return strstr(path, "/.ato/") ? PERSIST_PMEM : PERSIST_DISK;
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

// ---- faults of the code -------------------------------------------------------------------------

bool __wrap_identity_same_inode(const struct identity *who, const struct manifest_record *record)
{
    return code_fault == CodeFault::AnyIdentity || __real_identity_same_inode(who, record);
}

bool __wrap_identity_unwritten(const struct identity *who, const struct manifest_record *record)
{
    return code_fault == CodeFault::AnyTime || __real_identity_unwritten(who, record);
}

enum lane_finding __wrap_lane_look(const struct lane *lane, struct lane_view *v)
{
    enum lane_finding found = __real_lane_look(lane, v);
    if (found == LANE_COMMITTED && (code_fault == CodeFault::NoReplay ||
                                    (code_fault == CodeFault::LeftToOthers && takes_over)))
        return LANE_IDLE;
    if (code_fault == CodeFault::NoChecksum && found == LANE_CUT) {
        auto *line = reinterpret_cast<struct lane_commit *>(lane->at);
        if (line->sequence == v->sequence && line->words) {
            v->nwords = line->words;
            v->words = reinterpret_cast<const struct lane_word *>(lane->at + LANE_HEAD_BYTES);
            return LANE_COMMITTED;
        }
    }
    return found;
}

int __wrap_lane_retire(struct lane_writer *w)
{
    return code_fault == CodeFault::NeverRetired && !recovers ? 0 : __real_lane_retire(w);
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

int __wrap_replay_all(const struct pairing *own)
{
    return recovering(false, [=] { return __real_replay_all(own); });
}

} // extern "C"
