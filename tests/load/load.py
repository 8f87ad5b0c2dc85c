#!/usr/bin/env python3
"""Bounded load on a server of this machine, and how long streams wait for their tokens.

    tests/load/load.py --binary build/weft                     the demo model on the CPU
    tests/load/load.py --binary build/weft --device null       everything but the arithmetic
    tests/load/load.py ... --streams 1,16,64 --requests 4 --prompt 128 --tokens 64

For each number of streams, that many clients each send `--requests` completions, the next as soon
as the last one ended; the first of each is warm-up and not counted. A line says, with the median
and the 99th percentile over all that was counted:

    ttft   milliseconds from sending a request to its first token
    itl    milliseconds between two successive chunks of one stream
    tok/s  tokens of all streams together, over the time in which all of them ran

Exits 1 when a stream was not whole. Needs only Python's standard library; sends nothing anywhere
but to the server that it starts on 127.0.0.1.
"""

import argparse
import asyncio
import os
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

REQUESTS_MAX = 10_000  # all streams together: a bound, not a target
VOCABULARY_USED = 200


def percentile(values, share):
    """The nearest rank; `values` is not empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(seconds):
    """'median / 99th' in milliseconds."""
    return f"{percentile(seconds, 0.5) * 1e3:8.2f} / {percentile(seconds, 0.99) * 1e3:8.2f}"


def throughput(clients):
    """Tokens a second while every client was busy with counted requests."""
    begin = max(client[0].sent for client in clients)
    end = min(client[-1].times[-1] for client in clients)
    if end <= begin:  # too few or too short requests: the whole span
        begin = min(client[0].sent for client in clients)
        end = max(client[-1].times[-1] for client in clients)
    streams = [stream for client in clients for stream in client]
    tokens = 0.0
    for stream in streams:
        inside = sum(begin <= t <= end for t in stream.times)
        tokens += len(stream.ids) * inside / len(stream.times)
    return tokens / (end - begin)


async def drive(server, streams, options):
    """One list of Streams a client, warm-up left out."""
    from streams import open_stream

    async def client(number):
        numbers = random.Random(number)
        got = []
        for _ in range(options.requests + 1):
            prompt = [10 + numbers.randrange(VOCABULARY_USED) for _ in range(options.prompt)]
            body = {
                "prompt": prompt,
                "max_tokens": options.tokens,
                "temperature": 0,
                "ignore_eos": True,
            }
            got.append(await open_stream(server.host, server.port, body))
        return got

    clients = await asyncio.gather(*(client(n) for n in range(streams)))
    broken = [s for c in clients for s in c if not s.whole or len(s.ids) != options.tokens]
    return [c[1:] for c in clients], broken


def measure(server, streams, options):
    clients, broken = asyncio.run(drive(server, streams, options))
    if broken:
        print(f"{len(broken)} streams were not whole: {broken[0].status} {broken[0].error}")
        return False
    counted = [s for c in clients for s in c]
    ttft = [s.times[0] - s.sent for s in counted]
    gaps = [b - a for s in counted for a, b in zip(s.times, s.times[1:])] or [0.0]
    rate = throughput(clients)
    print(f"{streams:7d}  {spread(ttft)}  {spread(gaps)}  {rate:9.1f}", flush=True)
    return True


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="build/weft")
    parser.add_argument("--model", default=None, help="a GGUF file; the demo model by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--streams", type=numbers, default=[1, 4, 16])
    parser.add_argument("--requests", type=int, default=2, help="counted ones of each client")
    parser.add_argument("--prompt", type=int, default=64, help="tokens")
    parser.add_argument("--tokens", type=int, default=64, help="to generate")
    parser.add_argument("more", nargs="*", help="further options of weft serve, after --")
    options = parser.parse_args()
    if max(options.streams) * (options.requests + 1) > REQUESTS_MAX:
        parser.error(f"more than {REQUESTS_MAX} requests")
    os.environ["WEFT_BINARY"] = os.path.abspath(options.binary)
    from weft import Weft  # reads WEFT_BINARY

    good = True
    batch = ["--max-batch", max(options.streams)]
    with Weft(*batch, *options.more, model=options.model, device=options.device) as server:
        print(f"prompt {options.prompt} tokens, answer {options.tokens} tokens, median / 99th")
        print("streams            ttft ms               itl ms            tok/s")
        for streams in options.streams:
            good = measure(server, streams, options) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
