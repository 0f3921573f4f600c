/* SPDX-License-Identifier: BSD-3-Clause */
#include "actors.h"

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
    files.unmap(end == End::Fast ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
    for (unsigned i = 0; i < Ledger::FILES && end == End::Spatial; i++)
        check_image(l, i, found, rig::read_file(l.path(i)), "read(2) after a spatial unmap");
}

} // namespace kills
