"""Calls make from a test, as if from a shell: not with the options, variables and jobserver of the
make that runs the tests."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
VARIABLES = ("BUILD", "CC", "CFLAGS", "LDFLAGS", "OPT", "SANITIZE", "T", "F", "SECS")


def environment():
    """Without WEFT_ variables too: those that steer tests are no options of the server."""
    prefixes = ("MAKE", "MFLAGS", "WEFT_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
    return {k: v for k, v in kept.items() if k not in VARIABLES}


def make(*arguments):
    """The completed process; its output as text."""
    return subprocess.run(
        ["make", "-s", *arguments],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
