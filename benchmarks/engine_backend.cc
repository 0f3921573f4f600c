/* SPDX-License-Identifier: BSD-3-Clause */
/* An engine of the evaluation as a backend, in a folder of its own. */
#include "bench.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>

namespace bench
{

namespace
{

class EngineBackend final : public Backend
{
  public:
    EngineBackend(const engine::Kind &kind, const engine::Options &options)
        : kind_(kind), options_(options), engine_(kind.map(options))
    {
    }

    ~EngineBackend() override
    {
        engine_.reset();
        std::error_code ignored;
        std::filesystem::remove_all(options_.folder, ignored);
    }

    const char *name() const override
    {
        return kind_.name;
    }

    const char *guarantee() const override
    {
        return engine::name_of(kind_.promise(options_), options_.domain);
    }

    void write(const char *source, const Write *writes, size_t count) override
    {
        if (options_.unit == engine::Unit::write)
            engine_->run(writes, count, source, nullptr);
        else
            for (const Write *w = writes; w < writes + count; w++)
                write_at_once(source, w, 1);
    }

    void write_at_once(const char *source, const Write *writes, size_t count) override
    {
        engine_->run(writes, count, source, nullptr);
        engine_->sync();
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        engine_->read(dst, offset, n);
    }

  private:
    const engine::Kind &kind_;
    engine::Options options_;
    std::unique_ptr<engine::Engine> engine_;
};

} // namespace

std::unique_ptr<Backend> make_engine(const char *name, Domain domain, engine::Unit unit,
                                     size_t file_bytes)
{
    engine::Options options;
    options.folder = folder() + "/" + name;
    options.bytes = file_bytes;
    options.domain = domain;
    options.unit = unit;
    if (mkdir(options.folder.c_str(), 0700) != 0)
        fail("cannot make %s: %s", options.folder.c_str(), std::strerror(errno));
    return std::make_unique<EngineBackend>(engine::kind(name), options);
}

} // namespace bench
