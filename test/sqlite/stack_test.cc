/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does a method of the VFS take more than 16 KiB of stack? The same is done through SQLite's own VFS: SQLite itself takes as much in
 * both.
 */
#include "lab.h"
#include "support/painted.h"

namespace sql
{
namespace
{

constexpr size_t MOST = 16384;

#define FILLS                                                                                      \
    "with recursive s(i) as (select 1 union all select i+1 from s where i<3000) "                  \
    "insert into t select i, zeroblob(1000) from s"

TEST(Stack, NoMethodTakesMuch)
{
    if (!support::measures_stack())
        GTEST_SKIP() << "with a sanitizer frames are larger";
    support::TempDir dir;
    support::PaintedStack stack;
    start();
    const char *const statements[] = {
        "create table t(k integer primary key, v)",
        FILLS,
        "pragma cache_size=10; begin; update t set v = zeroblob(900); commit",
        "begin; update t set v = 1; rollback",
        "begin; update t set v = 1; savepoint a; delete from t; rollback to a; commit",
        "select count(*) from t where v = 1",
        "delete from t where k > 10; vacuum",
        "pragma journal_mode=wal; insert into t(v) values(1); pragma wal_checkpoint(truncate)",
        "pragma journal_mode=delete",
        "insert into nowhere values(1)",
    };
    Db own, stock;
    const auto compare = [&](const std::string &what, const std::function<void()> &through_ato,
                             const std::function<void()> &through_stock) {
        const size_t with = stack.taken_by(through_ato), without = stack.taken_by(through_stock);
        EXPECT_LE(with, without + MOST) << what << ": " << with << " and " << without;
    };
    compare(
        "open", [&] { own = Db(dir / "own"); }, [&] { stock = Db::stock(dir / "stock"); });
    ASSERT_EQ(own.opened, SQLITE_OK);
    for (const char *statement : statements)
        compare(
            statement, [&] { own.run(statement); }, [&] { stock.run(statement); });
    compare(
        "close", [&] { own.close(); }, [&] { stock.close(); });
    /* Its locks are in memory after so many reads, and it is mapped as it is. Then it is written. */
    compare(
        "open again", [&] { own = Db(dir / "own"); }, [&] { stock = Db::stock(dir / "stock"); });
    for (int i = 0; i < 4; i++)
        compare(
            "many reads",
            [&] {
                for (int n = 0; n < 600; n++)
                    (void)own.text("select max(k) from t");
            },
            [&] { (void)stock.text("select max(k) from t"); });
    for (const char *statement : {"update t set v = 2", "select count(*) from t where v = 2"})
        compare(
            statement, [&] { own.run(statement); }, [&] { stock.run(statement); });
    compare(
        "close again", [&] { own.close(); }, [&] { stock.close(); });
}

} // namespace
} // namespace sql
