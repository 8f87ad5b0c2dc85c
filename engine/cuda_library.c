/* cuda_library.c -- see the header. */
#include "engine/cuda_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* The running program's path, links followed. Without /proc it is what the kernel was asked to
 * run. */
static int find_program(char ret_path[static PATH_BYTES], struct fault *fault)
{
    const char *asked = (const char *)getauxval(AT_EXECFN);
    ssize_t bytes = readlink("/proc/self/exe", ret_path, PATH_BYTES - 1);
    char *resolved = bytes < 0 && asked ? realpath(asked, NULL) : NULL;

    if (bytes < 0 && !resolved)
        return fault_errno(fault, "cannot find the folder of the running program");
    if (resolved)
        snprintf(ret_path, PATH_BYTES, "%s", resolved);
    else
        ret_path[bytes] = '\0';
    free(resolved);
    return 0;
}

int cuda_library_open(const struct backend_ops **ret_ops, struct fault *fault)
{
    static const char *const folders[] = {"", "../lib/", "../lib/weft/"};
    char binary[PATH_BYTES], path[PATH_BYTES + 64], *slash;
    void *library = NULL;
    const struct backend_ops *ops;
    int r = find_program(binary, fault);

    if (r < 0)
        return r;
    slash = strrchr(binary, '/');
    if (slash)
        slash[1] = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !library; i++) {
        snprintf(path, sizeof path, "%s%slibweft-cuda.so", binary, folders[i]);
        if (access(path, R_OK) < 0)
            continue;
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            return fault_set(fault, E_UNSUPPORTED, "cannot open %s: %s", path, dlerror());
    }
    if (!library)
        return fault_set(fault, E_UNSUPPORTED,
                         "CUDA is not part of this installation: there is no libweft-cuda.so in "
                         "%s, ../lib or ../lib/weft",
                         binary);
    ops = dlsym(library, "backend_cuda");
    if (!ops || ops->options_bytes != sizeof(struct backend_options)) {
        dlclose(library);
        return fault_set(fault, E_UNSUPPORTED, "%s belongs to another version of weft", path);
    }
    *ret_ops = ops;
    return 0;
}
