/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does a checkpoint ask of the file? By the calls that are made below the library.
 */
#include "lab.h"
#include "support/faults.h"
#include "support/temp.h"

namespace sql
{

/* Each growth is a sync of the file. */
TEST(SqliteCheckpoint, GrowsTheFileOnce)
{
    support::TempDir folder;
    const std::string path = folder / "a.db";
    Db db(path);
    MUST(db, "PRAGMA journal_mode=wal; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(a, b);" +
                 fill("t", 10, 1000));
    support::FsFaults faults;
    EXPECT_EQ(db.text("PRAGMA wal_checkpoint"), "0");
    EXPECT_GT(support::size_of(path), 100u * 4096);
    EXPECT_LT(faults.count("ftruncate"), 10);
    EXPECT_LT(faults.count("fsync"), 10);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
}

} // namespace sql
