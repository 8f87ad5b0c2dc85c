/* command_template.c -- `weft template`: conversations, one a line, through a chat template.
 *
 *     {"messages":[{"role":"user","content":"Hi"}],"tools":null,"documents":null,
 *      "add_generation_prompt":true,"chat_template_kwargs":{},"bos_token":"<s>","eos_token":"</s>"}
 *         ->  {"prompt":"<s>[INST] Hi [/INST]"}  or  {"error":"..."}
 *
 * Messages reach the template as they stand, anything may be missing, and further members are
 * variables, too. A template that is broken says so in each answer. Of a model only
 * the template and the texts of its tokens are read, so a GGUF without tensors will do, or a folder
 * with a tokenizer_config.json. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "engine/gguf.h"
#include "engine/text/template.h"
#include "server/commands.h"
#include "server/json_lines.h"
#include "server/startup.h"

enum { PATH_BYTES_MAX = 4352, PROMPT_BYTES_MAX = 256 << 20 };

struct job {
    const struct chat_template *template_;
    struct tm now;
};

static int render_line(void *data, const char *line, size_t bytes, struct buf *answer,
                       struct fault *fault)
{
    const struct job *job = data;
    struct buf prompt;
    int r;

    buf_init(&prompt, PROMPT_BYTES_MAX);
    r = chat_template_render_text(job->template_, line, bytes, &job->now, &prompt, fault);
    if (r == 0) {
        buf_text(answer, "{\"prompt\":");
        buf_json_string(answer, buf_string(&prompt), prompt.bytes);
        buf_byte(answer, '}');
    }
    buf_fini(&prompt);
    return r;
}

/* --now, or the time it is. */
static int read_now(const char *text, struct tm *ret_now, struct fault *fault)
{
    struct tm given = {.tm_isdst = -1}, checked;
    time_t seconds = time(NULL);
    const char *end;

    if (!*text)
        return localtime_r(&seconds, ret_now) ? 0 : fault_errno(fault, "Cannot tell the time");
    end = strptime(text, "%Y-%m-%d %H:%M:%S", &given);
    checked = given;
    /* timegm() moves a 31st of February on to March. */
    if (!end || *end || timegm(&checked) == -1 || checked.tm_mday != given.tm_mday)
        return fault_field(fault, E_INVALID, "now",
                           "--now %s is not a time like 2026-11-30 12:34:56", text);
    *ret_now = checked;
    return 0;
}

/* The template of --model, which is a GGUF file or a folder. */
static int open_of_model(const struct config *config, struct chat_template **ret_template,
                         struct fault *fault)
{
    struct gguf *file = NULL;
    char path[PATH_BYTES_MAX];
    struct stat info;
    int r = startup_model_path(config, path, sizeof path, fault);

    if (r < 0)
        return r;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return chat_template_open_path(path, ret_template, fault);
    r = gguf_open(path, &file, fault);
    if (r == 0)
        r = chat_template_open_gguf(file, config->template, ret_template, fault);
    gguf_close(file);
    return r;
}

int command_template(const struct config *config, struct fault *fault)
{
    struct chat_template *template_ = NULL;
    struct job job = {.template_ = NULL};
    int r = read_now(config->now, &job.now, fault);

    if (r == 0 && *config->template && !*config->model)
        r = chat_template_open_path(config->template, &template_, fault);
    else if (r == 0)
        r = open_of_model(config, &template_, fault);
    job.template_ = template_;
    if (r == 0)
        r = text_lines_run(render_line, &job, fault);
    chat_template_close(template_);
    return r;
}
