"""Protects: generation_config.json. What the makers say is what a request takes that says nothing;
a request's own values go before it, --generation-config none leaves it out, its end tokens and its
limit hold for every answer, and a file that says nonsense is refused.
"""

import json

import pytest

from test_cli import weft
from tiny_folder import TinyFolder
from weft import Weft

PROMPT = [3, 1, 4, 1, 5]


@pytest.fixture
def folder(tmp_path):
    def write(**keys):
        path = TinyFolder().write(tmp_path / "m")
        if keys:
            (path / "generation_config.json").write_text(json.dumps(keys))
        return path

    return write


def serve(path, *options):
    return Weft("--cpu-exact", "--max-batch", "4", *options, model=path, device="cpu")


def ask(server, **fields):
    body = {"prompt": PROMPT, "max_tokens": 12, "return_token_ids": True, "ignore_eos": True}
    status, _, data = server.post("/v1/completions", body | fields)
    assert status == 200, data
    return json.loads(data)["choices"][0]


def ids(server, **fields):
    return ask(server, **fields)["token_ids"]


def test_defaults_of_requests(folder):
    with serve(folder()) as server:
        greedy = ids(server, temperature=0)
        free = ids(server, seed=1)
        narrow = ids(server, seed=1, temperature=0.5, top_k=3)
        assert greedy != free != narrow != greedy
    with serve(folder(temperature=0.5, top_k=3, do_sample=False)) as server:
        server.wait_log(r"generation_config.*temperature=0\.5.*top_k=3")
        assert ids(server, seed=1) == narrow
        assert ids(server, seed=1, temperature=1, top_k=0) == free
        assert ids(server, seed=1, temperature=1, top_k=-1) == free
        assert ids(server, temperature=0) == greedy
        assert ids(server, seed=1, temperature=None) == narrow  # null: the request says nothing
    with serve(folder(temperature=0.5, top_k=3), "--generation-config", "none") as server:
        assert ids(server, seed=1) == free
    with serve(folder(top_p=0.0)) as server:
        assert ids(server) == greedy


def test_every_key_reaches_the_sampling(folder):
    keys = {"min_p": 0.2, "typical_p": 0.5, "top_p": 0.4, "repetition_penalty": 2.0}
    for key, value in keys.items():
        with serve(folder(temperature=1.5)) as server:
            asked = ids(server, seed=3, **{key: value})
            assert asked != ids(server, seed=3), key
        with serve(folder(temperature=1.5, **{key: value})) as server:
            assert ids(server, seed=3) == asked, key


def test_the_limit_of_answers(folder):
    with serve(folder(max_new_tokens=5)) as server:
        answer = ask(server)
        assert len(answer["token_ids"]) == 5 and answer["finish_reason"] == "length"
        assert len(ids(server, max_tokens=3)) == 3
    with serve(folder(max_new_tokens=5), "--generation-config", "none") as server:
        assert len(ids(server)) == 12


def test_end_tokens(folder):
    """Of the file and of config.json, with and without what it says of drawing."""
    with serve(folder()) as server:
        greedy = ids(server, temperature=0)
    end = greedy[4]
    wanted = greedy[: greedy.index(end) + 1]
    for options in ((), ("--generation-config", "none")):
        with serve(folder(eos_token_id=[39, end]), *options) as server:
            answer = ask(server, temperature=0, ignore_eos=False)
            assert answer["finish_reason"] == "stop"
            assert answer["token_ids"] in (wanted, wanted[:-1])
    path = folder()
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"eos_token_id": end}))
    (path / "generation_config.json").unlink()
    with serve(path) as server:
        assert ask(server, temperature=0, ignore_eos=False)["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "text, part",
    [
        ('{"temperature": "0.5"}', "'temperature' must be a number"),
        ('{"temperature": -1}', "'temperature'"),
        ('{"eos_token_id": -1}', "'eos_token_id' must be a token id or a list of them"),
        ('{"eos_token_id": [2, -1]}', "'eos_token_id' must be a token id or a list of them"),
        ('{"top_p": 1.5}', "'top_p'"),
        ('{"top_k": 1.5}', "'top_k'"),
        ('{"max_new_tokens": 0}', "'max_new_tokens'"),
        ('{"eos_token_id": "end"}', "'eos_token_id' must be a token id"),
        ('{"eos_token_id": [1, null]}', "'eos_token_id' must be a token id"),
        ("[]", "no JSON object"),
        ("{", "Invalid JSON"),
        ("", "it is empty"),
    ],
)
def test_nonsense(folder, text, part):
    path = folder()
    (path / "generation_config.json").write_text(text)
    done = weft("bench", "--model", path, "--device", "null")
    assert done.returncode == 1
    message = done.stderr.decode()
    assert "generation_config.json: " in message and part in message


def test_what_says_nothing(folder):
    with serve(folder(temperature=None, top_k=None, transformers_version="5.0")) as server:
        assert len(ids(server)) == 12
