"""Servers that the end-to-end tests share: one on the null device, one with the demo model."""

import os
import pathlib

import pytest

import tiny_model
from weft import Weft

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
DEMO_MODEL = CACHE / "weft" / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A model file small enough to make afresh: byte-level BPE, ChatML, one layer."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    tiny_model.write(path)
    return path


@pytest.fixture(scope="module")
def null_server(tiny):
    """Echoes each prompt, a token a millisecond."""
    with Weft("--null-step-us", 1000, model=tiny) as server:
        yield server


@pytest.fixture
def start(tiny):
    """Starts servers with the test's own options; all are stopped at its end."""
    started = []

    def start_one(*options, model=tiny, **more):
        server = Weft(*options, model=model, **more)
        started.append(server)
        return server.start()

    yield start_one
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def demo_model():
    if pathlib.Path(os.environ.get("WEFT_TEST_BUILD", "")).name in ("asan", "ubsan", "tsan"):
        pytest.skip("the demo model takes minutes under a sanitizer; tiny models run instead")
    assert DEMO_MODEL.is_file(), "the demo model is missing: run deploy/fetch-demo-model"
    return DEMO_MODEL


@pytest.fixture(scope="session")
def demo_server(demo_model):
    """The demo model on the CPU, as `make serve` starts it."""
    with Weft("--max-queue", 4096, model=demo_model, device="cpu") as server:
        yield server
