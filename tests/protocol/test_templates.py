"""Chat templates over the wire, on the null device, which gives a prompt back. Protects: what
reaches a template, that its refusals are answered 400 with its own words, and that one which would
never end is stopped while others are served."""

import json
import threading

import pytest

from weft import Weft, wait_until

CHAT = "/v1/chat/completions"
TEMPLATE = """{%- if messages[0].role == 'assistant' %}
{{- raise_exception('Conversations begin with the user: ' ~ messages|length) }}
{%- endif %}
{%- if spin %}
{%- for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}
{%- endif %}
{%- for m in messages %}[{{ m.role }}|{{ m.content }}|{{ m.name }}]{% endfor %}
{{- documents|tojson if documents }}{{ enable_thinking }}{{ reasoning_effort }}{{ verbosity }}
{{- tools|length if tools }}{{ messages[0].content.missing.member if fail }}END"""


@pytest.fixture(scope="module")
def templated(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "chat.jinja"
    path.write_text(TEMPLATE)
    with Weft("--null-step-us", 0, "--chat-template", path, model=model) as running:
        yield running


def ask(server, messages, **more):
    body = {"messages": messages, "stop": ["END"], "max_tokens": 1000, **more}
    status, _, data = server.post(CHAT, body)
    return status, json.loads(data)


def prompt(server, messages, **more):
    status, answer = ask(server, messages, **more)
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"]


USER = [{"role": "user", "content": "hello", "name": "n"}]


def test_what_reaches_the_template(templated):
    assert prompt(templated, USER) == "[user|hello|n]"
    parts = [{"role": "developer", "content": [{"type": "text", "text": t} for t in "ab"]}]
    assert prompt(templated, parts) == "[system|a\nb|]"
    more = {"documents": [{"title": "x"}], "chat_template_kwargs": {"enable_thinking": True}}
    assert prompt(templated, USER, **more) == '[user|hello|n][{"title": "x"}]True'
    assert prompt(templated, USER, reasoning_effort="high", verbosity="low").endswith("highlow")
    assert prompt(templated, USER, reasoning_effort="none").endswith("Falsenone")


def test_refusals_are_answered_with_the_templates_words(templated):
    status, answer = ask(templated, [{"role": "assistant", "content": "x"}])
    assert status == 400
    assert answer["error"]["message"].startswith("Conversations begin with the user: 1")
    assert answer["error"]["type"] == "invalid_request_error"
    status, answer = ask(templated, USER, chat_template_kwargs={"fail": True})
    assert status == 400 and "'str object' has no attribute 'missing'" in answer["error"]["message"]
    assert "line 9, column" in answer["error"]["message"]


PICKY_TEMPLATE = """{%- if tools %}{% for tool in tools %}{% set f = tool.function %}
{{- '(' ~ f.name ~ '|' + f.description + '|' + f.parameters|tojson + ')' }}
{%- endfor %}{% endif %}{{ messages[0].content }}END"""


@pytest.fixture(scope="module")
def picky(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "picky.jinja"
    path.write_text(PICKY_TEMPLATE)
    options = ("--null-step-us", 0, "--tool-parser", "hermes", "--chat-template", path)
    with Weft(*options, model=model) as running:
        yield running


def test_a_template_that_needs_what_a_tool_may_leave_out(picky):
    """OpenAI's API asks for a function's name alone. What a template cannot do without is then
    given as empty; one that can do without does not see it."""

    def said(**function):
        tools = [{"type": "function", "function": {"name": "f", **function}}]
        return prompt(picky, USER, tools=tools)

    empty = '{"type": "object", "properties": {}}'
    assert said() == f"(f||{empty})hello"
    assert said(description=None, parameters=None) == f"(f||{empty})hello"
    assert said(description="does", parameters={}) == "(f|does|{})hello"
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    described = {"type": "object", "properties": {"a": {"type": "string", "description": ""}}}
    assert said(parameters=parameters) == f"(f||{json.dumps(described)})hello"
    assert said(description="", parameters=parameters) == f"(f||{json.dumps(parameters)})hello"


def test_a_template_that_would_not_end(templated):
    answers = []
    spin = {"spin": True}

    def loop():
        answers.append(ask(templated, USER, chat_template_kwargs=spin))

    thread = threading.Thread(target=loop)
    thread.start()
    served = 0
    while not answers:  # others are served meanwhile, and it does end
        assert prompt(templated, USER) == "[user|hello|n]"
        served += 1
    thread.join()
    status, answer = answers[0]
    assert status == 400 and "longer than it may" in answer["error"]["message"]
    assert served > 1


def test_a_broken_template_does_not_start(model, tmp_path):
    path = tmp_path / "broken.jinja"
    path.write_text("{% for %}")
    server = Weft("--chat-template", path, model=model)
    server.launch()
    wait_until(lambda: server.process.poll() is not None, "the end of the process")
    assert server.process.returncode == 1
    server.stop()
