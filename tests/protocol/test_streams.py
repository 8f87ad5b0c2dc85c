"""Streams and waiting answers: what arrives, what happens when the client leaves or does not
read. Protects the exchange's life in exchange_events.c; that nothing is left running is seen in
/metrics."""

import concurrent.futures
import json
import threading

import pytest

from weft import events_of, wait_until

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_USAGE = "vllm:kv_cache_usage_perc"


def completion(max_tokens, stream=True, **more):
    body = {"prompt": "hello", "max_tokens": max_tokens, "stream": stream, "ignore_eos": True}
    return {**body, **more}


def raw(body, path=COMPLETIONS):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def idle(server):
    """Waits until nothing runs or waits and every page is free."""
    def is_idle():
        m = server.metrics()
        total = lambda name: sum(v for k, v in m.items() if k.split("{")[0] == name)
        return total(RUNNING) == 0 and total(WAITING) == 0 and total(KV_USAGE) == 0
    wait_until(is_idle, "sequences and pages are given back", 20)


def running(server, count):
    wait_until(lambda: server.gauge(RUNNING) >= count, f"{count} sequences run", 20)


@pytest.fixture(scope="module")
def slow(model):
    """Two sequences at once, 20 ms a step: requests can be caught at every stage."""
    from weft import Weft
    with Weft("--null-step-us", 20000, "--max-batch", 2, "--max-queue", 8, model=model) as server:
        yield server


def test_the_head_of_a_stream_comes_before_its_first_token(start):
    server = start("--null-step-us", 300000)
    with server.connect(timeout=30) as c:
        c.send(raw(completion(3)))
        status, headers = c.read_head()
        assert status == 200
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-cache" and headers["x-accel-buffering"] == "no"
        assert headers["transfer-encoding"] == "chunked" and "x-request-id" in headers


@pytest.mark.parametrize("path,body", [
    (COMPLETIONS, completion(5)),
    (CHAT, {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "stream": True,
            "ignore_eos": True}),
])
def test_a_stream_is_whole_events_and_ends_in_done(server, path, body):
    status, _, data = server.post(path, body)
    assert status == 200
    *events, done = events_of(data)
    assert done == "[DONE]"
    parsed = [json.loads(e) for e in events]
    assert len({p["id"] for p in parsed}) == 1
    assert parsed[-1]["choices"][0]["finish_reason"] == "length"


def test_tokens_come_as_they_are_made(start):
    server = start("--null-step-us", 50000)
    with server.connect() as c:
        c.send(raw(completion(8)))
        c.read_head()
        pieces = list(c.chunks())
        assert len(pieces) >= 6, "several tokens came in one piece: something buffers"
        for piece in pieces:
            assert piece.endswith(b"\n\n"), "an event was cut in two"


@pytest.mark.parametrize("stream", [True, False])
def test_errors_before_the_first_token_have_their_status(server, stream):
    request = {"prompt": "x", "max_tokens": -1, "stream": stream}
    status, headers, body = server.post(COMPLETIONS, request)
    assert status == 400 and headers["content-type"] == "application/json"
    assert json.loads(body)["error"]["param"] == "max_tokens"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", ["close", "reset", "half-close"])
def test_a_running_request_whose_client_leaves_is_cancelled(slow, stream, leave):
    with slow.connect() as c:
        c.send(raw(completion(4000, stream)))
        if stream:
            c.read_until(b"data: ")
        else:
            running(slow, 1)
        if leave == "close":
            c.close()
        elif leave == "reset":
            c.reset()
        else:
            c.socket.shutdown(1)
            assert b"[DONE]" not in c.read_rest()
        idle(slow)


@pytest.mark.parametrize("stream", [True, False])
def test_a_queued_request_whose_client_leaves_is_cancelled(slow, stream):
    with slow.connect() as a, slow.connect() as b, slow.connect() as late:
        a.send(raw(completion(4000)))
        b.send(raw(completion(4000)))
        running(slow, 2)
        late.send(raw(completion(4000, stream)))
        wait_until(lambda: slow.gauge(WAITING) >= 1, "the third request waits", 20)
        late.close()
        wait_until(lambda: slow.gauge(WAITING) == 0, "the third request is gone", 20)
        assert slow.gauge(RUNNING) == 2
    idle(slow)


def test_clients_that_leave_while_their_body_is_parsed_leave_nothing(server):
    """The result of the prepare thread finds nobody."""
    body = raw(completion(500, prompt="hello " * 600))
    for i in range(40):
        with server.connect() as c:
            c.send(body)
            if i % 2:
                c.reset()
    idle(server)


def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing(server):
    for _ in range(20):
        with server.connect() as c:
            c.send(raw(completion(500))[:-5])
            c.reset()
    idle(server)


def test_pipelined_requests_behind_a_client_that_left_are_not_run(slow):
    with slow.connect() as c:
        c.send(raw(completion(4000)) * 3)
        running(slow, 1)
        c.reset()
    idle(slow)


def test_a_full_queue_is_429_with_the_time_to_wait(slow):
    clients = []
    try:
        # The request that is to be refused comes when the queue is full: earlier it would be queued
        # itself, behind answers that take minutes.
        for waiting in [0, 0, *range(1, 9)]:
            clients.append(slow.connect())
            clients[-1].send(raw(completion(4000)))
            running(slow, min(len(clients), 2))
            wait_until(lambda: slow.gauge(WAITING) == waiting, f"{waiting} wait", 20)
        status, headers, body = slow.post(COMPLETIONS, completion(1, False))
        assert status == 429
        assert 1 <= int(headers["retry-after"]) <= 60
        assert 1000 <= int(headers["retry-after-ms"]) <= 60000
        assert json.loads(body)["error"]["code"] == "rate_limit_exceeded"
    finally:
        for c in clients:
            c.close()
    idle(slow)


def test_a_reader_that_never_reads_is_cut(start):
    """Its buffer is bounded; the pages go back to those who read."""
    server = start("--null-step-us", 0, "--stream-buffer-bytes", 65536)
    with server.connect() as c:
        c.socket.setsockopt(1, 8, 4096)  # SO_RCVBUF
        for _ in range(8):
            c.send(raw(completion(4000, logprobs=5)))
        line = server.wait_log("slow_reader_cut")
        assert int(line.split("unread_bytes=")[1].split()[0]) <= 65536
    idle(server)


def test_quiet_streams_get_comments(start):
    """Queued behind a long one and while it prefills: something comes before a proxy gives up."""
    server = start("--null-step-us", 10000, "--max-batch", 1, "--sse-keepalive", 1)
    with server.connect() as first, server.connect() as second:
        first.send(raw(completion(4000)))
        running(server, 1)
        second.send(raw(completion(2)))
        status, _ = second.read_head()
        assert status == 200
        second.read_until(b": keep-alive\n\n")
        first.close()
        second.read_until(b"data: [DONE]\n\n")


def test_no_comments_when_switched_off(start):
    server = start("--null-step-us", 1500000, "--sse-keepalive", 0)
    assert b"keep-alive" not in server.post(COMPLETIONS, completion(2))[2]


def test_two_hundred_streams_are_whole_and_none_is_mixed_with_another(start):
    server = start("--null-step-us", 2000, "--max-batch", 64)
    barrier = threading.Barrier(200)

    def one(i):
        barrier.wait()
        body = completion(20 + i % 7, return_token_ids=True)
        status, _, data = server.post(COMPLETIONS, body, headers={"X-Request-Id": f"s{i}"})
        assert status == 200
        *events, done = events_of(data)
        assert done == "[DONE]"
        parsed = [json.loads(e) for e in events]
        ids = sum((p["choices"][0].get("token_ids") or [] for p in parsed if p["choices"]), [])
        return {p["id"] for p in parsed}, len(ids)

    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(one, range(200)))
    names = [name for name, _ in answers]
    assert all(len(n) == 1 for n in names) and len(set().union(*names)) == 200
    assert [count for _, count in answers] == [20 + i % 7 for i in range(200)]
    idle(server)


def test_a_storm_of_clients_leaves_nothing(server):
    """Streams, whole answers, closes, resets, half-closes and broken bodies, all at once."""
    def one(i):
        with server.connect() as c:
            c.send(raw(completion(5 + i % 60, i % 3 > 0)))
            how = i % 6
            if how == 0:
                c.reset()
            elif how == 1:
                c.read_until(b"\r\n")
                c.close()
            elif how == 2:
                c.socket.shutdown(1)
                c.read_rest()
            elif how == 3:
                c.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                c.read_until(b"\r\n")
                c.reset()
            else:
                assert c.read_answer()[0] == 200
                c.send(raw(completion(2, False)))
                assert c.read_answer()[0] == 200

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(one, range(600)))
    idle(server)
    assert server.get("/health")[0] == 200
