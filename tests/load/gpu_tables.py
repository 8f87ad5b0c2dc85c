#!/usr/bin/env python3
"""The tables of docs/benchmarks.md about GPUs, measured in one run, as Markdown.

    python3 tests/load/gpu_tables.py [--binary build/weft] [--python python3] [--quick]

First `weft bench --ablation` for each shape, beside Transformers' `generate`
(transformers_generate.py, run by --python, which needs PyTorch; left out where that fails); then
`weft bench` for the last shape: decoding at more batch sizes, and prefill. Random weights
throughout. Progress goes to standard error, the Markdown to standard output. A few minutes on an
H200; --quick measures less. A folder `lib` beside the binary (as in build/gpu) is where its
libraries are looked for first.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONTEXT = 1024
PREFILL = 2048
MECHANISMS = ["plain loop", "+ graphs", "+ device-fed tokens", "+ sampling stream", "+ lanes"]


class Run:
    """Commands with their times on standard error."""

    def __init__(self, args):
        self.args = args
        self.began = time.monotonic()

    def output(self, *command):
        began = time.monotonic()
        libraries = pathlib.Path(self.args.binary).resolve().parent / "lib"
        own = command[0] == self.args.binary and libraries.is_dir()
        done = subprocess.run(
            [*map(str, command)],
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries)} if own else None,
            capture_output=True,
            text=True,
            check=False,
        )
        now = time.monotonic()
        print(
            f"{now - self.began:6.1f} s  (+{now - began:.1f}) {' '.join(map(str, command))}",
            file=sys.stderr,
            flush=True,
        )
        if done.returncode != 0:
            print(done.stderr[-2000:], file=sys.stderr)
            return None
        return done.stdout

    def bench(self, shape, *options):
        out = self.output(
            *(self.args.binary, "bench", "--random-weights", shape, "--device", "cuda", "--json"),
            *("--repeats", self.args.repeats, "--prefill-tokens", PREFILL, *options),
        )
        return out and json.loads(out)


def machine(run):
    """Card, driver and commit."""
    card = run.output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    version = run.output(run.args.binary, "version") or ""
    commit = next((line.split()[1] for line in version.splitlines() if "commit" in line), "unknown")
    name, driver = [part.strip() for part in (card or "unknown,unknown").splitlines()[0].split(",")]
    return f"{name}, driver {driver}, commit {commit}"


def peer_times(run):
    """{(shape, batch): ms} of Transformers, and its versions."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "peer.json"
        done = run.output(
            *(run.args.python, HERE / "transformers_generate.py", "--json", path),
            *("--shapes", run.args.shapes, "--batch-sizes", run.args.batch_sizes),
            *("--context", CONTEXT),
        )
        if done is None:
            return {}, "Transformers was not measured"
        report = json.loads(path.read_text())
    return {(r["shape"], r["batch"]): r["token_ms"] for r in report["results"]}, report["versions"]


def cell(ms, ratio=None):
    if ms is None:
        return "–"
    return f"{ms:.3f}" if ratio is None else f"{ms:.3f} (×{ratio:.2f})"


def ablation_rows(report):
    """{batch: [cells by mechanism], last and best ms}."""
    rows = {}
    for place, line in enumerate(report["ablation"]):
        if line["mechanism"] != MECHANISMS[place]:
            sys.exit(f"weft calls a mechanism {line['mechanism']!r}")
        for result in line["results"]:
            row = rows.setdefault(result["batch"], {"cells": ["–"] * len(MECHANISMS), "ms": []})
            row["cells"][place] = cell(result["decode_step_ms"], result.get("ratio"))
            row["ms"].append(result["decode_step_ms"])
    return rows


def print_ablation(reports, peer, versions, where):
    steps = next(iter(reports.values()))["steps"]
    print("## What each mechanism gives on a GPU, beside Transformers\n")
    print(f"{where}; {versions}.")
    print(f"Random weights in bf16, context {CONTEXT}, greedy; ms a decode step, {steps} steps a")
    print("measurement, and in brackets how many times as fast as the column before: below 1 a")
    print("mechanism does not pay there. weft runs as in “+ device-fed tokens” unless told")
    print("otherwise; the last column is the peer's time over that.\n")
    print("| shape | batch |", " | ".join(MECHANISMS), "| `generate` | times weft |")
    print("|---" * (len(MECHANISMS) + 4) + "|")
    for shape, report in reports.items():
        for batch, row in ablation_rows(report).items():
            own = row["ms"][2] if len(row["ms"]) == len(MECHANISMS) else None
            theirs = peer.get((shape, batch))
            times = f"{theirs / own:.1f}" if own and theirs else "–"
            cells = " | ".join(row["cells"])
            print(f"| {shape} | {batch} | {cells} | {cell(theirs)} | {times} |")
    print()


def print_speed(shape, decode, prefill, where):
    print("## Decoding and prefill on a GPU\n")
    rate = decode["read_bytes_per_second"] / 1e12
    print(f"{where}; {shape}, random weights in bf16, context {CONTEXT}.")
    print(f"The card's memory was read at {rate:.2f} TB/s in the same run, which is the floor.\n")
    print("| batch | ms a step | tokens/s | of the floor | host µs a step |")
    print("|---|---|---|---|---|")
    for r in decode["results"]:
        print(
            f"| {r['batch']} | {r['decode_step_ms']:.3f} | {r['decode_tokens_per_second']:,.0f} "
            f"| {r['memory_floor_share']:.1%} | {r['host_step_us']:.0f} |"
        )
    print()
    for r in prefill["results"] if prefill else []:
        print(
            f"Prefill of {r['batch']} × {r['context']} tokens: "
            f"{r['prefill_tokens_per_second']:,.0f} tokens/s, "
            f"{r['prefill_tflop_per_second']:.0f} TFLOP/s."
        )
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--binary", default=ROOT / "build" / "weft")
    parser.add_argument("--python", default=sys.executable, help="that has PyTorch")
    parser.add_argument("--shapes", default="smollm2-135m,llama-3.2-1b,llama-3.1-8b")
    parser.add_argument("--batch-sizes", default="1,8,32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one shape, batch 1, one repeat")
    args = parser.parse_args()
    if args.quick:
        args.shapes, args.batch_sizes, args.repeats = "smollm2-135m", "1", 1
    run = Run(args)
    where = machine(run)
    shapes = args.shapes.split(",")
    sizes = ("--batch-sizes", args.batch_sizes, "--context-lengths", CONTEXT)
    reports = {shape: run.bench(shape, "--ablation", *sizes) for shape in shapes}
    reports = {shape: report for shape, report in reports.items() if report}
    peer, versions = peer_times(run)
    if reports:
        print_ablation(reports, peer, versions, where)
    more = ("--batch-sizes", args.batch_sizes if args.quick else "1,8,32,64")
    decode = run.bench(shapes[-1], *more, "--context-lengths", CONTEXT)
    prefill = run.bench(shapes[-1], "--batch-sizes", 1, "--context-lengths", PREFILL)
    if decode:
        print_speed(shapes[-1], decode, prefill, where)
    return 0 if len(reports) == len(shapes) and decode and prefill else 1


if __name__ == "__main__":
    sys.exit(main())
