"""Protects: models without a checkpoint, from the command line and over HTTP. Token ids in, token
ids out, the same ones each time; what needs a text is refused with a reason; plans and tables.
"""

import json

import pytest

from streams import run_streams
from test_cli import assert_refused, weft
from weft import ROOT, Weft

SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}


@pytest.fixture(scope="module")
def shape(tmp_path_factory):
    path = tmp_path_factory.mktemp("shape") / "small.json"
    path.write_text(json.dumps(SHAPE))
    return path


@pytest.fixture(scope="module")
def server(shape):
    with Weft("--random-weights", shape, device="cpu") as running:
        yield running


def test_the_model_is_called_after_its_shape(server):
    assert json.loads(server.get("/v1/models")[2])["data"][0]["id"] == "small"
    assert '"prompt":[1,2,3]' in server.printed
    server.wait_log("no_tokenizer")


def test_token_ids_in_and_out(server):
    body = {"prompt": [5, 6, 7], "max_tokens": 8, "temperature": 0, "return_token_ids": True}
    whole = json.loads(server.post("/v1/completions", body)[2])
    choice = whole["choices"][0]
    assert choice["text"] == "" and choice["finish_reason"] == "length"
    assert choice["prompt_token_ids"] == [5, 6, 7]
    assert len(choice["token_ids"]) == whole["usage"]["completion_tokens"] == 8
    assert len(set(choice["token_ids"])) > 2
    # Streamed, alone or beside others: the same tokens, an event each.
    for stream in run_streams(server, [body] * 3):
        assert stream.whole and stream.ids == choice["token_ids"]
        assert len(stream.times) == 8


def test_log_probabilities_have_no_texts(server):
    body = {"prompt": [5, 6, 7], "max_tokens": 2, "temperature": 0, "logprobs": 2}
    body["return_tokens_as_token_ids"] = True
    logprobs = json.loads(server.post("/v1/completions", body)[2])["choices"][0]["logprobs"]
    assert all(token.startswith("token_id:") for token in logprobs["tokens"])
    assert all(value < 0 for value in logprobs["token_logprobs"])


def test_texts_and_chats_are_refused(server):
    status, _, answer = server.post("/v1/completions", {"prompt": "Hello"})
    error = json.loads(answer)["error"]
    assert status == 400 and error["param"] == "prompt"
    assert "no tokenizer" in error["message"] and "[1, 2, 3]" in error["message"]
    messages = [{"role": "user", "content": "Hello"}]
    status, _, answer = server.post("/v1/chat/completions", {"messages": messages})
    assert status == 400
    assert "no tokenizer" in json.loads(answer)["error"]["message"]


def test_the_null_device_serves_it_too(shape):
    with Weft("--random-weights", shape, device="null") as running:
        (stream,) = run_streams(running, [{"prompt": [9, 8, 7], "max_tokens": 3}])
        assert stream.whole and len(stream.ids) == 3


def test_generate_needs_a_tokenizer():
    assert_refused(
        weft("generate", "--random-weights", "smollm2-135m", "--prompt", "x"), 2, "`weft serve`"
    )


def test_a_model_and_a_shape_exclude_each_other(shape, tiny):
    for command in "inspect", "bench":
        done = weft(command, "--random-weights", shape, "--model", tiny)
        assert_refused(done, 1, "--random-weights", "--model", "take one of them")
    assert_refused(weft("inspect", tiny, "--random-weights", shape), 1, "take one of them")


def test_wrong_shapes(tmp_path):
    assert_refused(weft("inspect", "--random-weights", "llama"), 1, "'llama'", "llama-3.1-8b")
    assert_refused(weft("inspect", "--random-weights", tmp_path / "none.json"), 1, "none.json")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**SHAPE, "hidden_size": "64"}))
    assert_refused(weft("inspect", "--random-weights", path), 1, str(path), "'hidden_size'")


@pytest.mark.parametrize("shape", sorted(p.stem for p in (ROOT / "config/shapes").glob("*.json")))
def test_every_shape_has_a_plan(shape):
    """Also where it does not fit; and nothing of its size is taken."""
    done = weft("inspect", "--random-weights", shape, "--max-batch", 1, "--max-context", 512)
    assert "parameters" in done.stdout.decode()
    assert done.returncode == 0 or (done.returncode == 1 and b"does not fit" in done.stderr)
    page = (ROOT / "docs" / "commands.md").read_text()
    assert f"| `{shape}` |" in page


def test_inspect_prints_the_plan_and_takes_nothing():
    limits = ["--max-batch", 1, "--max-context", 1024, "--kv-bytes", "256M"]
    done = weft("inspect", "--random-weights", "llama-3.2-1b", *limits)
    words = " ".join(done.stdout.decode().split())
    assert done.returncode == 0, done.stderr
    assert "random weights: 2.5 GB of BF16" in words
    assert "parameters 1235.8 million" in words and "kv cache 268 MB" in words
    # Larger than any machine that tests run on: refused with the numbers, and the model shown.
    done = weft("inspect", "--random-weights", "llama-3.3-70b", "--kv-bytes", "64T")
    assert done.returncode == 1 and b"parameters" in done.stdout
    assert b"134574 MiB" in done.stderr and b"does not fit" in done.stderr


def test_bench(shape):
    options = ["--batch-sizes", "1,3", "--context-lengths", 20, "--steps", 4, "--repeats", 1]
    done = weft("bench", "--random-weights", shape, "--json", *options)
    table = json.loads(done.stdout)
    assert table["model"] == "small" and table["device"].startswith("cpu")
    assert [(r["batch"], r["context"]) for r in table["results"]] == [(1, 20), (3, 20)]
    assert all(r["decode_tokens_per_second"] > 0 for r in table["results"])
