/* fuzz_checkpoint.c -- libFuzzer target: a model's folder of any config.json and any weights.
 *
 *     config.json ... | a zero byte | model.safetensors
 *
 * Both are written into a folder, which is opened and bound as a server would; of every weight that
 * is bound, the first and the last row are read. So shapes, slices and quantization tables that
 * passed the checks must lie within the file. Corpus: tests/fuzz/corpus_checkpoint. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/arch.h"
#include "engine/weight_part.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { COLUMNS_MAX = 1 << 16, PAGE = 4096 };

static char folder[] = "/dev/shm/weft_fuzz_checkpoint_XXXXXX";

static void path_of(const char *name, char path[static 96])
{
    snprintf(path, 96, "%s/%s", folder, name);
}

static void put(int fd, const void *data, size_t size)
{
    must(write(fd, data, size) == (ssize_t)size);
}

static int create(const char *name)
{
    char path[96];
    int fd;

    path_of(name, path);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0);
    return fd;
}

static void write_config(const uint8_t *data, size_t size)
{
    int fd = create("config.json");

    put(fd, data, size);
    close(fd);
}

/* With as many blanks after its header as make the file whole pages, so that what reads beyond its
 * end leaves the mapping. */
static void write_weights(const uint8_t *data, size_t size)
{
    static const char blanks[PAGE] = {[0 ... PAGE - 1] = ' '};
    size_t more = (PAGE - size % PAGE) % PAGE;
    int fd = create("model.safetensors");
    uint64_t header = 0;

    memcpy(&header, data, size < sizeof header ? size : sizeof header);
    if (size < sizeof header || header > size - sizeof header) {
        put(fd, data, size);
    } else {
        put(fd, &(uint64_t){header + more}, sizeof header);
        put(fd, data + sizeof header, header);
        put(fd, blanks, more);
        put(fd, data + sizeof header + header, size - sizeof header - header);
    }
    close(fd);
}

static void remove_folder(void)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    char path[96];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(names[i], path);
        unlink(path);
    }
    rmdir(folder);
}

static void make_folder(void)
{
    static bool made;

    if (made)
        return;
    must(mkdtemp(folder));
    atexit(remove_folder);
    made = true;
}

static void read_part(const struct weight_part *part, uint32_t columns)
{
    static float row[COLUMNS_MAX];

    must(part->data && part->rows > 0);
    if (columns > COLUMNS_MAX)
        return;
    weight_part_read(part, columns, 0, 1, DT_F32, row);
    weight_part_read(part, columns, part->rows - 1, 1, DT_F32, row);
}

static void read_weights(struct model *model)
{
    const struct arch *arch = NULL;

    must(arch_find((struct gguf_string){model->architecture, strlen(model->architecture)}, &arch,
                   NULL) == 0);
    for (uint32_t i = 0; i < arch->weight_count; i++) {
        const struct arch_weight *line = &arch->weights[i];
        uint32_t layers = line->flags & WEIGHT_PER_LAYER ? model->layer_count : 1;

        for (uint32_t layer = 0; layer < layers; layer++) {
            uint32_t count = arch_weight_count(line, model, layer);

            for (uint32_t expert = 0; expert < count; expert++) {
                const struct weight *weight = arch_weight_at(line, model, layer, expert);

                for (uint32_t part = 0; part < weight->part_count; part++)
                    read_part(&weight->parts[part], weight->columns);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = memchr(data, 0, size);
    struct checkpoint *checkpoint = NULL;
    struct model *model = NULL;
    struct fault fault = {0};
    int r;

    if (!zero)
        return 0;
    make_folder();
    write_config(data, (size_t)(zero - data));
    write_weights(zero + 1, size - (size_t)(zero + 1 - data));
    r = checkpoint_open(folder, &checkpoint, &fault);
    if (r == 0)
        r = model_open(checkpoint, &model, &fault);
    if (r == 0)
        read_weights(model);
    else
        must(fault.code < 0 && fault.message[0]);
    model_close(model);
    checkpoint_close(checkpoint);
    return 0;
}
