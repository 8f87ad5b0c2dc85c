"""Protects the rules of tests/tidy: each must find what it is there for, and let good code pass."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tidy"))

import rules  # noqa: E402
from source import File  # noqa: E402

TITLE = "/* x.c -- a file. */\n"
LONG = "int f(void)\n{\n" + "    ;\n" * 69 + "}\n"
GUARD = "/* x.h -- a header. */\n#ifndef WEFT_X_H\n#endif\n"

BAD = [
    ("floors", "kernels/x.c", '#include "engine/engine.h"\n'),
    ("floors", "scheduler/x.c", '#include "kernels/dtype.h"\n'),
    ("floors", "server/http.c", '#include "engine/gguf.h"\n'),
    ("doors", "server/loop.c", "#include <microhttpd.h>\n"),
    ("doors", "engine/x.c", "#include <pcre2.h>\n"),
    ("cuda_calls", "engine/cuda_x.c", "    cudaFree(memory);\n"),
    ("cuda_calls", "kernels/cuda/x.cu", "    kernel<<<1, 32>>>(x);\n"),
    ("banned", "engine/x.c", "    sprintf(text, format);\n"),
    ("banned", "engine/x.c", "    p = alloca (12);\n"),
    ("file_length", "engine/x.c", "\n" * 1001),
    ("function_length", "engine/x.c", LONG),
    ("columns", "engine/x.c", "x" * 101 + "\n"),
    ("columns", "engine/x.c", "int x; \n"),
    ("columns", "tests/x.py", "\tx\n"),
    ("columns", "server/x.def", "x" * 161 + "\n"),
    ("columns", "server/x.def", " * " + "x" * 100 + "\n"),
    ("titles", "engine/x.c", "int x;\n"),
    ("titles", "tests/x.py", "#!/usr/bin/env python3\nimport os\n"),
    ("line_comments", "engine/x.c", "int x; // a number\n"),
    ("reminders", "docs/x.md", "TO" + "DO: more\n"),
    ("own_words", "docs/x.md", "as iss" + "ue 12 says\n"),
    ("own_words", "docs/x.md", f"in {pathlib.Path.home()}/x\n"),
    ("guards", "engine/x.h", "int x;\n"),
]

GOOD = [
    ("floors", "server/command_x.c", '#include "engine/gguf.h"\n'),
    ("floors", "server/x.c", '#include "engine/text/detok.h"\n'),
    ("doors", "server/http_request.c", "#include <microhttpd.h>\n"),
    ("cuda_calls", "kernels/cuda/cuda_api.c", "    cudaFree(memory);\n"),
    ("cuda_calls", "engine/cuda_x.c", "    cuda_release(context, memory); /* cudaFree() */\n"),
    ("banned", "engine/x.c", '    snprintf(t, n, "sprintf(x)"); /* strcpy() */\n'),
    ("file_length", "engine/x.c", "\n" * 1000),
    ("function_length", "engine/x.c", LONG.replace("    ;\n", "", 1)),
    ("columns", "engine/x.c", "x" * 100 + "\n"),
    ("columns", "server/x.def", "x" * 160 + "\n"),
    ("titles", "engine/x.c", TITLE),
    ("titles", "tests/x.py", '#!/usr/bin/env python3\n"""Says."""\n'),
    ("line_comments", "engine/x.c", 'const char *x = "http://a"; /* see http://b */\n'),
    ("reminders", "docs/x.md", "to do\n"),
    ("own_words", "docs/x.md", "the issue at hand\n"),
    ("guards", "engine/x.h", GUARD),
]


@pytest.mark.parametrize("rule,path,text", BAD)
def test_a_break_is_found(rule, path, text):
    assert list(getattr(rules, rule)([File(path, text)]))


@pytest.mark.parametrize("rule,path,text", GOOD)
def test_good_code_passes(rule, path, text):
    assert not list(getattr(rules, rule)([File(path, text)]))


def test_every_rule_that_reads_text_is_tried_both_ways():
    names = {r.__name__ for r in rules.RULES}
    assert names == {b[0] for b in BAD} == {g[0] for g in GOOD}
