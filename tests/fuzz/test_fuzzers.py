"""Every fuzzer builds, knows its corpus, and finds nothing in it nor in some seconds around it."""

import pathlib
import subprocess

import pytest

from make import ROOT, make

FOLDER = pathlib.Path(__file__).resolve().parent
TARGETS = sorted(p.stem.removeprefix("fuzz_") for p in FOLDER.glob("fuzz_*.c"))
SECONDS = 4


@pytest.mark.parametrize("target", TARGETS)
def test_corpus(target, tmp_path):
    built = make(f"build/fuzz/{target}")
    assert built.returncode == 0, built.stderr
    corpus = FOLDER / f"corpus_{target}"
    assert any(corpus.iterdir()), "a fuzzer without a corpus starts from nothing"
    command = [ROOT / "build" / "fuzz" / target, f"-max_total_time={SECONDS}", "-seed=1"]
    command += ["-rss_limit_mb=2048", "-timeout=20", f"-artifact_prefix={tmp_path}/"]
    (tmp_path / "found").mkdir()
    done = subprocess.run(
        [*command, tmp_path / "found", corpus],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
