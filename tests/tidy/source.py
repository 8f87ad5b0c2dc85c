"""What the rules look at: the project's files, and C text with its comments and strings blanked."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE_FOLDERS = ("config", "kernels", "engine", "scheduler", "server")
C_SUFFIXES = (".c", ".h", ".cu", ".cuh")

# A comment, a string or a character constant, whichever begins first.
LEXEME = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)


class File:
    """One file of the project; `path` is relative to its root."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.suffix = pathlib.PurePath(path).suffix

    @property
    def lines(self):
        return self.text.split("\n")[:-1] if self.text.endswith("\n") else self.text.split("\n")

    @property
    def floor(self):
        """config, kernels, engine, scheduler, server, or tests and the like."""
        return self.path.split("/")[0]

    @property
    def code(self):
        """The text with comments and strings blanked; every line stays where it was."""
        return LEXEME.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), self.text)

    @property
    def comments(self):
        """(line number, text) of each comment."""
        for found in LEXEME.finditer(self.text):
            if found.group().startswith("/"):
                yield self.text.count("\n", 0, found.start()) + 1, found.group()

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1


def read_project(root=ROOT):
    """Every text file that git knows or would add; without git, all but build/."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = {n for n in listed.stdout.decode().split("\0") if n}
    else:
        names = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}
        names = {n for n in names if not n.startswith(("build/", ".git/"))}
    files = []
    for name in sorted(names):
        data = (root / name).read_bytes() if (root / name).is_file() else b"\0"
        if b"\0" not in data:
            files.append(File(name, data.decode(errors="replace")))
    return files
