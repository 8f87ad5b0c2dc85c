#!/usr/bin/env python3
"""Constrained output: compiling and token masks of weft, xgrammar and llguidance, in one run.

    make build/tests/load/bench_constraint
    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install llguidance xgrammar tokenizers
    /tmp/peers/bin/python tests/load/bench_constraint.py --tokenizer tokenizer.json \\
        --cases json_schema.json

The cases are schemas with documents that fit; the tokenizer.json (Llama 3.1's, 128k tokens) cuts
the documents into tokens. Each engine compiles each schema, then gives the mask before every token
and after the last. "First" is with a freshly compiled schema, "again" the same documents once more.
Every engine runs on one thread, whose processor time is taken, so that other work on the machine
does not count; the peers are called from Python, which costs each call about a microsecond. A peer
that is not installed is left out; a schema or document that an engine refuses counts in its own
column, and only what it took is timed. A schema of 100 properties is compiled besides.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ENDS = ("<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|endoftext|>")


def byte_alphabet():
    """GPT-2's: the character that stands for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(b): b for b in plain}
    others = [b for b in range(256) if b not in plain]
    return alphabet | {chr(256 + i): b for i, b in enumerate(others)}


def vocabulary(tokenizer):
    """For each id its bytes, None (never text) or "end"."""
    alphabet = byte_alphabet()
    added = {t["id"]: t for t in tokenizer["added_tokens"]}
    pieces = {i: piece for piece, i in tokenizer["model"]["vocab"].items()}
    for i in range(max([*pieces, *added]) + 1):
        if i in added:
            yield "end" if added[i]["content"] in ENDS else None
        else:
            yield bytes(alphabet[c] for c in pieces[i]) if i in pieces else None


def hundred_properties():
    kinds = ({"type": "string"}, {"type": "integer"}, {"type": "boolean"})
    properties = {f"property_{i:02}": kinds[i % 3] for i in range(100)}
    return {
        "type": "object",
        "properties": properties,
        "required": [f"property_{i:02}" for i in range(0, 100, 2)],
        "additionalProperties": False,
    }


def read_cases(path, encode):
    cases = []
    for case in json.loads(path.read_text())["cases"]:
        texts = [document["compact"] for document in case["valid"]]
        cases.append({"kind": "schema", "source": case["schema"], "texts": texts})
    cases.append({"kind": "schema", "source": hundred_properties(), "texts": []})
    for case in cases:
        case["texts"] = [encode(text) for text in case["texts"]]
    return cases


def run_weft(binary, cases, tokens):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        names = {None: "-", "end": "end"}
        lines = [t.hex() if isinstance(t, bytes) else names[t] for t in tokens]
        (folder / "vocabulary").write_text("\n".join(lines) + "\n")
        (folder / "cases").write_text("".join(json.dumps(c) + "\n" for c in cases))
        command = [binary, folder / "vocabulary", folder / "cases"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    sys.stderr.write(done.stderr)
    result = json.loads(done.stdout)
    result["refused"] = done.stderr.count("refused:")
    return result


def run_peer(compile_schema, start, mask, accept, cases):
    """A peer's times, of the same form."""
    result = {"compile": [], "cold": [], "warm": [], "unfit": 0, "refused": 0}
    for case in cases:
        begin = time.thread_time_ns()
        try:
            compiled = compile_schema(json.dumps(case["source"]))
        except Exception:  # each peer has its own kind
            result["refused"] += 1
            continue
        result["compile"].append(time.thread_time_ns() - begin)
        for name in ("cold", "warm"):
            for text in case["texts"]:
                matcher = start(compiled)
                fits = True
                for token in [*text, None]:
                    begin = time.thread_time_ns()
                    mask(matcher)
                    result[name].append(time.thread_time_ns() - begin)
                    if token is not None and not accept(matcher, token):
                        fits = False
                        break
                result["unfit"] += name == "cold" and not fits
    return result


def run_xgrammar(cases, tokens):
    import xgrammar

    words = [t if isinstance(t, bytes) else b"" for t in tokens]
    ends = [i for i, t in enumerate(tokens) if t == "end"]
    info = xgrammar.TokenizerInfo(words, stop_token_ids=ends)
    bitmask = xgrammar.allocate_token_bitmask(1, len(words))

    def compile_schema(source):
        compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        return compiler.compile_json_schema(
            source, any_whitespace=False, separators=(",", ":"), strict_mode=True
        )

    return run_peer(
        compile_schema,
        xgrammar.GrammarMatcher,
        lambda matcher: matcher.fill_next_token_bitmask(bitmask),
        lambda matcher, token: matcher.accept_token(token),
        cases,
    )


def run_llguidance(cases, tokenizer_path):
    import llguidance
    import llguidance.numpy

    tokenizer = llguidance.LLTokenizer(str(tokenizer_path))
    bitmask = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)

    def compile_schema(source):
        options = {"whitespace_flexible": False}
        grammar = llguidance.LLMatcher.grammar_from_json_schema(source, defaults=options)
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        if matcher.get_error():
            raise ValueError(matcher.get_error())
        return matcher

    return run_peer(
        compile_schema,
        lambda compiled: compiled.deep_copy(),
        lambda matcher: llguidance.numpy.fill_next_token_bitmask(matcher, bitmask, 0),
        lambda matcher, token: matcher.consume_token(token),
        cases,
    )


def percentile(times, share):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * share))] if times else float("nan")


def row(name, result, base):
    cells = [name]
    for which in ("cold", "warm"):
        for value, of in (
            (statistics.median(result[which]), statistics.median(base[which])),
            (percentile(result[which], 0.99), percentile(base[which], 0.99)),
            (max(result[which]), max(base[which])),
        ):
            ratio = "" if result is base else f" ({value / of:.1f}x)"
            cells.append(f"{value / 1000:.1f}{ratio}")
    compile_ms = [c / 1e6 for c in result["compile"]]
    cells.append(f"{statistics.median(compile_ms):.2f}")
    cells.append(f"{max(compile_ms):.2f}")
    cells.append(f"{compile_ms[-1]:.2f}")
    cells.append(f"{result['refused']} / {result['unfit']}")
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--binary", default="build/tests/load/bench_constraint")
    parser.add_argument("--tokenizer", required=True, type=pathlib.Path)
    parser.add_argument("--cases", required=True, type=pathlib.Path)
    options = parser.parse_args()
    try:
        import tokenizers
    except ImportError:
        sys.exit("the package tokenizers is needed to cut the documents into tokens")
    encoder = tokenizers.Tokenizer.from_file(str(options.tokenizer))
    tokens = list(vocabulary(json.loads(options.tokenizer.read_text())))
    cases = read_cases(
        options.cases, lambda text: encoder.encode(text, add_special_tokens=False).ids
    )
    weft = run_weft(options.binary, cases, tokens)
    rows = [row("weft", weft, weft)]
    for name, run in (
        ("xgrammar", lambda: run_xgrammar(cases, tokens)),
        ("llguidance", lambda: run_llguidance(cases, options.tokenizer)),
    ):
        try:
            rows.append(row(name, run(), weft))
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    print(f"{len(tokens)} tokens, {weft['nodes']} nodes, {len(weft['cold'])} masks;", end=" ")
    print(f"weft's largest cache: {weft['memory'] / 1024:.0f} KiB\n")
    print("| engine | first, us: p50 | p99 | max | again, us: p50 | p99 | max |", end="")
    print(" compile, ms: p50 | max | 100 properties | refused / unfit |")
    print("|" + "---|" * 11)
    print("\n".join(rows))


if __name__ == "__main__":
    main()
