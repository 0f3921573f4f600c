/* SPDX-License-Identifier: BSD-3-Clause */
#include "pragma.h"

#include "connection.h"
#include "database.h"
#include "fault.h"

#include <string.h>

static const char *const policies[] = {
    [ATO_READ_LAZY] = "lazy",
    [ATO_READ_GATHER] = "gather",
    [ATO_READ_ADAPTIVE] = "adaptive",
    [ATO_READ_EAGER] = "eager",
    NULL,
};
static const char *const domains[] = {
    [ATO_DOMAIN_PMEM] = "pmem",
    [ATO_DOMAIN_EADR] = "eadr",
    [ATO_DOMAIN_MSYNC] = "msync",
    [ATO_DOMAIN_PROCESS] = "process",
};

/* words[0] is the answer, or the sentence of the error. */
static int answer(char **words, const char *text)
{
    words[0] = sqlite3_mprintf("%s", text);
    return words[0] ? SQLITE_OK : SQLITE_NOMEM;
}

static int refuse(const struct connection *c, char **words, const char *why)
{
    words[0] = words[2] ? sqlite3_mprintf("%s=%s of %s: %s", words[1], words[2], c->name, why)
                        : sqlite3_mprintf("%s of %s: %s", words[1], c->name, why);
    return words[0] ? fault(SQLITE_ERROR, "%s", words[0]) : SQLITE_NOMEM;
}

static int show(struct connection *c, char **words)
{
    struct ato_status st = {.struct_size = sizeof(st)};
    if (ato_stat(c->pending.view, &st) < 0)
        return refuse(c, words, ato_errormsg());
    words[0] = sqlite3_mprintf(
        "{\"domain\":\"%s\",\"read_policy\":\"%s\",\"size\":%llu,\"slices_in_reflection\":%llu,"
        "\"reflection_bytes\":%llu,\"writes\":%llu,\"bytes_written\":%llu,\"reads\":%llu,"
        "\"bytes_read\":%llu,\"bytes_to_media\":%llu,\"flips\":%llu,\"commits_single\":%llu,"
        "\"commits_rtm\":%llu,\"commits_journal\":%llu,\"rtm_aborts\":%llu,"
        "\"deployed_slices\":%llu,\"read_retries\":%llu}",
        domains[st.domain], policies[st.read_policy], st.size, st.slices_in_reflection,
        st.reflection_bytes, st.writes, st.bytes_written, st.reads, st.bytes_read,
        st.bytes_to_media, st.flips, st.commits_single, st.commits_rtm, st.commits_journal,
        st.rtm_aborts, st.deployed_slices, st.read_retries);
    return words[0] ? SQLITE_OK : SQLITE_NOMEM;
}

static int read_policy(struct connection *c, char **words)
{
    if (words[2]) {
        int policy = parameters_find(words[2], policies);
        if (policy < 0)
            return refuse(c, words, "it must be lazy, gather, adaptive or eager");
        if (ato_set_read_policy(c->pending.view, policy) < 0)
            return refuse(c, words, ato_errormsg());
        c->db->policy = policy;
    }
    return answer(words, policies[c->db->policy]);
}

static int unmap(struct connection *c, char **words)
{
    if (words[2]) {
        int mode = parameters_find(words[2], parameters_unmap);
        if (mode < 0)
            return refuse(c, words, "it must be plain or fast");
        c->wants.unmap_fast = mode;
    }
    return answer(words, parameters_unmap[c->wants.unmap_fast]);
}

int pragma(struct connection *c, char **words)
{
    const bool shows = sqlite3_stricmp(words[1], "ato_stat") == 0;
    if (sqlite3_stricmp(words[1], "ato_unmap") == 0)
        return unmap(c, words);
    if (!shows && sqlite3_stricmp(words[1], "ato_read_policy") != 0)
        return SQLITE_NOTFOUND;
    if (database_map(c, ALWAYS) < 0)
        return refuse(c, words, ato_errormsg());
    return shows ? show(c, words) : read_policy(c, words);
}
