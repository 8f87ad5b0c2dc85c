"""How fast texts become tokens, beside the `tokenizers` library on one thread.

    python tests/load/bench_tokenizer.py [--tokenizers FOLDER]

FOLDER holds archives of real tokenizers (NAME.tar.xz); by default the folder `tokenizers` beside
the one that WEFT_GOLDENS names. The texts are this project's own: its C, its pages, and both cut
up and mixed with the languages of the reference texts. Processor time, the least of three rounds.
Where the library is not installed (pip install tokenizers) weft is measured alone.
"""

import argparse
import json
import lzma
import os
import pathlib
import subprocess
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
try:
    import tokenizers
except ImportError:
    tokenizers = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("qwen3", "llama3_1", "gpt4o", "llama2")
PART_BYTES = 20000
ROUNDS = 3


def texts(goldens):
    code = "".join(path.read_text() for path in sorted(ROOT.glob("engine/**/*.[ch]")))
    pages = "".join(path.read_text() for path in sorted(ROOT.glob("docs/*.md")))
    made = {"code": code, "prose": pages * 8}
    reference = goldens / "tokenizers/qwen3.json.xz"
    if reference.exists():
        cases = json.load(lzma.open(reference))["cases"]
        made["languages"] = "".join(c["text"] for c in cases if len(c["text"]) < 2000) * 20
    made["one letter"] = "a" * 1_000_000
    return made


def parts_of(data, size):
    """The same cuts as bench_tokenizer.c makes."""
    parts, at = [], 0
    while at < len(data):
        end = min(at + size, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        parts.append(data[at:end].decode())
        at = end
    return parts


def time_peer(tokenizer, parts):
    best, count = float("inf"), 0
    for _ in range(ROUNDS):
        began = time.process_time()
        count = sum(len(tokenizer.encode(part, add_special_tokens=False).ids) for part in parts)
        best = min(best, time.process_time() - began)
    return count, best


def main():
    goldens = pathlib.Path(os.environ.get("WEFT_GOLDENS", ""))
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--tokenizers", type=pathlib.Path, default=goldens.parent / "tokenizers")
    options.add_argument("--binary", default=str(ROOT / "build/tests/load/bench_tokenizer"))
    given = options.parse_args()
    if not any((given.tokenizers / f"{name}.tar.xz").exists() for name in NAMES):
        print("tokenizers: not measured, for WEFT_GOLDENS names no folder of reference data")
        return
    if not tokenizers:
        print("tokenizers: the library to compare with is not installed (pip install tokenizers)")
    print(f"{'tokenizer':<10} {'text':<10} {'weft MB/s':>10} {'peer MB/s':>10} {'times':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            archive = given.tokenizers / f"{name}.tar.xz"
            if archive.exists():
                subprocess.run(["tar", "-xJf", archive, "-C", folder], check=True)
                measure(given.binary, name, pathlib.Path(folder, name), texts(goldens))


def measure(binary, name, model, made):
    peer = tokenizers and tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    for kind, text in made.items():
        data = text.encode()
        size = len(data) if kind == "one letter" else PART_BYTES
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            done = subprocess.run(
                [binary, model, file.name, str(size)], check=True, capture_output=True, text=True
            )
        count, _, seconds = done.stdout.split()
        rate = len(data) / float(seconds) / 1e6
        row = f"{name:<10} {kind:<10} {rate:>10.1f}"
        if peer:
            peer_count, peer_seconds = time_peer(peer, parts_of(data, size))
            assert peer_count == int(count), f"{name}, {kind}: {count} tokens, not {peer_count}"
            row += f" {len(data) / peer_seconds / 1e6:>10.1f} {peer_seconds / float(seconds):>6.1f}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
