"""/v1/embeddings on the null device, where a token's state is 1 at its id modulo the width: vectors
tell which tokens they were made of. Protects shapes, both formats, limits, refusals, and that
vectors and chats beside each other lose nothing, through chunks, preemptions and clients that
leave."""

import base64
import concurrent.futures
import json
import math
import struct

import pytest

import tiny_model
from weft import Weft, wait_until

PATH = "/v1/embeddings"
WIDTH = tiny_model.WIDTH


@pytest.fixture(scope="module")
def mean_server(model):
    with Weft("--null-step-us", 0, "--pooling", "mean", model=model) as running:
        yield running


def ask(server, value, **more):
    status, headers, data = server.post(PATH, {"input": value, **more})
    assert status == 200, data
    assert headers["content-type"] == "application/json"
    answer = json.loads(data)
    assert answer["object"] == "list" and answer["model"] == "tiny"
    assert [item["index"] for item in answer["data"]] == list(range(len(answer["data"])))
    assert all(item["object"] == "embedding" for item in answer["data"])
    return answer


def vectors(server, value, **more):
    return [item["embedding"] for item in ask(server, value, **more)["data"]]


def refusal(server, body, status=400):
    got, _, data = server.post(PATH, body)
    assert got == status, data
    return json.loads(data)["error"]


def mean_of(ids):
    counts = [0] * WIDTH
    for token in ids:
        counts[token % WIDTH] += 1
    length = math.sqrt(sum(c * c for c in counts))
    return [c / length for c in counts]


def close(a, b):
    return len(a) == len(b) and all(math.isclose(x, y, abs_tol=1e-6) for x, y in zip(a, b))


def test_the_last_token_makes_the_vector_unless_told_otherwise(server):
    answer = ask(server, [3, 70, 9])
    assert answer["data"][0]["embedding"] == [float(i == 9) for i in range(WIDTH)]
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 3}


def test_all_forms_of_input(mean_server):
    ids = [[5], [7, 7, 8], [200, 1]]
    assert all(map(close, vectors(mean_server, ids), map(mean_of, ids)))
    assert close(vectors(mean_server, ids[1])[0], mean_of(ids[1]))
    texts = ["hello", "world and more", "\u00fc"]
    together = vectors(mean_server, texts)
    assert together == [vectors(mean_server, text)[0] for text in texts]
    assert len({tuple(v) for v in together}) == 3


def test_both_formats_say_the_same(mean_server):
    numbers = vectors(mean_server, ["hello", "one two"])
    coded = vectors(mean_server, ["hello", "one two"], encoding_format="base64")
    for number, code in zip(numbers, coded):
        assert number == pytest.approx(struct.unpack(f"<{WIDTH}f", base64.b64decode(code)))
    for dimensions in (1, 2, 3):  # each way that base64 ends
        (code,) = vectors(mean_server, [1, 1, 2], encoding_format="base64", dimensions=dimensions)
        assert len(base64.b64decode(code, validate=True)) == 4 * dimensions


def test_dimensions_are_cut_and_made_whole_again(mean_server):
    ids = [1, 1, 1, 2, 2, 40]
    short = vectors(mean_server, ids, dimensions=3)[0]
    assert close(short, [0, 3 / math.sqrt(13), 2 / math.sqrt(13)])
    raw = vectors(mean_server, ids, normalize=False)[0]
    assert close(raw[:3], [0, 3 / 6, 2 / 6]) and math.isclose(raw[40], 1 / 6, abs_tol=1e-6)
    assert vectors(mean_server, ids, dimensions=1)[0] == [0.0]  # nothing to divide by


def test_cls(start):
    server = start("--pooling", "cls")
    assert vectors(server, [3, 70, 9])[0][3] == 1


def test_a_long_input_comes_in_chunks(start):
    ids = [(i * i) % 250 for i in range(1000)]
    server = start("--pooling", "mean", "--prefill-tokens", 16, "--null-step-us", 0)
    assert close(vectors(server, ids)[0], mean_of(ids))


def test_as_many_inputs_as_openai_takes(mean_server):
    ids = [[i % 256, (i * 7) % 256] for i in range(2048)]
    answer = ask(mean_server, ids)
    assert all(close(d["embedding"], mean_of(i)) for d, i in zip(answer["data"], ids))
    assert answer["usage"]["total_tokens"] == 4096
    error = refusal(mean_server, {"input": ids + [[1]]})
    assert error["param"] == "input" and "2049 items; at most 2048" in error["message"]


@pytest.mark.parametrize(
    "body, param, words",
    [
        ({}, "input", "missing"),
        ({"input": None}, "input", "missing"),
        ({"input": []}, "input", "empty"),
        ({"input": ""}, "input", "no tokens"),
        ({"input": [[1], []]}, "input[1]", "no tokens"),
        ({"input": 5}, "input", "must be a string"),
        ({"input": {"a": 1}}, "input", "must be a string"),
        ({"input": ["a", [1]]}, "input[1]", "must be a string, like the first"),
        ({"input": [1, 99999]}, "input[1]", "token ids go from 0"),
        ({"input": [1, -1]}, "input[1]", "token ids go from 0"),
        ({"input": [1, "a"]}, "input[1]", "must be a token id"),
        ({"input": [1] * 4097}, "input", "maximum context length is 4096"),
        ({"input": "a", "dimensions": 0}, "dimensions", "dimensions"),
        ({"input": "a", "dimensions": WIDTH + 1}, "dimensions", f"have {WIDTH} values"),
        ({"input": "a", "dimensions": "3"}, "dimensions", "integer"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", "base64"),
        ({"input": "a", "encoding_format": 1}, "encoding_format", "string"),
        ({"input": "a", "normalize": 1}, "normalize", "true or false"),
        ({"input": "a", "truncate_prompt_tokens": 3}, "truncate_prompt_tokens", "not supported"),
    ],
)
def test_what_is_wrong_is_named(server, body, param, words):
    error = refusal(server, body)
    assert error["param"] == param and words in error["message"]


def test_another_model_is_not_found(server):
    assert refusal(server, {"input": "a", "model": "other"}, 404)["param"] == "model"


def test_an_input_may_fill_the_context(mean_server):
    assert ask(mean_server, [1] * 4096)["usage"]["prompt_tokens"] == 4096


def test_fields_of_answers_mean_nothing_here(server):
    body = {"stop": 5, "stream": True, "n": 3, "user": "u", "temperature": 9}
    assert len(vectors(server, "hi", **body)) == 1


def test_the_method_is_post(server):
    status, headers, _ = server.get(PATH)
    assert status == 405 and headers["allow"] == "POST, OPTIONS"


def test_vectors_beside_chats_lose_nothing(start):
    """Few pages and small steps: chats and inputs push each other out."""
    server = start("--pooling", "mean", "--null-step-us", 100, "--kv-pages", 300, "--max-batch", 12,
                   "--prefill-tokens", 64, "--max-queue", 4096)

    def embed(n):
        ids = [[(n * 31 + i * j) % 256 for j in range(20 + (i * 37) % 400)] for i in range(40)]
        return all(map(close, vectors(server, ids), map(mean_of, ids)))

    def complete(n):
        ids = [n % 200 + 3] * 7 + [5, 6]
        body = {"prompt": ids, "max_tokens": 900, "ignore_eos": True, "return_token_ids": True}
        status, _, data = server.post("/v1/completions", body)
        got = json.loads(data)["choices"][0]["token_ids"]
        return status == 200 and got == (ids * 101)[:900]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(embed if n % 2 else complete, n) for n in range(24)]
        assert all(job.result() for job in jobs)
    assert server.gauge("vllm:num_preemptions_total") > 0
    assert server.gauge("vllm:num_requests_running") == 0


def test_a_client_that_leaves_stops_its_inputs(start):
    server = start("--null-step-us", 20000, "--max-batch", 2)
    data = json.dumps({"input": [[1, 2, 3]] * 2000}).encode()
    with server.connect() as c:
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        c.send(head.encode() + data)
        wait_until(lambda: server.gauge("vllm:num_requests_running") > 0, "it to run")
    wait_until(lambda: server.gauge("vllm:num_requests_running") == 0, "it to end")
    assert server.gauge("vllm:num_requests_waiting") == 0
    assert len(vectors(server, [1])) == 1


def test_a_failed_device_is_a_failed_request(start):
    server = start("--null-fail-step", 1)
    assert refusal(server, {"input": "a"}, 500)["type"]
