"""The demo model over HTTP against the float32 reference (tests/data/smollm2_q4_1.json): prompt
ids, greedy continuations wherever the margin is at least 0.05, log-probabilities within 0.03;
alone and among 31 others. And every golden checkpoint in a folder of its own (tests/data/arch, and
$WEFT_GOLDENS/arch), by token ids, without a tokenizer."""

import concurrent.futures
import json
import os
import pathlib
import random
import struct

import pytest

from streams import run_streams
from weft import Weft

CASES = json.loads(
    (pathlib.Path(__file__).parents[1] / "data" / "smollm2_q4_1.json").read_text()
)["cases"]
CLOSE_MARGIN = 0.05
LOGPROB_ERROR_MAX = 0.03
OTHERS = 31


@pytest.fixture(scope="module")
def exact_server(demo_model):
    with Weft("--cpu-exact", model=demo_model, device="cpu") as server:
        yield server


def ask(server, case):
    """The answer to a golden case: (prompt ids, ids, the alternatives of each step)."""
    body = {
        "max_tokens": len(case["greedy_token_ids"]),
        "temperature": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    if case["kind"] == "chat":
        body.update(messages=case["input"], logprobs=True, top_logprobs=5)
        status, _, data = server.post("/v1/chat/completions", body)
    else:
        body.update(prompt=case["input"], logprobs=5)
        status, _, data = server.post("/v1/completions", body)
    assert status == 200, data
    answer = json.loads(data)
    choice = answer["choices"][0]
    if case["kind"] == "chat":
        steps = [
            {t["token"]: t["logprob"] for t in entry["top_logprobs"]}
            for entry in choice["logprobs"]["content"]
        ]
    else:
        steps = choice["logprobs"]["top_logprobs"]
    prompt = choice.get("prompt_token_ids") or answer.get("prompt_token_ids")
    steps = [{int(k.removeprefix("token_id:")): v for k, v in s.items()} for s in steps]
    return prompt, choice["token_ids"], steps, choice["finish_reason"]


def check(case, answer):
    prompt, ids, steps, finish = answer
    greedy = case["greedy_token_ids"]
    assert prompt == case["prompt_token_ids"]
    close = [n for n, margin in enumerate(case["margins"]) if margin < CLOSE_MARGIN]
    sure = close[0] if close else len(greedy)
    assert ids[:sure] == greedy[: len(ids)][:sure]
    if not close:
        assert finish == case["finish_reason"]
        assert len(ids) >= len(greedy) - 1  # an end token need not be reported
    # The step after the last sure one still has the same history.
    for step in range(min(sure + 1, len(steps), len(case["top5_logprobs"]))):
        for token, logprob in case["top5_logprobs"][step][:3]:
            assert abs(steps[step][token] - logprob) < LOGPROB_ERROR_MAX, f"step {step}"


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_alone(demo_server, case):
    check(case, ask(demo_server, case))


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_exact(exact_server, case):
    check(case, ask(exact_server, case))


def test_among_others(demo_server):
    """The others sample, so that their lengths and tokens vary, and they keep coming."""
    numbers = random.Random(7)
    others = [
        {
            "prompt": [numbers.randrange(100, 40000) for _ in range(numbers.randint(1, 90))],
            "max_tokens": numbers.randint(16, 64),
            "temperature": 1,
            "seed": n,
            "ignore_eos": True,
        }
        for n in range(OTHERS)
    ]
    with concurrent.futures.ThreadPoolExecutor(len(CASES) + 1) as pool:
        noise = pool.submit(run_streams, demo_server, others)
        answers = list(pool.map(lambda case: ask(demo_server, case), CASES))
        assert all(s.whole for s in noise.result())
    for case, answer in zip(CASES, answers):
        check(case, answer)


# -- checkpoints in folders --

TESTS = pathlib.Path(__file__).parents[1]
EXACT_MARGIN = 0.01
EXACT_LOGPROB_ERROR = 2e-3


def checkpoint_folders():
    roots = [TESTS / "data" / "arch"]
    if os.environ.get("WEFT_GOLDENS"):
        roots.append(pathlib.Path(os.environ["WEFT_GOLDENS"]) / "arch")
    return [
        folder
        for root in roots
        for folder in sorted(root.iterdir())
        if (folder / "config.json").exists()
    ]


def check_greedy(server, golden, error_max, margin_min):
    """Greedy continuations of token ids, up to the first step that is nearly a tie."""
    for prompt, greedy in zip(golden["prompts"], golden["greedy"]):
        body = {
            "prompt": prompt["ids"],
            "max_tokens": len(greedy["tokens"]),
            "temperature": 0,
            "logprobs": 1,
            "ignore_eos": True,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        status, _, data = server.post("/v1/completions", body)
        assert status == 200, data
        choice = json.loads(data)["choices"][0]
        logprobs = choice["logprobs"]["token_logprobs"]
        assert len(choice["token_ids"]) == len(logprobs) == len(greedy["tokens"])
        for step, margin in enumerate(greedy["margins"]):
            if margin < margin_min:
                break
            assert choice["token_ids"][step] == greedy["tokens"][step], f"step {step}"
            error = abs(logprobs[step] - greedy["logprobs"][step])
            assert error < error_max, f"step {step}"


def nest(folder, target, prefix):
    """The folder's checkpoint as the text model of one that sees pictures too."""
    config = json.loads((folder / "config.json").read_text())
    outer = {key: config.pop(key) for key in ("torch_dtype", "eos_token_id", "architectures")}
    outer["architectures"] = ["Gemma3ForConditionalGeneration"]
    (target / "config.json").write_text(json.dumps({**outer, "text_config": config}))
    weights = (folder / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", weights[:8])[0]
    header = json.loads(weights[8 : 8 + length])
    text = json.dumps({prefix(k) if k[0] != "_" else k: v for k, v in header.items()}).encode()
    text += b" " * (-len(text) % 8)
    (target / "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + weights[8 + length :]
    )


PREFIXES = {
    "shipped": lambda name: "language_model." + name,
    "transformers 5": lambda name: name.replace("model.", "model.language_model.", 1),
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_text_model_inside_of_a_larger_one(tmp_path, prefix):
    folder = TESTS / "data" / "arch" / "hf_gemma3"
    nest(folder, tmp_path, PREFIXES[prefix])
    golden = json.loads((folder / "golden.json").read_text())
    options = ["--cpu-exact", "--max-context", "192", "--max-batch", "4"]
    with Weft(*options, model=tmp_path, device="cpu") as server:
        check_greedy(server, golden, EXACT_LOGPROB_ERROR, EXACT_MARGIN)


@pytest.mark.parametrize("folder", checkpoint_folders(), ids=lambda folder: folder.name)
def test_folder_by_token_ids(folder):
    golden = json.loads((folder / "golden.json").read_text())
    options = ["--cpu-exact", "--max-context", "192", "--max-batch", "4"]
    with Weft(*options, model=folder, device="cpu") as server:
        check_greedy(server, golden, EXACT_LOGPROB_ERROR, EXACT_MARGIN)
