"""A folder of safetensors with a tokenizer.json: texts and chats are served as those token ids that
`weft tokenize` tells; without one, or with --skip-tokenizer, token ids alone."""

import json
import pathlib
import shutil
import subprocess

import pytest

from weft import BINARY, Weft

CHECKPOINT = pathlib.Path(__file__).parents[1] / "data/arch/hf_llama_biases"
LETTERS = "abcdefghijklmnopqrstuvwxyz .,:\n\u2581"
TEMPLATE = "{{bos_token}}{% for m in messages %}{{m.role}}: {{m.content}}\n{% endfor %}"
END = 2


def write_tokenizer(folder):
    pieces = ["<unk>", "<s>", "</s>", *LETTERS, "th", "the", "\u2581the", "lo", "om", "loom"]
    special = {"special": True, "normalized": False}
    tree = {
        "added_tokens": [{"id": i, "content": pieces[i], **special} for i in range(3)],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "vocab": {piece: i for i, piece in enumerate(pieces)},
            "merges": ["t h", "th e", "\u2581 the", "l o", "o m", "lo om"],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("model") / "loom"
    shutil.copytree(CHECKPOINT, made)
    write_tokenizer(made)
    return made


def ask(server, path, **body):
    status, _, data = server.post(path, {"max_tokens": 3, "return_token_ids": True} | body)
    return status, json.loads(data)


def tokenize(folder, text):
    done = subprocess.run(
        [BINARY, "tokenize", "--model", folder],
        input=json.dumps({"text": text}),
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)["ids"]


def test_texts_and_chats(folder):
    with Weft(model=folder, device="cpu") as server:
        status, answer = ask(server, "/v1/completions", prompt="the loom, the")
        assert status == 200
        choice = answer["choices"][0]
        assert choice["prompt_token_ids"] == tokenize(folder, "the loom, the")
        assert len(choice["prompt_token_ids"]) == 6 and choice["prompt_token_ids"][0] == 1
        assert END not in choice["token_ids"][:-1]
        messages = [{"role": "user", "content": "the</s>"}]
        status, answer = ask(server, "/v1/chat/completions", messages=messages)
        assert status == 200
        # The template's own tokens are recognized, and none are added to them.
        ids = answer["prompt_token_ids"] if "prompt_token_ids" in answer else None
        ids = ids or answer["choices"][0]["prompt_token_ids"]
        assert ids == tokenize(folder, "user: the</s>\n")


def test_the_first_format_of_gpt2(folder, tmp_path):
    """vocab.json and merges.txt, whose special tokens special_tokens_map.json names."""
    pieces = ["<s>", *"abcdehlomntw", "\u0120", "th", "the", "\u0120the"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nth e\n\u0120 the\n")
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<s>"}')
    (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": true}')
    ids = [vocabulary[piece] for piece in ("<s>", "the", "\u0120the", "m")]
    assert tokenize(tmp_path, "the them") == ids
    assert tokenize(tmp_path, "<s>the") == [0, *ids[:2]]


def test_an_echo_is_the_prompt(folder, tmp_path):
    """Llama 2's kind of tokenizer puts a space before a text, and its decoder leaves it out."""
    made = tmp_path / "spaced"
    shutil.copytree(folder, made)
    tree = json.loads((made / "tokenizer.json").read_text())
    prepend = {"type": "Prepend", "prepend": "\u2581"}
    tree["normalizer"] = {"type": "Sequence", "normalizers": [prepend, tree["normalizer"]]}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    decoders = [tree["decoder"], {"type": "Fuse"}, strip]
    tree["decoder"] = {"type": "Sequence", "decoders": decoders}
    (made / "tokenizer.json").write_text(json.dumps(tree))
    with Weft(model=made, device="cpu") as server:
        for prompt in ("the loom", " the loom"):
            status, answer = ask(server, "/v1/completions", prompt=prompt, echo=True, max_tokens=1)
            assert status == 200
            assert answer["choices"][0]["text"].startswith(prompt)


def refused_texts(server):
    for path, body in (
        ("/v1/completions", {"prompt": "the"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "the"}]}),
    ):
        status, answer = ask(server, path, **body)
        assert status == 400
        assert "no tokenizer" in answer["error"]["message"]


def served_ids(server):
    body = {"prompt": [1, 5, 6], "logprobs": 1, "return_tokens_as_token_ids": True}
    status, answer = ask(server, "/v1/completions", **body)
    assert status == 200
    choice = answer["choices"][0]
    assert choice["prompt_token_ids"] == [1, 5, 6]
    ids = choice["token_ids"]
    assert [f"token_id:{i}" for i in ids] == choice["logprobs"]["tokens"]


def test_skip_tokenizer(folder):
    with Weft("--skip-tokenizer", model=folder, device="cpu") as server:
        refused_texts(server)
        served_ids(server)


def test_no_tokenizer():
    with Weft(model=CHECKPOINT, device="cpu") as server:
        refused_texts(server)
        served_ids(server)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "tokenizer.json",
            '{"model": {"vocab": {"a": 0}, "merges": ["a a"]}}',
            "merge 0 does not join two tokens to a third",
        ),
        ("tokenizer.json", "{", "line 1: string or '}' expected near end of file"),
        ("tekken.json", "[", "line 1: ']' expected near end of file"),
        ("tokenizer.model", "\x00", None),
        ("own.tiktoken", "YQ== 0\nYQ== 1\n", None),
        ("vocab.json", "{", "line 1: string or '}' expected near end of file"),
    ],
)
def test_a_broken_tokenizer_is_named_once(folder, tmp_path, name, text, message):
    made = tmp_path / "broken"
    shutil.copytree(folder, made)
    (made / "tokenizer.json").unlink()
    (made / "merges.txt").write_text("")
    (made / name).write_text(text)
    done = subprocess.run(
        [BINARY, "tokenize", "--model", made],
        input="",
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"weft: {made}/{name}")
    assert last.count(name) == 1
    assert message is None or last.removeprefix(f"weft: {made}/{name}")[2:] == message
