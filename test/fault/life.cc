// SPDX-License-Identifier: BSD-3-Clause
#include "life.h"

#include "support/child.h"
#include "use_tx.h"

extern "C" {
#include "reflection/format/lane.h"
#include "reflection/format/manifest.h"
#include "reflection/media/locks.h"
#include "reflection/pairing/folder.h"
}

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WITH_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

namespace fault
{

using namespace support;
using injector::Fault;

// A life that hangs ends after this many seconds.
enum { LONGEST = 100 };
enum { MOST_CALLS = 6000, TEXT = 32768 };

// Shared with the process that plays.
struct Page {
    size_t ncalls;
    injector::Call calls[MOST_CALLS];
    bool failed, succeeded, ended;
    int error;
    char sentence[1024];
    size_t said;
    char wrong[TEXT];
};

static Page *page;

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
    va_list args;
    int saved = errno;
    va_start(args, format);
    int n = vsnprintf(page->wrong + page->said, TEXT - page->said, format, args);
    va_end(args);
    page->said = std::min<size_t>(page->said + static_cast<size_t>(n), TEXT - 2);
    page->wrong[page->said++] = '\n';
    errno = saved;
}

static const char *last_words()
{
    return ato_errormsg();
}

// ---- resources of a process -------------------------------------------------------------------

struct Belongings {
    std::vector<std::string> descriptors;
    injector::Holdings holdings;
};

static std::vector<std::string> open_files()
{
    std::vector<std::string> all;
    for (const std::string &number : names_in("/proc/self/fd")) {
        char target[4096];
        ssize_t n = readlink(("/proc/self/fd/" + number).c_str(), target, sizeof(target));
        if (n > 0) // not the descriptor of the listing
            all.push_back(number + " " + std::string(target, static_cast<size_t>(n)));
    }
    return all;
}

// Without the memory that the library keeps of ended transactions and snapshots for later ones.
static Belongings belongings()
{
    Belongings all = {open_files(), injector::holdings()};
    all.holdings.blocks -= use_tx_kept();
    return all;
}

static void expect_given_back(const World &w, const Belongings &before, const Fault *fault)
{
    Belongings now = belongings();
    for (const std::string &fd : now.descriptors)
        if (std::find(before.descriptors.begin(), before.descriptors.end(), fd) ==
            before.descriptors.end())
            wrong("still open: %s", fd.c_str());
    if (now.holdings.blocks != before.holdings.blocks)
        wrong("%zu blocks of memory, before %zu", now.holdings.blocks, before.holdings.blocks);
    if (now.holdings.address != before.holdings.address)
        wrong("%zu bytes of address space, before %zu", now.holdings.address,
              before.holdings.address);
    // It may belong to another process by then, and must not be removed: litter, with a warning.
    bool not_removable =
        fault && (strcmp(fault->call.name, "shm_unlink") == 0 ||
                  strncmp(fault->call.name, "fstat", 5) == 0 || // its name is not known
                  strcmp(fault->call.name, "pread64") == 0);    // nor whose it is
    for (const std::string &name : injector::shared_memory_left())
        if (!not_removable)
            wrong("still there: /dev/shm%s", name.c_str());
    char line[4352];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (fgets(line, sizeof(line), maps))
        if (strstr(line, w.dir.path().c_str()) || strstr(line, "/dev/shm/ato-"))
            wrong("still mapped: %s", line);
    fclose(maps);
#ifdef WITH_SANITIZER
    if (__lsan_do_recoverable_leak_check())
        wrong("LeakSanitizer found leaks");
#endif
}

// ---- content of the file ------------------------------------------------------------------------

static void say_difference(const char *what, const Bytes &is, const Bytes &should)
{
    size_t at = 0;
    while (at < is.size() && at < should.size() && is[at] == should[at])
        at++;
    wrong("%s: %zu bytes, should be %zu; the first that differs is %zu", what, is.size(),
          should.size(), at);
}

static bool is_poisoned(const World &w)
{
    return ato_msync(w.base, 4096, MS_SYNC) < 0 && errno == EIO;
}

static Bytes read_mapped(const char *base, size_t n)
{
    Bytes all(n);
    if (ato_memcpy(all.data(), base, n))
        return all;
    wrong("cannot read: %s", last_words());
    return {};
}

static Bytes read_mapped(const World &w)
{
    struct ato_stat st = {};
    st.struct_size = sizeof(st);
    if (ato_stat(w.base, &st) < 0) {
        wrong("ato_stat: %s", last_words());
        return {};
    }
    return read_mapped(w.base, st.size);
}

static void expect_bytes(const char *when, const World &w, const Bytes &should)
{
    Bytes is = read_mapped(w);
    if (is != should)
        say_difference(when, is, should);
}

// The last sequence of each lane in the manifest, of all slots that were used.
static std::vector<uint64_t> lanes_of(const World &w)
{
    const Bytes manifest = read_file(manifest_of(w.file));
    std::vector<uint64_t> all;
    for (unsigned slot = 0; manifest_area(slot) + MANIFEST_AREA_BYTES <= manifest.size(); slot++)
        for (unsigned lane = 0; lane < LANE_SMALL; lane++) {
            uint64_t retired;
            memcpy(&retired, &manifest[manifest_area(slot) + lane * LANE_SMALL_BYTES + 64], 8);
            all.push_back(retired);
        }
    return all;
}

// A commit takes the first free lane: lane 0, unless a lane was not given back.
static void expect_lanes_free(World &w)
{
    if (w.after.size() / 4096 <= 1)
        return;
    for (int turn = 0; turn < 2; turn++) {
        const auto before = lanes_of(w);
        if (!w.write(4096 - 20, w.news(4096 - 20, 40, 60 + static_cast<unsigned>(turn))))
            wrong("a write of two pages: %s", last_words());
        const auto now = lanes_of(w);
        size_t moved = 0;
        for (size_t lane = 0; lane < now.size(); lane++)
            if (now[lane] != (lane < before.size() ? before[lane] : 0)) {
                moved++;
                if (lane % LANE_SMALL)
                    wrong("lane %zu was taken: those before are busy", lane);
            }
        if (moved > 1) // 0: a hardware transaction
            wrong("%zu lanes were used by one commit", moved);
    }
}

// ---- the life -----------------------------------------------------------------------------------

static bool may_leave_doubt(const Fault *fault)
{
    static const char *const syncs[] = {"fdatasync", "fsync", "msync"};
    return fault && std::any_of(std::begin(syncs), std::end(syncs), [&](const char *name) {
               return strcmp(fault->call.name, name) == 0;
           });
}

// No call is under way: no thread holds an attach lock, and no slot belongs to a file that is not mapped. Checked through separate open files, as by another process.
static void expect_locks_free(const World &w, const Fault *fault, const char *when)
{
    // If unlocking fails for good, this is allowed.
    if (fault && fault->reach != injector::ONCE && strncmp(fault->call.name, "fcntl", 5) == 0)
        return;
    for (const auto &[path, mapped] :
         {std::pair(w.file, w.is_mapped() || w.second), std::pair(w.beside, w.other != nullptr)}) {
        if (!exists(manifest_of(path)))
            continue;
        Fd fd(manifest_of(path));
        if (locks_ask(fd, 0, 1) != LOCKS_FREE)
            wrong("%s: the attach lock of %s is held", when, path.c_str());
        if (!mapped && locks_ask(fd, 1, MANIFEST_SLOTS) != LOCKS_FREE)
            wrong("%s: a slot of %s is held", when, path.c_str());
    }
}

static void map_again(World &w, const char *when)
{
    if (!w.map())
        wrong("%s: cannot be mapped: %s", when, last_words());
}

// The file is EIO: unmapped and mapped anew it has its old or its new content.
static bool leave_doubt(const Scene &s, World &w, const Fault *fault, bool ok, bool *done)
{
    if (!may_leave_doubt(fault))
        wrong("poisoned, although the medium did not fail");
    if (ato_memcpy(w.base, "x", 1) || errno != EIO)
        wrong("poisoned, but a write does not say EIO");
    if (w.second && ato_munmap(w.second, w.length, ATO_UNMAP_FAST) < 0)
        wrong("the second mapping of a poisoned file: %s", last_words());
    w.second = nullptr;
    if (!w.unmap(ATO_UNMAP_FAST))
        wrong("a poisoned file cannot be unmapped: %s", last_words());
    w.base = nullptr;
    map_again(w, "after it was poisoned");
    if (!w.base)
        return false;
    Bytes is = read_mapped(w);
    if (is != w.after && (ok || is != w.before))
        say_difference("after the doubt", is, w.after);
    *done = s.kind == MAPS || (s.kind == MOVES && is == w.after && w.before != w.after);
    return true;
}

// A failed sync is EIO, independent of the kernel's answer: bytes without a sync may be lost. A process that cannot be asked for is
// waited for, as one that is stopped.
static bool fits(int error, const Fault &fault)
{
    return error == fault.error || (error == EIO && may_leave_doubt(&fault)) ||
           (error == ETIMEDOUT && strcmp(fault.call.name, "fcntl64 GETLK") == 0);
}

static void look_at_failure(int error, const std::string &sentence, const std::string &stale,
                            const Fault *fault)
{
    if (error == 0)
        wrong("failed, but errno is 0");
    if (fault && !fits(error, *fault))
        wrong("failed with %s, '%s'", strerrorname_np(error), sentence.c_str());
    if (sentence.empty() || sentence == stale)
        wrong("failed without a sentence: '%s'", sentence.c_str());
}

// The failed operation is tried again, and succeeds.
static void try_again(const Scene &s, World &w)
{
    if (s.kind == UNMAPS && !w.is_mapped()) {
        w.base = nullptr;
        map_again(w, "after it was unmapped with an error");
        if (!w.base)
            return;
        if (read_mapped(w) != w.after) // if there was a guard, it is by now
            expect_bytes("mapped after an error", w, w.before);
    }
    if (!s.act(w))
        wrong("the next try fails, %s: %s", strerror(errno), last_words());
}

static void expect_effect(const Scene &s, World &w, const char *when)
{
    if (s.kind != UNMAPS && w.base)
        expect_bytes(when, w, w.after);
    if (s.effect && !s.effect(w))
        wrong("%s: without its effect", when);
}

static bool set_the_scene(const Scene &s, World &w)
{
    // Not before a map: the map may have to be the first call of the process.
    if ((s.kind == MAPS || w.map_beside()) && (!s.ready || s.ready(w)))
        return true;
    wrong("the scene cannot be set: %s", last_words());
    return false;
}

static bool the_act(const Scene &s, World &w, const Fault *fault, const Relief &relief)
{
    (void)ato_msync(nullptr, 0, 0x10000); // leaves a sentence
    const std::string stale = last_words();
    errno = 0;
    injector::begin(fault);
    bool ok = s.act(w);
    int error = errno;
    injector::Heard heard = injector::end();
    const std::string sentence = last_words();

    page->ncalls = std::min<size_t>(heard.calls.size(), MOST_CALLS);
    std::copy_n(heard.calls.begin(), page->ncalls, page->calls);
    page->failed = heard.failed;
    page->succeeded = ok;
    page->error = ok ? 0 : error;
    snprintf(page->sentence, sizeof(page->sentence), "%s", sentence.c_str());
    if (!ok)
        look_at_failure(error, sentence, stale, fault);
    if (relief)
        relief();
    expect_locks_free(w, fault, "the operation is over");
    return ok;
}

static void what_follows(const Scene &s, World &w, const Fault *fault, bool ok)
{
    bool mapped = w.is_mapped(), done;
    if (mapped && is_poisoned(w)) {
        if (!leave_doubt(s, w, fault, ok, &done))
            return;
        if (!done && !s.act(w))
            wrong("after the doubt, %s: %s", strerror(errno), last_words());
        expect_effect(s, w, "after the doubt");
        return;
    }
    if (ok) {
        expect_effect(s, w, "done");
    } else {
        if (mapped)
            expect_bytes("failed", w, w.before);
        try_again(s, w);
        expect_effect(s, w, "done at the next try");
    }
}

static void go_on(const Scene &s, World &w, const Fault *fault)
{
    if (w.second && ato_munmap(w.second, w.length, ATO_UNMAP_FAST) < 0)
        wrong("the second mapping: %s", last_words());
    w.second = nullptr;
    if (s.kind == UNMAPS)
        w.base = nullptr;
    if (!w.base)
        map_again(w, "to go on");
    if (!w.other && !w.map_beside())
        wrong("the other file cannot be mapped: %s", last_words());
    if (!w.base || !w.other)
        return;
    expect_bytes("to go on", w, w.after);
    expect_lanes_free(w);
    if (!w.write(10, w.news(10, 100, 51)))
        wrong("a write: %s", last_words());
    expect_bytes("afterwards", w, w.after);
    Bytes near = pattern(3000, 52);
    if (read_mapped(w.other, w.near.size()) != w.near)
        wrong("the other file does not hold what it held");
    if (!ato_memcpy(w.other + 100, near.data(), near.size()))
        wrong("the other file cannot be written: %s", last_words());
    std::copy(near.begin(), near.end(), w.near.begin() + 100);
    if (read_mapped(w.other, w.near.size()) != w.near)
        wrong("the other file does not hold what was written");
    expect_locks_free(w, fault, "to go on");
}

static void leave(World &w)
{
    if (w.other && ato_munmap(w.other, w.near.size(), ATO_UNMAP_SPATIAL) < 0)
        wrong("the other file cannot be made plain: %s", last_words());
    if (w.base && !w.unmap(ATO_UNMAP_SPATIAL))
        wrong("cannot be made plain: %s", last_words());
    if (read_file(w.file) != w.after)
        say_difference("plain", read_file(w.file), w.after);
    if (read_file(w.beside) != w.near)
        wrong("the other file, plain, holds something else");
    for (const std::string &path : {w.file, w.beside})
        if (!attribute_of(path).empty())
            wrong("%s has its attribute still", path.c_str());
    for (const std::string &name : names_in(folder_of(w.file)))
        if (w.left.empty() || name.find(w.left) == std::string::npos)
            wrong("left in the reflection folder: %s", name.c_str());
    for (const std::string &name : names_in(w.dir.path()))
        if (name[0] == '.' && name != ".ato")
            wrong("left in the folder: %s", name.c_str());
}

static void live(const Scene &s, World &w, const Fault *fault, const Relief &relief)
{
    Belongings before = belongings();
    if (!set_the_scene(s, w))
        return;
    bool ok = the_act(s, w, fault, relief);
    what_follows(s, w, fault, ok);
    go_on(s, w, fault);
    leave(w);
    expect_given_back(w, before, fault);
}

Told play(const Scene &s, World &w, const Fault *fault, const Relief &relief)
{
    if (!page) {
        void *shared =
            mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
            throw std::runtime_error("mmap");
        page = static_cast<Page *>(shared);
    }
    page->ncalls = page->said = 0;
    page->failed = page->succeeded = page->ended = false;
    if (s.past)
        s.past(w);
    fflush(nullptr);
    pid_t child = fork();
    if (child < 0)
        throw std::runtime_error("fork");
    if (child == 0) {
        alarm(LONGEST);
        try {
            live(s, w, fault, relief);
        } catch (const std::exception &e) {
            wrong("exception: %s", e.what());
        }
        page->ended = true;
        _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        wrong("died of signal %d%s", WTERMSIG(status),
              WTERMSIG(status) == SIGALRM ? ": it hung" : "");
    else if (!page->ended)
        wrong("left with status %d", WEXITSTATUS(status));
    return {std::vector<injector::Call>(page->calls, page->calls + page->ncalls),
            page->failed,
            page->succeeded,
            page->error,
            page->sentence,
            std::string(page->wrong, page->said)};
}

} // namespace fault
