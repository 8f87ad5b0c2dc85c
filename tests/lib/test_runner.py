"""Protects tests/run itself: a failure, a crash or an empty run must not look like success."""

import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "run"


@pytest.fixture(scope="module")
def runner():
    loader = importlib.machinery.SourceFileLoader("runner", str(PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("runner", loader))
    loader.exec_module(module)
    return module


def tally_of(runner, text, code=0):
    """What a program that prints `text` and exits with `code` counts."""
    tally = runner.Tally()
    script = f"import sys; print({text!r}); sys.exit({code})"
    runner.run_program([sys.executable, "-c", script], "program", tally, dict(os.environ))
    return tally


def test_tap_is_counted(runner):
    tally = tally_of(runner, "1..3\nok 1 - a\nskip: no data\nnot ok 2 # SKIP b\nok 3 - c")
    assert (tally.passed, tally.failures) == (2, [])
    assert tally.skips == [("program: b", "no data")]


def test_a_failure_is_counted(runner):
    tally = tally_of(runner, "1..2\nok 1 - a\nnot ok 2 - b", code=1)
    assert tally.passed == 1 and tally.failures == ["program: b"]


@pytest.mark.parametrize(
    "text,code",
    [
        ("1..3\nok 1 - a", 0),  # ended early
        ("1..1\nok 1 - a", 139),  # crashed after the last test, or a sanitizer complained
        ("no TAP at all", 0),
        ("", 0),
    ],
)
def test_a_program_that_ends_badly_fails(runner, text, code):
    assert tally_of(runner, text, code).failures


@pytest.mark.parametrize(
    "selection,suites,word",
    [
        ("unit", ["unit"], ""),
        ("protocol/framing", ["protocol"], "framing"),
        ("tidy/columns", ["tidy"], "columns"),
        ("kv_pages", None, "kv_pages"),
    ],
)
def test_selections(runner, selection, suites, word):
    chosen, found = runner.choose(selection, quick=False)
    assert found == word
    assert chosen == suites if suites else len(chosen) > 3


@pytest.mark.parametrize(
    "word,names",
    [
        ("unit/config/test_ring", ["test_ring"]),
        ("kv_pages", ["test_kv_pages"]),
        ("reads_a_real_file", ["test_gguf"]),  # a test in it
        ("no_such_thing", []),
    ],
)
def test_c_programs_are_found_by_module_or_by_test(runner, word, names):
    found = runner.programs(pathlib.Path("build"), runner.PROGRAM_SUITES, word)
    assert [p.name for p in found] == names


def run(*arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, PROGRAM, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_that_is_called_so_is_a_failure():
    word = "no_such_" + "test_anywhere"
    done = run(word)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "0 passed, 0 failed"


def test_the_last_line_and_the_exit_code(runner, capsys):
    tally = runner.Tally()
    tally.add("passed", "a")
    assert runner.report(tally, 1) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"
    tally.add("skipped", "b", "why")
    tally.add("failed", "c")
    assert runner.report(tally, 1) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"
    assert "b: why" in out
