"""Installing, bundling, and the container's recipe.

No container engine is at hand where these tests run, so the Dockerfile is not built here: what it
copies and calls is checked against the tree instead, and its health check is run as it stands.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import tiny_model
from make import ROOT, make
from weft import BINARY, Weft

BUILD = os.environ.get("WEFT_TEST_BUILD", str(ROOT / "build"))
CUDA = os.path.exists(os.path.join(BUILD, "libweft-cuda.so"))  # where its compiler is
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", "")


def make_here(*arguments):
    """make, with the build that is under test; its output."""
    done = make(f"BUILD={os.path.relpath(BUILD, ROOT)}", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    tiny_model.write(path)
    return path


def test_install_honours_destdir_and_prefix(tmp_path):
    make_here("install", f"DESTDIR={tmp_path}", "PREFIX=/opt/here")
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert all(f.startswith("opt/here/") for f in files)
    assert {
        "opt/here/bin/weft",
        "opt/here/bin/weft-fetch-demo-model",
        "opt/here/lib/systemd/system/weft.service",
        "opt/here/share/doc/weft/README.md",
        "opt/here/share/doc/weft/weft.conf",
    } <= files
    assert ("opt/here/lib/weft/libweft-cuda.so" in files) == CUDA
    unit = (tmp_path / "opt/here/lib/systemd/system/weft.service").read_text()
    assert "ExecStart=/opt/here/bin/weft serve" in unit and "@" not in unit
    version = subprocess.run(
        [tmp_path / "opt/here/bin/weft", "version"], capture_output=True, text=True, check=True
    )
    assert version.stdout.startswith("weft ")
    assert ("no libweft-cuda.so" in version.stdout) != CUDA  # found where it was installed


@pytest.fixture(scope="module")
def bundle():
    if pathlib.Path(BUILD).name in ("asan", "ubsan", "tsan"):
        pytest.skip("bundles are made of plain builds")
    return ROOT / make_here("bundle").split(":")[0]


def test_bundle_is_whole(bundle):
    """Of the libraries that it resolves, only glibc's are outside it."""
    environment = {"LD_LIBRARY_PATH": str(bundle / "lib"), "PATH": os.environ["PATH"]}
    libraries = [bundle / "lib" / "libweft-cuda.so"] if CUDA else []
    command = ["ldd", bundle / "bin" / "weft", *libraries]
    ldd = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    outside = [
        line.split()[0]
        for line in ldd.stdout.splitlines()
        if "=>" in line and str(bundle) not in line
    ]
    assert "not found" not in ldd.stdout
    assert all(re.match(r"lib(c|m|dl|rt|pthread|resolv)\.so", name) for name in outside), outside
    names = {p.name for p in (bundle / "lib").iterdir()}
    assert any(n.startswith("libmicrohttpd") for n in names)
    assert any("libmicrohttpd" in p.name for p in (bundle / "doc" / "licences").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_bundle_runs_where_there_is_only_glibc(bundle, tmp_path, model):
    """In an empty root with a shell, readlink and dirname, and glibc: nothing else from here."""
    root = tmp_path / "root"
    tools = ["/bin/sh", "/usr/bin/readlink", "/usr/bin/dirname"]
    for tool in tools:
        copy(tool, root)
        listed = subprocess.run(["ldd", tool], capture_output=True, text=True, check=True)
        for library in re.findall(r"(/\S+)", listed.stdout):
            copy(library, root)
    listed = subprocess.run(["ldd", bundle / "bin" / "weft"], capture_output=True, text=True)
    for library in re.findall(r"(/\S*/(?:ld-linux|lib(?:c|m|dl|rt|pthread|resolv)\.so)\S*)",
                              listed.stdout):
        copy(library, root)
    shutil.copytree(bundle, root / "weft")
    shutil.copy(model, root / "tiny.gguf")
    done = subprocess.run(
        [shutil.which("chroot"), root, "/weft/weft", "inspect", "/tiny.gguf"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "llama" in done.stdout
    # The GPU's part was found and could be opened: what it lacks is the driver, or cuBLAS.
    assert "device: cpu" in done.stdout
    note = re.search(r"not on a GPU: (.*)", done.stdout).group(1)
    assert re.search("driver|GPU|cuBLAS" if CUDA else "no libweft-cuda.so", note), note


def copy(path, root):
    """The file to the same place under `root`, not following the machine's links to folders."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(path, target)


def test_dockerfile_copies_and_calls_what_is_there():
    makefile = (ROOT / "Makefile").read_text()
    runs = " ".join(re.findall(r"^RUN (.*)$", DOCKERFILE, re.M))
    assert "make" in runs
    for target in re.findall(r"\bmake (\w+)", runs):
        assert re.search(rf"^{target}:", makefile, re.M), f"no target {target}"
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M):
        for source in sources.split():
            assert (ROOT / source).exists(), source
    assert re.search(r"^USER (?!0|root)\w+", DOCKERFILE, re.M), "it runs as root"
    assert re.search(r"^HEALTHCHECK ", DOCKERFILE, re.M)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert "build" in ignored and ".git" in ignored


def health_command():
    found = re.search(r"^HEALTHCHECK .*?CMD (\[.*\])$", DOCKERFILE, re.M)
    return json.loads(found.group(1))


def test_the_containers_health_check(model):
    """Succeeds on a server that is healthy, fails where there is none."""
    with Weft(model=model) as server:
        environment = {**os.environ, "WEFT_PORT": str(server.port)}
        assert subprocess.run(health_command(), env=environment, check=False).returncode == 0
        server.signal()
        server.wait()
        gone = subprocess.run(
            health_command(), env=environment, stderr=subprocess.DEVNULL, check=False
        )
        assert gone.returncode != 0


def test_the_containers_settings_are_understood(model):
    """ENV lines of the Dockerfile are variables that weft reads, and the entry point starts."""
    settings = dict(re.findall(r"^ENV (\w+)=(\S+)$", DOCKERFILE, re.M))
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", DOCKERFILE, re.M).group(1))
    assert entry == ["/opt/weft/weft", "serve"]
    with Weft(model=model, environment=settings) as server:
        assert server.get("/health")[0] == 200


def test_deps_lists_are_read():
    """Each part of packages.txt is known to deps, and an unknown one is refused."""
    text = (ROOT / "deploy" / "packages.txt").read_text()
    assert re.findall(r"^\[(\w+)\]$", text, re.M) == ["build", "test"]
    wrong = subprocess.run([ROOT / "deploy" / "deps", "nothing"], capture_output=True, check=False)
    assert wrong.returncode == 2


def test_deps_without_apt_says_what_to_install(tmp_path):
    """A machine of another kind: only a shell and the few tools that the script calls."""
    for tool in ("sh", "sed", "dirname", "tr"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    done = subprocess.run(
        [ROOT / "deploy" / "deps", "build"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "libmicrohttpd" in done.stderr and "pip" in done.stderr


def test_readme_commands_exist():
    """What the README tells a newcomer to type is there."""
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"\bmake ([a-z-]+)", readme)):
        assert re.search(rf"^{target}:", makefile, re.M), target
    for page in set(re.findall(r"\]\(([\w./-]+)\)", readme)):
        assert (ROOT / page).exists(), page
    assert "curl" in readme
