/* tokenizer_dir.c -- the tokenizer of a model's folder, as Hugging Face lays it out.
 *
 *     tokenizer.json            all of it; where there is none,
 *     tekken.json               Mistral's, or
 *     tokenizer.model           sentencepiece's or OpenAI's format, or
 *     *.tiktoken                OpenAI's format
 *     vocab.json, merges.txt    GPT-2's first format
 *     tokenizer_config.json     bos_token and the like, more added tokens, what goes before a text;
 *                               special_tokens_map.json for what it leaves out
 *     generation_config.json    tokens that end generation (config.json where there is none)
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/text/tokenizer_files.h"

enum { PATH_ROOM = 4352, FILE_BYTES_MAX = 256 << 20, ADDED_ID_MAX = 1 << 22 };

/* ---- files ---- */

/* 1; 0: there is no such file. The caller frees. */
static int read_file(const char *folder, const char *name, char **ret_text, size_t *ret_bytes,
                     struct fault *fault)
{
    char path[PATH_ROOM];
    int written = snprintf(path, sizeof path, "%s/%s", folder, name), fd, r = 0;
    struct stat info;
    size_t bytes = 0;
    char *text = NULL;

    if (written < 0 || written >= (int)sizeof path)
        return fault_set(fault, E_TOO_LARGE, "the path of %s is too long", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : fault_errno(fault, "cannot open %s", path);
    if (fstat(fd, &info) < 0)
        r = fault_errno(fault, "cannot read %s", path);
    else if (!S_ISREG(info.st_mode) || info.st_size > FILE_BYTES_MAX)
        r = fault_set(fault, E_INVALID, "%s is no file of at most %d bytes", path, FILE_BYTES_MAX);
    else if (!(text = malloc((size_t)info.st_size + 1)))
        r = fault_set(fault, E_MEMORY, "out of memory for %s", path);
    while (r == 0 && bytes < (size_t)info.st_size) {
        ssize_t taken = read(fd, text + bytes, (size_t)info.st_size - bytes);

        if (taken < 0)
            r = fault_errno(fault, "cannot read %s", path);
        else if (taken == 0)
            break;
        else
            bytes += (size_t)taken;
    }
    close(fd);
    if (r < 0) {
        free(text);
        return r;
    }
    text[bytes] = 0;
    *ret_text = text;
    *ret_bytes = bytes;
    return 1;
}

/* 1 with the tree; 0: there is no such file. `flags` are jansson's. */
static int read_json(const char *folder, const char *name, size_t flags, json_t **ret_tree,
                     struct fault *fault)
{
    json_error_t error;
    size_t bytes;
    char *text;
    int r = read_file(folder, name, &text, &bytes, fault);

    if (r <= 0)
        return r;
    *ret_tree = json_loadb(text, bytes, flags, &error);
    free(text);
    if (!*ret_tree)
        return fault_set(fault, E_CORRUPT, "%s/%s, line %d: %s", folder, name, error.line,
                         error.text);
    return 1;
}

/* ---- tokenizer_config.json ---- */

/* "bos_token": "<s>", or an added token with its content. */
static int32_t named_token(const struct tokenizer *tokenizer, const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    const char *text =
        json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);

    return text ? tokenizer_find(tokenizer, text) : -1;
}

/* These classes of Transformers make their post-processor from the configuration, whatever
 * tokenizer.json says. */
static bool has_own_affixes(const json_t *config)
{
    static const char *const names[] = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer",
                                        "CohereTokenizer"};
    const char *class_name = json_string_value(json_object_get(config, "tokenizer_class"));

    for (size_t i = 0; class_name && i < sizeof names / sizeof *names; i++)
        if (strncmp(class_name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static void set_affix(struct token_affix *affix, const json_t *wanted, int32_t id)
{
    if (!json_is_boolean(wanted))
        return;
    affix->count = 0;
    if (json_is_true(wanted) && id >= 0)
        affix->ids[affix->count++] = id;
}

static void use_config(struct tokenizer *tokenizer, const json_t *config)
{
    int32_t bos = named_token(tokenizer, config, "bos_token");
    int32_t eos = named_token(tokenizer, config, "eos_token");

    if (bos >= 0)
        tokenizer->bos = bos;
    if (eos >= 0)
        tokenizer->eos = eos;
    if (!has_own_affixes(config))
        return;
    set_affix(&tokenizer->before, json_object_get(config, "add_bos_token"), tokenizer->bos);
    set_affix(&tokenizer->after, json_object_get(config, "add_eos_token"), tokenizer->eos);
}

/* "added_tokens_decoder": {"151643": {"content": ...}}: those that tokenizer.json does not list are
 * appended to its list. */
static int join_added(json_t *tree, const json_t *config, struct fault *fault)
{
    json_t *added = json_object_get(tree, "added_tokens"), *one;
    const json_t *more = json_object_get(config, "added_tokens_decoder");
    bool *listed = calloc(ADDED_ID_MAX, sizeof *listed);
    const char *key;
    int64_t id;
    size_t i;
    int r = 0;

    if (!listed)
        return fault_set(fault, E_MEMORY, "out of memory for the added tokens");
    json_array_foreach(added, i, one)
    {
        if (json_integral(json_object_get(one, "id"), &id) && id >= 0 && id < ADDED_ID_MAX)
            listed[id] = true;
    }
    json_object_foreach((json_t *)more, key, one)
    {
        char *end;

        id = strtol(key, &end, 10);
        if (*end || end == key || id < 0 || id >= ADDED_ID_MAX || listed[id] ||
            !json_is_object(one) || !json_is_array(added))
            continue;
        if (json_object_set_new(one, "id", json_integer(id)) < 0 ||
            json_array_append(added, one) < 0)
            r = fault_set(fault, E_MEMORY, "out of memory for the added tokens");
    }
    free(listed);
    return r;
}

/* ---- tokens that end generation ---- */

static void add_ends(struct tokenizer *tokenizer, const json_t *ids)
{
    const json_t *one;
    int64_t id;
    size_t i;

    if (json_integral(ids, &id) && id >= 0 && id < tokenizer->vocabulary.count)
        tokenizer_add_end(tokenizer, (int32_t)id);
    json_array_foreach(ids, i, one)
    {
        if (json_integral(one, &id) && id >= 0 && id < tokenizer->vocabulary.count)
            tokenizer_add_end(tokenizer, (int32_t)id);
    }
}

static int read_ends(struct tokenizer *tokenizer, const char *folder, struct fault *fault)
{
    static const char *const names[] = {"generation_config.json", "config.json"};
    int r = 0;

    tokenizer_add_end(tokenizer, tokenizer->eos);
    for (size_t i = 0; i < sizeof names / sizeof *names && r == 0; i++) {
        json_t *config = NULL;

        r = read_json(folder, names[i], JSON_DECODE_INT_AS_REAL, &config, fault);
        if (r > 0)
            add_ends(tokenizer, json_object_get(config, "eos_token_id"));
        json_decref(config);
    }
    tokenizer_add_known_ends(tokenizer);
    return r < 0 ? r : 0;
}

/* ---- opening ---- */

/* Each opens the tokenizer of one file, `name` in the folder: 1; 0 when there is no such file.
 * Every fault names the file, once. */

static int opened(int r, const char *folder, const char *name, struct fault *fault)
{
    return r < 0 ? fault_prefix(fault, "%s/%s", folder, name) : 1;
}

static int open_json(const char *folder, const char *name, json_t *config,
                     struct tokenizer **ret_tokenizer, struct fault *fault)
{
    json_t *tree = NULL;
    int r = read_json(folder, name, JSON_ALLOW_NUL, &tree, fault);

    if (r <= 0)
        return r;
    r = join_added(tree, config, fault);
    if (r == 0)
        r = tokenizer_open_json(tree, ret_tokenizer, fault);
    json_decref(tree);
    return opened(r, folder, name, fault);
}

static int open_tekken(const char *folder, const char *name, json_t *config,
                       struct tokenizer **ret_tokenizer, struct fault *fault)
{
    json_t *tree = NULL;
    int r = read_json(folder, name, JSON_ALLOW_NUL, &tree, fault);

    (void)config;
    if (r <= 0)
        return r;
    r = tokenizer_open_tekken(tree, ret_tokenizer, fault);
    json_decref(tree);
    return opened(r, folder, name, fault);
}

static int open_model(const char *folder, const char *name, json_t *config,
                      struct tokenizer **ret_tokenizer, struct fault *fault)
{
    size_t bytes;
    char *text;
    int r = read_file(folder, name, &text, &bytes, fault);

    if (r <= 0)
        return r;
    r = tiktoken_is_like(text, bytes)
            ? tokenizer_open_tiktoken(text, bytes, config, ret_tokenizer, fault)
            : tokenizer_open_sentencepiece(text, bytes, ret_tokenizer, fault);
    free(text);
    return opened(r, folder, name, fault);
}

/* The first name of that ending, in the order of names. */
static int open_tiktoken(const char *folder, const char *ending, json_t *config,
                         struct tokenizer **ret_tokenizer, struct fault *fault)
{
    DIR *directory = opendir(folder);
    struct dirent *entry;
    char name[256] = "";

    while (directory && (entry = readdir(directory))) {
        size_t bytes = strlen(entry->d_name);

        if (bytes > strlen(ending) && bytes < sizeof name &&
            strcmp(entry->d_name + bytes - strlen(ending), ending) == 0 &&
            (!*name || strcmp(entry->d_name, name) < 0))
            memcpy(name, entry->d_name, bytes + 1);
    }
    if (directory)
        (void)closedir(directory);
    return *name ? open_model(folder, name, config, ret_tokenizer, fault) : 0;
}

/* The merges of a merges.txt: a line each, but for a first one of its version. NULL: no memory. */
static json_t *lines_of(const char *text, size_t bytes)
{
    json_t *lines = json_array();

    for (size_t at = 0; lines && at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t count = end ? (size_t)(end - (text + at)) : bytes - at, next = at + count + 1;

        if (count > 0 && text[at + count - 1] == '\r')
            count--;
        if (count > 0 && !(at == 0 && text[0] == '#') &&
            json_array_append_new(lines, json_stringn(text + at, count)) < 0) {
            json_decref(lines);
            return NULL;
        }
        at = next;
    }
    return lines;
}

/* bos_token and the others that are in the vocabulary, as added tokens. */
static json_t *named_tokens(const json_t *config, const json_t *vocabulary)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    json_t *list = json_array(), *seen = json_object();

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(config, keys[i]);
        const char *text =
            json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
        json_t *id = text ? json_object_get(vocabulary, text) : NULL;

        if (!id || json_object_get(seen, text))
            continue;
        (void)json_object_set(seen, text, id);
        (void)json_array_append_new(
            list, json_pack("{s:O,s:s,s:b}", "id", id, "content", text, "special", true));
    }
    json_decref(seen);
    return list;
}

/* The two files of GPT-2's first format as the tree of a tokenizer.json: BPE of bytes with GPT-2's
 * pattern. Special tokens are those that the configuration names. */
static int open_vocabulary(const char *folder, const char *name, json_t *config,
                           struct tokenizer **ret_tokenizer, struct fault *fault)
{
    bool prefix = json_is_true(json_object_get(config, "add_prefix_space"));
    json_t *vocabulary = NULL, *merges = NULL, *tree = NULL;
    char *text = NULL;
    size_t bytes;
    int r = read_json(folder, name, 0, &vocabulary, fault);

    if (r > 0)
        r = read_file(folder, "merges.txt", &text, &bytes, fault);
    if (r <= 0)
        goto out;
    merges = lines_of(text, bytes);
    tree = json_pack("{s:o,s:{s:s,s:b,s:b},s:{s:s},s:{s:s,s:O,s:O}}", "added_tokens",
                     named_tokens(config, vocabulary), "pre_tokenizer", "type", "ByteLevel",
                     "add_prefix_space", prefix, "use_regex", true, "decoder", "type", "ByteLevel",
                     "model", "type", "BPE", "vocab", vocabulary, "merges", merges);
    r = tree ? join_added(tree, config, fault)
             : fault_set(fault, E_MEMORY, "out of memory for the vocabulary");
    if (r == 0)
        r = tokenizer_open_json(tree, ret_tokenizer, fault);
    if (r == 0)
        set_affix(&(*ret_tokenizer)->before, json_object_get(config, "add_bos_token"),
                  named_token(*ret_tokenizer, config, "bos_token"));
    r = opened(r, folder, name, fault);
out:
    free(text);
    json_decref(tree);
    json_decref(merges);
    json_decref(vocabulary);
    return r;
}

static int open_any(const char *folder, json_t *config, struct tokenizer **ret_tokenizer,
                    struct fault *fault)
{
    static const struct {
        const char *name;
        int (*open)(const char *folder, const char *name, json_t *config,
                    struct tokenizer **ret_tokenizer, struct fault *fault);
    } rows[] = {
        {"tokenizer.json", open_json},   {"tekken.json", open_tekken},
        {"tokenizer.model", open_model}, {".tiktoken", open_tiktoken},
        {"vocab.json", open_vocabulary},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int r = rows[i].open(folder, rows[i].name, config, ret_tokenizer, fault);

        if (r != 0)
            return r;
    }
    return fault_set(fault, E_NOT_FOUND,
                     "%s holds no tokenizer (tokenizer.json, tekken.json, tokenizer.model, "
                     "*.tiktoken, or vocab.json and merges.txt)",
                     folder);
}

/* *ret_config: NULL where there is none. */
static int read_config(const char *folder, json_t **ret_config, struct fault *fault)
{
    json_t *config = NULL, *map = NULL;
    /* model_max_length is often an integer of a hundred bits. */
    int r = read_json(folder, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL, &config, fault);

    if (r >= 0)
        r = read_json(folder, "special_tokens_map.json", JSON_DECODE_INT_AS_REAL, &map, fault);
    if (r < 0) {
        json_decref(config);
        return r;
    }
    if (config && map && json_object_update_missing(config, map) < 0)
        r = fault_set(fault, E_CORRUPT, "%s: its configuration is no object", folder);
    *ret_config = config ? config : json_incref(map);
    json_decref(map);
    return r < 0 ? r : 0;
}

int tokenizer_open_dir(const char *folder, struct tokenizer **ret_tokenizer, struct fault *fault)
{
    struct tokenizer *tokenizer = NULL;
    json_t *config = NULL;
    int r;

    r = read_config(folder, &config, fault);
    if (r >= 0)
        r = open_any(folder, config, &tokenizer, fault);
    if (r > 0) {
        use_config(tokenizer, config);
        r = read_ends(tokenizer, folder, fault);
    }
    json_decref(config);
    if (r < 0) {
        tokenizer_close(tokenizer);
        return r;
    }
    *ret_tokenizer = tokenizer;
    return 0;
}

/* The folder of a file of weights; false: `path` is none. */
static bool folder_of(const char *path, char folder[static PATH_ROOM])
{
    static const char ending[] = ".safetensors";
    const char *slash = strrchr(path, '/');
    size_t bytes = strlen(path);

    if (bytes < strlen(ending) || bytes >= PATH_ROOM ||
        strcmp(path + bytes - strlen(ending), ending) != 0)
        return false;
    bytes = slash ? (size_t)(slash - path) : 0;
    memcpy(folder, path, bytes);
    memcpy(folder + bytes, bytes > 0 || slash ? "/" : ".", 2);
    return true;
}

int tokenizer_open_path(const char *path, struct tokenizer **ret_tokenizer, struct fault *fault)
{
    struct gguf *file = NULL;
    char folder[PATH_ROOM + 2];
    struct stat info;
    int r;

    if (folder_of(path, folder))
        return tokenizer_open_dir(folder, ret_tokenizer, fault);
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return tokenizer_open_dir(path, ret_tokenizer, fault);
    r = gguf_open(path, &file, fault);
    if (r == 0)
        r = tokenizer_open_gguf(file, ret_tokenizer, fault);
    gguf_close(file);
    return r;
}
