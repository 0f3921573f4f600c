/* SPDX-License-Identifier: BSD-3-Clause */
#include "logind.h"

#include <glob.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The last user of the system, where systemd was not built with another number. */
enum { LAST_OF_SYSTEM = 999 };

/* Takes the setting from a file, if that has it. */
static void read_file(const char *path, bool *removes)
{
    FILE *file = fopen(path, "re");
    char *line = NULL, value[16];
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0)
        if (sscanf(line, " RemoveIPC = %15s", value) == 1)
            *removes = strcasecmp(value, "no") != 0 && strcasecmp(value, "false") != 0 &&
                       strcasecmp(value, "off") != 0 && strcmp(value, "0") != 0;
    free(line);
    if (file)
        fclose(file);
}

static bool lingers(uid_t user)
{
    char path[256];
    const struct passwd *p = getpwuid(user);
    return p &&
           snprintf(path, sizeof(path), "/var/lib/systemd/linger/%s", p->pw_name) <
               (int)sizeof(path) &&
           access(path, F_OK) == 0;
}

bool logind_removes(void)
{
    /* Later ones count. */
    static const char *const places[] = {
        "/usr/lib/systemd/logind.conf",      "/run/systemd/logind.conf",
        "/etc/systemd/logind.conf",          "/usr/lib/systemd/logind.conf.d/*.conf",
        "/run/systemd/logind.conf.d/*.conf", "/etc/systemd/logind.conf.d/*.conf"};
    const uid_t user = geteuid();
    bool removes = true;
    glob_t found = {0};
    if (access("/run/systemd/system", F_OK) < 0 || user <= LAST_OF_SYSTEM || lingers(user))
        return false;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        (void)glob(places[i], i ? GLOB_APPEND : 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++)
        read_file(found.gl_pathv[i], &removes);
    globfree(&found);
    return removes;
}
