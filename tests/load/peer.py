#!/usr/bin/env python3
"""weft's CPU engine beside llama.cpp's on the same model and cores, measured in turn.

    python3 -m venv /tmp/peer && /tmp/peer/bin/pip install llama-cpp-python==0.3.36
    /tmp/peer/bin/python tests/load/peer.py --model MODEL.gguf [--rounds 5] [--threads 2]

llama.cpp runs without its extra buffer types, which repack weights for AMX: in some builds they
fault, and weft's own AMX kernels are still to come.

Each round runs `weft bench` at one and at sixteen streams, then llama.cpp at one stream: decode
steps of one token after the same prompt length, neither with HTTP nor sampling beyond the likeliest
token. Prints every round, and the medians with their ratios: only ratios of one run mean anything
on a shared machine.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def weft_rates(args):
    """Tokens a second at 1 and at 16 streams."""
    done = subprocess.run(
        [args.binary, "bench", "--model", args.model, "--threads", str(args.threads), "--json"]
        + ["--batch-sizes", "1,16", "--context-lengths", str(args.prompt)]
        + ["--steps", str(args.steps), "--repeats", "3"],
        check=True,
        capture_output=True,
        text=True,
    )
    results = json.loads(done.stdout)["results"]
    return [result["decode_tokens_per_second"] for result in results]


class Peer:
    """llama.cpp through its C interface: one sequence, no sampling at all."""

    def __init__(self, args):
        import llama_cpp

        self.api = llama_cpp
        self.args = args
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        model_params = llama_cpp.llama_model_default_params()
        model_params.use_extra_bufts = False
        model = llama_cpp.llama_model_load_from_file(args.model.encode(), model_params)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = args.prompt + args.steps + 8
        params.n_threads = params.n_threads_batch = args.threads
        self.context = llama_cpp.llama_init_from_model(model, params)

    def decode(self, tokens):
        array = (self.api.llama_token * len(tokens))(*tokens)
        batch = self.api.llama_batch_get_one(array, len(tokens))
        if self.api.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama.cpp refused a batch")

    def rate(self):
        memory = self.api.llama_get_memory(self.context)
        self.api.llama_memory_clear(memory, True)
        self.decode([1000 + i * 7 % 30000 for i in range(self.args.prompt)])
        began = time.monotonic()
        for i in range(self.args.steps):
            self.decode([1000 + i * 7 % 30000])
        return self.args.steps / (time.monotonic() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--binary", default=str(ROOT / "build" / "weft"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    peer = Peer(args)
    peer.rate()  # warm
    rows = []
    print("round   weft 1   weft 16   llama.cpp 1   (decode tokens/s)")
    for i in range(args.rounds):
        one, sixteen = weft_rates(args)
        rows.append((one, sixteen, peer.rate()))
        print(f"{i + 1:5} {one:8.1f} {sixteen:9.1f} {rows[-1][2]:13.1f}", flush=True)
    one, sixteen, other = (statistics.median(row[k] for row in rows) for k in range(3))
    print(f"median {one:7.1f} {sixteen:9.1f} {other:13.1f}")
    print(f"one stream against llama.cpp: {one / other:.2f}x")
    print(f"16 streams against one: {sixteen / one:.2f}x")
    ratios = sorted(row[0] / row[2] for row in rows)
    print(f"one stream against llama.cpp, round by round: {ratios[0]:.2f}x to {ratios[-1]:.2f}x")


if __name__ == "__main__":
    main()
