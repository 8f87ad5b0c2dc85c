"""Forms and templates made to take for ever: each is answered within seconds, taken or 400, and
while they keep coming another client's stream runs as fast as it does alone, and requests with
forms of their own are served. Protects the server's other clients from one that is hostile."""

import json
import threading
import time

import pytest

from weft import Weft, events_of

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
STREAM_TOKENS = 400
STEP_US = 2000
SLOWER_MAX = 2.0  # undisturbed is 1; test machines are busy with other tests
ANSWER_SECONDS_MAX = 20


def doubling(kind):
    """$defs in which each refers twice to the next."""
    last = 40
    definitions = {f"d{last}": {"type": "object"}}
    for i in range(last):
        twice = [{"$ref": f"#/$defs/d{i + 1}"}] * 2
        definitions[f"d{i}"] = {kind: twice, "minProperties": i}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


def overlapping_patterns():
    patterns = {f"^(a|b)*a(a|b){{{i}}}$": {"type": "integer"} for i in range(3, 13)}
    return {"type": "object", "patternProperties": patterns}


# What is asked, and the statuses that may come of it.
HOSTILE = {
    "alternatives multiplied": ({"guided_json": {"allOf": [
        {"anyOf": [{"properties": {f"{k}{i}": {"type": "integer"}}} for k in "ab"]}
        for i in range(24)]}}, {400}),
    "references doubled by allOf": ({"guided_json": doubling("allOf")}, {200, 400}),
    "references doubled by anyOf": ({"guided_json": doubling("anyOf")}, {200, 400}),
    "overlapping patterns": ({"guided_json": overlapping_patterns()}, {400}),
    "a pattern without a small automaton": ({"guided_json": {
        "type": "string", "pattern": "^(a|b)*a(a|b){20}$", "maxLength": 4000}}, {400}),
    "a long enum": ({"guided_json": {"enum": [f"x{i}" for i in range(50000)]}}, {200, 400}),
    "quantifiers on quantifiers": (
        {"guided_regex": "((a{1,1000}){1,1000}){1,1000}b"}, {200, 400}),
    "nested stars": ({"guided_regex": "(((((a*)*)*)*)*)*(a+)+b"}, {200, 400}),
    "groups in groups": ({"guided_regex": "(" * 5000 + "a" + ")" * 5000}, {400}),
    "a grammar that loops": ({"guided_grammar": "root ::= a\na ::= b\nb ::= a\n"}, {400}),
    "a grammar that begins with itself": (
        {"guided_grammar": 'root ::= root "a" | "a"'}, {400}),
    "a grammar of many rules": ({"guided_grammar": "root ::= " + " | ".join(
        f"r{i}" for i in range(30000)) + "\n" + "".join(
        f'r{i} ::= "{i}" [a-z]+ root?\n' for i in range(30000))}, {200, 400}),
    "many tools, each of them slow": ({"tool_choice": "required", "tools": [
        {"type": "function", "function": {"name": f"f{i}", "strict": True, "parameters": {
            "properties": {"p": {"type": "string", "pattern": f"^(a|b)*a(a|b){{11}}{i}$"}}}}}
        for i in range(128)]}, {200, 400}),
    "arrays in arrays": ("[" * 10000 + "]" * 10000, {400}),
    "schemas in schemas": ('{"guided_json":' + '{"items":' * 10000 + "{}" + "}" * 10001, {400}),
    "a template that loops": ({"chat_template_kwargs": {"rounds": 100000}}, {400}),
    "a template that grows": ({"chat_template_kwargs": {"doublings": 60}}, {400}),
}


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    """Its template goes round as often as the request says."""
    path = tmp_path_factory.mktemp("template") / "template.jinja"
    path.write_text(
        "{% set ns = namespace(s='x') %}"
        "{% for i in range(rounds or 0) %}{% for j in range(rounds) %}{% endfor %}{% endfor %}"
        "{% for i in range(doublings or 0) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}")
    options = ["--null-step-us", STEP_US, "--chat-template", path, "--tool-parser", "hermes"]
    with Weft(*options, model=model) as running:
        yield running


def hostile_body(asked):
    messages = [{"role": "user", "content": "hi"}]
    if isinstance(asked, str):
        asked = asked if asked.startswith("{") else f'{{"guided_json":{asked}}}'
        return asked[:-1] + f',"messages":{json.dumps(messages)}' + "}"
    return json.dumps({"messages": messages, "max_tokens": 1, **asked})


def post(server, asked):
    began = time.monotonic()
    headers = {"Content-Type": "application/json"}
    status, _, data = server.post(CHAT, hostile_body(asked).encode(), headers=headers)
    return status, json.loads(data), time.monotonic() - began


@pytest.mark.parametrize("name", HOSTILE)
def test_each_is_answered_in_time(server, name):
    asked, statuses = HOSTILE[name]
    status, answer, seconds = post(server, asked)
    assert status in statuses, answer
    assert status == 200 or answer["error"]["message"]
    assert seconds < ANSWER_SECONDS_MAX


def stream_seconds(server):
    """From the first token of a stream to its last."""
    body = {"prompt": "abc", "max_tokens": STREAM_TOKENS, "stream": True, "ignore_eos": True}
    with server.connect() as c:
        data = json.dumps(body).encode()
        c.send(f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
               f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        status, _ = c.read_head()
        assert status == 200
        chunks = c.chunks()
        first = next(chunks)
        began = time.monotonic()
        text = b"".join([first, *chunks])
    assert events_of(text)[-1] == "[DONE]"
    return time.monotonic() - began


def test_others_are_served_at_full_speed_meanwhile(server):
    alone = min(stream_seconds(server) for _ in range(2))
    done = threading.Event()
    counts = [0] * 4

    def annoy(number):
        asked = [a for a, _ in HOSTILE.values()]
        while not done.is_set():
            post(server, asked[(counts[number] * 5 + number) % len(asked)])
            counts[number] += 1

    annoyers = [threading.Thread(target=annoy, args=(n,)) for n in range(4)]
    for annoyer in annoyers:
        annoyer.start()
    try:
        disturbed = min(stream_seconds(server) for _ in range(2))
        fresh = {"type": "integer", "maximum": counts[0]}
        status, _, seconds = post(server, {"guided_json": fresh})
    finally:
        done.set()
        for annoyer in annoyers:
            annoyer.join()
    assert sum(counts) >= 8, "nobody was annoying"
    assert disturbed < alone * SLOWER_MAX, f"{alone:.2f} s alone, {disturbed:.2f} s in company"
    assert status == 200 and seconds < ANSWER_SECONDS_MAX
