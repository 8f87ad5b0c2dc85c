#!/usr/bin/env python3
"""Remakes kernels/cpu/codebooks.h: the tables of ggml's IQ formats, as the Python package gguf has
them.

Needs gguf and numpy (pip install gguf); `make golden` says so where they are missing.
"""

import pathlib
import sys

try:
    import gguf
    import numpy
except ImportError:
    sys.exit("make_codebooks.py needs the Python packages gguf and numpy")

TARGET = pathlib.Path(__file__).resolve().parents[2] / "kernels/cpu/codebooks.h"
# Name here, class in gguf.quants, bits of a number.
TABLES = [
    ("iq2_xxs", "IQ2_XXS", 2),
    ("iq2_xs", "IQ2_XS", 2),
    ("iq2_s", "IQ2_S", 2),
    ("iq3_xxs", "IQ3_XXS", 3),
    ("iq3_s", "IQ3_S", 3),
    ("iq1", "IQ1_S", 2),
]
HEADER = """\
/* codebooks.h -- made by tests/golden/make_codebooks.py: the vectors of ggml's IQ formats.
 *
 * An entry is a vector of 8 numbers of 2 bits, or (IQ3) of 4 numbers of 3 bits, the first one
 * lowest; each is a position in the format's list of values (dequant_codebook.c). */
#ifndef WEFT_CPU_CODEBOOKS_H
#define WEFT_CPU_CODEBOOKS_H

#include <stdint.h>

/* clang-format off */"""


def entries(kind, bits):
    kind.init_grid()
    grid = numpy.asarray(kind.grid).reshape(kind.grid_shape)
    places = {value: place for place, value in enumerate(kind.grid_map)}
    for vector in grid:
        yield sum(places[int(value)] << bits * i for i, value in enumerate(vector))


def main():
    lines = [HEADER]
    for name, kind, bits in TABLES:
        values = [f"0x{entry:04x}" for entry in entries(getattr(gguf.quants, kind), bits)]
        lines.append(f"static const uint16_t codebook_{name}[{len(values)}] = {{")
        lines += ["    " + ", ".join(values[i : i + 12]) + "," for i in range(0, len(values), 12)]
        lines += ["};", ""]
    lines += ["#endif", ""]
    TARGET.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
