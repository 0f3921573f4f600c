/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault.h"

#include "api.h"
#include "ato_engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* After SQLITE_FULL and all SQLITE_IOERR SQLite rolls a transaction back, and trusts nothing in its cache. After another error of a write
 * it does neither, so that only calls that write nothing may return one. */
int fault_code(int code, int error)
{
    const bool is_write = (code & 0xff) == SQLITE_IOERR;
    switch (error) {
    case ENOSPC:
    case EDQUOT:
    case E2BIG:
        return SQLITE_FULL;
    case EFBIG:
        return code == SQLITE_CANTOPEN ? code : SQLITE_FULL;
    case EBUSY:
        return is_write ? code : SQLITE_BUSY;
    case ENOMEM:
        return SQLITE_IOERR_NOMEM;
    case EAGAIN:
        return is_write ? code : SQLITE_READONLY_ROLLBACK;
    default:
        return code;
    }
}

/* An entry of SQLite's log holds 209 bytes (SQLITE_PRINT_BUF_SIZE), with the words before the sentence. */
enum { ENTRY = 190 };

/* A sentence that does not fit goes on in the next entry, with a whole word, unless that is very long. */
int fault(int code, const char *format, ...)
{
    char sentence[2048]; /* not two whole paths: see -Wframe-larger-than in meson.build */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    const int error = errno;
    ato_log(code == SQLITE_WARNING ? ATO_LOG_WARNING : ATO_LOG_ERROR, sentence);
    const char *rest = sentence, *before = "";
    do {
        int n = (int)strnlen(rest, ENTRY + 1);
        if (n > ENTRY)
            while (--n > ENTRY / 2 && rest[n] != ' ')
                ;
        sqlite3_log(code, "ato: %s%.*s", before, n, rest);
        rest += n;
        before = "...";
    } while (*rest);
    errno = error;
    return code;
}

int fault_of_libato(int code, const char *what, const char *name)
{
    return fault(fault_code(code, errno), "%s %s: %s", what, name, ato_errormsg());
}

int fault_of_fork(int code, const char *name)
{
    return fault(code, "%s was opened before fork(): the child has to open it anew", name);
}

void fault_ignored(const char *what, const char *name)
{
    (void)fault(SQLITE_WARNING, "%s %s: %s", what, name, ato_errormsg());
}
