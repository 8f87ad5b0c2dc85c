"""Answers of a given form over the wire, from a tiny model of random weights: what it would say is
noise, so whatever fits was made to. Protects every field that asks for a form, calls that must come
or fit in each format, how such an answer ends, and that what cannot be kept is refused by name."""

import json
import re

import jsonschema
import pytest

import tiny_model
from weft import Weft, events_of

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
POINT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "n": {"type": "integer", "minimum": -9, "maximum": 99},
        "kind": {"enum": ["a", "b", None]},
    },
    "required": ["name", "n"],
    "additionalProperties": False,
}
FORMATS = ["hermes", "llama3_json", "mistral", "granite", "deepseek_v3", "deepseek_v31", "glm45",
           "qwen3_coder", "harmony", "llama_pythonic", "functionary"]


MARKERS = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "[TOOL_CALLS]",
    "[ARGS]", "<|tool_call|>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
    "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|constrain|>",
    "<|python_start|>", "<|python_end|>",
    *(f"<\uff5ctool\u2581{part}\uff5c>" for part in (
        "calls\u2581begin", "calls\u2581end", "call\u2581begin", "call\u2581end", "sep")),
]


@pytest.fixture(scope="module")
def marked_model(tmp_path_factory):
    """Its vocabulary has the formats' markers as control tokens."""
    path = tmp_path_factory.mktemp("marked") / "marked.gguf"
    tiny_model.write(path, control=MARKERS)
    return path


@pytest.fixture(scope="module")
def server(model):
    with Weft("--tool-parser", "hermes", model=model, device="cpu") as running:
        yield running


def body(path, **more):
    prompt = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    return {**prompt, "max_tokens": 400, "seed": 5, "n": 2, **more}


def ask(server, path, **more):
    status, _, data = server.post(path, body(path, **more))
    assert status == 200, data
    return json.loads(data)["choices"]


def stream(server, path, **more):
    status, _, data = server.post(path, body(path, stream=True, **more))
    assert status == 200, data
    *events, done = events_of(data)
    assert done == "[DONE]"
    return [json.loads(event)["choices"][0] for event in events]


def text_of(choice):
    return choice["message"]["content"] if "message" in choice else choice["text"]


def is_point(text):
    jsonschema.validate(json.loads(text), POINT)


def is_object(text):
    assert isinstance(json.loads(text), dict)


def matches(pattern):
    def check(text):
        assert re.fullmatch(pattern, text), text
    return check


FORMS = [
    ({"response_format": {"type": "json_object"}}, is_object),
    ({"response_format": {"type": "json_object", "schema": POINT}}, is_point),
    ({"response_format": {"type": "json_schema",
                          "json_schema": {"name": "point", "strict": True, "schema": POINT}}},
     is_point),
    ({"structured_outputs": {"json": POINT, "whitespace_pattern": ""}}, is_point),
    ({"structured_outputs": {"json": json.dumps(POINT)}}, is_point),
    ({"structured_outputs": {"regex": "[a-c]{2,5}!"}}, matches("[a-c]{2,5}!")),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, matches("yes|no")),
    ({"structured_outputs": {"grammar": 'root ::= "v" [0-9]{3}'}}, matches(r"v\d{3}")),
    ({"structured_outputs": {"json_object": True}}, is_object),
    ({"guided_json": POINT}, is_point),
    ({"guided_regex": r"\d{4}-\d\d"}, matches(r"\d{4}-\d\d")),
    ({"guided_choice": ["\u00e9t\u00e9", "hiver"]}, matches("\u00e9t\u00e9|hiver")),
    ({"guided_grammar": 'root ::= "(" root ")" | "x"'}, matches(r"\(*x\)*")),
    ({"json_schema": POINT}, is_point),
    ({"grammar": 'root ::= [x-z]{1,9}'}, matches("[x-z]{1,9}")),
    ({"regex": "(ab)+"}, matches("(ab)+")),
    ({"ebnf": 'root ::= "a" | "b"'}, matches("a|b")),
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("form,check", FORMS)
def test_answers_have_the_form(server, path, form, check):
    choices = ask(server, path, **form)
    assert len(choices) == 2
    for choice in choices:
        assert choice["finish_reason"] == "stop"
        check(text_of(choice))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_stream_says_the_same(server, path):
    form = {"guided_json": POINT}
    texts = {0: "", 1: ""}
    ends = {}
    for choice in stream(server, path, **form):
        piece = choice["delta"].get("content", "") if "delta" in choice else choice["text"]
        texts[choice["index"]] += piece
        ends[choice["index"]] = choice["finish_reason"]
    assert [texts[0], texts[1]] == [text_of(c) for c in ask(server, path, **form)]
    assert ends == {0: "stop", 1: "stop"}


def test_null_asks_for_nothing(server):
    more = {"response_format": None, "grammar": None, "guided_json": None, "guided_choice": None,
            "structured_outputs": None, "max_tokens": 20}
    with_nulls = [text_of(c) for c in ask(server, CHAT, **more)]
    assert with_nulls == [text_of(c) for c in ask(server, CHAT, max_tokens=20)]
    more = {"response_format": {"type": "text"}, "grammar": "", "max_tokens": 20}
    assert with_nulls == [text_of(c) for c in ask(server, CHAT, **more)]


def test_greedy_and_repeated(server):
    """Temperature 0 takes the likeliest allowed token, twice the same."""
    more = {"guided_json": POINT, "temperature": 0}
    first, second = (text_of(c) for c in ask(server, CHAT, **more))
    assert first == second
    is_point(first)


def test_log_probabilities_are_of_the_tokens_taken(server):
    for choice in ask(server, CHAT, guided_json=POINT, logprobs=True, top_logprobs=3):
        entries = choice["logprobs"]["content"]
        made = b"".join(bytes(e["bytes"]) for e in entries).decode()
        assert made == text_of(choice)
        assert all(len(e["top_logprobs"]) == 3 for e in entries)


def test_a_cut_answer_says_so(server):
    (choice, _) = ask(server, CHAT, guided_regex="[a-z]{50}", max_tokens=5)
    assert choice["finish_reason"] == "length" and len(text_of(choice)) <= 25


def test_an_endless_form_ends_in_time(server):
    for choice in ask(server, CHAT, guided_json={"type": "array", "minItems": 1}, max_tokens=200):
        assert choice["finish_reason"] == "stop"
        json.loads(text_of(choice))


def test_a_stop_string_ends_it_too(server):
    for choice in ask(server, CHAT, guided_regex="[ab]{300}", stop=["ab"], max_tokens=1000):
        assert choice["finish_reason"] == "stop" and choice["stop_reason"] == "ab"
        assert re.fullmatch("[ab]*", text_of(choice)) and "ab" not in text_of(choice)


REFUSED = [
    ({"response_format": {"type": "json"}}, "response_format.type", "json"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {
        "properties": {"a": {"uniqueItems": True}}}}}},
     "response_format.json_schema.schema", '"uniqueItems" at #/properties/a'),
    ({"guided_json": {"type": "string", "format": "color"}}, "guided_json", '"format" at #'),
    ({"guided_regex": r"(a)\1"}, "guided_regex", "back-reference"),
    ({"guided_grammar": 'root ::= "a'}, "guided_grammar", "line 1"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag", ""),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice", "both"),
    ({"json_schema": {}, "grammar": 'root ::= "a"'}, "grammar", "'json_schema'"),
    ({"guided_json": False}, "guided_json", "no value"),
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("more,param,words", REFUSED)
def test_what_cannot_be_kept_is_named(server, path, more, param, words):
    for streams in (False, True):
        status, _, data = server.post(path, body(path, stream=streams, **more))
        error = json.loads(data)["error"]
        assert status == 400 and error["param"] == param and words in error["message"]


# --- calls ---


def tool(name, schema, **more):
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


TOOLS = [tool("point", POINT, strict=True),
         tool("flag", {"type": "object", "properties": {"on": {"type": "boolean"}},
                       "required": ["on"], "additionalProperties": False})]
SCHEMAS = {t["function"]["name"]: t["function"]["parameters"] for t in TOOLS}


def check_calls(calls):
    for call in calls:
        function = call["function"]
        jsonschema.validate(json.loads(function["arguments"]), SCHEMAS[function["name"]])
    assert len({call["id"] for call in calls}) == len(calls)


@pytest.mark.parametrize("name", FORMATS)
def test_calls_that_must_come(start, marked_model, name):
    server = start("--tool-parser", name, device="cpu", model=marked_model)
    check_forced_calls(server)


@pytest.mark.parametrize("name", ["hermes", "llama3_json", "glm45", "llama_pythonic"])
def test_markers_that_are_text(start, name):
    check_forced_calls(start("--tool-parser", name, device="cpu"))


def check_forced_calls(server):
    for seed in range(4):
        more = {"tools": TOOLS, "seed": seed, "n": 4, "max_tokens": 1500}
        for choice in ask(server, CHAT, tool_choice="required", **more):
            message = choice["message"]
            assert choice["finish_reason"] == "tool_calls" and message["content"] is None
            assert message["tool_calls"]
            check_calls(message["tool_calls"])
        for choice in ask(server, CHAT, tool_choice="required", parallel_tool_calls=False, **more):
            assert len(choice["message"]["tool_calls"]) == 1
        named = {"type": "function", "function": {"name": "flag"}}
        for choice in ask(server, CHAT, tool_choice=named, **more):
            (call,) = choice["message"]["tool_calls"]
            assert call["function"]["name"] == "flag" and choice["finish_reason"] == "stop"
            check_calls([call])


def test_a_streamed_call(server):
    more = {"tools": TOOLS, "tool_choice": "required", "n": 1, "max_tokens": 1000}
    calls, ends = {}, []
    for choice in stream(server, CHAT, **more):
        ends.append(choice["finish_reason"])
        assert not choice["delta"].get("content")
        for part in choice["delta"].get("tool_calls", []):
            if part["index"] not in calls:
                calls[part["index"]] = part
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    check_calls(calls.values())
    (whole,) = ask(server, CHAT, **more)
    assert [c["function"] for c in calls.values()] == [
        c["function"] for c in whole["message"]["tool_calls"]]
    assert ends[-1] == "tool_calls"


def test_free_text_or_a_form_beside_tools(server):
    for choice in ask(server, CHAT, tools=TOOLS, max_tokens=300):
        check_calls(choice["message"].get("tool_calls", []))
    for choice in ask(server, CHAT, tools=TOOLS, guided_json=POINT, n=8):
        message = choice["message"]
        check_calls(message.get("tool_calls", []))
        assert message.get("tool_calls") or is_point(message["content"]) is None


def test_a_schema_that_no_format_can_keep(start):
    server = start("--tool-parser", "glm45", device="cpu")
    schema = {**POINT, "minProperties": 3}
    more = {"tool_choice": "required", "tools": [tool("f", schema, strict=True)]}
    status, _, data = server.post(CHAT, body(CHAT, **more))
    error = json.loads(data)["error"]
    assert status == 400 and error["param"] == "tools[0].function.parameters"
    assert '"minProperties" at #' in error["message"]
    more["tools"] = [tool("f", schema)]
    for choice in ask(server, CHAT, **more):
        for call in choice["message"]["tool_calls"]:
            json.loads(call["function"]["arguments"])


def test_reasoning_comes_first(start, tmp_path):
    """The template knows <think>, so the model may begin with it: that part is free."""
    path = tmp_path / "template.jinja"
    path.write_text("{% for m in messages %}{{ m.content }}{% endfor %}{# <think> </think> #}\n")
    server = start("--tool-parser", "hermes", "--chat-template", path, device="cpu")
    reasoned = 0
    for seed in range(8):
        for choice in ask(server, CHAT, guided_json=POINT, seed=seed, n=8):
            if choice["finish_reason"] == "stop":
                is_point(choice["message"]["content"])
                reasoned += "reasoning_content" in choice["message"]
    assert reasoned > 0


def test_reasoning_that_the_prompt_has_begun(start, marked_model, tmp_path):
    """Free to the end of it, which is a control token here; the form begins behind."""
    path = tmp_path / "template.jinja"
    path.write_text("{% for m in messages %}{{ m.content }}{% endfor %}<think>\n{# </think> #}")
    server = start("--tool-parser", "hermes", "--chat-template", path, device="cpu",
                   model=marked_model)
    finished = 0
    for choice in ask(server, CHAT, guided_json=POINT, n=16, max_tokens=3000):
        message = choice["message"]
        if choice["finish_reason"] == "stop" and message["content"]:
            is_point(message["content"])
            finished += bool(message["reasoning_content"])
    assert finished > 0


@pytest.mark.parametrize("name", ["hermes", "glm45", "granite", "deepseek_v31"])
def test_a_strict_call_in_a_free_answer(start, marked_model, name):
    """The text before is free; once a call is begun, by whatever chance, it fits."""
    server = start("--tool-parser", name, device="cpu", model=marked_model)
    strict = [tool(n, s, strict=True) for n, s in SCHEMAS.items()]
    seen = 0
    for seed in range(4):
        more = {"tools": strict, "ignore_eos": True, "n": 16, "max_tokens": 900, "seed": seed}
        for choice in ask(server, CHAT, **more):
            calls = choice["message"].get("tool_calls", [])
            check_calls(calls)
            seen += len(calls)
            assert choice["finish_reason"] == "length" or calls
    assert seen > 0
