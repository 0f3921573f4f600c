/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault.h"

#include "api.h"
#include "ato.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* SQLite rolls a transaction back after SQLITE_FULL and all SQLITE_IOERR, and after nothing else. */
static int code_of(int code, int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
    case E2BIG:
    case EFBIG:
        return code == SQLITE_CANTOPEN ? code : SQLITE_FULL;
    case ENOMEM:
        return SQLITE_IOERR_NOMEM;
    case EAGAIN:
        return code == SQLITE_CANTOPEN ? SQLITE_READONLY_ROLLBACK : code;
    default:
        return code;
    }
}

int fault_of_libato(int code, const char *what, const char *name)
{
    const int r = code_of(code, errno);
    sqlite3_log(r, "ato: %s %s: %s", what, name, ato_errormsg());
    return r;
}

int fault_of_system(int code, const char *what, const char *name)
{
    const int error = errno, r = code_of(code, error);
    sqlite3_log(r, "ato: %s %s: %s", what, name, strerror(error));
    return r;
}

int fault(int code, const char *format, ...)
{
    char sentence[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    sqlite3_log(code, "ato: %s", sentence);
    return code;
}

void fault_ignored(const char *what, const char *name)
{
    sqlite3_log(SQLITE_WARNING, "ato: %s %s: %s", what, name, ato_errormsg());
}
