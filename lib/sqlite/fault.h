/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What went wrong, for SQLite: a result code of its, and a sentence that names the file in sqlite3_log().
 */
#ifndef ATO_SQLITE_FAULT_H
#define ATO_SQLITE_FAULT_H

/* After a call of libato that failed: `code`, or what says more by errno (SQLITE_FULL, SQLITE_IOERR_NOMEM,
 * SQLITE_READONLY_ROLLBACK). Logged with libato's sentence. `what`: was not done, "cannot write to". */
int fault_of_libato(int code, const char *what, const char *name);

/* The same after a system call. */
int fault_of_system(int code, const char *what, const char *name);

/* A sentence of one's own. */
int fault(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Something that went wrong and changes nothing for the caller. */
void fault_ignored(const char *what, const char *name);

#endif
