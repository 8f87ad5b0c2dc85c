"""Protects the load program: its arithmetic, and a short run on the null device in which every
stream is whole and the pace is the device's."""

import pathlib
import re
import subprocess
import sys

import tiny_model
from load import percentile, throughput
from streams import Stream
from weft import BINARY

STEP_US = 2000


def stream(sent, times):
    made = Stream()
    made.sent, made.times, made.ids = sent, times, [1] * len(times)
    return made


def test_percentiles():
    values = list(range(1, 101))
    assert percentile(values, 0.5) == 51 and percentile(values, 0.99) == 100
    assert percentile([3], 0.99) == 3


def test_throughput_counts_only_while_all_are_busy():
    """Two clients at ten tokens a second; one runs for two seconds longer."""
    short = [stream(0.0, [n / 10 for n in range(1, 31)])]
    long = [stream(0.0, [n / 10 for n in range(1, 51)])]
    assert abs(throughput([short, long]) - 20) < 0.1


def test_a_short_run(tmp_path):
    model = tmp_path / "tiny.gguf"
    tiny_model.write(model)
    program = pathlib.Path(__file__).with_name("load.py")
    command = [sys.executable, program, "--binary", BINARY, "--model", model, "--device", "null"]
    command += ["--streams", "1,50", "--requests", "2", "--prompt", "20", "--tokens", "40"]
    command += ["--", "--null-step-us", str(STEP_US)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(
        r"^ +(\d+) +([\d.]+) / +([\d.]+) +([\d.]+) / +([\d.]+) +([\d.]+)$", done.stdout, re.M
    )
    assert [r[0] for r in rows] == ["1", "50"]
    for streams, _, _, itl, _, rate in rows:
        assert float(itl) >= 0.8 * STEP_US / 1000
        assert float(rate) <= 1.3 * int(streams) * 1e6 / STEP_US
