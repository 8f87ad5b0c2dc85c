"""Start and end of the process: messages, readiness, draining. Protects command_serve.c, server.c,
listener.c and notify.c."""

import json
import re
import signal
import socket
import subprocess
import time

import pytest

from weft import Weft, events_of, wait_until

COMPLETIONS = "/v1/completions"
RUNNING = "vllm:num_requests_running"


def completion(max_tokens, stream=True):
    return {"prompt": "hello", "max_tokens": max_tokens, "stream": stream, "ignore_eos": True}


def raw(body):
    data = json.dumps(body).encode()
    return (f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def fails(*options, **more):
    """A server that does not start: its message."""
    server = Weft(*options, **more).launch()
    try:
        assert server.wait() == 1
        wait_until(lambda: server.lines, "a message")
        return server.lines[-1]
    finally:
        server.stop()


def test_the_printed_curl_line_works_as_it_stands(start):
    server = start()
    wait_until(lambda: "curl" in server.printed, "a curl line")
    line = re.search(r"curl .*", server.printed).group(0)
    out = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0 and out.stdout.rstrip().endswith("data: [DONE]"), out


def test_port_zero_prints_the_real_one(start):
    server = start("--port", 0)
    assert server.port > 0
    wait_until(lambda: f":{server.port}" in server.printed, "the address")
    assert server.get("/livez")[0] == 200


def test_a_port_in_use_is_said_at_once(model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = fails("--port", port, model=model)
    assert str(port) in message and "in use" in message and "--port" in message


def test_a_host_that_is_not_ours(model):
    assert "192.0.2.1" in fails("--host", "192.0.2.1", model=model)
    assert "no-such-host.invalid" in fails("--host", "no-such-host.invalid", model=model)


def test_a_missing_model_is_named():
    assert "/nonexistent/model.gguf" in fails(model="/nonexistent/model.gguf")


def test_a_memory_plan_that_cannot_fit_is_refused_with_numbers(model):
    message = fails("--kv-bytes", "60T", model=model)
    assert re.search(r"[0-9.]+ [KMGT]i?B", message), message


def test_ipv6_and_wildcards(start):
    server = start("--host", "::")
    server.host = "::1"
    assert server.get("/livez")[0] == 200
    wait_until(lambda: "http://[::1]:" in server.printed, "an address that can be reached")


def test_a_supervisor_is_told(start, tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(path)
        supervisor.settimeout(30)
        server = start(environment={"NOTIFY_SOCKET": path})
        assert supervisor.recv(100) == b"READY=1"
        server.signal()
        assert supervisor.recv(100) == b"STOPPING=1"
    assert server.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once(start, number):
    server = start()
    with server.connect() as idle_connection:
        idle_connection.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle_connection.read_answer()[0] == 200
        began = time.monotonic()
        server.signal(number)
        assert server.wait() == 0
        assert time.monotonic() - began < 5
        assert idle_connection.closed_by_peer()


def test_draining_step_by_step(start):
    """/ready is 503 at once, requests are taken in the delay, then refused; what runs finishes."""
    server = start("--null-step-us", 20000, "--drain-delay", 1.5, "--drain-timeout", 60)
    with server.connect() as stream:
        stream.send(raw(completion(250)))
        assert stream.read_head()[0] == 200
        chunks = stream.chunks()
        next(chunks)
        assert server.get("/ready")[0] == 200

        server.signal()
        wait_until(lambda: server.get("/ready")[0] == 503, "/ready turns 503", 1)
        status, headers, body = server.get("/readyz")
        assert status == 503 and "retry-after" in headers and json.loads(body)["error"]["message"]
        assert server.get("/health")[0] == 200
        assert server.post(COMPLETIONS, completion(1, False))[0] == 200, "still taken in the delay"

        def refused():
            status, headers, body = server.post(COMPLETIONS, completion(1, False))
            return status == 503 and (headers, json.loads(body)["error"])
        headers, error = wait_until(refused, "new requests are refused", 10)
        assert int(headers["retry-after"]) >= 1 and headers["connection"] == "close"
        assert "shutting down" in error["message"]

        rest = b"".join(chunks)
        assert b"[DONE]" in rest and b'"error"' not in rest
    assert server.wait() == 0


def test_what_outlives_the_drain_time_ends_with_an_error(start):
    server = start("--null-step-us", 20000, "--drain-timeout", 0.5)
    with server.connect() as stream, server.connect() as whole:
        stream.send(raw(completion(4000)))
        whole.send(raw(completion(4000, False)))
        status, _ = stream.read_head()
        assert status == 200
        wait_until(lambda: server.gauge(RUNNING) == 2, "both run")
        server.signal()
        body = b"".join(stream.chunks())
        *events, error, done = events_of(body)
        assert done == "[DONE]" and json.loads(error)["error"]["message"]
        status, headers, answer = whole.read_answer()
        assert status == 503 and "retry-after" in headers and json.loads(answer)["error"]
    assert server.wait() == 0
    server.stop()
    lines = [line for line in server.lines if "finish=error" in line]
    assert len(lines) == 2
    assert not any("prefill_ms" in line for line in lines), "what is not known is not told"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_now(start, number):
    server = start("--null-step-us", 20000, "--drain-delay", 600, "--drain-timeout", 600)
    with server.connect() as stream:
        stream.send(raw(completion(4000)))
        stream.read_until(b"data: ")
        server.signal()
        wait_until(lambda: server.get("/ready")[0] == 503, "/ready turns 503")
        began = time.monotonic()
        server.signal(number)
        assert server.wait() == 128 + number
        assert time.monotonic() - began < 2


def test_a_client_that_never_reads_does_not_hold_the_end_up(start):
    server = start("--null-step-us", 0, "--drain-timeout", 0.5, "--stream-buffer-bytes", "16M")
    with server.connect() as c:
        c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(50):
            c.send(raw(completion(4000)))
        wait_until(lambda: server.gauge("vllm:generation_tokens_total") >= 4000, "an answer waits")
        server.signal()
        assert server.wait(30) == 0


def test_a_failed_device_is_told_and_ends_the_process(start):
    """Whoever runs or waits hears why, /health is 503 at once, and nobody holds up the end."""
    server = start("--null-step-us", 20000, "--null-fail-step", 100, "--max-batch", 2)
    why = "the null device failed in step 100, as it was told to"
    with server.connect() as stream, server.connect() as whole, server.connect() as queued, \
            server.connect() as queued_stream, server.connect() as half_sent:
        stream.send(raw(completion(4000)))
        whole.send(raw(completion(4000, False)))
        wait_until(lambda: server.gauge(RUNNING) == 2, "two run")
        queued.send(raw(completion(1, False)))
        queued_stream.send(raw(completion(1)))
        half_sent.send(raw(completion(1))[:-1])  # it will hold an exchange up
        assert stream.read_head()[0] == 200
        *events, error, done = events_of(b"".join(stream.chunks()))
        began = time.monotonic()
        assert len(events) > 90 and done == "[DONE]"
        assert why in json.loads(error)["error"]["message"]
        status, _, body = server.get("/health")
        assert status == 503 and "the device failed" in json.loads(body)["error"]["message"]
        assert server.get("/ready")[0] == 503
        status, _, body = server.post(COMPLETIONS, completion(1, False))
        assert status == 503 and "the device failed" in json.loads(body)["error"]["message"]
        for client in (whole, queued, queued_stream):
            status, _, body = client.read_answer()
            assert status == 500
            error = json.loads(body)["error"]
            assert error["type"] == "server_error" and why in error["message"]
        assert server.wait() == 1
        assert time.monotonic() - began < 10
    server.stop()
    assert any("device_failed" in line and why in line for line in server.lines)


def test_a_failed_device_ends_an_idle_server_at_once(start):
    """With the last client gone nothing keeps the process."""
    server = start("--null-step-us", 1000, "--null-fail-step", 20)
    status, _, body = server.post(COMPLETIONS, completion(100, False))
    began = time.monotonic()
    assert status == 500 and "in step 20" in json.loads(body)["error"]["message"]
    assert server.wait() == 1
    assert time.monotonic() - began < 5
