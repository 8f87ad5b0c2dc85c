"""What the protocol tests share: a tiny model, a server for each file, and servers with options."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

from weft import Weft  # noqa: E402
import tiny_model  # noqa: E402


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A model file small enough to make afresh: byte-level BPE, ChatML, one layer."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    tiny_model.write(path)
    return path


@pytest.fixture(scope="module")
def server(model):
    """One server for the tests of a file that do not change it."""
    options = ["--null-step-us", 1000, "--max-body-bytes", 1 << 20, "--header-timeout", 3]
    with Weft(*options, model=model) as running:
        yield running


@pytest.fixture
def start(model):
    """Starts servers with the test's own options; all are stopped at its end."""
    started = []

    def start_one(*options, **more):
        server = Weft(*options, model=more.pop("model", model), **more)
        started.append(server)
        return server.start()

    yield start_one
    for server in started:
        server.stop()
