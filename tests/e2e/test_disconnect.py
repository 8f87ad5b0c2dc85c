"""A client that leaves, streaming or not, running or queued: its sequences are cancelled within two
steps, its pages are free again, and the clients that stay notice nothing."""

import json
import time

import pytest

from weft import wait_until

STEP_US = 200_000
LONG = 2000  # tokens: minutes, were it not cancelled
# Two steps, the one that was just being submitted, and a busy machine's delay.
FREED_SECONDS_MAX = 3 * STEP_US * 1e-6 + 2


def send(server, stream, path="/v1/completions", **more):
    connection = server.connect()
    body = {"prompt": "hello", "max_tokens": LONG, "stream": stream, **more}
    data = json.dumps(body).encode()
    connection.send(
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n".encode() + data
    )
    return connection


def running(server):
    return server.gauge("vllm:num_requests_running")


def waiting(server):
    return server.gauge("vllm:num_requests_waiting")


def pages_used(server):
    return server.gauge("vllm:kv_cache_usage_perc")


def leave(connection, how):
    connection.reset() if how == "reset" else connection.close()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("choices", [1, 4])
def test_running(start, stream, how, choices):
    server = start("--null-step-us", STEP_US)
    connection = send(server, stream, n=choices)
    wait_until(lambda: running(server) == choices, "the request runs")
    if stream:
        assert connection.read_head()[0] == 200
    assert pages_used(server) > 0
    leave(connection, how)
    left = time.monotonic()
    wait_until(lambda: running(server) == 0 and pages_used(server) == 0, "all is free again")
    assert time.monotonic() - left < FREED_SECONDS_MAX


@pytest.mark.parametrize("stream", [True, False])
def test_queued(start, stream):
    """One runs, one waits and leaves; the one that runs ends as if nothing had been."""
    server = start("--null-step-us", 20_000, "--max-batch", 1)
    first = send(server, True, max_tokens=100)
    wait_until(lambda: running(server) == 1, "the first runs")
    second = send(server, stream)
    wait_until(lambda: waiting(server) == 1, "the second waits")
    leave(second, "close")
    wait_until(lambda: waiting(server) == 0, "the second is forgotten")
    status, headers = first.read_head()
    assert status == 200
    body = b"".join(first.chunks())
    assert body.endswith(b"data: [DONE]\n\n")
    wait_until(lambda: pages_used(server) == 0, "all pages are free")


def test_a_hundred_leave_at_once(start):
    server = start("--null-step-us", 20_000, "--max-batch", 32)
    stays = send(server, True, max_tokens=50)
    leavers = [send(server, n % 2 == 0) for n in range(100)]
    wait_until(lambda: running(server) + waiting(server) >= 100, "all are there")
    for n, connection in enumerate(leavers):
        leave(connection, "reset" if n % 3 else "close")
    wait_until(lambda: running(server) + waiting(server) <= 1, "they are gone")
    assert stays.read_head()[0] == 200
    assert b"".join(stays.chunks()).endswith(b"data: [DONE]\n\n")
    wait_until(lambda: running(server) == 0 and pages_used(server) == 0, "all is free")
