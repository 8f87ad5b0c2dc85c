"""Writes a model as Hugging Face has it, just large enough to be one, right or wrong in one place.

    folder = TinyFolder()                 # LlamaForCausalLM, one layer, seeded bf16 weights
    folder.config["vocab_size"] = 41      # then whatever is to be different
    folder.write(path)                    # config.json and model.safetensors
    folder.write(path, shards=3)          # or several files and their index

A tensor is (dtype, shape, bytes). (Format: the README of Hugging Face's safetensors.)
"""

import json
import random
import struct

WIDTH, HEADS, KV_HEADS, FFN, VOCABULARY = 32, 2, 1, 48, 40
INDEX = "model.safetensors.index.json"


def header(entries, padding=b""):
    """The file's beginning; `entries` is an object, or bytes as they are."""
    data = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    data += padding
    return struct.pack("<Q", len(data)) + data


def describe(tensors):
    """The header's object, the tensors one after the other."""
    entries, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return entries


def safetensors(tensors):
    return header(describe(tensors)) + b"".join(data for _, _, data in tensors.values())


class TinyFolder:
    def __init__(self, dtype="BF16"):
        self.dtype = dtype
        self.numbers = random.Random(5)
        self.config = {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": WIDTH,
            "intermediate_size": FFN,
            "max_position_embeddings": 256,
            "num_attention_heads": HEADS,
            "num_hidden_layers": 1,
            "num_key_value_heads": KV_HEADS,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "vocab_size": VOCABULARY,
        }
        head = WIDTH // HEADS
        layer = {
            "input_layernorm": [WIDTH],
            "mlp.down_proj": [WIDTH, FFN],
            "mlp.gate_proj": [FFN, WIDTH],
            "mlp.up_proj": [FFN, WIDTH],
            "post_attention_layernorm": [WIDTH],
            "self_attn.k_proj": [KV_HEADS * head, WIDTH],
            "self_attn.o_proj": [WIDTH, WIDTH],
            "self_attn.q_proj": [WIDTH, WIDTH],
            "self_attn.v_proj": [KV_HEADS * head, WIDTH],
        }
        self.tensors = {
            "lm_head.weight": self.tensor([VOCABULARY, WIDTH]),
            "model.embed_tokens.weight": self.tensor([VOCABULARY, WIDTH]),
        }
        for name, shape in layer.items():
            self.tensors[f"model.layers.0.{name}.weight"] = self.tensor(shape)
        self.tensors["model.norm.weight"] = self.tensor([WIDTH])

    def tensor(self, shape):
        """Vectors are near 1, as norms are; matrices are small. Exact in all three formats."""
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        base = 1 if len(shape) == 1 else 0
        values = [base + self.numbers.randrange(-32, 33) / 128 for _ in range(count)]
        return (self.dtype, shape, encode(self.dtype, values))

    def write(self, path, shards=1):
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(self.config))
        names, files = list(self.tensors), {}
        for n in range(shards):
            part = names[n * len(names) // shards : (n + 1) * len(names) // shards]
            files[f"model-{n + 1:05}-of-{shards:05}.safetensors"] = part
        if shards == 1:
            files = {"model.safetensors": names}
        else:
            places = {name: file for file, part in files.items() for name in part}
            (path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
        for file, part in files.items():
            (path / file).write_bytes(safetensors({t: self.tensors[t] for t in part}))
        return path


def encode(dtype, values):
    floats = struct.pack(f"<{len(values)}f", *values)
    if dtype == "F32":
        return floats
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    return b"".join(floats[i + 2 : i + 4] for i in range(0, len(floats), 4))
