"""HTTP/1 on the wire, raw: where a request ends, keep-alive and pipelining, slow and hostile
senders. Protects http.c, http_request.c and the traps of libmicrohttpd that they step around."""

import json
import os
import signal
import time

import pytest

from weft import wait_until

COMPLETIONS = "/v1/completions"
BODY = json.dumps({"prompt": "hello", "max_tokens": 2}).encode()
STREAM = json.dumps({"prompt": "hello", "max_tokens": 2, "stream": True}).encode()
LIMIT = 1 << 20  # --max-body-bytes of the module's server


def post(*headers, body=BODY, version="1.1", path=COMPLETIONS, length=True):
    lines = [f"POST {path} HTTP/{version}", "Host: x", "Content-Type: application/json", *headers]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def chunked(body, size=7):
    parts = [body[i:i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


@pytest.mark.parametrize("headers,status", [
    (["Content-Length: 5", "Transfer-Encoding: chunked"], 400),
    (["Transfer-Encoding: chunked", "Content-Length: 5"], 400),
    (["Content-Length: 5", "Content-Length: 5"], 400),
    (["Content-Length: 5", "Content-Length: 6"], 400),
    (["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], 400),
    (["Transfer-Encoding: gzip"], 501),
    (["Transfer-Encoding: gzip, chunked"], 501),
    (["Transfer-Encoding: chunked, chunked"], 501),
    (["Transfer-Encoding: xchunked"], 501),
    (["Transfer-Encoding: identity"], 501),
    (["Content-Length: 5, 5"], 400),
    (["Content-Length: -1"], 400),
    (["Content-Length: 0x5"], 400),
    (["Content-Length: 99999999999999999999999"], 400),
    (["Content-Length: 18446744073709551615"], 413),
    (["Content-Length : 5"], 400),
    (["Content-Length\t: 5"], 400),
    ([" Content-Length: 5"], 400),
    (["Transfer-Encoding : chunked"], 400),
    (["Trans(fer)-Encoding: chunked"], 400),
    (["Host: y"], 400),
])
@pytest.mark.parametrize("method,path", [("POST", COMPLETIONS), ("GET", "/version")])
def test_ambiguous_lengths_are_refused_and_no_more_is_read(server, headers, status, method, path):
    """Who disagrees with a proxy about where a request ends lets one client speak for another."""
    smuggled = b"0\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\nX-Request-Id: smuggled\r\n\r\n"
    with server.connect() as c:
        c.send("\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers]).encode()
               + b"\r\n\r\n" + smuggled)
        began = time.monotonic()
        got, answer_headers, body = c.read_answer()
        # libmicrohttpd's own page for a length that overflows is a 413.
        assert got == status or (got == 413 and "9999" in headers[0])
        rest = c.read_rest()
        assert b"smuggled" not in rest and not rest.startswith(b"HTTP/")
        assert time.monotonic() - began < 5


def test_a_target_with_scheme_and_host_is_a_path(server):
    """RFC 9112 section 3.2.2: a server must take it."""
    for target, status in (("http://x/version", 200), ("HTTPS://x:1/version?a", 200),
                           ("http://x", 404), ("ftp://x/version", 404)):
        with server.connect() as c:
            c.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")
            assert c.read_answer()[0] == status, target


def test_a_transfer_coding_in_http_1_0_is_refused(server):
    with server.connect() as c:
        c.send(post("Transfer-Encoding: chunked", version="1.0", length=False, body=chunked(BODY)))
        assert c.read_answer()[0] == 400
        assert c.closed_by_peer()


@pytest.mark.parametrize("broken", [
    b"GARBAGE\r\n\r\n",
    b"GET /version HTTP/1.1\r\n\r\n",                     # no Host
    b"GET /version HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
    b"GET /ver sion HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /version HTTP/9.9\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # a TLS hello
    b"\0" * 64 + b"\r\n\r\n",
])
def test_malformed_requests_harm_nobody(server, broken):
    with server.connect(timeout=20) as c:
        c.send(broken)
        c.socket.shutdown(1)
        first = c.read_rest()
        assert first == b"" or first.split()[1] in (b"400", b"404", b"505"), first
    assert server.get("/livez")[0] == 200


def test_chunked_bodies_are_read(server):
    with server.connect() as c:
        c.send(post("Transfer-Encoding: chunked", length=False, body=chunked(BODY)))
        assert c.read_answer()[0] == 200
        # and the connection is at the right place for the next request
        c.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert c.read_answer()[0] == 200


@pytest.mark.parametrize("broken", [
    b"zz\r\nabc\r\n0\r\n\r\n", b"-5\r\nabc", b"5\r\nabcdefgh\r\n0\r\n\r\n",
    b"ffffffffffffffffff\r\nabc"])
def test_broken_chunks_end_the_connection(server, broken):
    with server.connect() as c:
        c.send(post("Transfer-Encoding: chunked", length=False, body=broken))
        rest = c.read_rest()
        assert rest == b"" or rest.startswith(b"HTTP/1.1 4")


def test_a_client_that_leaves_in_its_body_is_noticed_at_once(start):
    """Else its connection would be held, and the end of the server held up, until a deadline."""
    server = start()
    halves = [post()[:-10],
              post("Transfer-Encoding: chunked", length=False, body=b"5\r\nab")]
    for i in range(50):
        with server.connect() as c:
            c.send(halves[i % 2])
    assert server.get("/livez")[0] == 200
    began = time.monotonic()
    server.signal()
    assert server.wait() == 0
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("sent", [b"", b"GET /ver", b"GET /version HTTP/1.1\r\nHos", post()[:90]])
def test_a_client_that_leaves_in_its_header_is_noticed_soon(start, sent):
    """Bytes and end come to the server together; it would wait for more until the deadline."""
    server = start("--header-timeout", "60", "--max-connections", "60")
    server.signal(signal.SIGSTOP)
    for _ in range(50):
        with server.connect() as c:
            c.send(sent)
    server.signal(signal.SIGCONT)
    wait_until(lambda: descriptors(server) < 30, "connections of clients that left are closed", 10)


def test_a_half_closed_client_gets_what_needs_no_waiting(server):
    with server.connect() as c:
        c.send(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        c.socket.shutdown(1)
        assert c.read_answer()[0] == 200
        assert c.closed_by_peer()


def test_requests_may_be_cut_anywhere(server):
    request = post("X-Request-Id: cut-anywhere")
    with server.connect() as c:
        for i in range(0, len(request), 3):
            c.send(request[i:i + 3])
        assert c.read_answer()[0] == 200


def test_keep_alive_and_pipelining_keep_the_order(server):
    ids = [f"p{i}" for i in range(50)]
    with server.connect() as c:
        c.send(b"".join(
            f"GET /version HTTP/1.1\r\nHost: x\r\nX-Request-Id: {i}\r\n\r\n".encode() for i in ids))
        assert [c.read_answer()[1]["x-request-id"] for _ in ids] == ids


def test_requests_behind_a_stream_wait_for_their_turn(server):
    with server.connect() as c:
        c.send(post("X-Request-Id: first", body=STREAM) + post("X-Request-Id: second")
               + b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Request-Id: third\r\n\r\n")
        answers = [c.read_answer() for _ in range(3)]
        assert [a[1]["x-request-id"] for a in answers] == ["first", "second", "third"]
        assert answers[0][2].endswith(b"data: [DONE]\n\n")
        assert [a[0] for a in answers] == [200, 200, 200]


def test_many_rounds_on_one_connection(server):
    with server.connect() as c:
        for i in range(40):
            c.send(post(body=STREAM if i % 2 else BODY))
            assert c.read_answer()[0] == 200


@pytest.mark.parametrize("body", [BODY, STREAM])
def test_http_1_0_gets_no_chunks_and_a_closed_connection(server, body):
    with server.connect() as c:
        c.send(post(body=body, version="1.0"))
        status, headers, answer = c.read_answer()
        assert status == 200 and "transfer-encoding" not in headers
        assert answer.endswith(b"data: [DONE]\n\n") if body is STREAM else json.loads(answer)
        assert c.closed_by_peer()


def test_connection_close_is_honoured(server):
    with server.connect() as c:
        c.send(post("Connection: close"))
        assert c.read_answer()[0] == 200
        assert c.closed_by_peer()


def test_expect_100_continue_is_answered_before_the_body(server):
    with server.connect() as c:
        c.send(post("Expect: 100-continue", body=b"", length=False)[:-2]
               + b"Content-Length: %d\r\n\r\n" % len(BODY))
        assert c.read_answer()[0] == 100
        c.send(BODY)
        assert c.read_answer()[0] == 200


@pytest.mark.parametrize("path,length,status", [(COMPLETIONS, LIMIT + 1, 413), ("/nope", 10, 404),
                                                ("/health", 10, 405)])
def test_expect_100_continue_is_refused_without_reading(server, path, length, status):
    with server.connect() as c:
        c.send(post("Expect: 100-continue", path=path, body=b"", length=False)[:-2]
               + b"Content-Length: %d\r\n\r\n" % length)
        got, headers, _ = c.read_answer()
        assert got == status and headers["connection"] == "close"
        assert c.closed_by_peer()


def test_a_declared_body_over_the_limit_is_413_at_once(server):
    with server.connect() as c:
        c.send(post(length=False, body=b"")[:-2] + b"Content-Length: %d\r\n\r\n" % (LIMIT + 1))
        status, headers, body = c.read_answer()
        assert status == 413 and headers["connection"] == "close"
        assert str(LIMIT) in json.loads(body)["error"]["message"]


def test_a_chunked_body_over_the_limit_is_413_at_its_end(server):
    with server.connect() as c:
        c.send(post("Transfer-Encoding: chunked", length=False,
                    body=chunked(b" " * (LIMIT + 1), size=65536)))
        assert c.read_answer()[0] == 413
        c.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert c.read_answer()[0] == 200


def test_a_chunked_body_without_end_is_cut(server):
    with server.connect() as c:
        with pytest.raises(OSError):
            c.send(post("Transfer-Encoding: chunked", length=False, body=b""))
            while True:
                c.send(b"10000\r\n" + b" " * 65536 + b"\r\n")
    assert server.get("/livez")[0] == 200


def test_a_body_of_exactly_the_limit_is_taken(server):
    body = BODY + b" " * (LIMIT - len(BODY))
    assert server.post(COMPLETIONS, body, headers={"Content-Type": "application/json"})[0] == 200


@pytest.mark.parametrize("flood", [
    "GET /version HTTP/1.1\r\nHost: x\r\n" + "X-Flood: {}\r\n".format("y" * 100) * 1000 + "\r\n",
    "GET /version HTTP/1.1\r\nHost: x\r\nX-Flood: " + "y" * 100000 + "\r\n\r\n",
    "GET /" + "y" * 100000 + " HTTP/1.1\r\nHost: x\r\n\r\n",
])
def test_header_floods_are_refused(server, flood):
    with server.connect() as c:
        try:
            c.send(flood)
            answer = c.read_rest()
        except OSError:
            answer = b""
        assert answer == b"" or answer.split()[1] in (b"431", b"414", b"413", b"400")
    assert server.get("/livez")[0] == 200


def dribble(connection, data, limit_seconds):
    """Sends a byte at a time until the server has closed; returns how long that took."""
    began = time.monotonic()
    connection.socket.settimeout(0.1)
    for byte in data:
        try:
            connection.socket.send(bytes([byte]))
            if connection.socket.recv(1) == b"":
                return time.monotonic() - began
        except TimeoutError:
            pass
        except OSError:
            return time.monotonic() - began
        assert time.monotonic() - began < limit_seconds, "still open"
    raise AssertionError("everything was sent and the connection is still open")


@pytest.mark.parametrize("before,data", [
    ("", "GET /version HTTP/1.1\r\nHost: x\r\nX-Slow: " + "z" * 500),
    ("", "G" * 500),
    ("GET /version HTTP/1.1\r\nHost: x\r\n", "X-Slow: " + "z" * 500),
])
def test_a_header_that_dribbles_in_is_cut(start, before, data):
    server = start("--header-timeout", 1)
    with server.connect() as c:
        c.send(before)
        assert dribble(c, data.encode(), 15) < 10


def test_the_second_request_of_a_connection_may_not_dribble_either(start):
    server = start("--header-timeout", 1)
    with server.connect() as c:
        c.send("GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        assert c.read_answer()[0] == 200
        c.send("GET /version HTTP/1.1\r\n")
        assert dribble(c, b"X-Slow: " + b"z" * 500, 15) < 10


def test_silent_connections_are_closed(start):
    server = start("--header-timeout", 1)
    with server.connect(timeout=15) as c:
        assert c.closed_by_peer()


def test_idle_connections_are_closed_after_the_idle_time(start):
    server = start("--idle-timeout", 1, "--header-timeout", 60)
    with server.connect(timeout=15) as c:
        c.send("GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        assert c.read_answer()[0] == 200
        assert c.closed_by_peer()


def test_connections_over_the_limit_wait_for_their_turn(start):
    server = start("--max-connections", 4)
    held = [server.connect() for _ in range(4)]
    for c in held:
        c.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert c.read_answer()[0] == 200
    late = [server.connect() for _ in range(4)]
    for c in late:
        c.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    late[0].socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        late[0].socket.recv(1)
    for c in held:
        c.close()
    for c in late:
        c.socket.settimeout(15)
        assert c.read_answer()[0] == 200
        c.close()
