"""What each path and method answers: status, headers, JSON errors. Protects the table in routes.c
and the rules about headers in exchange.c and limits.c."""

import json
import re

import pytest

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
PAGES = ["/v1/models", "/v1/models/tiny", "/health", "/livez", "/ready", "/readyz", "/metrics",
         "/version"]
REQUEST = {"prompt": "hello", "max_tokens": 2}


def error_of(body):
    error = json.loads(body)["error"]
    assert isinstance(error["message"], str) and error["message"]
    assert isinstance(error["type"], str)
    assert {"param", "code"} <= error.keys()
    return error


@pytest.mark.parametrize("path", PAGES)
def test_every_page_answers_get_and_head_alike(server, path):
    status, headers, body = server.get(path)
    assert status == 200 and body
    head_status, head_headers, nothing = server.request("HEAD", path)
    assert head_status == 200 and nothing == b""
    assert head_headers["content-type"] == headers["content-type"]
    if path != "/metrics":
        assert head_headers["content-length"] == headers["content-length"]


def test_nothing_follows_the_header_of_an_answer_to_head(server):
    """A stray chunk after it would be read as the next answer."""
    with server.connect() as c:
        c.send("HEAD /version HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert c.read_answer(head=True)[0] == 200
        status, _, body = c.read_answer()
        assert status == 200 and json.loads(body) == {"status": "ok"}


def test_version_names_version_and_commit(server):
    version = json.loads(server.get("/version")[2])
    assert re.match(r"\d+\.\d+", version["version"]) and version["commit"]


def test_metrics_are_prometheus_text(server):
    _, headers, _ = server.get("/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/chat", "/v1/models/", "/health/", "/healthx",
                                  "/health%00", "/v1/chat/completions/x"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_unknown_paths_are_404(server, path, method):
    status, headers, body = server.request(method, path, body=b"{}" if method == "POST" else None)
    assert status == 404
    assert headers["content-type"] == "application/json"
    error_of(body)


def test_an_unknown_model_is_404_with_its_code(server):
    status, _, body = server.get("/v1/models/no-such%20model")
    assert status == 404
    error = error_of(body)
    assert error["code"] == "model_not_found" and "no-such model" in error["message"]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_pages_refuse_other_methods(server, path, method):
    status, headers, body = server.request(method, path, body=b"x")
    assert status == 405 and headers["allow"] == "GET, HEAD, OPTIONS"
    error_of(body)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_endpoints_refuse_other_methods(server, path, method):
    status, headers, body = server.request(method, path)
    assert status == 405 and headers["allow"] == "POST, OPTIONS"
    error_of(body)


def test_head_of_an_endpoint_is_405_without_a_body(server):
    status, headers, body = server.request("HEAD", CHAT)
    assert status == 405 and headers["allow"] == "POST, OPTIONS" and body == b""


@pytest.mark.parametrize("path,allow", [(CHAT, "POST, OPTIONS"), ("/health", "GET, HEAD, OPTIONS")])
def test_options_say_what_is_allowed(server, path, allow):
    status, headers, body = server.request("OPTIONS", path)
    assert status == 204 and headers["allow"] == allow and body == b""


def test_options_star(server):
    with server.connect() as c:
        c.send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, _ = c.read_answer()
        assert status == 204 and "POST" in headers["allow"]


@pytest.mark.parametrize("path", ["/health", "/nope", "/v1/models/nope"])
def test_a_request_id_is_made_when_none_is_given(server, path):
    first = server.get(path)[1]["x-request-id"]
    second = server.get(path)[1]["x-request-id"]
    assert first != second and len(first) >= 16


@pytest.mark.parametrize("given", ["a", "7f3c-88_x.Y:z/1+2=@~", "i" * 128])
def test_a_request_id_is_taken_over(server, given):
    for path, body in [("/version", None), ("/nope", None), (COMPLETIONS, b"{")]:
        method = "POST" if body else "GET"
        headers = {"X-Request-Id": given, "Content-Type": "application/json"}
        assert server.request(method, path, body, headers)[1]["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "two words", 'quo"te', "i" * 129, "semi;colon", "\xe4"])
def test_a_request_id_that_could_do_harm_is_replaced(server, given):
    _, headers, _ = server.get("/version", headers={"X-Request-Id": given.encode("latin-1")})
    got = headers["x-request-id"]
    assert got != given and len(got) >= 16


def test_one_line_in_the_log_tells_the_request(server):
    server.post(COMPLETIONS, REQUEST, headers={"X-Request-Id": "line-of-log"})
    line = server.log_of("line-of-log")
    assert line["method"] == "POST" and line["path"] == COMPLETIONS and line["status"] == "200"
    assert int(line["generated_tokens"]) == 2 and line["finish"] == "length"
    assert {"prompt_tokens", "queue_ms", "prefill_ms", "decode_ms"} <= line.keys()
    assert not any("hello" in l for l in server.lines), "a prompt is in the log"


@pytest.mark.parametrize("kind", [
    "application/json", "application/json; charset=utf-8", "Application/JSON;x=y",
    "application/x-www-form-urlencoded", None])
def test_content_types_that_are_taken(server, kind):
    headers = {"Content-Type": kind} if kind else {}
    status, _, body = server.post(COMPLETIONS, json.dumps(REQUEST).encode(), headers=headers)
    assert status == 200, body


@pytest.mark.parametrize("kind", [
    "text/plain", "multipart/form-data; boundary=x", "application/jsonx"])
def test_content_types_that_are_not(server, kind):
    status, _, body = server.post(COMPLETIONS, json.dumps(REQUEST).encode(),
                                  headers={"Content-Type": kind})
    assert status == 400 and "application/json" in error_of(body)["message"]


def test_a_form_is_not_json(server):
    status, _, body = server.post(COMPLETIONS, b"prompt=hello",
                                  headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert status == 400
    error_of(body)


def test_a_form_that_looks_like_json_can_be_refused(start):
    server = start("--strict-content-type")
    status, _, _ = server.post(COMPLETIONS, json.dumps(REQUEST).encode(),
                               headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert status == 400


def test_a_coded_body_is_415(server):
    status, _, body = server.post(COMPLETIONS, b"\x1f\x8b", headers={
        "Content-Type": "application/json", "Content-Encoding": "gzip"})
    assert status == 415
    error_of(body)
    status, _, _ = server.post(COMPLETIONS, REQUEST, headers={"Content-Encoding": "identity"})
    assert status == 200


def test_broken_json_is_400_and_the_connection_lives_on(server):
    with server.connect() as c:
        for body in (b"{", b"", b"[]", b"\xff\xfe", b'{"prompt": "\xc3("}', b"[" * 5000):
            c.send(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   b"Content-Length: %d\r\n\r\n%s" % (COMPLETIONS.encode(), len(body), body))
            status, _, answer = c.read_answer()
            assert status == 400, answer
            error_of(answer)
