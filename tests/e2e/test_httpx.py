"""`httpx`, whole answers and streams, on connections that are kept: what a hand-written client
does."""

import json

import httpx
import pytest

REQUEST = {"prompt": "hello", "max_tokens": 5}


@pytest.fixture(scope="module")
def client(null_server):
    with httpx.Client(base_url=null_server.url, timeout=60) as made:
        yield made


def lines_of(response):
    return [l[len("data: "):] for l in response.iter_lines() if l.startswith("data: ")]


def test_whole_answer(client):
    response = client.post("/v1/completions", json=REQUEST)
    assert response.status_code == 200
    assert response.json()["usage"]["completion_tokens"] == 5


def test_stream(client):
    with client.stream("POST", "/v1/completions", json={**REQUEST, "stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        data = lines_of(response)
    assert data[-1] == "[DONE]"
    whole = client.post("/v1/completions", json=REQUEST).json()["choices"][0]["text"]
    pieces = [json.loads(d)["choices"][0]["text"] for d in data[:-1] if json.loads(d)["choices"]]
    assert "".join(pieces) == whole


def test_a_connection_serves_many_requests(null_server):
    """Streams included: each ends without closing the connection."""
    ports = set()
    with httpx.Client(base_url=null_server.url, timeout=60) as client:
        for n in range(10):
            body = {**REQUEST, "stream": n % 2 == 0}
            with client.stream("POST", "/v1/completions", json=body) as response:
                assert response.status_code == 200
                stream = response.extensions["network_stream"]
                ports.add(stream.get_extra_info("client_addr")[1])
                response.read()
    assert len(ports) == 1


def test_errors_leave_the_connection_usable(client):
    for _ in range(3):
        wrong = client.post("/v1/completions", json={**REQUEST, "temperature": "hot"})
        assert wrong.status_code == 400
        assert wrong.json()["error"]["param"] == "temperature"
        assert client.post("/v1/completions", json=REQUEST).status_code == 200


def test_a_chunked_request_body(client):
    data = json.dumps(REQUEST).encode()
    pieces = (data[i : i + 7] for i in range(0, len(data), 7))
    headers = {"Content-Type": "application/json"}
    response = client.post("/v1/completions", content=pieces, headers=headers)
    assert response.status_code == 200


def test_text_of_all_scripts_survives(client):
    """On the null device the answer is the prompt again."""
    text = "naïve Ελλάδα Москва 北京 🚀🌕 👩‍💻"
    body = {"prompt": text, "max_tokens": 200, "temperature": 0}
    whole = client.post("/v1/completions", json=body).json()["choices"][0]["text"]
    assert whole.startswith(text)
    with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        data = [json.loads(d) for d in lines_of(response)[:-1]]
    pieces = [d["choices"][0]["text"] for d in data if d["choices"]]
    assert "".join(pieces) == whole
    assert not any("\ufffd" in p for p in pieces[:-2])
