"""Protects: mixtures of experts in GGUF files. Golden checkpoints, written here as llama.cpp's
converter writes them (experts stacked; for Mixtral also each by itself, as the first files had
them), are the same models as their folders. A file that contradicts itself is refused.
"""

import json
import os
import pathlib
import struct

import gguf
import numpy
import pytest

from test_cli import weft
from test_goldens_http import EXACT_LOGPROB_ERROR, EXACT_MARGIN, check_greedy
from weft import Weft

ROOTS = [pathlib.Path(__file__).parents[1] / "data" / "arch"]
if os.environ.get("WEFT_GOLDENS"):
    ROOTS.append(pathlib.Path(os.environ["WEFT_GOLDENS"]) / "arch")

MODEL = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
EXPERT = {
    **{"w1": "gate", "w2": "down", "w3": "up"},
    **{"gate_proj": "gate", "down_proj": "down", "up_proj": "up"},
}
ARCHS = {
    "mixtral": "llama",
    "hf_qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "gpt_oss": "gpt-oss",
}


def read_folder(folder):
    tensors = {}
    for path in folder.glob("*.safetensors"):
        data = path.read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            first, end = (8 + size + offset for offset in entry["data_offsets"])
            assert entry["dtype"] == "BF16"
            words = numpy.frombuffer(data[first:end], "<u2").astype(numpy.uint32) << 16
            tensors[name] = words.view(numpy.float32).reshape(entry["shape"])
    return tensors


def by_pairs(matrix, heads):
    """Rows of q or k as GGUF's llama has them: what rotates together lies together."""
    rows, columns = matrix.shape
    halves = matrix.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def rename(name, tensor, arch, config):
    """(name, tensor) pairs of GGUF for one of Transformers' that belongs to no single expert."""
    if name in MODEL:
        return [(MODEL[name], tensor)]
    _, _, layer, rest = name.split(".", 3)
    block = f"blk.{layer}."
    if rest == "self_attn.sinks":
        return [(block + "attn_sinks.weight", tensor)]
    if rest.startswith("mlp.experts."):  # GPT-OSS's
        end = "bias" if rest.endswith("_bias") else "weight"
        turned = tensor if end == "bias" else tensor.swapaxes(1, 2)
        if "gate_up" in rest:
            return [
                (f"{block}ffn_gate_exps.{end}", turned[:, 0::2]),
                (f"{block}ffn_up_exps.{end}", turned[:, 1::2]),
            ]
        return [(f"{block}ffn_down_exps.{end}", turned)]
    stem, end = rest.rsplit(".", 1)
    target = LAYER[stem]
    if arch == "gpt-oss" and target == "ffn_norm":
        target = "post_attention_norm"
    if arch == "llama" and target in ("attn_q", "attn_k"):
        key = "num_attention_heads" if target == "attn_q" else "num_key_value_heads"
        tensor = by_pairs(tensor, config[key])
    if target == "ffn_gate_inp_shexp":
        tensor = tensor.reshape(-1)
    return [(f"{block}{target}.{end}", tensor)]


def convert(folder, target, stacked=True, **more):
    config = json.loads((folder / "config.json").read_text())
    arch = ARCHS[folder.name]
    writer = gguf.GGUFWriter(target, arch)
    head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    experts = config.get("num_experts") or config["num_local_experts"]
    width = config.get("moe_intermediate_size")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    numbers = {
        "block_count": config["num_hidden_layers"],
        "context_length": config.get("max_position_embeddings", 32768),
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": head_size,
        "attention.value_length": head_size,
        "expert_count": experts,
        "expert_used_count": config["num_experts_per_tok"],
        "expert_feed_forward_length": width,
        "expert_shared_feed_forward_length": config.get("shared_expert_intermediate_size"),
        "attention.sliding_window": config.get("sliding_window") if arch == "gpt-oss" else None,
        "rope.scaling.original_context_length": rope.get("original_max_position_embeddings"),
        **more,
    }
    for key, value in numbers.items():
        if value is not None:
            writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", config.get("rms_norm_eps", 1e-6))
    base = config.get("rope_theta") or rope.get("rope_theta", 10000.0)
    writer.add_float32(f"{arch}.rope.freq_base", base)
    if "factor" in rope:
        writer.add_string(f"{arch}.rope.scaling.type", "yarn")
        writer.add_float32(f"{arch}.rope.scaling.factor", rope["factor"])
    single = {}
    for name, tensor in read_folder(folder).items():
        if ".experts." in name and name.endswith(".weight"):
            parts = name.split(".")
            key = (parts[2], EXPERT[parts[-2]])
            single.setdefault(key, {})[int(parts[-3])] = tensor
            continue
        for new, values in rename(name, tensor, arch, config):
            writer.add_tensor(new, numpy.ascontiguousarray(values))
    for (layer, kind), tensors in single.items():
        if stacked:
            stack = numpy.stack([tensors[i] for i in range(experts)])
            writer.add_tensor(f"blk.{layer}.ffn_{kind}_exps.weight", stack)
            continue
        for i in range(experts):
            writer.add_tensor(f"blk.{layer}.ffn_{kind}.{i}.weight", tensors[i])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def folders():
    return [root / name for root in ROOTS for name in ARCHS if (root / name).is_dir()]


CASES = [(folder, True) for folder in folders()]
CASES += [(folder, False) for folder in folders() if folder.name == "mixtral"]


@pytest.mark.parametrize(
    "folder, stacked", CASES, ids=[f"{f.name}_{'stacked' if s else 'single'}" for f, s in CASES]
)
def test_same_model(tmp_path, folder, stacked):
    target = tmp_path / "model.gguf"
    convert(folder, target, stacked)
    golden = json.loads((folder / "golden.json").read_text())
    options = ["--cpu-exact", "--max-context", "192", "--max-batch", "4", "--skip-tokenizer"]
    with Weft(*options, model=target, device="cpu") as server:
        check_greedy(server, golden, EXACT_LOGPROB_ERROR, EXACT_MARGIN)


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("expert_used_count", 6, "tokens use 6 of 5 experts"),
        ("expert_count", 4, "ffn_gate_inp.weight is"),
        ("expert_feed_forward_length", 25, "exps.weight is"),
    ],
)
def test_contradictions(tmp_path, key, value, message):
    target = tmp_path / "model.gguf"
    convert(ROOTS[0] / "hf_qwen2_moe", target, **{key: value})
    done = weft("inspect", target)
    assert done.returncode == 1 and message in done.stderr.decode(), done.stderr
