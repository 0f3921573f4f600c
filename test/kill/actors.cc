/* SPDX-License-Identifier: BSD-3-Clause */
#include "actors.h"

#include <cerrno>
#include <thread>

namespace kills
{

Files::Files(const Script &s, const Ledger &l, bool second_first, const Teller &t)
{
    for (unsigned i = 0; i < Ledger::FILES; i++) {
        unsigned file = second_first ? Ledger::FILES - 1 - i : i;
        maps[file] = rig::Map(l.path(file), l.size(), s.options());
        if (!maps[file].base)
            leave("cannot map " + l.path(file) + ": " + ato_errormsg());
    }
    std::vector<std::string> objects = rig::shared_objects();
    if (objects.size() < Ledger::FILES)
        leave("the shared memory of the files is not where it is looked for");
    for (const std::string &object : objects)
        t.tell_text(Say::Object, object);
}

unsigned char *Files::at(const Ledger &l, unsigned record) const
{
    return maps[Ledger::file(record)].base + l.offset(record);
}

void Files::unmap(int mode)
{
    for (rig::Map &m : maps)
        if (m.unmap(mode) < 0)
            leave(std::string("cannot unmap: ") + ato_errormsg());
}

/* ---- one who writes ---- */

namespace
{

class Writer
{
  public:
    Writer(const Script &s, const Ledger &l, unsigned number, uint64_t seed, const Teller &t)
        : script(s), ledger(l), thread(number), random(seed), teller(t), contents(l.contents),
          version(l.version), bytes(l.record_bytes)
    {
    }
    void write_one(const Files &files)
    {
        unsigned record = mine();
        Note n{};
        n.say = Say::Begin;
        n.thread = thread;
        n.record = record;
        uint64_t dice = random.below(100);
        unsigned from = mine();
        if (dice < 15) {
            /* The last byte of a version names a fill. */
            n.content = {Content::Filled, 0, ++version & 255};
            run(n, [&] { return ato_memset(files.at(ledger, record), version & 255, length()); });
        } else if (dice < 35 && from != record) {
            n.content = contents[from];
            run(n, [&] {
                return ato_memcpy(files.at(ledger, record), files.at(ledger, from), length());
            });
        } else {
            n.content = {Content::Stamped, record, ++version};
            render(n.content, bytes.data(), length());
            unsigned flags = random.chance(80) ? 0 : static_cast<unsigned>(random.below(4));
            run(n, [&] {
                return ato_memcpy_opt(files.at(ledger, record), bytes.data(), length(), flags);
            });
        }
        contents[record] = n.content;
    }
    /* What a reader or a deployer does. */
    void look_at_one(const Files &files)
    {
        unsigned record = static_cast<unsigned>(random.below(ledger.records()));
        unsigned char *at = files.at(ledger, record);
        if (random.chance(50) ? ato_deploy(at, length()) < 0
                              : !ato_memcpy(bytes.data(), at, length()))
            leave(std::string("cannot read or deploy: ") + ato_errormsg());
    }
    bool chance(unsigned percent)
    {
        return random.chance(percent);
    }

  private:
    /* Each record has one writer; each writer has records in both files. */
    unsigned mine()
    {
        unsigned pairs = ledger.records() / Ledger::FILES / script.writers;
        unsigned pair = static_cast<unsigned>(random.below(pairs)) * script.writers + thread;
        return pair * Ledger::FILES + static_cast<unsigned>(random.below(Ledger::FILES));
    }
    size_t length() const
    {
        return ledger.record_bytes;
    }
    template <class Call> void run(Note n, Call call)
    {
        teller.tell(n);
        while (!call()) /* a hardware transaction may abort for a while: nothing has changed */
            if (errno != EOPNOTSUPP)
                leave(std::string("cannot write: ") + ato_errormsg());
        n.say = Say::Told;
        teller.tell(n);
    }

    const Script &script;
    const Ledger &ledger;
    const unsigned thread;
    rig::Random random;
    const Teller &teller;
    std::vector<Content> contents;
    uint64_t version;
    std::vector<unsigned char> bytes;
};

} // namespace

void write_until_killed(const Script &s, const Ledger &l, uint64_t seed, const Teller &t)
{
    rig::Random random(seed);
    Files files(s, l, random.chance(50), t);
    std::vector<std::thread> team;
    for (unsigned i = 1; i < s.writers + s.others; i++)
        team.emplace_back([&, i] {
            Writer w(s, l, i < s.writers ? i : 0, seed + i, t);
            for (;;)
                i < s.writers ? w.write_one(files) : w.look_at_one(files);
        });
    Writer w(s, l, 0, seed, t);
    for (;;) {
        w.write_one(files);
        if (w.chance(10))
            w.look_at_one(files);
        /* Mapping takes as long as a hundred writes, making a journal as a thousand: kills shall
         * meet all three. */
        if (team.empty() && random.below(s.makes_journals() ? 1000 : 200) == 0) {
            files.unmap(random.chance(50) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
            files = Files(s, l, random.chance(50), t);
        }
    }
}

void write_plainly_until_killed(const Ledger &l, uint64_t seed, const Teller &t)
{
    rig::Random random(seed);
    unsigned char *maps[Ledger::FILES];
    for (unsigned i = 0; i < Ledger::FILES; i++) {
        rig::Descriptor file(l.path(i));
        void *at = mmap(nullptr, l.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
        if (at == MAP_FAILED)
            leave("cannot mmap");
        maps[i] = static_cast<unsigned char *>(at);
    }
    std::vector<unsigned char> bytes(l.record_bytes);
    uint64_t version = l.version;
    for (;;) {
        Note n{};
        n.say = Say::Begin;
        n.record = static_cast<uint32_t>(random.below(l.records()));
        n.content = {Content::Stamped, n.record, ++version};
        render(n.content, bytes.data(), bytes.size());
        t.tell(n);
        std::memcpy(maps[Ledger::file(n.record)] + l.offset(n.record), bytes.data(), bytes.size());
        n.say = Say::Told;
        t.tell(n);
    }
}

void recover_until_killed(const Script &s, const Ledger &l, uint64_t seed, const Teller &t)
{
    rig::Random random(seed);
    for (;;) {
        Files files(s, l, random.chance(50), t);
        files.unmap(random.chance(50) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
    }
}

/* ---- one who looks ---- */

static void check_image(const Ledger &l, unsigned file, const std::vector<Found> &found,
                        const std::vector<unsigned char> &bytes, const char *seen_by)
{
    std::vector<unsigned char> want = l.image(file, found);
    long at = bytes.size() == want.size()
                  ? rig::first_difference(bytes.data(), want.data(), want.size())
                  : 0;
    if (at >= 0)
        leave(std::string(seen_by) + ": " + l.path(file) + " differs at byte " +
              std::to_string(at) + " from what was acknowledged");
}

void check(const Script &s, const Ledger &l, uint64_t seed, End end, const Teller &t)
{
    rig::Random random(seed);
    Files files(s, l, random.chance(50), t);
    std::vector<unsigned char> bytes(l.record_bytes);
    std::vector<Found> found(l.records());
    bool all_well = true;
    for (unsigned r = 0; r < l.records(); r++) {
        if (!ato_memcpy(bytes.data(), files.at(l, r), bytes.size()))
            leave(std::string("cannot read: ") + ato_errormsg());
        found[r] = l.judge(r, bytes.data());
        all_well &= found[r] == Found::Old || found[r] == Found::New;
        Note n{};
        n.say = Say::Verdict;
        n.record = r;
        n.value = static_cast<uint32_t>(found[r]);
        t.tell(n);
    }
    if (!all_well)
        leave(""); /* the parent has the verdicts */
    for (unsigned i = 0; i < Ledger::FILES; i++) {
        std::vector<unsigned char> whole(l.size());
        if (!ato_memcpy(whole.data(), files.maps[i].base, whole.size()))
            leave(std::string("cannot read: ") + ato_errormsg());
        check_image(l, i, found, whole, "ato_memcpy()");
    }
    switch (end) {
    case End::Fast:
        files.unmap(ATO_UNMAP_FAST);
        break;
    case End::Spatial:
        files.unmap(ATO_UNMAP_SPATIAL);
        for (unsigned i = 0; i < Ledger::FILES; i++)
            check_image(l, i, found, rig::read_file(l.path(i)), "read(2) after a spatial unmap");
        break;
    case End::Exit:
        exit(0); /* with the library's own clearing up, while the files are mapped */
    case End::Abandon:
        leave("");
    }
}

} // namespace kills
