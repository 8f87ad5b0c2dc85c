#!/usr/bin/env python3
"""weft and llama.cpp on the same processors, in turn: tokens a second, and their ratio.

    tests/load/bench_cpu_peer.py --binary build/weft --model MODEL.gguf
    tests/load/bench_cpu_peer.py ... --threads 2 --streams 1,16 --rounds 7

Each round measures weft, then llama.cpp, in processes of their own: decoding `--steps` tokens in
each of so many streams after a prompt of `--prompt` tokens, and reading the prompt. Both compute
the same token ids with greedy choice; model loading and the first, cold run are left out. What is
printed is the median of the rounds and, because a machine is rarely quiet, the share of the
processors that other processes used meanwhile: rounds above `--busy` are measured again.

llama.cpp comes as the Python package llama-cpp-python, which builds it. It is measured through its
C interface (llama_decode, then an argmax over the logits in C), without its Python sampling.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ATTEMPTS_MAX = 5  # at a round, before a busy machine is taken as it is


# --- llama.cpp, in a process of its own -----------------------------------------------------------


def llama_batch(llama, rows, positions, sequences, wanted):
    """One batch: row i is token rows[i] at positions[i] of sequences[i]; logits where wanted[i]."""
    batch = llama.llama_batch_init(len(rows), 0, 1)
    batch.n_tokens = len(rows)
    for i, token in enumerate(rows):
        batch.token[i] = token
        batch.pos[i] = positions[i]
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequences[i]
        batch.logits[i] = wanted[i]
    return batch


def llama_open(llama, options, streams):
    """A model and a context that holds all streams whole."""
    llama.llama_backend_init()
    silent = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(silent, ctypes.c_void_p(0))
    parameters = llama.llama_context_default_params()
    parameters.n_ctx = streams * (options.prompt + options.steps + 16)
    parameters.n_batch = max(options.prompt, streams)
    parameters.n_ubatch = parameters.n_batch
    parameters.n_seq_max = streams
    parameters.n_threads = options.threads
    parameters.n_threads_batch = options.threads
    model = llama.llama_model_load_from_file(
        options.model.encode(), llama.llama_model_default_params()
    )
    context = llama.llama_init_from_model(model, parameters)
    if not context:
        sys.exit("llama.cpp cannot make a context of that size")
    return model, context, silent


def llama_run(llama, context, options, streams):
    """Seconds for all prompts, and for all decode steps."""
    memory = llama.llama_get_memory(context)
    llama.llama_memory_clear(memory, True)
    count = options.prompt
    began = time.monotonic()
    for stream in range(streams):
        rows = [prompt_token(stream, i) for i in range(count)]
        wanted = [i == count - 1 for i in range(count)]
        batch = llama_batch(llama, rows, range(count), [stream] * count, wanted)
        if llama.llama_decode(context, batch) != 0:
            sys.exit("llama_decode failed")
        llama.llama_batch_free(batch)
    llama.llama_synchronize(context)
    prefilled = time.monotonic()
    for step in range(options.steps):
        # Any token costs the same, so nothing is spent on choosing it.
        rows = [prompt_token(stream, step) for stream in range(streams)]
        batch = llama_batch(
            llama, rows, [count + step] * streams, range(streams), [True] * streams
        )
        if llama.llama_decode(context, batch) != 0:
            sys.exit("llama_decode failed")
        llama.llama_batch_free(batch)
    llama.llama_synchronize(context)
    return prefilled - began, time.monotonic() - prefilled


def prompt_token(stream, index):
    return 100 + (stream * 131 + index * 17) % 20000


def measure_llama(options):
    """Prints one line of JSON for each number of streams."""
    import llama_cpp as llama

    for streams in options.streams:
        model, context, _silent = llama_open(llama, options, streams)
        llama_run(llama, context, options, streams)
        prefill, decode = llama_run(llama, context, options, streams)
        print(json.dumps(result(options, streams, prefill, decode)), flush=True)
        llama.llama_free(context)
        llama.llama_model_free(model)


def result(options, streams, prefill_seconds, decode_seconds):
    return {
        "streams": streams,
        "prefill": streams * options.prompt / prefill_seconds,
        "decode": streams * options.steps / decode_seconds,
    }


# --- both, in turn --------------------------------------------------------------------------------


def weft_command(options, streams):
    return [
        options.binary,
        "bench",
        "--json",
        "--model",
        options.model,
        "--threads",
        str(options.threads),
        "--cpu-activations",
        options.activations,
        "--batch-sizes",
        str(streams),
        "--context-lengths",
        str(options.prompt),
        "--prefill-tokens",
        str(max(options.prompt, 256)),
        "--steps",
        str(options.steps),
        "--repeats",
        "1",
    ]


def run_weft(options, streams):
    command = weft_command(options, streams)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    got = json.loads(done.stdout)["results"][0]
    return {
        "prefill": got["prefill_tokens_per_second"],
        "decode": got["decode_tokens_per_second"],
    }


def run_llama(options, streams):
    command = [sys.executable, __file__, "--llama-only", "--streams", str(streams)]
    for name in ("model", "threads", "prompt", "steps"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def busy_seconds():
    """Processor time that the whole machine has used."""
    fields = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    idle = fields[3] + fields[4]
    return (sum(fields[:8]) - idle) / os.sysconf("SC_CLK_TCK")


def children_seconds():
    times = os.times()
    return times.children_user + times.children_system


def quietly(options, run, streams):
    """The result of a run in which others used little, else of the quietest; with their share."""
    best = None
    for _ in range(ATTEMPTS_MAX):
        began, busy, own = time.monotonic(), busy_seconds(), children_seconds()
        got = run(options, streams)
        span = time.monotonic() - began
        others = (busy_seconds() - busy) - (children_seconds() - own)
        got["others"] = max(0.0, others / span / os.cpu_count())
        if best is None or got["others"] < best["others"]:
            best = got
        if best["others"] <= options.busy:
            break
        time.sleep(1)
    return best


def report(options, streams, weft, llama):
    for what in ("decode", "prefill"):
        ours = statistics.median(run[what] for run in weft)
        theirs = statistics.median(run[what] for run in llama)
        others = max(run["others"] for run in weft + llama)
        print(
            f"{streams:3} stream{'s' if streams > 1 else ' '} {what:7}"
            f"  weft {ours:8.1f}  llama.cpp {theirs:8.1f}  ratio {ours / theirs:5.2f}"
            f"  (others used at most {others:.0%})",
            flush=True,
        )
    return statistics.median(run["decode"] for run in weft)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", default="build/weft")
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--streams", default="1,16")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=float, default=0.10, help="share that others may use")
    parser.add_argument("--activations", default="int16", choices=("int16", "f32", "int8"))
    parser.add_argument("--llama-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.streams = [int(x) for x in options.streams.split(",")]
    if options.llama_only:
        measure_llama(options)
        return
    rates = {}
    for streams in options.streams:
        weft, llama = [], []
        for _ in range(options.rounds):
            weft.append(quietly(options, run_weft, streams))
            llama.append(quietly(options, run_llama, streams))
        rates[streams] = report(options, streams, weft, llama)
    first = options.streams[0]
    for streams in options.streams[1:]:
        print(f"weft: {streams} streams / {first}: {rates[streams] / rates[first]:.2f}")


if __name__ == "__main__":
    main()
