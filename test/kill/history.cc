/* SPDX-License-Identifier: BSD-3-Clause */
#include "history.h"

#include "writer.h"

#include <cerrno>
#include <csignal>
#include <sys/prctl.h>
#include <thread>

#ifdef ATO_SEAM
extern "C" {
#include "reflection/media/fsops.h"
#include "reflection/media/seam.h"
}
#include "../threads/stumble_kernel.h"
#endif

namespace histories
{

namespace
{

rig::Map map_file(const Process &p, rig::Random &random, unsigned flags)
{
    ato_options o =
        rig::options(ATO_READ_LAZY + static_cast<int>(random.below(3)), p.plan.domain, flags);
    o.format = p.plan.format;
    o.max_size = MOST_SIZE;
    o.snapshot_bytes = p.plan.bounded ? 24 * (PAGE + SLICE) : 0;
    rig::Descriptor file(p.path, p.reads_only ? O_RDONLY : O_RDWR);
    void *at = ato_mmap_opt(TAIL_AT, file.fd, 0, &o);
    for (unsigned n = 0; at == MAP_FAILED && p.reads_only && errno == EAGAIN && n < 20000; n++) {
        if (p.is_over()) /* nobody is left who could recover the file */
            _exit(0);
        usleep(1000);
        at = ato_mmap_opt(TAIL_AT, file.fd, 0, &o);
    }
    if (at == MAP_FAILED)
        fail(p, "cannot map the file");
    rig::Map map;
    map.base = static_cast<unsigned char *>(at);
    map.n = TAIL_AT;
    return map;
}

void note_objects(const Process &p)
{
    for (const std::string &path : rig::shared_objects())
        std::snprintf(p.board.objects, 13 + 33, "%s", path.c_str()); /* without the generation */
}

#ifdef ATO_SEAM
rig::Random &fate()
{
    static std::atomic<uint64_t> born{0};
    thread_local rig::Random random(static_cast<uint64_t>(getpid()) << 32 | ++born);
    return random;
}

/* The anchor does not die. */
bool is_mortal;

void die_by(uint64_t chances)
{
    if (is_mortal && fate().below(chances) == 0)
        kill(getpid(), SIGKILL);
}

/* At the points of the seam, and in the middle of a copy, a thread sleeps, spins, or dies with its process. */
void stumble()
{
    const uint64_t dice = fate().below(20000);
    die_by(20000);
    if (dice < 80)
        usleep(static_cast<useconds_t>(fate().log_uniform(200)));
    else if (dice < 800)
        for (uint64_t n = fate().below(3000); n; n--)
            __builtin_ia32_pause();
}

/* Sometimes also before an object or a file gets space. */
int allocate(int fd, int mode, off_t offset, off_t n)
{
    die_by(50);
    return fsops_real.fallocate(fd, mode, offset, n);
}

void endanger(const Process &p, bool mortal)
{
    static struct fsops dangerous = fsops_real;
    dangerous.fallocate = allocate;
    fsops = &dangerous;
    stumble_in_kernel(p.map.base, stumble);
    seam_hook = [](enum seam_point point, const void *) {
        stumble();
        if (point == SEAM_FLIP || point == SEAM_FLIPPING || point == SEAM_FLIPPED)
            die_by(1000); /* a part of a commit is visible */
        /* Nobody waits for a reader. */
        if ((point == SEAM_VERSION || point == SEAM_CHECK) && fate().below(16) == 0)
            usleep(static_cast<useconds_t>(fate().log_uniform(300)));
    };
    is_mortal = mortal;
}
#else
void endanger(const Process &, bool)
{
}
#endif

/* ---- whole lives ---- */

void be_writer(Process &p, unsigned n, unsigned actor, uint64_t seed)
{
    Writer writer(p, actor, seed);
    Witness witness(p, seed + 1);
    rig::Random random(seed + 2);
    writer.begin();
    while (!p.is_over()) {
        const uint64_t dice = random.below(100);
        if (dice < 80)
            writer.do_something();
        else if (dice < 95)
            witness.do_something();
        else
            witness.read_plainly();
        __atomic_add_fetch(&p.board.done[n], 1, __ATOMIC_RELAXED);
        if (random.below(3000) == 0)
            p.retires = true;
    }
    witness.end_all();
}

/* Never writes; `first` is held to the end. */
void be_reader(Process &p, unsigned n, uint64_t seed)
{
    Witness witness(p, seed);
    Held first;
    while (!p.is_over()) {
        const uint64_t dice = witness.random.below(100);
        if (!first.snapshot && dice < 50)
            witness.take(first);
        else if (first.snapshot && dice < 40)
            witness.read_again(first);
        else if (dice < 90)
            witness.do_something();
        else
            witness.read_plainly();
        usleep(
            static_cast<useconds_t>(witness.random.log_uniform(300))); /* the writers have to run */
        __atomic_add_fetch(&p.board.done[n], 1, __ATOMIC_RELAXED);
    }
    if (first.snapshot)
        witness.read_again(first);
    witness.end(first);
    witness.end_all();
}

void unmap(Process &p, int mode)
{
    if (p.epochs.unmap(mode) < 0 || p.map.unmap(mode) < 0)
        fail(p, "cannot unmap");
}

} // namespace

std::vector<std::string> objects_of(const Board &board)
{
    std::vector<std::string> paths;
    for (const std::string &name : rig::names_in("/dev/shm")) {
        paths.push_back("/dev/shm/" + name);
        if (!board.objects[0] || paths.back().rfind(board.objects, 0) != 0)
            paths.pop_back();
    }
    return paths;
}

void live(Board &board, const Plan &plan, const std::string &path, unsigned n, uint64_t seed)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Process p{board, plan, path, n == READER};
    rig::Random random(seed);
    while (p.reads_only && !p.is_over() && !__atomic_load_n(&board.anchored, __ATOMIC_ACQUIRE))
        usleep(100); /* others have the file in memory, until the anchor ends */
    p.map = map_file(p, random, 0);
    if (n < WRITERS)
        p.epochs = map_file(p, random, ATO_EPOCHS);
    endanger(p, n != ANCHOR);
    if (n == ANCHOR) {
        note_objects(p);
        __atomic_store_n(&board.anchored, true, __ATOMIC_RELEASE);
        usleep(static_cast<useconds_t>(random.log_uniform(5000)));
        be_reader(p, n, seed);
    } else if (n == READER) {
        be_reader(p, n, seed);
    } else {
        std::thread second(be_writer, std::ref(p), n, 2 * n + 1, seed + 100);
        be_writer(p, n, 2 * n, seed);
        second.join();
    }
    unmap(p, random.chance(50) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
    _exit(0);
}

void look(Board &board, const Plan &plan, const std::string &path, int mode, uint64_t seed)
{
    Process p{board, plan, path, false};
    rig::Random random(seed);
    p.map = map_file(p, random, 0);
    note_objects(p);
    Witness witness(p, seed);
    Held held;
    witness.take(held);
    Bytes bytes(held.bytes.size());
    if (!ato_memcpy(bytes.data(), p.map.base, bytes.size()) || held.bytes != bytes)
        fail(p, "a snapshot differs from the file that nobody changes");
    witness.end(held);
    unmap(p, mode);
    if (mode == ATO_UNMAP_SPATIAL && rig::read_file(path) != bytes)
        fail(p, "read(2) sees another file");
    if (mode == ATO_UNMAP_SPATIAL && !objects_of(board).empty())
        fail(p, objects_of(board)[0] + " is left");
    _exit(0);
}

} // namespace histories
