/* memory.c -- asks /proc and the control groups how much memory is left.
 *
 * A group's limit counts page cache too, so what the kernel would drop first (inactive_file) is
 * given back to the sum. A limit may stand on any group above ours, hence the walk to the root.
 * Where a container sees its own group as the root, the walk ends at once and the root's files are
 * read. */
#include "engine/memory.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, TEXT_BYTES = 16384 };

/* The names of one version's files. `mount` is below /sys. */
struct group_files {
    const char *mount;
    const char *limit;
    const char *usage;
    const char *cache; /* key in memory.stat */
};
static const struct group_files version2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                            "inactive_file "};
static const struct group_files version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                            "memory.usage_in_bytes", "total_inactive_file "};

/* Reads a small file as text; false when it cannot be read. */
static bool read_text(const char *path, char *ret_text, size_t room)
{
    size_t used = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    while (used + 1 < room) {
        ssize_t bytes = read(fd, ret_text + used, room - 1 - used);

        if (bytes <= 0)
            break;
        used += (size_t)bytes;
    }
    close(fd);
    ret_text[used] = '\0';
    return used > 0;
}

/* The number after `key` at the beginning of a line. */
static bool find_number(const char *text, const char *key, uint64_t *ret_value)
{
    size_t bytes = strlen(key);

    while (text) {
        if (strncmp(text, key, bytes) == 0) {
            char *end;
            unsigned long long value = strtoull(text + bytes, &end, 10);

            if (end == text + bytes)
                return false; /* "max" */
            *ret_value = value;
            return true;
        }
        text = strchr(text, '\n');
        if (text)
            text++;
    }
    return false;
}

static bool read_number(const char *folder, const char *file, const char *key, uint64_t *ret_value)
{
    char path[PATH_BYTES + 64], text[TEXT_BYTES];

    snprintf(path, sizeof path, "%s/%s", folder, file);
    return read_text(path, text, sizeof text) && find_number(text, key, ret_value);
}

static uint64_t group_left(const char *folder, const struct group_files *files)
{
    uint64_t limit, used, cache;

    if (!read_number(folder, files->limit, "", &limit) ||
        !read_number(folder, files->usage, "", &used))
        return UINT64_MAX;
    if (read_number(folder, "memory.stat", files->cache, &cache))
        used -= cache < used ? cache : used;
    return limit > used ? limit - used : 0;
}

/* The least that any group from `group` ("/a/b") up to the root has left. */
static uint64_t groups_left(const char *root, const char *group, const struct group_files *files)
{
    char folder[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    size_t mount_bytes;
    int length;

    mount_bytes = strlen(root) + strlen(files->mount);
    length = snprintf(folder, sizeof folder, "%s%s%s", root, files->mount, group);
    if (length < 0 || (size_t)length >= sizeof folder)
        return UINT64_MAX;
    for (;;) {
        uint64_t left = group_left(folder, files);
        char *slash = strrchr(folder, '/');

        if (left < least)
            least = left;
        if (!slash || (size_t)(slash - folder) < mount_bytes)
            return least;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/path" (version 2), "4:memory,cpu:/path" (version 1). */
static uint64_t cgroups_left(const char *root)
{
    char path[PATH_BYTES], text[TEXT_BYTES];
    uint64_t least = UINT64_MAX;
    char *rest = text, *line;

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!read_text(path, text, sizeof text))
        return UINT64_MAX;
    while ((line = strsep(&rest, "\n")) != NULL) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        const struct group_files *files = NULL;
        uint64_t left;

        if (!group)
            continue;
        *controllers++ = '\0';
        *group++ = '\0';
        if (*controllers == '\0')
            files = &version2;
        else
            for (char *name; (name = strsep(&controllers, ",")) != NULL;)
                if (strcmp(name, "memory") == 0)
                    files = &version1;
        left = files ? groups_left(root, strcmp(group, "/") ? group : "", files) : UINT64_MAX;
        if (left < least)
            least = left;
    }
    return least;
}

uint64_t memory_available_under(const char *root)
{
    char path[PATH_BYTES], text[TEXT_BYTES];
    uint64_t kilobytes, least;

    least = cgroups_left(root);
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (read_text(path, text, sizeof text) && find_number(text, "MemAvailable:", &kilobytes) &&
        kilobytes * 1024 < least)
        least = kilobytes * 1024;
    return least;
}

uint64_t memory_available(void)
{
    return memory_available_under("");
}
