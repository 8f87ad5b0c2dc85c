"""Content, reasoning and calls over HTTP, with a template that is only the last message: the null
device gives the prompt back, so the answer is whatever a model could have written. Protects that
every reference case comes out of the server as it comes out of the parser, whole and streamed, that
reasoning is split and counted, and that a conversation with calls reaches the template."""

import json
import pathlib

import pytest

from weft import Weft, events_of

CHAT = "/v1/chat/completions"
REFERENCE = json.loads(
    (pathlib.Path(__file__).parents[1] / "data/tool_calls/tool_calls.json").read_text()
)
FORMATS = sorted({case["format"] for case in REFERENCE["cases"]})
# The tokens that end a turn, which are no part of the text that a server sees.
ENDS = (
    "<|eot_id|> <|eom_id|> <|im_end|> </s> <\uff5cend\u2581of\u2581sentence\uff5c> <|observation|>"
    " <|eot|> <|return|> <|call|>"
).split()


@pytest.fixture(scope="module")
def serve(tiny, tmp_path_factory):
    """Starts servers with a template's text."""
    started = []

    def start_one(template, *options):
        path = tmp_path_factory.mktemp("template") / "chat.jinja"
        path.write_text(template)
        server = Weft("--null-step-us", 0, "--chat-template", path, *options, model=tiny)
        started.append(server)
        return server.start()

    yield start_one
    for server in started:
        server.stop()


def ask(server, content, **more):
    """(content, reasoning, calls, finish_reason, usage), which a stream gives too."""
    body = {"messages": [{"role": "user", "content": content + "\x03"}], "stop": ["\x03"]}
    body |= {"max_tokens": 2000, **more}
    status, _, data = server.post(CHAT, body)
    assert status == 200, data
    whole = json.loads(data)
    choice = whole["choices"][0]
    message = choice["message"]
    assert message.get("reasoning") == message.get("reasoning_content")
    calls = [
        (c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in message.get("tool_calls", [])
    ]
    content = (message["content"], message.get("reasoning_content"), calls)
    answer = (*content, choice["finish_reason"], whole["usage"])
    assert streamed(server, body) == answer
    return answer


def streamed(server, body):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    _, _, data = server.post(CHAT, {**body, **options})
    *events, done = events_of(data)
    assert done == "[DONE]"
    *chunks, last = [json.loads(event) for event in events]
    parts, calls, finish = {"content": "", "reasoning_content": ""}, {}, None
    for chunk in chunks:
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        assert delta.get("reasoning") == delta.get("reasoning_content")
        for part in parts:
            parts[part] += delta.get(part) or ""
        for call in delta.get("tool_calls", []):
            name = call["function"].get("name")
            calls.setdefault(call["index"], [name, ""])[1] += call["function"]["arguments"]
        finish = choice["finish_reason"] or finish
    calls = [(name, json.loads(arguments)) for _, (name, arguments) in sorted(calls.items())]
    reasoning = parts["reasoning_content"] or None
    content = parts["content"] or (None if calls or reasoning else "")
    return content, reasoning, calls, finish, last["usage"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_reference_case(serve, name):
    server = serve("{{ messages[-1].content }}", "--tool-parser", name)
    opened = serve("{{ messages[-1].content }}<think>\n", "--tool-parser", name)
    count = 0
    for case in REFERENCE["cases"]:
        if case["format"] != name:
            continue
        raw, expected = case["raw"], case["expected"]
        for end in ENDS:
            raw = raw.removesuffix(end)
        to = opened if case.get("starts_in_reasoning") else server
        content, reasoning, calls, finish, _ = ask(to, raw, tools=REFERENCE["tools"])
        assert (content or "").strip() == (expected["content"] or ""), case["id"]
        assert (reasoning or "").strip() == (expected["reasoning_content"] or ""), case["id"]
        assert calls == [(c["name"], c["arguments"]) for c in expected["tool_calls"]], case["id"]
        assert finish == expected["finish_reason"], case["id"]
        count += 1
    assert count >= 1


def test_the_template_shows_the_format(serve):
    """With tools calls are read; without them they are text, and so is all of it with none."""
    template = "{{ messages[-1].content }}{# <tool_call> </tool_call> <think> #}"
    server = serve(template)
    text = '<think>Hm.</think>\n<tool_call>{"name": "now"}</tool_call>'
    content, reasoning, calls, finish, _ = ask(server, text, tools=REFERENCE["tools"])
    assert (content, reasoning, calls, finish) == (None, "Hm.", [("now", {})], "tool_calls")
    content, reasoning, calls, finish, _ = ask(server, text)
    assert (content, reasoning, calls) == (text[text.index("<tool_call>") :], "Hm.", [])
    server = serve(template, "--tool-parser", "none")
    assert ask(server, text)[:4] == (text, None, [], "stop")


def test_reasoning_is_counted_and_may_be_left_out(serve):
    server = serve("{{ messages[-1].content }}", "--tool-parser", "think")
    content, reasoning, _, finish, usage = ask(server, "<think>\nOne two.\n</think>\n\nThree.")
    assert (content, reasoning, finish) == ("Three.", "One two.", "stop")
    counted = usage["completion_tokens_details"]["reasoning_tokens"]
    assert 8 <= counted < usage["completion_tokens"] - len("Three.")
    left_out = ask(server, "<think>\nOne two.\n</think>\n\nThree.", include_reasoning=False)
    assert left_out[:3] == ("Three.", None, [])
    assert left_out[4]["completion_tokens_details"]["reasoning_tokens"] == counted
    _, _, _, _, usage = ask(server, "No thought.")
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0


def test_a_prompt_that_opens_the_reasoning(serve):
    template = "{{ messages[-1].content }}{% if enable_thinking is not false %}<think>\n{% endif %}"
    server = serve(template)
    assert ask(server, "Hm.</think>Yes.")[:2] == ("Yes.", "Hm.")
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    assert ask(server, "Yes.", **off)[:2] == ("Yes.", None)
    assert ask(server, "Yes.", reasoning_effort="none")[:2] == ("Yes.", None)


def test_a_conversation_with_calls_reaches_the_template(serve):
    """Arguments are an object there, though they came as text."""
    template = (
        "{% for m in messages %}{{ m.role }}:"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}"
        "({{ c.function.arguments.place }}){% endfor %}{{ m.content }};{% endfor %}"
        "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{{ reasoning_effort }}\x03"
    )
    server = serve(template, "--tool-parser", "hermes")
    function = {"name": "get_weather", "arguments": '{"place": "Oslo"}'}
    messages = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Rain."},
    ]
    body = {"messages": messages, "tools": REFERENCE["tools"], "stop": ["\x03"]}
    body |= {"max_tokens": 500, "reasoning_effort": "low"}
    for more, names in ({}, "get_weather search now set_note zip_lookup "), (
        {"tool_choice": "none"},
        "",
    ):
        _, _, data = server.post(CHAT, {**body, **more})
        content = json.loads(data)["choices"][0]["message"]["content"]
        assert content == f"user:Weather?;assistant:get_weather(Oslo);tool:Rain.;{names}low"
