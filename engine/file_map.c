/* file_map.c -- see file_map.h. */
#include "engine/file_map.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* `git clone` without its extension for large files leaves a few lines of text in their place. */
static bool is_lfs_pointer(const uint8_t *base, size_t bytes)
{
    static const char beginning[] = "version https://git-lfs.github.com/";

    return bytes >= sizeof beginning - 1 && memcmp(base, beginning, sizeof beginning - 1) == 0;
}

int file_map_open(const char *path, const char *kind, struct file_map *ret_map, struct fault *fault)
{
    struct stat info;
    void *base;
    int fd, r;

    /* O_NONBLOCK: a pipe in the model's place must not hang the start. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fault_errno(fault, "cannot open %s", path);
    if (fstat(fd, &info) < 0) {
        r = fault_errno(fault, "cannot stat %s", path);
        goto out;
    }
    if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        r = fault_set(fault, E_INVALID, "%s is %s, not %s", path,
                      S_ISDIR(info.st_mode)   ? "a folder"
                      : S_ISREG(info.st_mode) ? "empty"
                                              : "no regular file",
                      kind);
        goto out;
    }
    base = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED) {
        r = fault_errno(fault, "cannot map %s", path);
        goto out;
    }
    if (is_lfs_pointer(base, (size_t)info.st_size)) {
        munmap(base, (size_t)info.st_size);
        r = fault_set(fault, E_INVALID,
                      "%s only stands for the file, as Git LFS has it: fetch the file itself with "
                      "`git lfs pull`",
                      path);
        goto out;
    }
    *ret_map = (struct file_map){.base = base, .bytes = (size_t)info.st_size};
    r = 0;
out:
    close(fd);
    return r;
}

void file_map_close(struct file_map *map)
{
    if (map->base && !map->borrowed)
        munmap((void *)(uintptr_t)map->base, map->bytes);
    *map = (struct file_map){0};
}

void file_map_rest(const struct file_map *map)
{
    if (map->base && !map->borrowed)
        madvise((void *)(uintptr_t)map->base, map->bytes, MADV_DONTNEED);
}
