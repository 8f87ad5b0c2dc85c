"""Writes a GGUF model that is just large enough to be one.

Architecture llama, one layer, seeded random float32 weights; a byte-level BPE vocabulary of the 256
bytes, a few merges and ChatML's special tokens; the ChatML template. For tests of everything around
the arithmetic.
(Format: ggml's docs/gguf.md.)
"""

import array
import random
import struct

WIDTH, HEADS, KV_HEADS, FFN, CONTEXT = 64, 2, 1, 96, 4096
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "\u0120 w", "o r", "\u0120w or", "l d"]
TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content']"
    " + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
ALIGNMENT = 32


def byte_names():
    """GPT-2's printable name of each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, extra = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in names:
            names[b] = chr(256 + extra)
            extra += 1
    return [names[b] for b in range(256)]


def vocabulary(control=()):
    return SPECIALS + byte_names() + [m.replace(" ", "") for m in MERGES] + list(control)


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, kind, data):
    return text(name) + struct.pack("<I", kind) + data


def strings(values):
    return struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values))


def metadata(tokens, control=0):
    count = len(tokens)
    types = [3] * len(SPECIALS) + [1] * (count - len(SPECIALS) - control) + [3] * control
    u32 = lambda name, value: key(name, U32, struct.pack("<I", value))
    return [
        key("general.architecture", STRING, text("llama")),
        key("general.name", STRING, text("tiny")),
        u32("general.file_type", 0),
        u32("llama.context_length", CONTEXT),
        u32("llama.embedding_length", WIDTH),
        u32("llama.block_count", 1),
        u32("llama.feed_forward_length", FFN),
        u32("llama.attention.head_count", HEADS),
        u32("llama.attention.head_count_kv", KV_HEADS),
        u32("llama.rope.dimension_count", WIDTH // HEADS),
        u32("llama.vocab_size", count),
        key("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
        key("llama.rope.freq_base", F32, struct.pack("<f", 10000.0)),
        key("tokenizer.ggml.model", STRING, text("gpt2")),
        key("tokenizer.ggml.pre", STRING, text("smollm")),
        key("tokenizer.ggml.tokens", ARRAY, strings(tokens)),
        key("tokenizer.ggml.merges", ARRAY, strings(MERGES)),
        key(
            "tokenizer.ggml.token_type",
            ARRAY,
            struct.pack(f"<IQ{count}i", I32, count, *types),
        ),
        u32("tokenizer.ggml.bos_token_id", 1),
        u32("tokenizer.ggml.eos_token_id", 2),
        u32("tokenizer.ggml.unknown_token_id", 0),
        key("tokenizer.ggml.add_bos_token", BOOL, b"\0"),
        key("tokenizer.chat_template", STRING, text(TEMPLATE)),
    ]


def tensors(count):
    """(name, [columns, rows]); a norm has columns only."""
    head = WIDTH // HEADS
    return [
        ("token_embd.weight", [WIDTH, count]),
        ("blk.0.attn_norm.weight", [WIDTH]),
        ("blk.0.attn_q.weight", [WIDTH, WIDTH]),
        ("blk.0.attn_k.weight", [WIDTH, KV_HEADS * head]),
        ("blk.0.attn_v.weight", [WIDTH, KV_HEADS * head]),
        ("blk.0.attn_output.weight", [WIDTH, WIDTH]),
        ("blk.0.ffn_norm.weight", [WIDTH]),
        ("blk.0.ffn_gate.weight", [WIDTH, FFN]),
        ("blk.0.ffn_up.weight", [WIDTH, FFN]),
        ("blk.0.ffn_down.weight", [FFN, WIDTH]),
        ("output_norm.weight", [WIDTH]),
    ]


def write(path, seed=1, control=()):
    """`control` are more control tokens, at the vocabulary's end."""
    numbers = random.Random(seed)
    words = vocabulary(control)
    count = len(words)
    keys = metadata(words, len(control))
    entries, data = b"", b""
    for name, shape in tensors(count):
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * size if len(shape) == 1 else [numbers.gauss(0, 0.1) for _ in range(size)]
        entries += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += array.array("f", values).tobytes()
        data += b"\0" * (-len(data) % ALIGNMENT)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors(count)), len(keys))
    head += b"".join(keys) + entries
    head += b"\0" * (-len(head) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(head + data)
