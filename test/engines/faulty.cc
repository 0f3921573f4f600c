/* SPDX-License-Identifier: BSD-3-Clause */
#include "faulty.h"

#include "benchmarks/engines/media.h"

#include <chrono>
#include <cstring>
#include <thread>

namespace engines_test
{

using namespace engine;

namespace
{

enum class Fault { SHORT, HALVES, LATE, NEIGHBOURS, UNFENCED };

template <Fault fault> class Faulty final : public Base<Faulty<fault>>
{
  public:
    explicit Faulty(const Options &options)
        : medium_(options.domain), file_(options.folder + "/file", options.bytes)
    {
    }

    void write(uint64_t offset, const void *src, size_t n) override
    {
        auto *from = static_cast<const char *>(src);
        switch (fault) {
        case Fault::SHORT:
            medium_.copy(file_.at(offset), src, (offset + n) % 4096 ? n : n - 1);
            break;
        case Fault::HALVES:
            medium_.copy(file_.at(offset), src, n / 2);
            std::this_thread::sleep_for(std::chrono::microseconds(100));
            medium_.copy(file_.at(offset + n / 2), from + n / 2, n - n / 2);
            break;
        case Fault::LATE:
            medium_.copy(file_.at(late_at_), late_.data(), late_.size());
            late_at_ = offset;
            late_.assign(from, from + n);
            break;
        case Fault::NEIGHBOURS: {
            const uint64_t first = offset / 64 * 64,
                           end = std::min((offset + n + 63) / 64 * 64, uint64_t{file_.bytes()});
            std::vector<char> lines(file_.at(first), file_.at(end));
            std::memcpy(&lines[offset - first], src, n);
            std::this_thread::yield();
            medium_.copy(file_.at(first), lines.data(), lines.size());
            break;
        }
        case Fault::UNFENCED:
            medium_.copy(file_.at(offset), src, n);
            return;
        }
        medium_.fence();
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        std::memcpy(dst, file_.at(offset), n);
    }

    void sync() override
    {
    }

  private:
    Medium medium_;
    File file_;
    uint64_t late_at_ = 0;
    std::vector<char> late_;
};

template <Fault fault, Promise promised> constexpr Kind kind_of(const char *name)
{
    return {name, "an engine with a fault", [](const Options &) { return true; },
            [](const Options &) { return promised; },
            [](const Options &options) -> std::unique_ptr<Engine> {
                return std::make_unique<Faulty<fault>>(options);
            }};
}

} // namespace

const Kind SHORT = kind_of<Fault::SHORT, Promise::durable>("short");
const Kind HALVES = kind_of<Fault::HALVES, Promise::atomic>("halves");
const Kind PAGES = kind_of<Fault::HALVES, Promise::page>("pages");
const Kind LATE = kind_of<Fault::LATE, Promise::durable>("late");
const Kind NEIGHBOURS = kind_of<Fault::NEIGHBOURS, Promise::durable>("neighbours");
const Kind UNFENCED = kind_of<Fault::UNFENCED, Promise::durable>("unfenced");

} // namespace engines_test
