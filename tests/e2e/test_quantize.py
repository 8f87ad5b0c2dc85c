"""Protects: `weft quantize`. The file is what the Python package gguf reads: the source's metadata,
names and shapes, each tensor in the type that the page promises, Q8_0 bit for bit as that package
makes it, the others as close to the source as their bits allow. What it generates is what the
source generates, nearly. A failure leaves nothing behind.
"""

import json
import pathlib
import resource
import signal
import subprocess

import gguf
import numpy
import pytest

import tiny_model
from test_cli import assert_no_answer, assert_refused, environment, weft
from test_goldens_http import EXACT_LOGPROB_ERROR, EXACT_MARGIN, check_greedy, checkpoint_folders
from weft import BINARY, Weft

DATA = pathlib.Path(__file__).parents[1] / "data" / "arch"
LLAMA = DATA / "gguf_llama_f32" / "llama-F32.gguf"  # rows of 96 and 176 numbers
Q4_K_M = DATA / "gguf_llama_q4_k_m" / "llama-Q4_K_M.gguf"  # rows of 256
CHANGED = {"general.file_type", "general.quantization_version"}
# --type: what matrices become where rows are whole blocks of 256; of 32 only; the head of the first
# kind; relative error of a weight, as root of mean squares.
TYPES = {
    "f16": ("F16", "F16", "F16", 0.0005),
    "bf16": ("BF16", "BF16", "BF16", 0.004),
    "q8_0": ("Q8_0", "Q8_0", "Q8_0", 0.01),
    "q6_k": ("Q6_K", "Q8_0", "Q6_K", 0.03),
    "q4_k": ("Q4_K", "Q5_0", "Q6_K", 0.1),
    "q4_1": ("Q4_1", "Q4_1", "Q6_K", 0.1),
    "q4_0": ("Q4_0", "Q4_0", "Q6_K", 0.12),
}
# Golden folders that must become GGUF files; of the others the command may say what such files
# cannot tell.
WRITTEN = {
    *"bloom chatglm chatglm_rope_ratio cohere falcon_40b falcon_7b gemma2 glm glm4 gpt2".split(),
    *"gpt_neox gptj llama llama3_rope llama_attn_bias llama_awq llama_fp8_block llama_gptq".split(),
    *"llama_tied mistral phi3 phi3_longrope qwen2 qwen3 starcoder2".split(),
}


def quantize(source, target, kind, *more):
    done = weft("quantize", source, target, "--type", kind, *more)
    assert done.returncode == 0, done.stderr.decode()
    assert not target.with_name(target.name + ".partial").exists()
    return done.stdout.decode()


def read(path):
    file = gguf.GGUFReader(path)
    return {t.name: t for t in file.tensors}, {k: f.contents() for k, f in file.fields.items()}


def numbers(tensor):
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)


def is_matrix(tensor):
    return len(tensor.shape) > 1 and "_norm" not in tensor.name


@pytest.mark.parametrize("source", [LLAMA, Q4_K_M], ids=["f32", "q4_k_m"])
@pytest.mark.parametrize("kind", TYPES)
def test_the_file(tmp_path, source, kind):
    target = tmp_path / "new.gguf"
    said = quantize(source, target, kind, "--threads", 3)
    (before, old_keys), (after, keys) = read(source), read(target)
    wide, narrow, head, error_max = TYPES[kind]
    kept = lambda fields: {
        k: v for k, v in fields.items() if k not in CHANGED and not k.startswith("GGUF.")
    }
    assert kept(keys) == kept(old_keys)
    assert keys["general.quantization_version"] == 2
    assert gguf.LlamaFileType(keys["general.file_type"]).name.endswith(
        {"q4_k": "Q4_K_S"}.get(kind, kind.upper())
    )
    assert list(after) == list(before)
    for name, tensor in after.items():
        old = before[name]
        assert list(tensor.shape) == list(old.shape)
        if not is_matrix(tensor):
            assert tensor.tensor_type == old.tensor_type
            assert (tensor.data == old.data).all()
            continue
        whole = tensor.shape[0] % 256 == 0
        wanted = head if name == "output.weight" else wide
        if not whole and wanted.endswith("_K"):
            wanted = {"Q6_K": "Q8_0", "Q4_K": "Q5_0"}[wanted]
        assert tensor.tensor_type.name == wanted, name
        assert wanted in said
        exact, got = numbers(old), numbers(tensor)
        error = numpy.sqrt(((exact - got) ** 2).mean() / (exact**2).mean())
        assert error < error_max, name
        if wanted == "Q8_0":
            own = gguf.quants.quantize(exact, tensor.tensor_type)
            assert (own == tensor.data).all(), name
    assert narrow in ("F16", "BF16") or narrow in said or source == Q4_K_M


@pytest.mark.parametrize("kind, error_max", [("f16", 0.005), ("q8_0", 0.1), ("q4_1", 1)])
def test_it_generates_the_same(tmp_path, kind, error_max):
    """The reference's prompts. Logits have a standard deviation of about 2.5, the error of all is
    the root of its mean square."""
    target = tmp_path / "new.gguf"
    quantize(LLAMA, target, kind)
    golden = json.loads((LLAMA.parent / "golden.json").read_text())
    options = ["--cpu-exact", "--max-context", "192", "--max-batch", "4"]
    errors = []
    with Weft(*options, model=target, device="cpu") as server:
        for prompt, greedy in zip(golden["prompts"], golden["greedy"]):
            body = {
                "prompt": prompt["ids"],
                "max_tokens": 1,
                "logprobs": 20,
                "temperature": 0,
                "ignore_eos": True,
                "return_tokens_as_token_ids": True,
            }
            status, _, data = server.post("/v1/completions", body)
            assert status == 200, data
            best = json.loads(data)["choices"][0]["logprobs"]["top_logprobs"][0]
            best = {int(k.removeprefix("token_id:")): v for k, v in best.items()}
            if greedy["margins"][0] > 4 * error_max:
                assert max(best, key=best.get) == greedy["tokens"][0]
            logits = numpy.array(prompt["last_logits"])
            exact = logits - numpy.logaddexp.reduce(logits)
            errors += [abs(best[token] - exact[token]) for token in best]
    assert numpy.sqrt(numpy.square(errors).mean()) < error_max


@pytest.mark.parametrize("folder", checkpoint_folders(), ids=lambda folder: folder.name)
def test_folders(tmp_path, folder):
    """A folder's model is the same model as a GGUF file, bit for bit where the type is its own; or
    the command says what such files cannot tell."""
    golden = json.loads((folder / "golden.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    target = tmp_path / "new.gguf"
    dtype = config.get("torch_dtype", config.get("dtype"))
    kind = "f16" if dtype == "float16" else "bf16"
    done = weft("quantize", folder, target, "--type", kind)
    if folder.name not in WRITTEN and done.returncode != 0:
        said = done.stderr.decode()
        assert "cannot be a GGUF file" in said or "mixtures of experts are not written" in said
        assert not list(tmp_path.iterdir())
        return
    assert done.returncode == 0, done.stderr.decode()
    gguf.GGUFReader(target)
    rounded = "quantization_config" in config or dtype not in ("bfloat16", "float16")
    options = ["--cpu-exact", "--max-context", "192", "--max-batch", "4"]
    with Weft(*options, model=target, device="cpu") as server:
        if rounded:
            check_greedy(server, golden, 0.3, 0.6)
        else:
            check_greedy(server, golden, EXACT_LOGPROB_ERROR, EXACT_MARGIN)


WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PLAIN_BYTES = {**BYTES, "use_regex": False}


def split(pattern):
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


SPLITS = {
    "gpt-2": [BYTES],
    "smollm": [{"type": "Digits", "individual_digits": True}, BYTES],
    "llama-bpe": [split(WORDS % "{1,3}"), PLAIN_BYTES],
    "qwen2": [split(WORDS % ""), PLAIN_BYTES],
    "": [split("[a-z]+"), PLAIN_BYTES],  # GGUF has no name for it
}
TEXTS = [
    "hello world, it's 12345 o'clock!\n\n  def f(x):\n\treturn x**2",
    "Caf\u00e9 cafe\u0301 \u65e5\u672c\u8a9e \U0001f642",
    "<|im_start|>user\nhello<|im_end|>",
    "   leading   spaces\r\n we'Ll I'M",
]


def small_folder(tmp_path, pre):
    """A model of noise whose tokenizer is byte-level BPE."""
    tokens = tiny_model.vocabulary()
    shape = tmp_path / "shape.json"
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"intermediate_size": 32, "vocab_size": len(tokens) + 3, "torch_dtype": "bfloat16"}
    names = {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True}
    shape.write_text(json.dumps({**sizes, **more, **names, "max_position_embeddings": 512}))
    folder = tmp_path / "model"
    assert weft("save", "--random-weights", shape, folder).returncode == 0
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": name, "special": True, "normalized": False}
            for i, name in enumerate(tiny_model.SPECIALS)
        ],
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": SPLITS[pre]},
        "post_processor": None,
        "decoder": BYTES,
        "model": {
            "type": "BPE",
            "vocab": {t: i for i, t in enumerate(tokens) if t not in tiny_model.SPECIALS},
            "merges": tiny_model.MERGES,
            "ignore_merges": pre == "llama-bpe",
        },
    }
    config = {"eos_token": "<|im_end|>", "bos_token": "<|endoftext|>", "add_bos_token": False}
    config["chat_template"] = tiny_model.TEMPLATE
    config["model_max_length"] = 10**30
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("pre", SPLITS)
def test_the_tokenizer(tmp_path, pre):
    """The file makes the same tokens of a text as the folder, and has its template."""
    folder = small_folder(tmp_path, pre)
    target = tmp_path / "new.gguf"
    said = quantize(folder, target, "q8_0")
    _, keys = read(target)
    assert keys["tokenizer.chat_template"] == tiny_model.TEMPLATE
    assert ("no tokenizer" in said) == (not pre)
    if not pre:
        assert "tokenizer.ggml.model" not in keys
        return
    assert keys["tokenizer.ggml.pre"] == pre
    assert len(keys["tokenizer.ggml.tokens"]) == len(tiny_model.vocabulary()) + 3
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
    answers = [weft("tokenize", "--model", path, stdin=lines) for path in (folder, target)]
    assert answers[0].returncode == 0 and answers[0].stdout == answers[1].stdout
    ids = [json.loads(line)["ids"] for line in answers[0].stdout.splitlines()]
    assert len(ids) == len(TEXTS) and all(ids)


def test_what_is_there_stays(tmp_path):
    target = tmp_path / "new.gguf"
    target.write_text("mine")
    assert_refused(weft("quantize", LLAMA, target), 1, str(target), "--overwrite")
    assert target.read_text() == "mine"
    quantize(LLAMA, target, "q8_0", "--overwrite")
    quantize(target, target, "f16", "--overwrite")  # onto itself
    assert read(target)[0]["blk.0.ffn_up.weight"].tensor_type.name == "F16"
    assert_refused(weft("quantize", LLAMA, tmp_path), 1, "is a folder")
    left = tmp_path / "other.gguf.partial"
    left.touch()
    assert_refused(weft("quantize", LLAMA, tmp_path / "other.gguf"), 1, str(left), "remove it")
    gone = tmp_path / "no" / "where.gguf"
    assert_refused(weft("quantize", LLAMA, gone), 1, "No such file or directory")
    assert_refused(weft("quantize", LLAMA), 2, "IN OUT")
    assert_refused(weft("quantize", tmp_path / "none.gguf", gone), 1, "none.gguf")
    assert_refused(weft("quantize", LLAMA, gone, "--type", "q9"), 2, "q4_k")


def test_numbers_that_do_not_fit(tmp_path):
    """A weight that is no number is told by its tensor's name."""
    tensor = read(LLAMA)[0]["blk.1.ffn_up.weight"]
    data = bytearray(LLAMA.read_bytes())
    data[tensor.data_offset + 400 : tensor.data_offset + 404] = b"\x00\x00\xc0\x7f"
    source = tmp_path / "broken.gguf"
    source.write_bytes(data)
    target = tmp_path / "new.gguf"
    done = weft("quantize", source, target, "--type", "q4_0")
    assert_no_answer(done, 1, "blk.1.ffn_up.weight holds a number that Q4_0 cannot")
    assert list(tmp_path.iterdir()) == [source]


def test_a_full_disk_leaves_nothing(tmp_path):
    """The largest file that the process may write stands for the disk."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, 100 << 10))

    done = subprocess.run(
        [BINARY, "quantize", LLAMA, tmp_path / "new.gguf"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(),
        preexec_fn=limit,
        restore_signals=False,
        timeout=60,
        check=False,
    )
    last = done.stderr.decode().splitlines()[-1]
    assert done.returncode == 1 and done.stdout == b""
    assert last.startswith("weft: cannot write ") and last.endswith("File too large")
    assert not list(tmp_path.iterdir())
