"""`curl -N` as in the README: events arrive one by one, and the line that the server prints
works."""

import json
import shlex
import shutil
import subprocess
import time

import pytest

STEP_US = 50_000
TOKENS = 20

pytestmark = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")


def events(process):
    """(time, data) of each event as it arrives."""
    for line in process.stdout:
        if line.startswith("data: "):
            yield time.monotonic(), line[len("data: "):].rstrip("\n")


def curl(*arguments):
    command = ["curl", "-sS", "--max-time", "60", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_streams_arrive_as_they_are_made(start):
    server = start("--null-step-us", STEP_US)
    body = json.dumps({"prompt": "hello", "max_tokens": TOKENS, "stream": True})
    process = curl("-N", "-d", body, server.url + "/v1/completions")
    got = list(events(process))
    assert process.wait() == 0
    assert got[-1][1] == "[DONE]"
    # Were they held back anywhere, they would all come at once.
    assert got[-1][0] - got[0][0] > STEP_US * 1e-6 * TOKENS / 2


def test_the_line_that_the_server_prints_works(demo_server):
    line = next(l for l in demo_server.printed.splitlines() if l.lstrip().startswith("curl "))
    process = curl(*shlex.split(line)[1:])
    got = [data for _, data in events(process)]
    assert process.wait() == 0
    assert got[-1] == "[DONE]"
    pieces = [json.loads(data)["choices"] for data in got[:-1]]
    text = "".join(p[0]["delta"].get("content") or "" for p in pieces if p)
    assert len(text) > 20


def test_a_whole_answer_and_its_headers(null_server):
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3})
    process = curl("-i", "-H", "Content-Type: application/json", "-d", body,
                   null_server.url + "/v1/chat/completions")
    head, _, answer = process.communicate()[0].partition("\n\n")
    assert process.returncode == 0
    assert head.startswith("HTTP/1.1 200")
    assert "content-type: application/json" in head.lower()
    assert json.loads(answer)["usage"]["completion_tokens"] == 3
