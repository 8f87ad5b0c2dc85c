/* test_openai_request.c -- protects the door for bodies: what is asked reaches the scheduler, what
 * is wrong or not served is refused with its field named and never ignored, and no body whatever
 * does harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/base/json.h"
#include "server/openai.h"
#include "tests/lib/fake_text.h"
#include "tests/lib/page.h"

static const struct tokenizer plain_tokenizer = {.adds_bos = false};
static const struct tokenizer bos_tokenizer = {.adds_bos = true};
static const struct chat_template chatml = {.foreign = false};
static const struct chat_template foreign = {.foreign = true};

static struct openai_context context = {.tokenizer = &plain_tokenizer,
                                        .chat_template = &chatml,
                                        .model_id = "m",
                                        .context = 100,
                                        .vocabulary = FAKE_COUNT,
                                        .created = 1234,
                                        .choices_max = 8};

static int parse_bytes(enum openai_endpoint endpoint, const char *body, size_t bytes,
                       struct request **ret_request, struct api_error *error)
{
    struct reply *reply = NULL;
    int r;

    *error = (struct api_error){0};
    r = openai_parse(endpoint, &context, true, body, bytes, ret_request, &reply, error);
    if (r == 0) {
        assert_non_null(*ret_request);
        assert_non_null(reply);
    } else {
        assert_null(reply);
        assert_in_range(api_error_status(error->kind), 400, 503);
        assert_true(error->message[0] != '\0');
    }
    reply_close(reply);
    return r;
}

/* The request of a body that must be good. */
static struct request *good(enum openai_endpoint endpoint, const char *body)
{
    struct request *request = NULL;
    struct api_error error;

    if (parse_bytes(endpoint, body, strlen(body), &request, &error) < 0)
        fail_msg("refused: %s\n%s", error.message, body);
    return request;
}

/* Checks what is said of a body that must be refused. `param` "" = null. */
static void bad(enum openai_endpoint endpoint, const char *body, int status, const char *param,
                const char *message)
{
    struct request *request = NULL;
    struct api_error error;

    if (parse_bytes(endpoint, body, strlen(body), &request, &error) == 0)
        fail_msg("taken: %s", body);
    if (api_error_status(error.kind) != status || strcmp(error.param, param) != 0 ||
        !strstr(error.message, message))
        fail_msg("%s\nis answered %d, param '%s': %s", body, api_error_status(error.kind),
                 error.param, error.message);
}

#define CHAT(fields) "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]," fields "}"
#define TEXT(fields) "{\"prompt\":\"hi\"," fields "}"

static void assert_prompt(const struct request *request, uint32_t index, const char *text)
{
    const struct request_prompt *prompt = &request->prompts[index];
    struct buf spelled;

    buf_init(&spelled, 1 << 16);
    for (uint32_t i = 0; i < prompt->count; i++) {
        size_t bytes;
        const char *piece = tokenizer_piece(&plain_tokenizer, prompt->tokens[i], &bytes);

        buf_put(&spelled, piece, bytes);
    }
    assert_string_equal(buf_string(&spelled), text);
    buf_fini(&spelled);
}

/* --- what is asked arrives -------------------------------------------------------------------- */

static void test_defaults(void **state)
{
    struct request *request =
        good(OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    struct request *other =
        good(OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    const struct sampling *sampling = &request->sampling;

    (void)state;
    assert_int_equal(request->prompt_count, 1);
    assert_int_equal(request->choices, 1);
    assert_int_equal(request->max_tokens, 100 - request->prompts[0].count);
    assert_prompt(request, 0, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    assert_int_equal(request->prompts[0].tokens[0], FAKE_START);
    assert_true(sampling->temperature == 1 && sampling->top_p == 1 && sampling->typical_p == 1);
    assert_true(sampling->min_p == 0 && sampling->top_k == 0 && sampling->repetition_penalty == 1);
    assert_true(sampling->frequency_penalty == 0 && sampling->presence_penalty == 0);
    assert_int_equal(sampling->logprobs, LOGPROBS_NONE);
    assert_int_equal(sampling->prompt_logprobs, LOGPROBS_NONE);
    assert_int_equal(sampling->min_tokens + sampling->stop_count + sampling->bias_count, 0);
    assert_false(sampling->ignore_eos);
    assert_true(sampling->seed != other->sampling.seed);
    request_free(request);
    request_free(other);
    request = good(OPENAI_COMPLETIONS, "{\"prompt\":\"hi\"}");
    assert_int_equal(request->max_tokens, 16);
    request_free(request);
}

static void test_every_value_arrives(void **state)
{
    struct request *request = good(
        OPENAI_COMPLETIONS,
        TEXT("\"model\":\"m\",\"max_tokens\":1.2e1,\"n\":3,\"temperature\":0.5,\"top_p\":0.25,"
             "\"top_k\":7.0,"
             "\"min_p\":0.125,\"typical_p\":0.75,\"frequency_penalty\":-2,\"presence_penalty\":2,"
             "\"repetition_penalty\":1.5,\"seed\":-7,\"min_tokens\":4,\"ignore_eos\":true,"
             "\"logprobs\":5,"
             "\"echo\":true,\"stop_token_ids\":[3,9],\"logit_bias\":{\"5\":-100,\"0\":1.5,\"7\":"
             "null},"
             "\"user\":\"u\",\"metadata\":{},\"suffix\":\"\",\"best_of\":3,\"stop\":[],\"unknown\":"
             "[{}]"));
    const struct sampling *sampling = &request->sampling;
    float sum = 0;

    (void)state;
    assert_int_equal(request->max_tokens, 12);
    assert_int_equal(request->choices, 3);
    assert_true(sampling->temperature == 0.5f && sampling->top_p == 0.25f &&
                sampling->min_p == 0.125f);
    assert_true(sampling->typical_p == 0.75f && sampling->repetition_penalty == 1.5f);
    assert_true(sampling->frequency_penalty == -2 && sampling->presence_penalty == 2);
    assert_int_equal(sampling->top_k, 7);
    assert_true(sampling->seed == (uint64_t)-7);
    assert_int_equal(sampling->min_tokens, 4);
    assert_true(sampling->ignore_eos);
    assert_int_equal(sampling->logprobs, 5);
    assert_int_equal(sampling->prompt_logprobs, 5);
    assert_int_equal(sampling->stop_count, 2);
    assert_int_equal(sampling->stop_tokens[1], 9);
    assert_int_equal(sampling->bias_count, 2);
    for (uint32_t i = 0; i < 2; i++)
        sum += sampling->biases[i].bias * (float)(sampling->biases[i].token + 1);
    assert_true(sum == -600 + 1.5f);
    request_free(request);
}

static void test_null_is_absent(void **state)
{
    static const char *const keys[] = {"model",
                                       "max_tokens",
                                       "max_completion_tokens",
                                       "n",
                                       "stop",
                                       "stream",
                                       "stream_options",
                                       "logprobs",
                                       "top_logprobs",
                                       "seed",
                                       "tools",
                                       "tool_choice",
                                       "response_format",
                                       "logit_bias",
                                       "stop_token_ids",
                                       "guided_json",
                                       "best_of",
                                       "suffix",
                                       "user",
                                       "echo",
                                       "temperature",
                                       "skip_special_tokens",
                                       "functions"};

    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char body[256];

        (void)snprintf(
            body, sizeof body,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"prompt\":\"hi\",\"%s\":null}",
            keys[i]);
        request_free(good(OPENAI_CHAT, body));
        request_free(good(OPENAI_COMPLETIONS, body));
    }
}

static void test_values_that_ask_for_nothing(void **state)
{
    (void)state;
    request_free(
        good(OPENAI_CHAT,
             CHAT("\"tools\":[],\"tool_choice\":\"none\",\"response_format\":{\"type\":\"text\"},"
                  "\"modalities\":[\"text\"],\"use_beam_search\":false,\"priority\":0,"
                  "\"grammar\":\"\",\"continue_final_message\":false,\"best_of\":9,"
                  "\"top_logprobs\":0,\"xtc_probability\":0.0")));
}

static void test_prompts(void **state)
{
    struct request *request;

    (void)state;
    request = good(OPENAI_COMPLETIONS, "{\"prompt\":[\"ab\",\"c<|im_end|>\"],\"n\":2}");
    assert_int_equal(request->prompt_count, 2);
    assert_int_equal(request->choices, 2);
    assert_prompt(request, 0, "ab");
    assert_int_equal(request->prompts[1].tokens[1], FAKE_END); /* control tokens are recognised */
    request_free(request);
    request = good(OPENAI_COMPLETIONS, "{\"prompt\":[97,98.0,259]}");
    assert_prompt(request, 0, "ab hello");
    request_free(request);
    request = good(OPENAI_COMPLETIONS, "{\"prompt\":[[97],[98,99]],\"max_tokens\":1000}");
    assert_prompt(request, 1, "bc");
    assert_int_equal(request->max_tokens, 99); /* the room of the shortest */
    request_free(request);
}

static void test_bos(void **state)
{
    struct request *request;

    (void)state;
    bad(OPENAI_COMPLETIONS, "{\"prompt\":\"\"}", 400, "prompt", "empty prompt");
    context.tokenizer = &bos_tokenizer;
    request = good(OPENAI_COMPLETIONS, "{\"prompt\":\"\"}");
    assert_int_equal(request->prompts[0].count, 1);
    assert_int_equal(request->prompts[0].tokens[0], FAKE_BOS);
    request_free(request);
    request = good(OPENAI_COMPLETIONS, TEXT("\"add_special_tokens\":false"));
    assert_prompt(request, 0, "hi");
    request_free(request);
    request = good(OPENAI_CHAT, CHAT("\"n\":1"));
    assert_int_equal(request->prompts[0].tokens[0], FAKE_START); /* the template has its own */
    request_free(request);
    context.tokenizer = &plain_tokenizer;
}

static void test_messages(void **state)
{
    struct request *request;

    (void)state;
    request = good(
        OPENAI_CHAT,
        "{\"messages\":[{\"role\":\"developer\",\"content\":\"d\"},{\"role\":\"assistant\","
        "\"content\":null,"
        "\"tool_calls\":null},{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]}],\"add_generation_prompt\":false}");
    assert_prompt(request, 0,
                  "<|im_start|>system\nd<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
                  "<|im_start|>tool\na\nb<|im_end|>\n");
    request_free(request);
}

/* What the template is told beside the messages, and contents for one that goes through parts. */
static void test_template_variables(void **state)
{
    static const struct chat_template parts = {.goes_through_parts = true};
    struct request *request;

    (void)state;
    request = good(OPENAI_CHAT, CHAT("\"documents\":[{\"title\":\"D\"}],\"chat_template_kwargs\":"
                                     "{\"suffix\":\"S\"},\"add_generation_prompt\":false"));
    assert_prompt(request, 0, "D<|im_start|>user\nhi<|im_end|>\nS");
    request_free(request);
    context.chat_template = &parts;
    request = good(OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
                                "\"user\",\"content\":[{\"type\":\"text\",\"text\":\"b\"},"
                                "{\"type\":\"text\",\"text\":\"c\"}]}],"
                                "\"add_generation_prompt\":false}");
    context.chat_template = &chatml;
    assert_prompt(request, 0,
                  "<|im_start|>user\n[a]<|im_end|>\n<|im_start|>user\n[b][c]<|im_end|>\n");
    request_free(request);
    bad(OPENAI_CHAT, CHAT("\"chat_template_kwargs\":[]"), 400, "chat_template_kwargs", "object");
    bad(OPENAI_CHAT, CHAT("\"documents\":{}"), 400, "documents", "array");
    bad(OPENAI_CHAT, CHAT("\"documents\":[{},1]"), 400, "documents[1]", "object");
    bad(OPENAI_CHAT, CHAT("\"reasoning_effort\":1"), 400, "reasoning_effort", "string");
}

static void test_max_tokens(void **state)
{
    struct request *request;

    (void)state;
    request =
        good(OPENAI_COMPLETIONS, TEXT("\"max_tokens\":9000000000000000000,\"min_tokens\":5000"));
    assert_int_equal(request->max_tokens, 98);
    assert_int_equal(request->sampling.min_tokens, 98);
    request_free(request);
    request = good(OPENAI_COMPLETIONS, TEXT("\"max_tokens\":0,\"echo\":true,\"logprobs\":0"));
    assert_int_equal(request->max_tokens, 0);
    assert_int_equal(request->sampling.prompt_logprobs, 0);
    request_free(request);
    request = good(OPENAI_CHAT, CHAT("\"max_tokens\":9,\"max_completion_tokens\":5"));
    assert_int_equal(request->max_tokens, 5);
    request_free(request);
    context.strict_max_tokens = true;
    request_free(good(OPENAI_COMPLETIONS, TEXT("\"max_tokens\":98")));
    bad(OPENAI_COMPLETIONS, TEXT("\"max_tokens\":99"), 400, "max_tokens",
        "you requested 101 tokens (2 in the prompt");
    context.strict_max_tokens = false;
}

/* --- what is wrong is said -------------------------------------------------------------------- */

static void test_wrong_json(void **state)
{
    char deep[512];

    (void)state;
    bad(OPENAI_CHAT, "", 400, "", "is empty");
    bad(OPENAI_CHAT, "{\"messages\":", 400, "", "line 1");
    bad(OPENAI_CHAT, "[]", 400, "", "must be a JSON object");
    bad(OPENAI_CHAT, "\"text\"", 400, "", "must be a JSON object");
    bad(OPENAI_CHAT, "{\"seed\":99999999999999999999}", 400, "", "64-bit integer");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":\"\\ud800\"}", 400, "", "");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":\"\xff\"}", 400, "", "0xff");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":\"x\",\"temperature\":NaN}", 400, "", "");
    memset(deep, '[', 400);
    deep[400] = '\0';
    bad(OPENAI_CHAT, deep, 400, "", "levels deep");
}

static void test_wrong_types_and_ranges(void **state)
{
    static const struct {
        const char *field, *param;
    } cases[] = {
        {"\"temperature\":2.5", "temperature"},
        {"\"temperature\":\"1\"", "temperature"},
        {"\"temperature\":true", "temperature"},
        {"\"top_p\":1.01", "top_p"},
        {"\"top_k\":-2", "top_k"},
        {"\"top_k\":1.5", "top_k"},
        {"\"min_p\":-0.1", "min_p"},
        {"\"typical_p\":2", "typical_p"},
        {"\"frequency_penalty\":3", "frequency_penalty"},
        {"\"presence_penalty\":-3", "presence_penalty"},
        {"\"repetition_penalty\":0", "repetition_penalty"},
        {"\"max_tokens\":16.5", "max_tokens"},
        {"\"max_tokens\":-1", "max_tokens"},
        {"\"max_tokens\":\"16\"", "max_tokens"},
        {"\"n\":0", "n"},
        {"\"n\":9", "n"},
        {"\"n\":true", "n"},
        {"\"seed\":1.5", "seed"},
        {"\"stream\":1", "stream"},
        {"\"stream_options\":{}", "stream_options"},
        {"\"stream\":true,\"stream_options\":{\"include_usage\":1}",
         "stream_options.include_usage"},
        {"\"stop\":5", "stop"},
        {"\"stop\":\"\"", "stop"},
        {"\"stop\":[\"a\",\"\"]", "stop[1]"},
        {"\"stop\":[\"a\",null]", "stop[1]"},
        {"\"stop_token_ids\":[1,268]", "stop_token_ids[1]"},
        {"\"stop_token_ids\":[-1]", "stop_token_ids[0]"},
        {"\"stop_token_ids\":3", "stop_token_ids"},
        {"\"logit_bias\":{\"268\":1}", "logit_bias"},
        {"\"logit_bias\":{\"-1\":1}", "logit_bias"},
        {"\"logit_bias\":{\"01\":1}", "logit_bias"},
        {"\"logit_bias\":{\"\":1}", "logit_bias"},
        {"\"logit_bias\":[]", "logit_bias"},
        {"\"logit_bias\":{\"99999999999999999999\":1}", "logit_bias"},
        {"\"logit_bias\":{\"5\":101}", "logit_bias.5"},
        {"\"min_tokens\":5,\"max_tokens\":4", "min_tokens"},
        {"\"ignore_eos\":\"no\"", "ignore_eos"},
        {"\"model\":5", "model"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];

        (void)snprintf(
            body, sizeof body,
            "{\"prompt\":\"hi\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],%s}",
            cases[i].field);
        bad(OPENAI_CHAT, body, 400, cases[i].param, cases[i].param);
        bad(OPENAI_COMPLETIONS, body, 400, cases[i].param, cases[i].param);
    }
    bad(OPENAI_CHAT, CHAT("\"max_tokens\":0"), 400, "max_tokens", "at least 1");
    bad(OPENAI_CHAT, CHAT("\"logprobs\":5"), 400, "logprobs", "true or false");
    bad(OPENAI_CHAT, CHAT("\"top_logprobs\":2"), 400, "top_logprobs", "needs 'logprobs'");
    bad(OPENAI_CHAT, CHAT("\"logprobs\":true,\"top_logprobs\":21"), 400, "top_logprobs", "20");
    bad(OPENAI_COMPLETIONS, TEXT("\"logprobs\":true"), 400, "logprobs", "integer");
    bad(OPENAI_COMPLETIONS, TEXT("\"logprobs\":1000000"), 400, "logprobs", "20");
    bad(OPENAI_COMPLETIONS,
        TEXT("\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\","
             "\"13\",\"14\",\"15\",\"16\",\"17\"]"),
        400, "stop", "at most 16");
    bad(OPENAI_COMPLETIONS, TEXT("\"model\":\"other\""), 404, "model",
        "The model `other` does not exist");
}

static void test_stop_without_a_tokenizer(void **state)
{
    struct request *request = NULL;
    struct api_error error;
    static const char no_strings[] = "{\"prompt\":[97],\"stop\":[],\"stop_token_ids\":[3]}";

    (void)state;
    context.tokenizer = NULL;
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[97],\"stop\":\"a\"}", 400, "stop", "no tokenizer");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[97],\"stop\":[\"a\"]}", 400, "stop", "no tokenizer");
    assert_int_equal(
        parse_bytes(OPENAI_COMPLETIONS, no_strings, strlen(no_strings), &request, &error), 0);
    request_free(request);
    context.tokenizer = &plain_tokenizer;
}

static void test_wrong_prompts(void **state)
{
    (void)state;
    bad(OPENAI_COMPLETIONS, "{}", 400, "prompt", "missing");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[]}", 400, "prompt", "empty");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":5}", 400, "prompt", "must be a string");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[null]}", 400, "prompt", "must be a string");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[[97],[]]}", 400, "prompt[1]", "no tokens");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[[97],98]}", 400, "prompt[1]", "like the first");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[\"a\",[98]]}", 400, "prompt[1]", "like the first");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[97,268]}", 400, "prompt[1]", "from 0 to 267");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[97,\"b\"]}", 400, "prompt[1]", "integer");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[[1,2.5]]}", 400, "prompt[0][1]", "integer");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[1,1e300]}", 400, "prompt[1]", "integer");
    bad(OPENAI_COMPLETIONS, "{\"prompt\":[[1],[1],[1]],\"n\":3}", 400, "n", "8 answers");
    bad(OPENAI_CHAT, "{}", 400, "messages", "missing");
    bad(OPENAI_CHAT, "{\"messages\":[]}", 400, "messages", "empty");
    bad(OPENAI_CHAT, "{\"messages\":{}}", 400, "messages", "array");
    bad(OPENAI_CHAT, "{\"messages\":[5]}", 400, "messages[0]", "object");
    bad(OPENAI_CHAT, "{\"messages\":[{}]}", 400, "messages[0].role", "missing");
    bad(OPENAI_CHAT, "{\"messages\":[{\"role\":\"king\",\"content\":\"\"}]}", 400,
        "messages[0].role", "king");
    bad(OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0].content", "missing");
    bad(OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":{}}]}", 400,
        "messages[0].content", "array of parts");
    bad(OPENAI_CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}"
        "]}",
        400, "messages[0].content[0].type", "image_url");
    bad(OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", 400,
        "messages[0].content[0].text", "missing");
    bad(OPENAI_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}", 400,
        "messages[0].tool_calls[0]", "missing");
    bad(OPENAI_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":{\"a\":1}}]}", 400,
        "messages[0].tool_calls", "array");
    bad(OPENAI_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"function_call\":{}}]}", 400,
        "messages[0].function_call", "not supported");
    bad(OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[\"a\"]}]}", 400,
        "messages[0].content[0]", "object");
    context.chat_template = &foreign;
    bad(OPENAI_CHAT, CHAT("\"n\":1"), 400, "", "no chat template");
    context.chat_template = &chatml;
}

/* Constraints that are not served would be silently ignored if they were not refused. */
static void test_unserved_constraints(void **state)
{
    static const struct {
        const char *key, *value;
    } cases[] = {
        {"structural_tag", "{\"a\":1}"},
        {"stop_regex", "\"a\""},
        {"n_predict", "5"},
        {"t_max_predict_ms", "5"},
        {"repeat_penalty", "1.1"},
        {"samplers", "[\"top_k\"]"},
        {"tfs_z", "0.5"},
        {"lora_path", "\"a\""},
        {"custom_logit_processor", "\"a\""},
        {"functions", "[{}]"},
        {"function_call", "\"auto\""},
        {"allowed_token_ids", "[1]"},
        {"bad_words", "[\"a\"]"},
        {"logits_processors", "[\"a\"]"},
        {"use_beam_search", "true"},
        {"prompt_logprobs", "0"},
        {"modalities", "[\"text\",\"audio\"]"},
        {"audio", "{}"},
        {"continue_final_message", "true"},
        {"chat_template", "\"x\""},
        {"truncate_prompt_tokens", "5"},
        {"priority", "1"},
        {"mirostat", "2"},
        {"echo", "true"},
        {"logprob_token_ids", "[1]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];

        (void)snprintf(body, sizeof body, CHAT("\"%s\":%s"), cases[i].key, cases[i].value);
        bad(OPENAI_CHAT, body, 400, cases[i].key, "not supported");
    }
    bad(OPENAI_COMPLETIONS, TEXT("\"best_of\":2"), 400, "best_of", "not supported");
    bad(OPENAI_COMPLETIONS, TEXT("\"suffix\":\"x\""), 400, "suffix", "not supported");
}

static void test_long_prompts(void **state)
{
    struct request *request = NULL;
    struct api_error error;
    static char body[1 << 20];
    size_t bytes;

    (void)state;
    for (size_t count = 99; count <= 6000; count = count < 101 ? count + 1 : count + 5899) {
        (void)snprintf(body, sizeof body, "{\"prompt\":\"%*s\"}", (int)count, "x");
        if (count == 99) {
            request = good(OPENAI_COMPLETIONS, body);
            assert_int_equal(request->max_tokens, 1);
            request_free(request);
            continue;
        }
        bad(OPENAI_COMPLETIONS, body, 400, "prompt", "maximum context length is 100 tokens");
        bad(OPENAI_COMPLETIONS, body, 400, "prompt",
            count == 100   ? "has 100 tokens"
            : count == 101 ? "has 101 tokens"
                           : "has more than 4496");
    }
    (void)snprintf(body, sizeof body, "{\"prompt\":\"%100s\",\"max_tokens\":0}", "x");
    request_free(good(OPENAI_COMPLETIONS, body)); /* scoring needs no room */
    bytes = (size_t)snprintf(body, sizeof body, "{\"prompt\":[1");
    while (bytes < 20000)
        bytes += (size_t)snprintf(body + bytes, sizeof body - bytes, ",1");
    (void)snprintf(body + bytes, sizeof body - bytes, "]}");
    bad(OPENAI_COMPLETIONS, body, 400, "prompt", "maximum context length is 100 tokens");
    while (bytes < sizeof body - 8)
        bytes += (size_t)snprintf(body + bytes, sizeof body - bytes, ",1");
    (void)snprintf(body + bytes, sizeof body - bytes, "]}");
    assert_true(parse_bytes(OPENAI_COMPLETIONS, body, strlen(body), &request, &error) < 0);
    assert_non_null(strstr(error.message, "values"));
    bytes = (size_t)snprintf(body, sizeof body, "{\"messages\":[{}");
    while (bytes < 100000) /* few values, but each costs much memory */
        bytes += (size_t)snprintf(body + bytes, sizeof body - bytes, ",{}");
    (void)snprintf(body + bytes, sizeof body - bytes, "]}");
    bad(OPENAI_CHAT, body, 400, "", "too many values");
}

/* Flips, cuts, doubles and swaps in good bodies: whatever comes, an answer or an error. */
static void test_mutations(void **state)
{
    static const char *const seeds[] = {
        CHAT("\"n\":2,\"stop\":[\"a\",\"b\"],\"logprobs\":true,\"top_logprobs\":2,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true},\"logit_bias\":{\"5\":1},\"temperature\":"
             "0.5"),
        "{\"prompt\":[[1,2,3],[4]],\"max_tokens\":5,\"echo\":true,\"logprobs\":3,\"return_token_"
        "ids\":true,"
        "\"stop_token_ids\":[7],\"seed\":5,\"min_tokens\":1}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\\u00e9\"}]}]"
        "}",
    };
    static const char spice[] = "{}[]\",:0123456789.eE+-\\untfalsr \xc3\xa9\xff";
    uint64_t seed = 99;
    unsigned taken = 0;

    (void)state;
    for (unsigned round = 0; round < 30000; round++) {
        char body[512];
        size_t bytes = strlen(seeds[round % 3]);
        struct request *request = NULL;
        struct api_error error;
        unsigned changes;

        memcpy(body, seeds[round % 3], bytes + 1);
        seed = seed * UINT64_C(6364136223846793005) + 1;
        changes = (unsigned)(seed >> 60) + 1;
        for (unsigned i = 0; i < changes; i++) {
            size_t at;

            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            at = (size_t)(seed >> 33) % bytes;
            if ((seed >> 30 & 7) == 0 && bytes > 2) {
                memmove(body + at, body + at + 1, bytes - at - 1);
                bytes--;
            } else {
                body[at] = spice[(seed >> 20) % (sizeof spice - 1)];
            }
        }
        if (parse_bytes((enum openai_endpoint)(round & 1), body, bytes, &request, &error) == 0)
            taken++;
        request_free(request);
    }
    assert_in_range(taken, 100, 29000); /* the changes are neither all fatal nor all harmless */
}

/* --- pages ------------------------------------------------------------------------------------ */

static void test_models(void **state)
{
    struct fault fault;
    struct buf text;
    json_t *body = NULL, *model;

    (void)state;
    buf_init(&text, 4096);
    openai_models_body(&context, &text);
    assert_int_equal(json_parse(text.data, text.bytes, &body, &fault), 0);
    model = json_array_get(json_object_get(body, "data"), 0);
    assert_string_equal(json_string_value(json_object_get(model, "id")), "m");
    assert_string_equal(json_string_value(json_object_get(model, "object")), "model");
    assert_int_equal(json_integer_value(json_object_get(model, "created")), 1234);
    assert_int_equal(json_integer_value(json_object_get(model, "max_model_len")), 100);
    json_decref(body);
    buf_fini(&text);
}

static void test_committed_page(void **state)
{
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 18);
    openai_fields_docs(&text);
    assert_page_is("docs/fields.md", &text);
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_every_value_arrives),
        cmocka_unit_test(test_null_is_absent),
        cmocka_unit_test(test_values_that_ask_for_nothing),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_template_variables),
        cmocka_unit_test(test_max_tokens),
        cmocka_unit_test(test_wrong_json),
        cmocka_unit_test(test_wrong_types_and_ranges),
        cmocka_unit_test(test_stop_without_a_tokenizer),
        cmocka_unit_test(test_wrong_prompts),
        cmocka_unit_test(test_unserved_constraints),
        cmocka_unit_test(test_long_prompts),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_committed_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
