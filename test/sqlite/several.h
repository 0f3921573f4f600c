/* SPDX-License-Identifier: BSD-3-Clause */
/* Two databases of one connection, `main` and `other`. */
#ifndef TEST_SQLITE_SEVERAL_H
#define TEST_SQLITE_SEVERAL_H

#include "lab.h"

namespace sql
{

static constexpr char SUMS[] =
    "SELECT (SELECT sum(a) FROM main.t)||' '||(SELECT sum(a) FROM other.t)";

class SqliteSeveral : public Lab
{
  protected:
    std::string second() const
    {
        return path("b.db");
    }
    void make_both() const
    {
        make();
        make("b.db");
    }
    Db open_both(const std::string &parameters = "", const std::string &of_second = "") const
    {
        Db db(path(), parameters);
        sqlite3_busy_timeout(db.handle, 60000);
        EXPECT_EQ(db.run("ATTACH '" + uri(second(), of_second.empty() ? parameters : of_second) +
                         "' AS other"),
                  SQLITE_OK)
            << db.error();
        return db;
    }
    static std::string both(const Db &db)
    {
        return db.text(SUMS);
    }
};

static constexpr char CHANGE_BOTH[] =
    "BEGIN; INSERT INTO main.t VALUES(10, 'x'); INSERT INTO other.t VALUES(20, 'x')";

} // namespace sql

#endif
