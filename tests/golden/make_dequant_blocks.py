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
TYPES = (
    "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ3_XXS IQ3_S IQ2_XXS "
    "IQ2_XS IQ2_S IQ1_S IQ1_M TQ1_0 TQ2_0 MXFP4 NVFP4"
).split()
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
    "IQ4_XS": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ1_S": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
}


def make_block(name, random):
    kind = gguf.GGMLQuantizationType[name]
    _, size = gguf.GGML_QUANT_SIZES[kind]
    block = random.integers(0, 256, size, dtype=numpy.uint8)
    for at in HALVES.get(name, []):
        value = numpy.float16(random.uniform(-0.1, 0.1))
        block[at : at + 2] = numpy.frombuffer(value.tobytes(), dtype=numpy.uint8)
    if name == "IQ1_M":  # its f16 lies in four pieces, the last of which has the sign and exponent
        block[55] = 0x20 | block[55] & 0x8F
    if name == "MXFP4":  # an exponent
        block[0] = random.integers(100, 130)
    return block, gguf.quants.dequantize(block, kind).astype(numpy.float32).ravel()


def rows(values, count):
    for i in range(0, len(values), count):
        yield "    " + ", ".join(values[i : i + count]) + ","


def main():
    random = numpy.random.default_rng(20261130)
    lines = [
        "/* dequant_blocks.h -- made by tests/golden/make_dequant_blocks.py: a block of random",
        " * bits in each format, and its values (bits of floats) by the Python package gguf. */",
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
        lines.append("};")
        lines += [f"static const uint32_t values_{name}[{len(values)}] = {{"]
        bits = values.view(numpy.uint32)
        lines += rows([f"0x{value:08x}" for value in bits], 8)
        lines += ["};", ""]
    lines += ["#endif", ""]
    TARGET.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
