"""The real `openai` client's tool calling on the null device, which gives the prompt back: whole,
streamed, and with its streaming helper. Protects what agents put together of our chunks."""

import json

import openai
import pytest

from weft import Weft

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather at a place",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["location"],
        },
    },
}
CALLS = "".join(
    '<tool_call>\n{"name": "get_weather", "arguments": {"location": "%s"}}\n</tool_call>\n' % place
    for place in ("Oslo", "R\u00f8ros \U0001f600")
)


@pytest.fixture(scope="module")
def client(tiny):
    with Weft("--null-step-us", 0, "--tool-parser", "hermes", model=tiny) as server:
        url = server.url + "/v1"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as made:
            yield made


def asked(content):
    return {
        "model": "tiny",
        "messages": [{"role": "user", "content": content + "END"}],
        "tools": [WEATHER],
        "stop": ["END"],
    }


def check(message):
    assert message.content == "user\nI will look."
    first, second = message.tool_calls
    assert first.id and second.id and first.id != second.id
    assert first.type == second.type == "function"
    assert first.function.name == "get_weather"
    assert json.loads(first.function.arguments) == {"location": "Oslo"}
    assert json.loads(second.function.arguments) == {"location": "R\u00f8ros \U0001f600"}


def test_calls(client):
    answer = client.chat.completions.create(**asked("I will look.\n" + CALLS))
    assert answer.choices[0].finish_reason == "tool_calls"
    check(answer.choices[0].message)


def test_streaming_helper(client):
    names = []
    with client.chat.completions.stream(**asked("I will look.\n" + CALLS)) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.done":
                names.append((event.name, event.index, json.loads(event.arguments)))
        final = stream.get_final_completion()
    assert final.choices[0].finish_reason == "tool_calls"
    check(final.choices[0].message)
    assert [(n, i) for n, i, _ in names] == [("get_weather", 0), ("get_weather", 1)]
    assert names[0][2] == {"location": "Oslo"}


def test_a_stream_by_hand(client):
    """As agents do it: parts added up by index."""
    calls, text = {}, ""
    for chunk in client.chat.completions.create(**asked("I will look.\n" + CALLS), stream=True):
        delta = chunk.choices[0].delta
        text += delta.content or ""
        for part in delta.tool_calls or []:
            if part.index not in calls:
                calls[part.index] = part
            else:
                calls[part.index].function.arguments += part.function.arguments
    assert text == "user\nI will look." and sorted(calls) == [0, 1]
    assert json.loads(calls[0].function.arguments) == {"location": "Oslo"}


def test_text_alone(client):
    message = client.chat.completions.create(**asked("No call.")).choices[0].message
    assert message.content == "user\nNo call." and message.tool_calls is None
    more = {**asked(CALLS), "tool_choice": "none"}
    message = client.chat.completions.create(**more).choices[0].message
    assert message.tool_calls is None and "<tool_call>" in message.content


def test_what_is_not_kept_is_refused(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**asked("x"), "tools": [], "tool_choice": "auto"})
    assert caught.value.param == "tool_choice"
