#!/usr/bin/env python3
"""How fast a checkpoint is loaded, beside how fast its files can be read.

    build/weft save --random-weights llama-3.2-1b /tmp/1b
    python3 tests/load/loading.py --model /tmp/1b [--device cpu] [--rounds 3] [--binary build/weft]

In each round, cold (the files dropped from the page cache by posix_fadvise) and warm: the files are
read from end to end by one stream, and by four at once; then each binary (there may be several, to
be compared) serves the model until it is ready. Seconds are those that it logs for "loading
weights". Memory is what the process held at most meanwhile: anonymous, and pinned or shared (mapped
pages of the files are not in it); processor seconds are of all its threads until it was ready.
Markdown to standard output, progress to standard error. A folder `lib` beside a binary (as in
build/gpu) is where its libraries are looked for first. Exits with 1 when --memory-max-gb is given
and a load took more.
"""

import argparse
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

PIECE = 8 << 20
STREAMS = 4
OPTIONS = ["--port", "0", "--max-context", "512", "--max-batch", "4", "--log-format", "text"]
TICKS = os.sysconf("SC_CLK_TCK")


def files_of(model):
    path = pathlib.Path(model)
    return sorted(path.glob("*.safetensors")) if path.is_dir() else [path]


def drop(files):
    for file in files:
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_parts(parts):
    buffer = bytearray(PIECE)
    for file, begin, end in parts:
        fd = os.open(file, os.O_RDONLY)
        try:
            while begin < end:
                begin += os.preadv(fd, [memoryview(buffer)[: min(PIECE, end - begin)]], begin)
        finally:
            os.close(fd)


def read_seconds(files, streams):
    """Every stream reads the same share of each file."""
    shares = []
    for n in range(streams):
        sizes = [(file, file.stat().st_size) for file in files]
        shares.append([(f, s * n // streams, s * (n + 1) // streams) for f, s in sizes])
    began = time.monotonic()
    threads = [threading.Thread(target=read_parts, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began


def status_bytes(pid, *keys):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return sum(int(re.search(rf"^{key}:\s+(\d+)", text, re.M).group(1)) * 1024 for key in keys)


class Load:
    """One start of a server, until it is ready."""

    def __init__(self, binary, model, device):
        libraries = pathlib.Path(binary).resolve().parent / "lib"
        environment = dict(os.environ)
        if libraries.is_dir():
            environment["LD_LIBRARY_PATH"] = str(libraries)
        self.seconds = self.processor = None
        self.memory = 0
        self.process = subprocess.Popen(
            [binary, "serve", "--model", str(model), "--device", device, *OPTIONS],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        watcher = threading.Thread(target=self.watch, daemon=True)
        watcher.start()
        log = []
        for line in self.process.stderr:
            log.append(line)
            if found := re.search(r'phase="loading weights" seconds=([\d.e-]+)', line):
                self.seconds = float(found.group(1))
            if " ready " in line:
                stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().split()
                self.processor = (int(stat[13]) + int(stat[14])) / TICKS
                break
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        watcher.join()
        if self.seconds is None or self.processor is None:
            sys.exit("".join(log))

    def watch(self):
        while self.process.poll() is None:
            try:
                held = status_bytes(self.process.pid, "RssAnon", "RssShmem", "VmPin")
            except (OSError, AttributeError):  # it has just ended
                return
            self.memory = max(self.memory, held)
            time.sleep(0.01)


def measure(args, files):
    """{(what, temperature): [(seconds, processor seconds, bytes held), ...]}"""
    found = {}
    for n in range(args.rounds):
        for temperature in ("cold", "warm"):
            for streams in (1, STREAMS):
                if temperature == "cold":
                    drop(files)
                seconds = read_seconds(files, streams)
                found.setdefault((f"reading, {streams} at once", temperature), []).append(
                    (seconds, None, None)
                )
            for binary in args.binary:
                if temperature == "cold":
                    drop(files)
                load = Load(binary, args.model, args.device)
                found.setdefault((binary, temperature), []).append(
                    (load.seconds, load.processor, load.memory)
                )
        print(f"round {n + 1} of {args.rounds}", file=sys.stderr, flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", nargs="+", default=["build/weft"])
    parser.add_argument("--memory-max-gb", type=float)
    args = parser.parse_args()
    files = files_of(args.model)
    size = sum(file.stat().st_size for file in files)
    found = measure(args, files)
    print(f"{size / 1e9:.2f} GB in {len(files)} files, {args.device}, {os.cpu_count()} cores")
    print("\n| | page cache | s, median | least | GB/s | processor s | GB held |")
    print("|---|---|---|---|---|---|---|")
    most = 0
    for (what, temperature), runs in found.items():
        seconds = [run[0] for run in runs]
        middle = statistics.median(seconds)
        more = "| | |"
        if runs[0][1] is not None:
            held = max(run[2] for run in runs) / 1e9
            most = max(most, held)
            more = f"| {statistics.median(run[1] for run in runs):.2f} | {held:.2f} |"
        print(
            f"| {what} | {temperature} | {middle:.2f} | {min(seconds):.2f} "
            f"| {size / 1e9 / middle:.2f} {more}"
        )
    return 1 if args.memory_max_gb is not None and most > args.memory_max_gb else 0


if __name__ == "__main__":
    sys.exit(main())
