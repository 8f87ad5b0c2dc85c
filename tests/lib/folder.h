/* folder.h -- for tests that write folders. */
#ifndef WEFT_TEST_FOLDER_H
#define WEFT_TEST_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

/* With the files in it, which are no folders. */
static inline void remove_folder(const char *path)
{
    char name[1024];
    const struct dirent *entry;
    DIR *folder = opendir(path);

    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        (void)unlink(name); /* . and .. stay */
    }
    closedir(folder);
    assert_int_equal(rmdir(path), 0);
}

#endif
