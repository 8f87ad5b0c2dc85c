#!/usr/bin/env python3
"""Remakes tests/unit/kernels/dequant_blocks.h: blocks of random bits in every stored format, and
the floats that they stand for by the Python package gguf, which is the reference.

Needs gguf and numpy (pip install gguf); `make golden` says so where they are missing.
"""

import pathlib
import sys

try:
    import gguf
    import numpy
except ImportError:
    sys.exit("make_dequant_blocks.py needs the Python packages gguf and numpy")

TARGET = pathlib.Path(__file__).resolve().parents[1] / "unit/kernels/dequant_blocks.h"
TYPES = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL".split()
# Where the f16 numbers of a block lie; random bits there could be infinite.
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
}


def make_block(name, random):
    kind = gguf.GGMLQuantizationType[name]
    _, size = gguf.GGML_QUANT_SIZES[kind]
    block = random.integers(0, 256, size, dtype=numpy.uint8)
    for at in HALVES[name]:
        value = numpy.float16(random.uniform(-0.1, 0.1))
        block[at : at + 2] = numpy.frombuffer(value.tobytes(), dtype=numpy.uint8)
    return block, gguf.quants.dequantize(block, kind).astype(numpy.float32).ravel()


def rows(values, count):
    for i in range(0, len(values), count):
        yield "    " + ", ".join(values[i : i + count]) + ","


def as_c(value):
    text = f"{value:.9g}"
    return text + ("f" if "." in text or "e" in text else ".0f")


def main():
    random = numpy.random.default_rng(20261130)
    lines = [
        "/* dequant_blocks.h -- made by tests/golden/make_dequant_blocks.py: a block of random",
        " * bits in each format, and its values by the Python package gguf. */",
        "#ifndef WEFT_TEST_DEQUANT_BLOCKS_H",
        "#define WEFT_TEST_DEQUANT_BLOCKS_H",
        "",
        "#include <stdint.h>",
        "",
        "/* clang-format off */",
    ]
    for name in TYPES:
        block, values = make_block(name, random)
        lines.append(f"static const uint8_t block_{name}[{len(block)}] = {{")
        lines += rows([f"0x{byte:02x}" for byte in block], 16)
        lines += ["};", f"static const float values_{name}[{len(values)}] = {{"]
        lines += rows([as_c(value) for value in values], 5)
        lines += ["};", ""]
    lines += ["#endif", ""]
    TARGET.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
