"""Protects: `weft save`. The folder is what Transformers expects of the class: names, shapes and
types, read by the safetensors package; the values are the generator's, computed here anew; a
failure leaves nothing behind.
"""

import json
import os
import re
import resource
import signal
import subprocess
from pathlib import Path

import numpy
import pytest
import safetensors

from test_cli import assert_refused, environment, weft
from weft import BINARY, ROOT, Weft

DATA = ROOT / "tests" / "data" / "arch"
SIZES = {
    "hidden_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "intermediate_size": 100,
    "vocab_size": 1003,
    "max_position_embeddings": 512,
}
NUMPY_TYPES = {"F32": numpy.float32, "F16": numpy.float16, "BF16": numpy.uint16}


def expected_tensors(config):
    """Name to shape, as LlamaForCausalLM and Qwen3ForCausalLM of Transformers store them."""
    width, ffn = config["hidden_size"], config["intermediate_size"]
    vocabulary = config["vocab_size"]
    heads = config["num_attention_heads"]
    head = config.get("head_dim", width // heads)
    kv = config["num_key_value_heads"] * head
    shapes = {"model.embed_tokens.weight": [vocabulary, width], "model.norm.weight": [width]}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [vocabulary, width]
    for layer in range(config["num_hidden_layers"]):
        inside = {
            "input_layernorm": [width],
            "post_attention_layernorm": [width],
            "self_attn.q_proj": [heads * head, width],
            "self_attn.k_proj": [kv, width],
            "self_attn.v_proj": [kv, width],
            "self_attn.o_proj": [width, heads * head],
            "mlp.gate_proj": [ffn, width],
            "mlp.up_proj": [ffn, width],
            "mlp.down_proj": [width, ffn],
        }
        if config["architectures"] == ["Qwen3ForCausalLM"]:
            inside |= {"self_attn.q_norm": [head], "self_attn.k_norm": [head]}
        for name, shape in inside.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return shapes


def read_folder(folder, checked=True):
    """Name to (type, shape, bytes)."""
    tensors = {}
    for path in folder.glob("*.safetensors"):
        with safetensors.safe_open(path, framework="np") as opened:
            assert not checked or opened.metadata() == {"format": "pt"}
        for name, tensor in safetensors.deserialize(path.read_bytes()):
            assert name not in tensors
            tensors[name] = tensor["dtype"], tensor["shape"], bytes(tensor["data"])
    return tensors


def generated(name, count, centre, deviation):
    """kernels/random_weight.h in other words: float32 values."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with numpy.errstate(over="ignore"):
        bits = numpy.uint64(seed) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(
            0x9E3779B97F4A7C15
        )
        bits = (bits ^ bits >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ bits >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
        bits ^= bits >> numpy.uint64(31)
    total = sum((bits >> numpy.uint64(s) & numpy.uint64(0xFFFF)).astype(numpy.int64)
                for s in (0, 16, 32, 48))
    step = numpy.float32(deviation) / numpy.float32(37837.2)
    offset = int(numpy.float32(centre) / step)
    return (total - 2 * 0xFFFF + offset).astype(numpy.float32) * step


def stored(values, kind):
    """As the file has them."""
    if kind == "BF16":
        bits = values.view(numpy.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)
    return values.astype(NUMPY_TYPES[kind])


def parameters_of(name, shape, layers):
    """Centre and deviation that engine/model_random.c gives a tensor."""
    if len(shape) == 1:
        return (4.0 if name == "model.norm.weight" else 1.0), 0.0625
    one = numpy.float32(1)
    deviation = one / numpy.sqrt(numpy.float32(shape[1]))
    if "embed_tokens" in name:
        deviation *= numpy.float32(0.5)
    if "o_proj" in name or "down_proj" in name:
        ending = one / numpy.sqrt(numpy.float32(2 * layers))
        deviation *= ending * numpy.float32(0.25 if "o_proj" in name else 1)
    return 0.0, deviation


def check_folder(folder, config, kind, part=""):
    """Of all tensors name, shape and type, of those with `part` in their name the values."""
    tensors = read_folder(folder)
    assert {n: t[1] for n, t in tensors.items()} == expected_tensors(config)
    for name, (dtype, shape, data) in tensors.items():
        assert dtype == kind, name
        if part not in name:
            continue
        layers = config["num_hidden_layers"]
        values = generated(name, numpy.prod(shape), *parameters_of(name, shape, layers))
        assert data == stored(values, kind).tobytes(), name


def save(shape, folder):
    done = weft("save", "--random-weights", shape, folder)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == f"{folder}\n"
    assert not folder.with_name(folder.name + ".partial").exists()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3ForCausalLM"])
def test_small_shapes(tmp_path, architecture, kind, tied):
    names = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
    config = {**SIZES, "architectures": [architecture], "tie_word_embeddings": tied}
    config["torch_dtype"] = names[kind]
    path = tmp_path / "shape.json"
    path.write_text(json.dumps(config))
    folder = tmp_path / "model"
    save(path, folder)
    assert sorted(f.name for f in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert (folder / "config.json").read_bytes() == path.read_bytes()
    check_folder(folder, config, kind)
    # What was saved is a shape again, and the same model.
    save(folder / "config.json", tmp_path / "again")
    again = tmp_path / "again" / "model.safetensors"
    assert again.read_bytes() == (folder / "model.safetensors").read_bytes()


def test_smollm2(tmp_path):
    folder = tmp_path / "smollm2"
    save("smollm2-135m", folder)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    check_folder(folder, config, "BF16", part=".layers.29.")


def checkpoints():
    """Folders of every family, as Transformers or a model's maker wrote them."""
    places = [DATA]
    if os.environ.get("WEFT_GOLDENS"):
        places.append(Path(os.environ["WEFT_GOLDENS"]) / "arch")
    return [path.parent for place in places for path in sorted(place.glob("*/config.json"))]


def forms(folder):
    """Name to type and shape; without what classes compute themselves, and with full names."""
    found = {}
    for name, (dtype, shape, _) in read_folder(folder, checked=False).items():
        if re.search(r"\.(inv_freq|attn\.bias|attention\.bias|masked_bias)$", name):
            continue
        for short, full in ("h.", "transformer."), ("decoder.", "model."):
            if name.startswith(short):
                name = full + name
        found[re.sub(r"^(wte|wpe|ln_f|word_embeddings)", r"transformer.\1", name)] = dtype, shape
    return found


@pytest.mark.parametrize("checkpoint", checkpoints(), ids=lambda path: path.name)
def test_every_family_has_its_own_form(tmp_path, checkpoint):
    folder = tmp_path / "model"
    save(checkpoint / "config.json", folder)
    config = json.loads((checkpoint / "config.json").read_text())
    saved = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in saved
    if config.pop("quantization_config", None):
        assert saved == config
        return
    expected = forms(checkpoint)
    if config.get("tie_word_embeddings", checkpoint.name == "falcon_7b"):
        expected.pop("lm_head.weight", None)  # some have it twice
    assert forms(folder) == expected


def test_what_is_there_stays(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    done = weft("save", "--random-weights", "smollm2-135m", folder)
    assert_refused(done, 1, str(folder), "exists already")
    assert list(tmp_path.iterdir()) == [folder]
    left = tmp_path / "other.partial"
    left.mkdir()
    done = weft("save", "--random-weights", "smollm2-135m", tmp_path / "other")
    assert_refused(done, 1, str(left), "remove it")
    done = weft("save", "--random-weights", "smollm2-135m", tmp_path / "no" / "where")
    assert_refused(done, 1, "No such file or directory")
    assert_refused(weft("save", tmp_path / "x"), 2, "--random-weights")
    assert_refused(weft("save", "--random-weights", "smollm2-135m"), 2, "DIR")
    assert_refused(weft("save", "--random-weights", "none", tmp_path / "x"), 1, "'none'")


def test_a_full_disk_leaves_nothing(tmp_path):
    """The largest file that the process may write stands for the disk."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10 << 20, 10 << 20))

    done = subprocess.run(
        [BINARY, "save", "--random-weights", "smollm2-135m", tmp_path / "model"],
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
    assert last.startswith("weft: cannot write ") and "model.safetensors: File too large" in last
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["hf_qwen2_moe", "hf_deepseek_v2_groups"])
def test_mixture_saved_is_the_same_model(tmp_path, name):
    """Experts, shared ones and latent attention: what is computed in place and what is read back
    give the same tokens."""
    shape = DATA / name / "config.json"
    folder = tmp_path / "saved"
    done = weft("save", "--random-weights", shape, folder)
    assert done.returncode == 0, done.stderr.decode()
    body = {"prompt": [3, 1, 4, 1, 5], "max_tokens": 24, "ignore_eos": True}
    body |= {"temperature": 0, "return_token_ids": True}
    answers = []
    options = ["--cpu-exact", "--max-context", "64", "--max-batch", "4"]
    for more, model in (([], folder), (["--random-weights", shape], None)):
        with Weft(*options, *more, model=model, device="cpu") as server:
            status, _, data = server.post("/v1/completions", body)
            assert status == 200, data
            answers.append(json.loads(data)["choices"][0]["token_ids"])
    assert answers[0] == answers[1] and len(answers[0]) == 24


def test_a_missing_option_is_a_wrong_command_line(tmp_path):
    done = subprocess.run(
        [BINARY, "save", tmp_path / "model"],
        capture_output=True,
        env=environment(),
        text=True,
        check=False,
    )
    message = "weft: --random-weights SHAPE is missing: it says what is to be saved\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
    assert list(tmp_path.iterdir()) == []
