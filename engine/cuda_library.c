/* cuda_library.c -- see the header. */
#include "engine/cuda_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

int cuda_library_open(const struct backend_ops **ret_ops, struct fault *fault)
{
    static const char *const folders[] = {"", "../lib/", "../lib/weft/"};
    char binary[PATH_BYTES], path[PATH_BYTES + 64], *slash;
    void *library = NULL;
    const struct backend_ops *ops;
    ssize_t bytes = readlink("/proc/self/exe", binary, sizeof binary - 1);

    if (bytes < 0)
        return fault_errno(fault, "cannot find the folder of the running program");
    binary[bytes] = '\0';
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
