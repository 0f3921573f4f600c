/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors, for SQLite: a result code, and a sentence that names the file, in sqlite3_log() and ATO_LOG.
 */
#ifndef ATO_SQLITE_FAULT_H
#define ATO_SQLITE_FAULT_H

/* To be called after a call of libato failed: logs `what` could not be done (as "cannot write to"), `name` and libato's sentence.
 * Returns `code`, or a code that says more by errno: SQLITE_FULL, SQLITE_IOERR_NOMEM, SQLITE_READONLY_ROLLBACK. */
int fault_of_libato(int code, const char *what, const char *name);

/* Returns `code`, or a code that says more by the errno of a call of libato. */
int fault_code(int code, int error);

/* Logs a sentence, and returns `code`. */
int fault(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a connection of a parent process. */
int fault_of_fork(int code, const char *name);

/* Logs a failure of libato that the caller goes on after. */
void fault_ignored(const char *what, const char *name);

#endif
