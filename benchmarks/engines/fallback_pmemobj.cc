/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fallback-pmemobj: libato's write with libpmemobj in the place of its lanes. Its first design named this for commits of several words
 * where a hardware transaction cannot make them; what lanes bought is the difference to `ato` in writes of several pages.
 *
 * As in libato a slice is stored to its invalid home, by the same kernels, a page is held meanwhile, and a commit of one page is the
 * store of its bitmap word. But libpmemobj can make only what lies in its pool atomic, so all words are in the root of a pool. Words of
 * several pages:
 *
 *   fallback-pmemobj        a transaction: a snapshot of the words (one for a run of pages), then stores to them
 *   fallback-pmemobj-redo   pmemobj_publish(): libpmemobj's redo log, of all new words
 *
 * Reads take each slice from where it is valid, as libato's with ATO_READ_GATHER. Not on a disk: there libato has a log.
 */
#include "engines.h"
#include "media.h"
#include "per_thread.h"

#include "../bench.h"

extern "C" {
#include "reflection/format/layout.h"
#include "reflection/media/persist.h"
}

#include <algorithm>
#include <atomic>
#include <cstring>
#include <libpmemobj.h>
#include <unistd.h>

namespace engine
{

namespace
{

constexpr size_t POOL_OVERHEAD = 16 << 20;

enum class Words { snapshot, redo };

struct Page {
    std::atomic<const void *> holder{nullptr}; /* a thread */
    uint64_t bitmap = 0;                       /* as in the pool */
    uint64_t pending = 0; /* of the holder: slices that are stored, and not committed */
    uint32_t version = 0; /* odd while the bitmap changes */
};

/* A thread is the address of this. */
thread_local char me;

class Fallback final : public Base<Fallback>
{
  public:
    Fallback(const Options &options, Words words);
    ~Fallback() override;

    void write(uint64_t offset, const void *src, size_t n) override;
    void read(void *dst, uint64_t offset, size_t n) override;
    void sync() override;

  private:
    char *original(uint64_t page) const
    {
        return original_.at(page * PAGE_BYTES);
    }
    char *reflection(uint64_t page) const
    {
        return reflection_.at(layout_refpage(LAYOUT_DENSE, page));
    }

    bool hold(uint64_t page);
    void store(uint64_t page, unsigned begin, unsigned n, const char *src);
    void store_part(uint64_t page, unsigned begin, unsigned n, const char *src);
    void commit(const uint64_t *pages, size_t n);
    void commit_word(uint64_t page);
    void commit_by_snapshot(const uint64_t *pages, size_t n);
    void commit_by_redo(const uint64_t *pages, size_t n);
    void show(uint64_t page);

    const Words kind_;
    const bool each_;
    struct persist persist_;
    File original_, reflection_;
    PMEMobjpool *pool_;
    uint64_t *words_;
    std::vector<Page> pages_;
    PerThread<std::vector<uint64_t>> held_; /* from the first write of a unit on */
};

Fallback::Fallback(const Options &options, Words words)
    : kind_(words), each_(options.unit == Unit::write),
      original_(options.folder + "/file", options.bytes),
      reflection_(options.folder + "/reflection",
                  layout_reflection_bytes(LAYOUT_DENSE, options.bytes)),
      pages_(layout_pages(options.bytes))
{
    persist_init(&persist_, options.domain == Domain::pmem ? PERSIST_PMEM : PERSIST_PROCESS);
    const std::string path = options.folder + "/pool";
    const size_t bytes = pages_.size() * sizeof(uint64_t) + PAGE_BYTES;
    pool_ = access(path.c_str(), F_OK) == 0
                ? pmemobj_open(path.c_str(), "words") /* ends what a dead process had begun */
                : pmemobj_create(path.c_str(), "words", bytes + bytes / 8 + POOL_OVERHEAD, 0600);
    if (!pool_)
        bench::fail("%s: %s", path.c_str(), pmemobj_errormsg());
    const PMEMoid root = pmemobj_root(pool_, bytes); /* of zeros when it is new */
    if (OID_IS_NULL(root))
        bench::fail("pmemobj_root: %s", pmemobj_errormsg());
    const auto at = reinterpret_cast<uintptr_t>(pmemobj_direct(root));
    words_ = reinterpret_cast<uint64_t *>((at + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
    /* A dead process may have left a word visible and not durable (R4). */
    pmemobj_persist(pool_, words_, pages_.size() * sizeof(uint64_t));
    for (size_t page = 0; page < pages_.size(); page++)
        pages_[page].bitmap = words_[page];
}

Fallback::~Fallback()
{
    pmemobj_close(pool_);
}

/* Returns false if the thread has it already. */
bool Fallback::hold(uint64_t number)
{
    Page &page = pages_[number];
    if (!each_ && page.holder.load(std::memory_order_relaxed) == &me)
        return false;
    const void *nobody = nullptr;
    while (!page.holder.compare_exchange_weak(nobody, &me, std::memory_order_acquire)) {
        nobody = nullptr;
        __builtin_ia32_pause();
    }
    return true;
}

/* A slice that is written in part: what is around comes from where the thread sees it. */
void Fallback::store_part(uint64_t number, unsigned begin, unsigned n, const char *src)
{
    const Page &page = pages_[number];
    const unsigned slice = begin / SLICE_BYTES, at = slice * SLICE_BYTES;
    const bool in_r = (page.bitmap ^ page.pending) >> slice & 1;
    alignas(SLICE_BYTES) char whole[SLICE_BYTES];
    std::memcpy(whole, (in_r ? reflection(number) : original(number)) + at, SLICE_BYTES);
    copy_few(whole + (begin - at), src, n);
    persist_scatter(&persist_, original(number), reflection(number), whole - at, page.bitmap,
                    1ull << slice, false);
}

void Fallback::store(uint64_t number, unsigned begin, unsigned n, const char *src)
{
    Page &page = pages_[number];
    const uint64_t touched = bitmap_touched(begin, n);
    const unsigned end = begin + n;
    uint64_t whole = touched;
    if (begin % SLICE_BYTES || n < SLICE_BYTES) {
        const unsigned part = std::min<unsigned>(n, SLICE_BYTES - begin % SLICE_BYTES);
        store_part(number, begin, part, src);
        whole &= ~(1ull << begin / SLICE_BYTES);
    }
    if (end % SLICE_BYTES && whole >> end / SLICE_BYTES & 1) {
        const unsigned part = end % SLICE_BYTES;
        store_part(number, end - part, part, src + (n - part));
        whole &= ~(1ull << end / SLICE_BYTES);
    }
    if (whole)
        persist_scatter(&persist_, original(number), reflection(number), src - begin, page.bitmap,
                        whole, n >= PERSIST_COLD_BYTES);
    page.pending |= touched;
}

void Fallback::write(uint64_t offset, const void *src, size_t n)
{
    auto *from = static_cast<const char *>(src);
    std::vector<uint64_t> &held = held_.mine();
    while (n) {
        const uint64_t page = offset / PAGE_BYTES;
        const auto begin = static_cast<unsigned>(offset % PAGE_BYTES);
        const auto bytes = static_cast<unsigned>(std::min<uint64_t>(n, PAGE_BYTES - begin));
        if (hold(page))
            held.push_back(page);
        store(page, begin, bytes, from);
        offset += bytes;
        from += bytes;
        n -= bytes;
    }
    if (each_)
        sync();
}

void Fallback::sync()
{
    std::vector<uint64_t> &held = held_.mine();
    if (held.empty())
        return;
    if (!each_)
        std::sort(held.begin(), held.end());
    commit(held.data(), held.size());
    held.clear();
}

void Fallback::commit(const uint64_t *pages, size_t n)
{
    persist_fence(&persist_); /* W1: the slices are durable before the words */
    if (n == 1)
        commit_word(*pages);
    else if (kind_ == Words::snapshot)
        commit_by_snapshot(pages, n);
    else
        commit_by_redo(pages, n);
    for (size_t i = 0; i < n; i++)
        show(pages[i]);
}

void Fallback::commit_word(uint64_t page)
{
    persist_store_word(&persist_, &words_[page], pages_[page].bitmap ^ pages_[page].pending);
    persist_flush_word(&persist_, &words_[page]);
    persist_fence(&persist_);
}

void Fallback::commit_by_snapshot(const uint64_t *pages, size_t n)
{
    if (pmemobj_tx_begin(pool_, nullptr, TX_PARAM_NONE) != 0)
        bench::fail("pmemobj_tx_begin: %s", pmemobj_errormsg());
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && pages[end] == pages[end - 1] + 1;)
            end++;
        if (pmemobj_tx_add_range_direct(&words_[pages[i]], (end - i) * sizeof(uint64_t)) != 0)
            bench::fail("pmemobj_tx_add_range_direct: %s", pmemobj_errormsg());
    }
    for (size_t i = 0; i < n; i++)
        words_[pages[i]] = pages_[pages[i]].bitmap ^ pages_[pages[i]].pending;
    pmemobj_tx_commit();
    if (pmemobj_tx_end() != 0)
        bench::fail("pmemobj_tx_end: %s", pmemobj_errormsg());
}

void Fallback::commit_by_redo(const uint64_t *pages, size_t n)
{
    static thread_local std::vector<pobj_action> actions;
    actions.resize(n);
    for (size_t i = 0; i < n; i++)
        pmemobj_set_value(pool_, &actions[i], &words_[pages[i]],
                          pages_[pages[i]].bitmap ^ pages_[pages[i]].pending);
    if (pmemobj_publish(pool_, actions.data(), n) != 0)
        bench::fail("pmemobj_publish: %s", pmemobj_errormsg());
}

/* The page's commit is durable: others may see it, and have the page. */
void Fallback::show(uint64_t number)
{
    Page &page = pages_[number];
    __atomic_store_n(&page.version, page.version + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&page.bitmap, page.bitmap ^ page.pending, __ATOMIC_RELAXED);
    page.pending = 0;
    __atomic_store_n(&page.version, page.version + 1, __ATOMIC_RELEASE);
    page.holder.store(nullptr, std::memory_order_release);
}

void Fallback::read(void *dst, uint64_t offset, size_t n)
{
    auto *to = static_cast<char *>(dst);
    while (n) {
        const uint64_t number = offset / PAGE_BYTES;
        const auto begin = static_cast<unsigned>(offset % PAGE_BYTES);
        const auto bytes = static_cast<unsigned>(std::min<uint64_t>(n, PAGE_BYTES - begin));
        const Page &page = pages_[number];
        for (uint32_t version;;) {
            version = __atomic_load_n(&page.version, __ATOMIC_ACQUIRE);
            uint64_t seen = __atomic_load_n(&page.bitmap, __ATOMIC_RELAXED);
            if (!each_ && page.holder.load(std::memory_order_relaxed) == &me)
                seen ^= page.pending;
            if (!(version & 1))
                copy_gather_range(persist_.kernel, to, original(number), reflection(number), seen,
                                  begin, bytes);
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            if (!(version & 1) && __atomic_load_n(&page.version, __ATOMIC_RELAXED) == version)
                break;
        }
        offset += bytes;
        to += bytes;
        n -= bytes;
    }
}

bool not_on_disk(const Options &options)
{
    return options.domain != Domain::disk;
}

Promise atomic(const Options &)
{
    return Promise::atomic;
}

template <Words words> std::unique_ptr<Engine> map(const Options &options)
{
    return std::make_unique<Fallback>(options, words);
}

} // namespace

const Kind FALLBACK_PMEMOBJ = {
    "fallback-pmemobj",
    "libato's write; its words are in a pool, and several change in a transaction of libpmemobj",
    not_on_disk,
    atomic,
    map<Words::snapshot>,
};

const Kind FALLBACK_PMEMOBJ_REDO = {
    "fallback-pmemobj-redo",
    "the same, and several change by libpmemobj's redo log (pmemobj_publish)",
    not_on_disk,
    atomic,
    map<Words::redo>,
};

} // namespace engine
