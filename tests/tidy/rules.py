"""The rules of the house that a program can check.

A rule takes the project's files and yields what breaks it, as (path, line number or 0, what). The
rules in RULES read text only; those in COMMANDS run a compiler, clang-format or the server's
binary.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import make
from source import C_SUFFIXES, CODE_FOLDERS, ROOT

FILE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100
TABLE_COLUMNS_MAX = 160

# Who may include whom: never upward, never past a floor.
FLOORS = {
    "config": ("config/",),
    "kernels": ("kernels/", "config/"),
    "engine": ("engine/", "kernels/", "config/"),
    "scheduler": (
        "scheduler/",
        "engine/engine.h",
        "engine/batch.h",
        "engine/text/constraint.h",
        "config/",
    ),
    "server": (
        "server/",
        "scheduler/",
        "engine/engine.h",
        "engine/batch.h",
        "engine/text/",
        "config/",
    ),
}
# Commands open a model themselves, where the server only talks to the scheduler.
FLOOR_EXCEPTIONS = {
    r"server/(command_\w+|startup)\.c": (
        "engine/checkpoint.h",
        "engine/gguf.h",
        "engine/model.h",
    ),
    r"server/command_save\.c": ("engine/model_save.h",),
    r"server/command_quantize\.c": ("engine/model_quantize.h",),
}
# Each outside library has one door.
DOORS = {
    "microhttpd.h": r"server/http\w*\.[ch]",
    "uv.h": r"server/loop\.c",
    "jansson.h": r"config/base/json\.h",
    "ini.h": r"config/config\w*\.c",
    "pcre2.h": r"engine/text/\w+\.[ch]",
    "utf8proc.h": r"engine/text/\w+\.[ch]",
    "xxhash.h": r"scheduler/\w+\.[ch]",
    "immintrin.h": r"kernels/cpu/\w+\.[ch]",
    "cuda_runtime_api.h": r"kernels/cuda/cuda_api\.c",
    "cuda_runtime.h": r"kernels/cuda/cuda_api\.c",
    "cuda.h": r"kernels/cuda/cuda_api\.c",
    "cublasLt.h": r"kernels/cuda/cublas\.c",
    "dlfcn.h": r"(engine/cuda_library|kernels/cuda/cublas)\.c",
    "cmocka.h": r"tests/.*",
}
BANNED = r"strcpy|strcat|sprintf|vsprintf|strtok|gets|atoi|atol|atof|alloca"
# May begin without a comment that says what the file is for.
UNTITLED = r".*\.(md|txt|json|jsonl)|\.clang-format|\.gitignore|\.dockerignore|LICENSE"


def c_files(files):
    return [f for f in files if f.suffix in C_SUFFIXES]


def own_code(files):
    return [f for f in c_files(files) if f.floor in CODE_FOLDERS]


def floors(files):
    """Includes go downward: server, scheduler, engine, kernels; all may include config."""
    for file in own_code(files):
        allowed = FLOORS[file.floor]
        for pattern, more in FLOOR_EXCEPTIONS.items():
            if re.fullmatch(pattern, file.path):
                allowed += more
        for found in re.finditer(r'^#include "([^"]+)"', file.text, re.MULTILINE):
            if not found.group(1).startswith(allowed):
                where = file.line_of(found.start())
                yield file.path, where, f"may not include {found.group(1)}"


def doors(files):
    """Each outside library is included by its own door only."""
    for file in c_files(files):
        for found in re.finditer(r"^#\s*include <([^>]+)>", file.text, re.MULTILINE):
            door = DOORS.get(found.group(1))
            if door and not re.fullmatch(door, file.path) and file.floor != "tests":
                where = file.line_of(found.start())
                yield file.path, where, f"<{found.group(1)}> belongs in {door}"


def cuda_calls(files):
    """The CUDA runtime is called by kernels/cuda/cuda_api.c alone, which checks and counts."""
    for file in c_files(files):
        if file.path == "kernels/cuda/cuda_api.c":
            continue
        for found in re.finditer(r"\bcuda[A-Z]\w+\s*\(|<<<", file.code):
            yield file.path, file.line_of(found.start()), f"{found.group()} outside cuda_api.c"


def banned(files):
    """Functions that cannot be used safely are not used."""
    for file in c_files(files):
        for found in re.finditer(rf"(?<![\w.>])({BANNED})\s*\(", file.code):
            yield file.path, file.line_of(found.start()), f"{found.group(1)}() is banned"


def file_length(files):
    """No file of code has more than 1,000 lines."""
    for file in files:
        if file.suffix in (*C_SUFFIXES, ".py", ".def") and len(file.lines) > FILE_LINES_MAX:
            yield file.path, 0, f"has {len(file.lines)} lines"


def function_length(files):
    """No function has more than 70 lines, braces included."""
    for file in c_files(files):
        opened = 0
        for number, line in enumerate(file.code.split("\n"), 1):
            if line.startswith("{"):
                opened = number
            elif line.startswith("}") and opened:
                if number - opened + 1 > FUNCTION_LINES_MAX:
                    yield file.path, opened, f"a function of {number - opened + 1} lines"
                opened = 0


def columns(files):
    """No line is wider than 100 columns, a row of a table in a .def file excepted, which may take
    160; none ends in a blank or holds a tab."""
    for file in files:
        if file.suffix not in (*C_SUFFIXES, ".def", ".py"):
            continue
        for number, line in enumerate(file.lines, 1):
            row = file.suffix == ".def" and not line.startswith(("/*", " *"))
            if len(line) > (TABLE_COLUMNS_MAX if row else COLUMNS_MAX):
                yield file.path, number, f"{len(line)} columns"
            if line != line.rstrip() or "\t" in line:
                yield file.path, number, "a tab, or a blank at its end"


def titles(files):
    """Every file of code begins by saying what it is for."""
    for file in files:
        if re.fullmatch(UNTITLED, file.path) or file.path.startswith("tests/data/"):
            continue
        start = re.sub(r"\A#![^\n]*\n", "", file.text).lstrip()
        if start and not re.match(r'/\*|"""|#|//|<!--|\.', start):
            yield file.path, 1, "begins without a comment"


def line_comments(files):
    """`//` is for lines that must not be committed."""
    for file in c_files(files):
        for number, comment in file.comments:
            if comment.startswith("//"):
                yield file.path, number, "a // comment"


def reminders(files):
    """Nothing is left for later in the code: that is what issues are for."""
    words = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
    for file in files:
        for found in words.finditer(file.text):
            yield file.path, file.line_of(found.start()), found.group()


def own_words(files):
    """The project speaks of itself alone: no paths of this machine, no numbers of issues."""
    shared = ("/", tempfile.gettempdir())
    here = [f"{p}/" for p in (ROOT.parent, pathlib.Path.home()) if str(p) not in shared]
    words = re.compile("|".join([r"\bissue #?\d+\b", *map(re.escape, here)]), re.IGNORECASE)
    for file in files:
        if file.floor == "tests" and file.path.startswith("tests/data/"):
            continue
        for found in words.finditer(file.text):
            yield file.path, file.line_of(found.start()), f"{found.group()!r}"


def guards(files):
    """Headers are guarded by their own name: WEFT_NAME_H."""
    for file in c_files(files):
        if file.suffix == ".h" and file.floor in CODE_FOLDERS:
            name = pathlib.PurePath(file.path).stem.upper()
            if not re.search(rf"^#ifndef WEFT_(\w+_)?{name}_H$", file.text, re.MULTILINE):
                yield file.path, 0, f"has no guard WEFT_{name}_H"


RULES = [
    floors,
    doors,
    cuda_calls,
    banned,
    file_length,
    function_length,
    columns,
    titles,
    line_comments,
    reminders,
    own_words,
    guards,
]


def run(command):
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=make.environment(),
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]} is missing")


def pkg_config_flags():
    makefile = (ROOT / "Makefile").read_text()
    packages = re.search(r"^PACKAGES := (.*)$", makefile, re.MULTILINE).group(1).split()
    return run(["pkg-config", "--cflags", *packages]).stdout.split()


def first_lines(text, count=3):
    return " | ".join(text.strip().splitlines()[:count])


def clang_format(files):
    """Laid out as .clang-format says: `make format` does it."""
    paths = [f.path for f in c_files(files)]
    done = run(["clang-format", "--dry-run", "--ferror-limit=1", *paths])
    named = sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: warning", done.stderr, re.MULTILINE)))
    for path in named:
        yield path, 0, "not laid out as .clang-format says"
    if done.returncode != 0 and not named:
        yield "clang-format", 0, first_lines(done.stderr)


def headers_alone(files):
    """Every header of the five floors compiles alone."""
    flags = pkg_config_flags()
    headers = [f.path for f in own_code(files) if f.suffix == ".h"]

    def compile_alone(path):
        command = ["cc", "-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I."]
        command += ["-Wno-unused-function", "-Wno-unused-variable"]
        if os.uname().machine == "x86_64":
            command += ["-mavx2", "-mfma", "-mf16c"]
        return path, run([*command, *flags, "-fsyntax-only", "-x", "c", path])

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, done in pool.map(compile_alone, headers):
            if done.returncode != 0:
                yield path, 0, first_lines(done.stderr)


def generated_pages(_):
    """docs/ and deploy/ hold what `weft docs` prints today: `make docs` remakes them."""
    binary = os.environ.get("WEFT_BINARY", str(ROOT / "build" / "weft"))
    makefile = (ROOT / "Makefile").read_text()
    pages = re.findall(r"weft docs (\w+) > (\S+)", makefile)
    if not pages:
        yield "Makefile", 0, "`make docs` makes no page"
    for page, path in pages:
        made = run([binary, "docs", page])
        if made.returncode != 0:
            yield path, 0, first_lines(made.stderr)
        elif not (ROOT / path).is_file() or (ROOT / path).read_text() != made.stdout:
            yield path, 0, "is not what `make docs` makes"


def both_compilers(_):
    """gcc and clang take every file without a warning."""
    for compiler in ("gcc", "clang"):
        if not shutil.which(compiler):
            yield compiler, 0, "is not installed (make deps)"
            continue
        settings = [f"CC={compiler}", f"BUILD=build/{compiler}", "OPT=-O0", "SANITIZE="]
        done = make.make(*settings, f"build/{compiler}/weft")
        if done.returncode != 0:
            errors = [l for l in done.stderr.splitlines() if "error" in l] or [done.stderr[-500:]]
            yield compiler, 0, " | ".join(errors[:3])


def shell_scripts(files):
    """Shell scripts are at least well-formed."""
    for file in files:
        if re.match(r"#!/bin/sh|#!/usr/bin/env bash|#!/bin/bash", file.text):
            shell = "sh" if file.text.startswith("#!/bin/sh") else "bash"
            with tempfile.NamedTemporaryFile("w", suffix=".sh") as copy:
                copy.write(file.text)
                copy.flush()
                done = run([shell, "-n", copy.name])
            if done.returncode != 0:
                yield file.path, 0, first_lines(done.stderr)


QUICK_COMMANDS = [generated_pages, shell_scripts]
COMMANDS = QUICK_COMMANDS + [clang_format, headers_alone, both_compilers]
