/* template.c -- see template.h: where templates are found, and which of several is taken. */
#include "engine/text/template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    VARIANTS_MAX = 16,
    NAME_ROOM = 64,
    PATH_ROOM = 4352,
    FILE_BYTES_MAX = 32 << 20, /* a tokenizer_config.json can list a whole vocabulary */
};

/* One of a model's templates; `jinja` is NULL when it is broken, and `fault` says how. */
struct variant {
    char name[NAME_ROOM];
    struct jinja *jinja;
    struct fault fault;
};

struct chat_template {
    struct variant variants[VARIANTS_MAX];
    size_t count;
    json_t *tokens; /* bos_token, eos_token ... -> text */
};

static int out_of_memory(struct fault *fault)
{
    return fault_set(fault, E_MEMORY, "out of memory for the chat template");
}

static int open_empty(struct chat_template **ret_template, struct fault *fault)
{
    struct chat_template *template_ = calloc(1, sizeof *template_);

    if (!template_)
        return out_of_memory(fault);
    template_->tokens = json_object();
    if (!template_->tokens) {
        free(template_);
        return out_of_memory(fault);
    }
    *ret_template = template_;
    return 0;
}

void chat_template_close(struct chat_template *template_)
{
    if (!template_)
        return;
    for (size_t i = 0; i < template_->count; i++)
        jinja_close(template_->variants[i].jinja);
    json_decref(template_->tokens);
    free(template_);
}

static struct variant *find_variant(const struct chat_template *template_, const char *name)
{
    for (size_t i = 0; i < template_->count; i++) {
        if (strcmp(template_->variants[i].name, name) == 0)
            return (struct variant *)(uintptr_t)&template_->variants[i];
    }
    return NULL;
}

/* A template that is already there under this name stays. A broken one is kept with what is wrong
 * with it: only a lack of memory is a fault here. */
static int add_variant(struct chat_template *template_, const char *name, size_t name_bytes,
                       const char *text, size_t bytes, struct fault *fault)
{
    struct variant *variant = &template_->variants[template_->count];

    if (template_->count == VARIANTS_MAX || name_bytes >= sizeof variant->name)
        return 0;
    memcpy(variant->name, name, name_bytes);
    variant->name[name_bytes] = 0;
    if (find_variant(template_, variant->name))
        return 0;
    if (jinja_open(text, bytes, &variant->jinja, &variant->fault) == E_MEMORY)
        return out_of_memory(fault);
    template_->count++;
    return 0;
}

/* --- GGUF ------------------------------------------------------------------------------------- */

static int add_token(struct chat_template *template_, const char *name, const char *text,
                     size_t bytes, struct fault *fault)
{
    json_t *value = json_stringn(text, bytes);

    /* NULL for what is not UTF-8, too: then it is as if there was none. */
    if (value && json_object_set_new(template_->tokens, name, value) < 0)
        return out_of_memory(fault);
    return 0;
}

static int read_gguf_tokens(struct chat_template *template_, const struct gguf *file,
                            struct fault *fault)
{
    static const char *const names[][2] = {
        {"tokenizer.ggml.bos_token_id", "bos_token"},
        {"tokenizer.ggml.eos_token_id", "eos_token"},
        {"tokenizer.ggml.unknown_token_id", "unk_token"},
        {"tokenizer.ggml.padding_token_id", "pad_token"},
        {"tokenizer.ggml.seperator_token_id", "sep_token"}, /* spelt so in the format */
        {"tokenizer.ggml.cls_token_id", "cls_token"},
        {"tokenizer.ggml.mask_token_id", "mask_token"},
    };
    struct gguf_array pieces;

    if (gguf_get_array(file, "tokenizer.ggml.tokens", &pieces, NULL) <= 0 ||
        pieces.type != GGUF_STRING)
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct gguf_string piece;
        uint64_t id;

        if (gguf_get_u64(file, names[i][0], &id, NULL) <= 0 || id >= pieces.count)
            continue;
        piece = gguf_array_string(&pieces, id);
        if (add_token(template_, names[i][1], piece.text, piece.bytes, fault) < 0)
            return E_MEMORY;
    }
    return 0;
}

static int read_gguf(struct chat_template *template_, const struct gguf *file, struct fault *fault)
{
    static const char prefix[] = "tokenizer.chat_template.";
    const size_t prefix_bytes = sizeof prefix - 1;
    struct gguf_string text;
    int r = gguf_get_string(file, "tokenizer.chat_template", &text, fault);

    if (r > 0)
        r = add_variant(template_, "default", strlen("default"), text.text, text.bytes, fault);
    for (uint64_t i = 0; r >= 0 && i < gguf_key_count(file); i++) {
        struct gguf_string name = gguf_key_name(file, i);
        char key[sizeof prefix + NAME_ROOM];

        if (name.bytes <= prefix_bytes || name.bytes >= sizeof key ||
            memcmp(name.text, prefix, prefix_bytes) != 0)
            continue;
        memcpy(key, name.text, name.bytes);
        key[name.bytes] = 0;
        r = gguf_get_string(file, key, &text, fault);
        if (r > 0)
            r = add_variant(template_, key + prefix_bytes, name.bytes - prefix_bytes, text.text,
                            text.bytes, fault);
    }
    return r < 0 ? r : 0;
}

/* --- files ------------------------------------------------------------------------------------ */

/* The whole file. 1; 0 when there is none; or a fault. The caller frees. */
static int read_file(const char *path, char **ret_text, size_t *ret_bytes, struct fault *fault)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), r = 1;
    size_t bytes = 0;
    struct stat info;
    char *text = NULL;

    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : fault_errno(fault, "Cannot open %s", path);
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        r = fault_set(fault, E_INVALID, "%s is not a file", path);
    else if (info.st_size > FILE_BYTES_MAX)
        r = fault_set(fault, E_TOO_LARGE, "%s has more than %d bytes", path, FILE_BYTES_MAX);
    else if (!(text = malloc((size_t)info.st_size + 1)))
        r = out_of_memory(fault);
    while (r > 0 && bytes < (size_t)info.st_size) {
        ssize_t n = read(fd, text + bytes, (size_t)info.st_size - bytes);

        if (n < 0)
            r = fault_errno(fault, "Cannot read %s", path);
        if (n <= 0)
            break;
        bytes += (size_t)n;
    }
    close(fd);
    if (r < 0) {
        free(text);
        return r;
    }
    *ret_text = text;
    *ret_bytes = bytes;
    return 1;
}

/* The templates of "chat_template": a text, or a list of named ones. */
static int read_config_templates(struct chat_template *template_, const json_t *config,
                                 struct fault *fault)
{
    const json_t *list = json_object_get(config, "chat_template"), *one;
    size_t i;

    if (json_is_string(list))
        return add_variant(template_, "default", strlen("default"), json_string_value(list),
                           json_string_length(list), fault);
    json_array_foreach(list, i, one)
    {
        const json_t *name = json_object_get(one, "name"), *text = json_object_get(one, "template");

        if (!json_is_string(name) || !json_is_string(text))
            continue;
        if (add_variant(template_, json_string_value(name), json_string_length(name),
                        json_string_value(text), json_string_length(text), fault) < 0)
            return E_MEMORY;
    }
    return 0;
}

/* "bos_token": a text, or {"content": text}. */
static int read_config_tokens(struct chat_template *template_, const json_t *config,
                              struct fault *fault)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                        "sep_token", "cls_token", "mask_token"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *token = json_object_get(config, names[i]);

        if (json_is_object(token))
            token = json_object_get(token, "content");
        if (json_is_string(token) && add_token(template_, names[i], json_string_value(token),
                                               json_string_length(token), fault) < 0)
            return E_MEMORY;
    }
    return 0;
}

/* tokenizer_config.json, or a chat_template.json, which is alike; the templates in it only where
 * they are asked for. 0 when there is no such file. */
static int read_config(struct chat_template *template_, const char *path, bool templates,
                       struct fault *fault)
{
    json_error_t error;
    json_t *config;
    size_t bytes;
    char *text;
    int r = read_file(path, &text, &bytes, fault);

    if (r <= 0)
        return r;
    /* model_max_length is often an integer of a hundred bits. */
    config = json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, &error);
    free(text);
    if (!config)
        return fault_set(fault, E_CORRUPT, "%s, line %d: %s", path, error.line, error.text);
    r = templates ? read_config_templates(template_, config, fault) : 0;
    if (r == 0)
        r = read_config_tokens(template_, config, fault);
    json_decref(config);
    return r < 0 ? r : 1;
}

/* A file that is a template. 0 when there is no such file. */
static int read_jinja(struct chat_template *template_, const char *path, const char *name,
                      size_t name_bytes, struct fault *fault)
{
    size_t bytes;
    char *text;
    int r = read_file(path, &text, &bytes, fault);

    if (r <= 0)
        return r;
    r = add_variant(template_, name, name_bytes, text, bytes, fault);
    free(text);
    return r < 0 ? r : 1;
}

static int join_path(char path[static PATH_ROOM], const char *folder, const char *name,
                     struct fault *fault)
{
    int bytes = snprintf(path, PATH_ROOM, "%s/%s", folder, name);

    return bytes < 0 || bytes >= PATH_ROOM ? fault_set(fault, E_TOO_LARGE, "The path is too long")
                                           : 0;
}

/* additional_chat_templates/NAME.jinja */
static int read_more(struct chat_template *template_, const char *folder, struct fault *fault)
{
    static const char ending[] = ".jinja";
    char path[PATH_ROOM], file[PATH_ROOM];
    struct dirent *entry;
    int r = join_path(path, folder, "additional_chat_templates", fault);
    DIR *directory = r == 0 ? opendir(path) : NULL;

    while (r >= 0 && directory && (entry = readdir(directory))) {
        size_t bytes = strlen(entry->d_name);

        if (bytes < sizeof ending || strcmp(entry->d_name + bytes - 6, ending) != 0)
            continue;
        r = join_path(file, path, entry->d_name, fault);
        if (r == 0)
            r = read_jinja(template_, file, entry->d_name, bytes - 6, fault);
    }
    if (directory)
        (void)closedir(directory);
    return r < 0 ? r : 0;
}

static int read_folder(struct chat_template *template_, const char *folder, struct fault *fault)
{
    static const char *const configs[] = {"chat_template.json", "tokenizer_config.json"};
    char path[PATH_ROOM];
    int r = join_path(path, folder, "chat_template.jinja", fault);

    if (r == 0)
        r = read_jinja(template_, path, "default", strlen("default"), fault);
    if (r >= 0)
        r = read_more(template_, folder, fault);
    for (size_t i = 0; r >= 0 && i < sizeof configs / sizeof *configs; i++) {
        r = join_path(path, folder, configs[i], fault);
        if (r == 0)
            r = read_config(template_, path, true, fault);
    }
    return r < 0 ? r : 0;
}

/* Whatever `path` is. */
static int read_path(struct chat_template *template_, const char *path, struct fault *fault)
{
    size_t bytes = strlen(path);
    struct stat info;
    int r;

    if (stat(path, &info) < 0)
        return fault_errno(fault, "Cannot open %s", path);
    if (S_ISDIR(info.st_mode))
        r = read_folder(template_, path, fault);
    else if (bytes > 5 && strcmp(path + bytes - 5, ".json") == 0)
        r = read_config(template_, path, true, fault);
    else
        r = read_jinja(template_, path, "default", strlen("default"), fault);
    return r < 0 ? r : 0;
}

/* --- opening ---------------------------------------------------------------------------------- */

int chat_template_open_path(const char *path, struct chat_template **ret_template,
                            struct fault *fault)
{
    struct chat_template *template_ = NULL;
    int r = open_empty(&template_, fault);

    if (r == 0)
        r = read_path(template_, path, fault);
    if (r == 0 && template_->count == 0)
        r = fault_set(fault, E_NOT_FOUND, "There is no chat template in %s", path);
    if (r < 0) {
        chat_template_close(template_);
        return r;
    }
    *ret_template = template_;
    return 0;
}

/* What stands in the place of the model's own template ("": nothing), whole or not at all. */
static int open_instead(const char *path, struct chat_template **ret_template, struct fault *fault)
{
    struct chat_template *template_ = NULL;
    int r =
        *path ? chat_template_open_path(path, &template_, fault) : open_empty(&template_, fault);

    for (size_t i = 0; r == 0 && i < template_->count; i++) {
        if (!template_->variants[i].jinja)
            r = fault_set(fault, template_->variants[i].fault.code, "%s: %s", path,
                          template_->variants[i].fault.message);
    }
    if (r == 0)
        *ret_template = template_;
    else
        chat_template_close(template_);
    return r;
}

int chat_template_open_folder(const char *folder, const char *path,
                              struct chat_template **ret_template, struct fault *fault)
{
    struct chat_template *template_ = NULL;
    char config[PATH_ROOM];
    int r = open_instead(path, &template_, fault);

    if (r == 0 && *path)
        r = join_path(config, folder, "tokenizer_config.json", fault);
    if (r == 0)
        r = *path ? read_config(template_, config, false, fault)
                  : read_folder(template_, folder, fault);
    if (r < 0) {
        chat_template_close(template_);
        return r;
    }
    *ret_template = template_;
    return 0;
}

int chat_template_open_gguf(const struct gguf *file, const char *path,
                            struct chat_template **ret_template, struct fault *fault)
{
    struct chat_template *template_ = NULL;
    int r = open_instead(path, &template_, fault);

    if (r == 0 && file)
        r = read_gguf_tokens(template_, file, fault);
    if (r == 0 && file && !*path)
        r = read_gguf(template_, file, fault);
    if (r < 0) {
        chat_template_close(template_);
        return r;
    }
    *ret_template = template_;
    return 0;
}

/* --- rendering -------------------------------------------------------------------------------- */

/* The variant for such a request; NULL: the fault is set. */
static const struct variant *choose(const struct chat_template *template_, bool with_tools,
                                    struct fault *fault)
{
    const struct variant *variant = with_tools ? find_variant(template_, "tool_use") : NULL;

    if (template_->count == 0) {
        (void)fault_set(fault, E_UNSUPPORTED,
                        "this model has no chat template: give one with --chat-template FILE; "
                        "/v1/completions works without");
        return NULL;
    }
    if (!variant)
        variant = find_variant(template_, "default");
    if (!variant && template_->count == 1)
        variant = &template_->variants[0];
    if (!variant) {
        (void)fault_set(fault, E_UNSUPPORTED,
                        "this model's chat templates have names (the first is '%s'), but none is "
                        "'default': give one with --chat-template FILE",
                        template_->variants[0].name);
        return NULL;
    }
    if (!variant->jinja) {
        (void)fault_set(fault, variant->fault.code,
                        "%s; another template can be given with --chat-template FILE",
                        variant->fault.message);
        return NULL;
    }
    return variant;
}

int chat_template_check(const struct chat_template *template_, struct fault *fault)
{
    struct fault own = {0};

    if (!fault)
        fault = &own;
    return choose(template_, false, fault) ? 0 : fault->code;
}

void chat_template_traits(const struct chat_template *template_, bool with_tools,
                          struct jinja_traits *ret_traits)
{
    const struct variant *variant = choose(template_, with_tools, NULL);

    *ret_traits = (struct jinja_traits){.iterates_content = false};
    if (variant)
        jinja_traits_get(variant->jinja, ret_traits);
}

const char *chat_template_source(const struct chat_template *template_, bool with_tools,
                                 size_t *ret_bytes)
{
    const struct variant *variant = choose(template_, with_tools, NULL);

    return variant ? jinja_source(variant->jinja, ret_bytes) : NULL;
}

/* What must hold for any template, and which one is taken. */
static const struct variant *prepare(const struct chat_template *template_, const json_t *input,
                                     struct fault *fault)
{
    const json_t *more = json_object_get(input, "chat_template_kwargs");
    const json_t *tools = json_object_get(input, "tools");

    if (more && !json_is_null(more) && !json_is_object(more)) {
        (void)fault_field(fault, E_INVALID, "chat_template_kwargs",
                          "'chat_template_kwargs' must be an object");
        return NULL;
    }
    return choose(template_, tools && !json_is_null(tools), fault);
}

static int render(const struct chat_template *template_, const json_t *input,
                  const struct jinja_variables *source, const struct tm *now, struct buf *ret_text,
                  struct fault *fault)
{
    static const char defaults[] =
        "{\"tools\":null,\"documents\":null,\"add_generation_prompt\":false}";
    const struct jinja_variables sources[] = {
        {.text = defaults, .bytes = sizeof defaults - 1}, {.tree = template_->tokens}, *source};
    const struct jinja_input variables = {.sources = sources,
                                          .count = sizeof sources / sizeof *sources,
                                          .spread = "chat_template_kwargs",
                                          .skip_null = "_token",
                                          .now = now};
    struct fault own = {0};
    const struct variant *variant;

    if (!fault)
        fault = &own;
    variant = prepare(template_, input, fault);
    return variant ? jinja_render(variant->jinja, &variables, ret_text, fault) : fault->code;
}

int chat_template_render(const struct chat_template *template_, const json_t *input,
                         const struct tm *now, struct buf *ret_text, struct fault *fault)
{
    return render(template_, input, &(struct jinja_variables){.tree = input}, now, ret_text, fault);
}

int chat_template_render_text(const struct chat_template *template_, const char *input,
                              size_t bytes, const struct tm *now, struct buf *ret_text,
                              struct fault *fault)
{
    const struct jinja_variables source = {.text = input, .bytes = bytes};
    json_error_t error;
    json_t *tree = json_loadb(input, bytes, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, &error);
    int r;

    if (!tree)
        return fault_set(fault, E_INVALID, "Invalid JSON at line %d, column %d: %s", error.line,
                         error.column, error.text);
    r = json_is_object(tree) ? render(template_, tree, &source, now, ret_text, fault)
                             : fault_set(fault, E_INVALID, "The line is not a JSON object");
    json_decref(tree);
    return r;
}
