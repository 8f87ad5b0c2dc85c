"""Protects: `weft bench` beyond its plain table: the file of --trace, and what --ablation needs."""

import json

import pytest

from test_cli import assert_no_answer, assert_refused, weft


@pytest.mark.parametrize("device", ["cpu", "null"])
def test_bench_trace(tmp_path, tiny, device):
    path = tmp_path / "trace.json"
    options = ["--batch-sizes", "1,2", "--context-lengths", 40, "--steps", 8, "--repeats", 1]
    done = weft("bench", "--model", tiny, "--device", device, "--trace", path, *options)
    assert done.returncode == 0, done.stderr.decode()
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    assert sorted(names.values()) == ["host", "lane 0"]
    assert [s["ts"] for s in spans] == sorted(s["ts"] for s in spans)
    tracks = {name: [s for s in spans if names[s["tid"]] == name] for name in names.values()}
    # Every step once on each track, in order, and on the lane one after the other.
    steps = list(range(len(tracks["lane 0"])))
    assert len(steps) >= 2 * (1 + 8)
    for name in ("submit", "wait", "complete"):
        assert [s["args"]["step"] for s in tracks["host"] if s["name"] == name] == steps
    assert [s["args"]["step"] for s in tracks["lane 0"]] == steps
    assert {s["name"] for s in tracks["lane 0"]} == {"prefill", "decode"}
    assert tracks["lane 0"][0]["args"]["tokens"] == 40
    assert tracks["lane 0"][-1]["args"]["tokens"] == 2
    for before, after in zip(tracks["lane 0"], tracks["lane 0"][1:]):
        assert before["ts"] + before["dur"] <= after["ts"] + 0.0015
    # The device begins a step after its submission began, and it completes after it ended.
    submits = [s for s in tracks["host"] if s["name"] == "submit"]
    completes = [s for s in tracks["host"] if s["name"] == "complete"]
    for submit, lane, complete in zip(submits, tracks["lane 0"], completes):
        assert submit["ts"] <= lane["ts"]
        assert lane["ts"] + lane["dur"] <= complete["ts"] + complete["dur"] + 0.0015


def test_bench_trace_faults(tmp_path, tiny):
    missing = tmp_path / "none" / "trace.json"
    assert_no_answer(weft("bench", "--model", tiny, "--trace", missing), 1, str(missing))
    done = weft("bench", "--model", tiny, "--trace", tmp_path / "trace.json", "--ablation")
    assert_refused(done, 2, "--trace", "--ablation")
    full = weft("bench", "--model", tiny, "--device", "null", "--trace", "/dev/full")
    assert full.returncode == 1 and b"Cannot write the trace" in full.stderr


def test_bench_lists(tiny):
    for option, value in ("batch-sizes", "0"), ("batch-sizes", "1,"), ("context-lengths", "x"):
        done = weft("bench", "--model", tiny, f"--{option}", value)
        assert_refused(done, 2, f"--{option}", "accepted is a list")


def test_bench_ablation_needs_a_gpu(tiny):
    for device in ("cpu", "null"):
        done = weft("bench", "--model", tiny, "--ablation", "--device", device)
        assert_refused(done, 1, "--ablation needs a GPU")
