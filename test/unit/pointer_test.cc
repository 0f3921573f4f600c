// SPDX-License-Identifier: BSD-3-Clause
//
// Is a pointer read as it was made, complete as soon as it has its name, and is any other content
// refused?
#include "support/faults.h"
#include "support/temp.h"

extern "C" {
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/recovery/pointer.h"
#include "reflection/recovery/pool.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include <unistd.h>

using namespace support;

namespace
{

const char JOURNAL[] = "journal-0123456789abcdef0123456789abcdef";
const char NAME[] = "journal-0123456789abcdef0123456789abcdef.at";

class Pointer : public testing::Test
{
  protected:
    Pointer()
    {
        persist_init(&p, PERSIST_PMEM);
        EXPECT_EQ(folder_open(&f, dir.path().c_str(), false), 0) << report_sentence();
    }
    ~Pointer() override
    {
        folder_close(&f);
    }

    int make(unsigned index, const std::string &in, const std::string &way = "")
    {
        const struct trust like = {geteuid(), getegid(), 0640};
        route r = {};
        strcpy(r.absolute, in.c_str());
        strcpy(r.relative, way.c_str());
        return pointer_make(&f, JOURNAL, index, &r, &p, &like);
    }

    int read(struct pointer *to)
    {
        Fd fd(dir / NAME);
        return pointer_read(to, fd, &f, NAME);
    }

    TempDir dir;
    folder f = {};
    struct persist p;
};

TEST_F(Pointer, IsReadAsItWasMade)
{
    const std::string longest = "/" + std::string(4094, 'd');
    for (unsigned index : {1u, 9u, 63u, 4294967295u})
        for (const std::string &in : {std::string("/"), std::string("/a/.ato"),
                                      std::string("/with blanks/and\nlines "), longest}) {
            struct pointer is;
            const std::string way = in.size() > 5 ? "../.." + in : "";
            ASSERT_EQ(make(index, in, way.substr(0, 4095)), 0) << report_sentence();
            EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{NAME});
            EXPECT_EQ(size_of(dir / NAME) % 8, 0u);
            ASSERT_EQ(read(&is), 0) << report_sentence();
            EXPECT_EQ(is.index, index);
            EXPECT_EQ(std::string(is.route.absolute), in);
            EXPECT_EQ(std::string(is.route.relative), way.substr(0, 4095));
            EXPECT_STREQ(is.journal, JOURNAL);
            EXPECT_EQ(stat_of(dir / NAME).st_mode & 07777, 0640u);
            ASSERT_EQ(pointer_remove(&f, JOURNAL), 0);
            EXPECT_TRUE(names_in(dir.path()).empty());
        }
    EXPECT_EQ(pointer_remove(&f, JOURNAL), 0) << "the removal of no pointer succeeds";
}

TEST_F(Pointer, IsCompleteUnderItsNameAndLockedBefore)
{
    FsFaults faults;
    faults.before = [&](const FsCall &c) {
        bool renamed = faults.count("renameat") > 0 && std::string(c.op) != "renameat";
        EXPECT_EQ(exists(dir / NAME), renamed) << c.op;
        const std::string unfinished = dir / (NAME + std::string(POOL_UNFINISHED));
        if (exists(unfinished)) {
            Fd other(unfinished);
            EXPECT_EQ(locks_ask(other, 0, 1), LOCKS_TAKEN) << c.op;
        }
        return GO_ON;
    };
    ASSERT_EQ(make(1, "/there/.ato"), 0);
    EXPECT_EQ(faults.count("fsync"), 2) << "its content, and its name";
}

TEST_F(Pointer, StepThatFailsLeavesNothing)
{
    for (long k = 0;; k++) {
        SCOPED_TRACE(k);
        FsFaults faults;
        faults.fail_at(k, ENOSPC);
        int r = make(1, "/there/.ato");
        const bool done = k >= static_cast<long>(faults.calls.size());
        faults.before = nullptr;
        if (r == 0) {
            EXPECT_EQ(pointer_remove(&f, JOURNAL), 0);
            if (done)
                break;
            continue; // fchown may fail
        }
        EXPECT_EQ(errno, ENOSPC) << faults.calls[static_cast<size_t>(k)];
        EXPECT_STRNE(report_sentence(), "");
        EXPECT_TRUE(names_in(dir.path()).empty()) << faults.calls[static_cast<size_t>(k)];
    }
}

TEST_F(Pointer, InvalidContentIsAnErrorThatNamesThePointer)
{
    using namespace std::string_literals;
    const std::string head = "ato-journal-at 1 1 /x"; // and at most one relative path
    for (const auto &text :
         {""s, "\n"s, "ato-journal-at 1 "s, "ato-journal-at 1 1 /x"s, "ato-journal-at 2 1 /x\n"s,
          "ato-journal-at 1 0 /x\n"s, "ato-journal-at 1 01 /x\n"s, "ato-journal-at 1 +1 /x\n"s,
          "ato-journal-at 1 1/x\n"s, "ato-journal-at 1 1 x\n"s, "ato-journal-at 1 1         /x\n"s,
          "ato-journal-at 1 4294967296 /x\n"s, "ato-journal-at 1 99999999999999999999 /x\n"s,
          head + "\0way\0\n"s, head + "\0\0\n"s, head + "\0a\0b\n"s, head + "\0way"s}) {
        struct pointer is;
        write_file(dir / NAME, Bytes(text.begin(), text.end()));
        EXPECT_EQ(read(&is), -1) << text;
        EXPECT_EQ(errno, EUCLEAN);
        EXPECT_NE(std::string(report_sentence()).find(NAME), std::string::npos);
    }
}

TEST_F(Pointer, TooLongRelativePathIsLeftOut)
{
    using namespace std::string_literals;
    const std::string text = "ato-journal-at 1 1 /x"s + "\0"s + std::string(4096, 'w') + "\n";
    struct pointer is;
    write_file(dir / NAME, Bytes(text.begin(), text.end()));
    ASSERT_EQ(read(&is), 0) << report_sentence();
    EXPECT_STREQ(is.route.relative, "");
}

} // namespace
