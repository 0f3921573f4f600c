/* SPDX-License-Identifier: BSD-3-Clause */
#include "crash.h"

#include "steps.h"
#include "support/child.h"
#include "support/temp.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <sys/time.h>
#include <thread>
#include <unistd.h>

namespace engines_test
{

namespace
{

constexpr uint64_t FILE_BYTES = 256 << 10;
constexpr unsigned MOST_THREADS = 2;

using Script = std::vector<std::vector<Write>>; /* units of writes */

/* How far a thread has come, in memory that outlives it. */
struct Progress {
    /* units acknowledged << 32, writes of the next one begun << 1, its end begun */
    std::atomic<uint64_t> word;

    void set(uint64_t acknowledged, uint64_t begun, bool ending)
    {
        word = acknowledged << 32 | begun << 1 | ending;
    }
};

/* What children tell. */
struct Ledger {
    Progress progress[MOST_THREADS];
    std::atomic<uint64_t> steps;
    std::atomic<bool> died;
};

/* ---- In the child: counts steps, and ends it. ---- */

Ledger *ledger;
End way;
uint64_t die_at; /* a step; 0: none */
std::string image;
rig::Random *dice;
std::recursive_mutex stepping;

[[noreturn]] void die()
{
    ledger->died = true;
    if (way == End::power)
        shadow::cut(image, *dice);
    _exit(support::CUT);
}

void step(engine::Step step, const void *at, size_t bytes)
{
    /* A thread that has come so far stays here, if another one ends the process. */
    const std::lock_guard<std::recursive_mutex> hold(stepping);
    if (++ledger->steps == die_at)
        die();
    if (way == End::power)
        shadow::see(step, at, bytes);
}

void arm(const Case &one, uint64_t n)
{
    die_at = n;
    ledger->steps = 0;
    ledger->died = false;
    if (way == End::alarm)
        return;
    watch_medium(step);
    if (!goes_through_media(*one.kind))
        watch_libato(step);
}

void arm_alarm(uint64_t microseconds)
{
    std::signal(SIGALRM, SIG_DFL);
    const struct itimerval when = {{0, 0},
                                   {static_cast<time_t>(microseconds / 1000000),
                                    static_cast<suseconds_t>(microseconds % 1000000)}};
    setitimer(ITIMER_REAL, &when, nullptr);
}

/* ---- Scripts ---- */

uint64_t border(const Case &one, unsigned thread, unsigned threads)
{
    if (thread == threads)
        return FILE_BYTES;
    const uint64_t at = thread * FILE_BYTES / threads;
    const bool in_pages = one.unit == Unit::sync || one.promise() == Promise::page;
    return thread && !in_pages ? at + 1237 : at;
}

Script random_script(rig::Random &random, Unit unit, uint64_t begin, uint64_t end)
{
    static constexpr uint32_t MOST[] = {256, 8192, 32768, MAX_WRITE};
    Script script(random.within(1, 8));
    for (auto &writes : script)
        for (uint64_t n = unit == Unit::write ? 1 : random.within(1, 5); n; n--)
            writes.push_back(random_write(random, begin, end, MOST[random.below(4)]));
    return script;
}

void act(Engine &engine, Unit unit, const Script &script, Progress &progress)
{
    for (uint64_t u = 0; u < script.size(); u++) {
        for (uint64_t w = 0; w < script[u].size(); w++) {
            const Write &write = script[u][w];
            progress.set(u, w + 1, unit == Unit::write);
            engine.write(write.offset, SOURCE.data() + write.source, write.bytes);
        }
        if (unit == Unit::sync) {
            progress.set(u, script[u].size(), true);
            engine.sync();
        }
        progress.set(u + 1, 0, false);
    }
}

/* ---- The verdict ---- */

std::string say(const char *promise, const std::vector<Write> &open, uint64_t acknowledged,
                bool ending, const std::string &wrong)
{
    std::string text = std::string(promise) + ", after " + std::to_string(acknowledged) +
                       " units; open, " + (ending ? "being ended" : "not yet ended") + ":";
    for (const Write &w : open)
        text += " [" + std::to_string(w.offset) + ", +" + std::to_string(w.bytes) + "]";
    return text + "; " + wrong;
}

/* Compares bytes begin .. end - 1, a thread's. `base` has the content before the script; afterwards as acknowledged. */
std::string judge(Promise promise, const Bytes &is, Bytes *base, const Script &script,
                  uint64_t word, uint64_t begin, uint64_t end)
{
    const uint64_t acknowledged = word >> 32, begun = (word & 0xffffffff) >> 1;
    const bool ending = word & 1;
    for (uint64_t u = 0; u < acknowledged; u++)
        for (const Write &w : script[u])
            apply(w, base);
    std::vector<Write> open;
    if (acknowledged < script.size())
        open.assign(script[acknowledged].begin(),
                    script[acknowledged].begin() + static_cast<long>(begun));

    const auto same = [&](const Bytes &to, uint64_t from, uint64_t n) {
        return std::memcmp(&is[from], &to[from], n) == 0;
    };
    const auto first_wrong = [&](const Bytes &to) {
        Bytes part = to; /* the others' bytes are theirs to judge */
        std::memcpy(part.data(), is.data(), begin);
        std::memcpy(part.data() + end, is.data() + end, is.size() - end);
        return difference(is, part);
    };
    Bytes now = *base;
    std::vector<char> allowed(is.size()); /* page, durable: of each byte, whether it is */
    for (uint64_t i = begin; i < end; i++)
        allowed[i] = is[i] == now[i];
    const auto allow_pages = [&] {
        for (uint64_t p = begin / 4096 * 4096; p < end; p += 4096) {
            const uint64_t from = std::max(p, begin), to = std::min(p + 4096, end);
            if (same(now, from, to - from))
                std::memset(&allowed[from], 2, to - from);
        }
    };
    allow_pages();
    for (const Write &w : open) {
        apply(w, &now);
        for (uint64_t i = w.offset; i < w.offset + w.bytes; i++)
            allowed[i] |= is[i] == now[i];
        allow_pages();
    }
    const char *name = engine::name_of(promise, Domain::pmem);
    switch (promise) {
    case Promise::none:
        return "";
    case Promise::shared: /* of one thread */
    case Promise::atomic:
        if (same(*base, begin, end - begin) || (ending && same(now, begin, end - begin)))
            return "";
        return say(name, open, acknowledged, ending,
                   "against what was acknowledged " + first_wrong(*base) +
                       (ending ? ", against the whole unit " + first_wrong(now) : ""));
    case Promise::page:
    case Promise::durable:
        for (uint64_t i = begin; i < end; i++)
            if (allowed[i] < (promise == Promise::page ? 2 : 1))
                return say(name, open, acknowledged, ending,
                           "byte " + std::to_string(i) + " of the file, in page " +
                               std::to_string(i / 4096) + "; against what was acknowledged " +
                               first_wrong(*base));
    }
    return "";
}

/* ---- Rounds ---- */

class Life
{
  public:
    Life(const Case &one, End end, const std::optional<Forgotten> &forgotten)
        : one_(one), forgotten_(forgotten),
          random_(rig::seed() ^ std::hash<std::string>()(one.name()) ^ static_cast<uint64_t>(end)),
          above_(place(one.domain)), folder_(above_ / "files"), image_(above_ / "image"),
          memory_(sizeof(Ledger)), seen_(FILE_BYTES), content_(FILE_BYTES)
    {
        way = end;
        ledger = reinterpret_cast<Ledger *>(memory_.at);
        image = image_;
        dice = &random_;
        std::filesystem::create_directory(folder_);
        options_ = one.options(folder_, FILE_BYTES);
        if (random_.chance(50))
            options_.log_bytes = 1 << 20;
    }

    std::string make()
    {
        return in_process([&] {
            one_.kind->map(options_);
            return "";
        });
    }

    std::string round()
    {
        /* libato's steps are counted of one thread only. */
        const bool alone = way != End::alarm && !goes_through_media(*one_.kind);
        const unsigned threads = alone || random_.chance(70) ? 1 : 2;
        Script scripts[MOST_THREADS];
        for (unsigned t = 0; t < threads; t++)
            scripts[t] = random_script(random_, one_.unit, border(one_, t, threads),
                                       border(one_, t + 1, threads));
        for (Progress &p : ledger->progress)
            p.word = 0;

        /* The n-th step, of as many as there may be: now and then a whole life tells. */
        const bool whole = lives_++ == 0 || random_.chance(8);
        const uint64_t n = whole ? 0 : up_to(most_steps_ + most_steps_ / 8);
        std::string wrong = live(n, whole ? 0 : up_to(ns_ / 1000), [&] {
            auto engine = one_.kind->map(options_);
            std::thread second;
            if (threads == 2)
                second =
                    std::thread([&] { act(*engine, one_.unit, scripts[1], ledger->progress[1]); });
            act(*engine, one_.unit, scripts[0], ledger->progress[0]);
            if (threads == 2)
                second.join();
        });
        const uint64_t steps = ledger->steps;
        if (!ledger->died)
            most_steps_ = std::max(steps, most_steps_);

        if (wrong.empty() && random_.chance(30))
            wrong = live(random_.log_uniform(most_steps_), up_to(ns_ / 2000),
                         [&] { one_.kind->map(options_); });
        if (wrong.empty())
            wrong = look();
        const Bytes is(seen_.at, seen_.at + FILE_BYTES);
        /* Another thread's sync() leaves the first whole writes of a unit, in each page. */
        const Promise promise =
            one_.promise() == Promise::shared && threads > 1 ? Promise::page : one_.promise();
        for (unsigned t = 0; t < threads && wrong.empty(); t++)
            wrong = judge(promise, is, &content_, scripts[t], ledger->progress[t].word,
                          border(one_, t, threads), border(one_, t + 1, threads));
        content_ = is;
        return wrong.empty() ? ""
                             : "ended at step " + std::to_string(steps) + " with " +
                                   std::to_string(threads) + " threads: " + wrong;
    }

  private:
    uint64_t up_to(uint64_t highest)
    {
        return random_.within(1, std::max<uint64_t>(highest, 1));
    }

    /* Runs it in a child that is ended at step n, or after some microseconds, if it gets so far. 0: it is not. */
    std::string live(uint64_t n, uint64_t microseconds, const std::function<void()> &what)
    {
        const auto start = std::chrono::steady_clock::now();
        const uint64_t chances = random_.next();
        int status = support::in_child([&] {
            random_ = rig::Random(chances);
            alarm(60);
            if (way == End::power)
                shadow::begin(folder_, forgotten_);
            arm(one_, n);
            if (way == End::alarm && microseconds)
                arm_alarm(microseconds);
            what();
            if (way == End::power)
                shadow::cut(image_, random_);
            if (way == End::alarm)
                alarm(0);
            return 0;
        });
        const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
        if (way == End::alarm && status == 256 + SIGALRM)
            status = support::CUT;
        if (status == 0)
            ns_ = static_cast<uint64_t>(took.count());
        if (status == 256 + SIGALRM)
            return "the engine stands still";
        if (status != 0 && status != support::CUT)
            return "the engine ended with status " + std::to_string(status) +
                   " (256 and more: by a signal); its error is on stderr";
        if (way == End::power) {
            std::filesystem::remove_all(folder_);
            std::filesystem::rename(image_, folder_);
        }
        return "";
    }

    /* Maps the file, and finds the same bytes when it maps it again; after a power cut, too. */
    std::string look()
    {
        const auto read = [&] { one_.kind->map(options_)->read(seen_.at, 0, FILE_BYTES); };
        std::string wrong = in_process([&] {
            if (way != End::power)
                read();
            return "";
        });
        if (way == End::power)
            wrong = live(0, 0, read);
        const Bytes first(seen_.at, seen_.at + FILE_BYTES);
        if (wrong.empty())
            wrong = in_process([&] {
                read();
                return "";
            });
        if (wrong.empty()) {
            wrong = difference({seen_.at, seen_.at + FILE_BYTES}, first);
            if (!wrong.empty())
                wrong = "mapped twice: the second time " + wrong;
        }
        return wrong;
    }

    const Case one_;
    const std::optional<Forgotten> forgotten_;
    rig::Random random_;
    const support::TempDir above_;
    const std::string folder_, image_;
    Shared memory_, seen_;
    Bytes content_; /* what the file holds */
    Options options_;
    uint64_t lives_ = 0, most_steps_ = 0; /* of a whole life */
    uint64_t ns_ = 0;                     /* of the last one that came to its end */
};

} // namespace

std::string crash_rounds(const Case &one, End end, unsigned rounds,
                         const std::optional<Forgotten> &forgotten)
{
    Life life(one, end, forgotten);
    std::string wrong = life.make();
    for (unsigned i = 0; i < rounds && wrong.empty(); i++) {
        wrong = life.round();
        if (!wrong.empty())
            wrong = "round " + std::to_string(i) + ": " + wrong;
    }
    return wrong;
}

} // namespace engines_test
