"""Tool calls over the wire, on the null device: it gives a prompt back, so a prompt with a call in
it is answered by that call. Protects the chunks that clients put together, and that what cannot be
kept is refused by name."""

import json

import pytest

from weft import events_of

CHAT = "/v1/chat/completions"
F = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "\u00e9 </tool_call>"}}\n</tool_call>'


@pytest.fixture(scope="module")
def hermes(model):
    from weft import Weft
    with Weft("--null-step-us", 0, "--tool-parser", "hermes", model=model) as running:
        yield running


def body(content, **more):
    """The answer begins with the role's name, which the template wrote, and ends at END."""
    return {"messages": [{"role": "user", "content": content + "END"}], "tools": [F],
            "stop": ["END"], "max_tokens": 1000, **more}


def ask(server, content, **more):
    status, _, data = server.post(CHAT, body(content, **more))
    assert status == 200, data
    return json.loads(data)["choices"][0]


def stream(server, content, **more):
    status, _, data = server.post(CHAT, body(content, stream=True, **more))
    assert status == 200, data
    *events, done = events_of(data)
    assert done == "[DONE]"
    return [json.loads(event)["choices"][0] for event in events]


def test_a_call_is_whole(hermes):
    choice = ask(hermes, f"Look:\n{CALL}")
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert message["content"] == "user\nLook:"
    (call,) = message["tool_calls"]
    assert list(call) == ["id", "type", "function"] and call["type"] == "function"
    assert call["id"].startswith("call_") and len(call["id"]) > 20
    assert call["function"] == {"name": "f", "arguments": '{"a": "\u00e9 </tool_call>"}'}


def test_the_chunks_of_a_call(hermes):
    choices = stream(hermes, f"Look:\n{CALL}\n{CALL}")
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert choices[-1]["delta"] == {} and choices[-1]["finish_reason"] == "tool_calls"
    assert all(c["finish_reason"] is None for c in choices[:-1])
    assert "".join(c["delta"].get("content", "") for c in choices) == "user\nLook:"
    calls = [c["delta"]["tool_calls"] for c in choices if "tool_calls" in c["delta"]]
    assert all(len(part) == 1 for part in calls)
    parts = [part[0] for part in calls]
    heads = [p for p in parts if "id" in p]
    assert [p["index"] for p in heads] == [0, 1] and heads[0]["id"] != heads[1]["id"]
    for head in heads:
        assert head["type"] == "function"
        assert head["function"] == {"name": "f", "arguments": ""}
    for index in (0, 1):
        pieces = [p for p in parts if p["index"] == index]
        assert "id" in pieces[0] and all("id" not in p for p in pieces[1:])
        assert all(list(p["function"]) == ["arguments"] for p in pieces[1:])
        text = "".join(p["function"]["arguments"] for p in pieces)
        assert text == '{"a": "\u00e9 </tool_call>"}'
    assert len(parts) > 20, "arguments come as they are made"


def test_arguments_come_before_the_call_is_whole(start):
    server = start("--null-step-us", 20000, "--tool-parser", "hermes")
    with server.connect() as c:
        data = json.dumps(body(CALL, stream=True, max_tokens=100)).encode()
        c.send(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
               f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        c.read_head()
        pieces = [p for p in c.chunks() if b'"arguments":' in p]
        assert len(pieces) > 10 and all(p.count(b"data: ") == 1 for p in pieces[1:])


def test_one_call_only(hermes):
    more = {"parallel_tool_calls": False}
    assert len(ask(hermes, CALL + CALL, **more)["message"]["tool_calls"]) == 1
    indices = [c["delta"]["tool_calls"][0]["index"] for c in stream(hermes, CALL + CALL, **more)
               if "tool_calls" in c["delta"]]
    assert set(indices) == {0}


@pytest.mark.parametrize("content", [
    "just < text", "<tool_call>no JSON", '<tool_call>{"name": "f", "argum',
    '<tool_call>{"name": "f", "arguments": {"a": 1', "<tool_calls>",
])
def test_what_is_no_call_comes_back(hermes, content):
    choice = ask(hermes, content)
    assert choice["message"]["content"] == "user\n" + content
    assert "tool_calls" not in choice["message"] and choice["finish_reason"] == "stop"
    choices = stream(hermes, content)
    assert "".join(c["delta"].get("content", "") for c in choices) == "user\n" + content


def test_without_tools_a_call_is_text(hermes):
    for more in ({"tools": []}, {"tools": None}, {"tool_choice": "none"}):
        choice = ask(hermes, CALL, **more)
        assert choice["message"]["content"] == "user\n" + CALL
        assert choice["finish_reason"] == "stop"


def test_a_length_is_told(hermes):
    choice = ask(hermes, CALL + "x" * 200, max_tokens=150)
    assert choice["finish_reason"] == "length" and len(choice["message"]["tool_calls"]) == 1


def test_other_formats(start):
    server = start("--null-step-us", 0, "--tool-parser", "mistral")
    choice = ask(server, '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "a1B2c3D4e"}]')
    assert choice["message"]["tool_calls"][0]["id"] == "a1B2c3D4e"
    choice = ask(server, "[TOOL_CALLS]f[ARGS]{}")
    assert len(choice["message"]["tool_calls"][0]["id"]) == 9


@pytest.mark.parametrize("more,param", [
    ({"tools": [{}]}, "tools[0].function"),
    ({"tools": [F, F]}, "tools[1].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tool_choice": {"type": "function", "function": {"name": "g"}}},
     "tool_choice.function.name"),
    ({"tools": None, "tool_choice": "auto"}, "tool_choice"),
    ({"tools": [{"type": "function", "function": {"name": "f", "strict": True,
      "parameters": {"not": {"required": ["a"]}}}}]}, "tools[0].function.parameters"),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
])
def test_what_is_wrong_or_not_kept_is_named(hermes, more, param):
    status, _, data = hermes.post(CHAT, body("x", **more))
    assert status == 400 and json.loads(data)["error"]["param"] == param


def test_a_template_that_tells_nothing(server):
    """This server's template is plain ChatML, and no parser was named."""
    status, _, data = server.post(CHAT, body("x"))
    error = json.loads(data)["error"]
    assert status == 400 and error["param"] == "tools" and "--tool-parser" in error["message"]
    assert ask(server, CALL, tool_choice="none")["message"]["content"] == "user\n" + CALL


def test_an_unknown_parser(model):
    import subprocess
    from weft import BINARY
    done = subprocess.run([BINARY, "serve", "--device", "null", "--model", model, "--port", "0",
                           "--tool-parser", "none-such"], capture_output=True, check=False)
    assert done.returncode == 1 and b"llama3_json, hermes" in done.stderr
