"""Protects: what a person at a terminal meets. Every command's output, exit code and messages, on
the tiny model and on the demo model.

Exit codes: 0 done, 1 it did not work, 2 the command line was wrong, 130 interrupted.
"""

import json
import os
import pathlib
import pty
import signal
import struct
import subprocess
import threading

import pytest

import tiny_model
from weft import BINARY, ROOT, Weft

COMMANDS = (
    "serve generate inspect tokenize detokenize constrain "
    "parse template bench save version docs"
).split()
SECONDS_MAX = 60


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    return {**kept, **variables}


def weft(*arguments, stdin=b"", env=None):
    """Runs to the end; output as bytes."""
    return subprocess.run(
        [BINARY, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        env=environment(**(env or {})),
        timeout=SECONDS_MAX,
        check=False,
    )


def assert_refused(done, code, *parts):
    """One line to standard error that has all the parts, nothing to standard output."""
    message = done.stderr.decode()
    assert done.returncode == code, message
    assert done.stdout == b""
    assert message.startswith("weft: ") and message.count("\n") == 1, message
    for part in parts:
        assert part in message


def assert_no_answer(done, code, part):
    """The same for commands that show their progress before."""
    assert done.returncode == code
    assert done.stdout == b""
    assert done.stderr.decode().splitlines()[-1].startswith("weft: ")
    assert part in done.stderr.decode().splitlines()[-1]


def json_lines(command, model, lines, *options):
    """Objects or raw bytes in, objects out, and the exit code."""
    stdin = b"".join(
        (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines
    )
    done = weft(command, "--model", model, *options, stdin=stdin)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines), done.stderr.decode()
    return answers, done.returncode


# -- The command line itself --


def test_no_command_is_a_usage_error_that_lists_them():
    done = weft()
    assert done.returncode == 2
    for command in COMMANDS:
        assert f"\n  {command} " in done.stdout.decode()


def test_help_of_everything():
    assert weft("--help").stdout == weft("-h").stdout == weft().stdout
    assert weft("--help").returncode == 0
    for command in COMMANDS:
        done = weft(command, "--help")
        assert done.returncode == 0 and done.stderr == b""
        assert done.stdout.startswith(b"Usage: weft " + command.encode())
    words = " ".join(weft("serve", "--help").stdout.decode().split())
    assert "Port to listen on; 0 takes a free one and prints it [0 to 65535; default 8000]" in words


def test_wrong_command_lines():
    assert_refused(weft("sevre"), 2, "'sevre'", "'serve'")
    assert_refused(weft("serve", "--max-bach", "3"), 2, "--max-bach", "--max-batch")
    assert_refused(weft("serve", "--port", "65536"), 2, "65536", "0 to 65535")
    assert_refused(weft("generate", "--port", "1"), 2, "`weft serve`")
    assert_refused(weft("docs"), 2, "PAGE")
    assert_refused(weft("docs", "nothing"), 1, "options, config, fields and metrics")
    assert_refused(weft("--port", "1"), 2, "`weft serve --port`")


def test_wrong_environment_and_file(tmp_path):
    assert_refused(weft("version", env={"WEFT_PROT": "1"}), 2, "WEFT_PROT", "WEFT_PORT")
    file = tmp_path / "weft.conf"
    file.write_text("port = 1\nmax-bach = 2\n")
    done = weft("serve", "--config", file)
    assert_refused(done, 2, f"{file}:2", "max-bach", "max-batch")
    assert_refused(weft("serve", env={"WEFT_CONFIG": str(file)}), 2, f"{file}:2")


def test_version():
    done = weft("version")
    assert done.returncode == 0
    words = done.stdout.decode().split()
    assert words[0] == "weft" and words[1].count(".") == 2
    assert {"commit", "compiler", "cpu", "gpu"} <= set(words)
    assert weft("--version").stdout == done.stdout


def test_the_gpu_is_taken_or_it_is_said_why_not(tiny):
    """On whatever machine: version, serve, inspect and --device cuda agree."""
    gpu = weft("version").stdout.decode().splitlines()[-1].split(maxsplit=1)[1]
    plan = weft("inspect", tiny, "--max-context", "256").stdout.decode()
    insisting = weft("inspect", tiny, "--max-context", "256", "--device", "cuda")
    with Weft("--max-context", "256", model=tiny, device="auto") as server:
        ready = server.wait_log(r"\bready\b")
        if gpu.startswith("none: "):
            reason = gpu.removeprefix("none: ")
            assert reason in server.wait_log("computing_on_cpu") and 'device="cpu ' in ready
            assert reason in plan and "device: cpu " in plan
            assert insisting.returncode == 1 and insisting.stderr.decode() == f"weft: {reason}\n"
        else:
            assert 'device="cuda ' in ready and "computing_on_cpu" not in "".join(server.lines)
            assert "device: cuda " in plan and "not on a GPU" not in plan
            assert insisting.returncode == 0


def test_generated_pages_are_the_committed_ones():
    assert weft("docs", "options").stdout == (ROOT / "docs" / "options.md").read_bytes()
    assert weft("docs", "config").stdout == (ROOT / "deploy" / "weft.conf").read_bytes()


def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [BINARY, "docs", "options"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 1
    assert b"No space left" in done.stderr


# -- Which model --


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-"])
def test_a_closed_standard_descriptor_is_never_another_file(tiny, closed):
    """Its number would go to the next thing opened: a prompt read from the model, a log written to
    a client."""
    command = f'exec "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", command, "sh", BINARY, "generate", "--model", tiny, "--device", "null",
         "--raw", "--max-tokens", "2", *([] if closed[0] == "0" else ["--prompt", "hi"])],
        input=b"", capture_output=True, env=environment(), timeout=SECONDS_MAX, check=False)
    if closed[0] == "2":
        assert (done.returncode, done.stdout) == (0, b"hi\n")
    else:
        assert done.returncode == 1
        assert done.stderr.decode().splitlines()[-1].endswith("Bad file descriptor")


def test_without_a_model_the_message_says_what_to_do(tmp_path):
    for env in ({"XDG_CACHE_HOME": str(tmp_path)}, {"XDG_CACHE_HOME": "", "HOME": str(tmp_path)}):
        for command in ("serve", "generate", "inspect", "tokenize", "detokenize", "bench"):
            options = ["--port", 0] if command == "serve" else []
            done = weft(command, *options, env=env)
            assert_refused(done, 1, "--model", "make serve", "./fetch-demo-model", str(tmp_path))


def test_the_cache_folder_is_the_default(tmp_path, tiny):
    folder = tmp_path / "weft"
    folder.mkdir()
    (folder / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(tiny)
    done = weft("inspect", "--device", "null", env={"XDG_CACHE_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr.decode()


def test_files_that_are_no_model(tmp_path, tiny):
    text = tmp_path / "text.gguf"
    text.write_text("not a model")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(pathlib.Path(tiny).read_bytes()[:-1000])
    for command in ("generate", "bench", "tokenize"):
        for path, reason in ((tmp_path / "none.gguf", "No such file"), (tmp_path, ""), (text, "")):
            options = [] if command == "tokenize" else ["--device", "null"]
            done = weft(command, "--model", path, *options)
            assert_no_answer(done, 1, str(path))
            assert reason in done.stderr.decode()
    assert_refused(weft("inspect", cut), 1, "cut.gguf")


# -- inspect --


def test_inspect(tiny):
    done = weft("inspect", tiny, "--device", "null", "--max-batch", "4")
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    for part in (
        "general.architecture = llama",
        "tensors: 11",
        "F32",
        f"vocabulary{len(tiny_model.vocabulary()):>21}",
        "device: null (computes nothing)",
        "memory plan for 4 sequences of 4096 tokens",
        "chat template: known",
    ):
        assert part in text
    assert "blk.0.attn_q.weight" not in text
    text = weft("inspect", tiny, "--tensors").stdout.decode()
    assert "blk.0.attn_k.weight" in text and "F32    64 x 32" in text


def test_inspect_shows_a_file_before_it_judges_it(tmp_path, tiny):
    data = pathlib.Path(tiny).read_bytes()
    alien = tmp_path / "alien.gguf"
    alien.write_bytes(data.replace(tiny_model.text("llama"), tiny_model.text("lamma"), 1))
    done = weft("inspect", alien)
    assert done.returncode == 1
    assert b"general.architecture = lamma" in done.stdout
    assert b"lamma" in done.stderr and b"llama" in done.stderr


def test_inspect_of_a_plan_that_cannot_fit(tiny):
    done = weft("inspect", tiny, "--device", "null", "--kv-bytes", "64T")
    assert done.returncode == 1
    assert b"does not fit on null" in done.stderr


# -- tokenize and detokenize --


def test_tokens_and_back(tiny):
    texts = ["hello world", "", "  two  spaces\n", "\u00e4\u20ac\U0001f600", "<|im_start|>hello"]
    answers, code = json_lines("tokenize", tiny, [{"text": text} for text in texts])
    assert code == 0
    assert answers[1]["ids"] == []
    vocabulary = tiny_model.vocabulary()
    assert [vocabulary[i] for i in answers[0]["ids"]][0] == "hello"
    texts_back, code = json_lines("detokenize", tiny, answers)
    assert code == 0
    assert [answer["text"] for answer in texts_back] == texts


def test_special_tokens(tiny):
    text = "<|im_start|>hello"
    answers, _ = json_lines(
        "tokenize", tiny, [{"text": text}, {"text": text, "specials_as_text": True}]
    )
    assert answers[0]["ids"][0] == 1 and len(answers[0]["ids"]) == 2
    assert 1 not in answers[1]["ids"]
    answers, _ = json_lines("tokenize", tiny, [{"text": text}], "--specials-as-text")
    assert 1 not in answers[0]["ids"]
    texts, _ = json_lines(
        "detokenize", tiny, [{"ids": [1, 261]}, {"ids": [1, 261], "skip_special_tokens": True}]
    )
    assert texts[0]["text"].startswith("<|im_start|>")
    assert not texts[1]["text"].startswith("<|im_start|>")


# -- template --

NOW = ["--now", "2026-11-30 12:34:56"]


def rendered(template, lines, *options):
    """Through a template in a file."""
    stdin = "".join(json.dumps(line) + "\n" for line in lines).encode()
    done = weft("template", "--template", template, *options, stdin=stdin)
    answers = [json.loads(line) for line in done.stdout.split(b"\n")[:-1]]
    assert len(answers) == len(lines), done.stderr.decode()
    return answers, done.returncode


def test_template_of_a_file(tmp_path):
    path = tmp_path / "chat.jinja"
    path.write_text(
        "{{ bos_token }}{{ strftime_now('%d %b %Y, %H:%M:%S') }}\n"
        "{% for m in messages %}{{ m.role }}: {{ m.content|tojson }}\n{% endfor %}"
        "{% if tools %}{{ tools|tojson }}{% endif %}{{ documents }}{{ mood }}"
        "{% if add_generation_prompt %}>{% endif %}{{ eos_token is defined }}\n"
    )
    messages = [{"role": "user", "content": [{"n": 123456789012345678901}, "\u2028\0"]}]
    lines = [
        {"messages": messages, "bos_token": "<s>", "eos_token": None},
        {"messages": [], "tools": [1.0], "documents": [], "add_generation_prompt": True,
         "chat_template_kwargs": {"mood": "!"}, "bos_token": "", "eos_token": "</s>"},
    ]  # fmt: skip
    answers, code = rendered(path, lines, *NOW)
    assert code == 0
    clock = "30 Nov 2026, 12:34:56\n"
    content = '[{"n": 123456789012345678901}, "\u2028\\u0000"]'
    assert answers == [
        {"prompt": f"<s>{clock}user: {content}\nNoneFalse"},
        {"prompt": f"{clock}[1.0][]!>True"},
    ]


def test_template_errors_stand_in_their_lines(tmp_path):
    path = tmp_path / "chat.jinja"
    path.write_text(
        "{% if messages[0].role == 'tool' %}{{ raise_exception('No \\u00e9:\n' ~ n) }}"
        "{% endif %}\n"
        "{{ messages[0].content + 'x' }}"
    )
    lines = [
        {"messages": [{"role": "tool"}], "chat_template_kwargs": {"n": 1}},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "user", "content": "a"}]},
        {"messages": [], "chat_template_kwargs": 7},
    ]
    answers, code = rendered(path, lines)
    assert code == 1
    assert answers[0] == {"error": "No \u00e9:\n1"}
    assert "line 3, column 24" in answers[1]["error"]
    assert answers[2] == {"prompt": "ax"}
    assert "chat_template_kwargs" in answers[3]["error"]
    path.write_text("{% if %}")
    answers, code = rendered(path, lines[:1])
    assert code == 1 and "line 1, column 7" in answers[0]["error"]


def test_template_of_a_model(tiny, tmp_path):
    line = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}
    answers, code = json_lines("template", tiny, [line])
    assert code == 0
    assert answers[0]["prompt"].endswith("user\nHi<|im_end|>\n<|im_start|>assistant\n")
    config = {"bos_token": "<b>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    answers, code = json_lines("template", tmp_path, [line])
    assert (answers, code) == ([{"prompt": "<b>Hi"}], 0)


def test_template_options_that_are_wrong(tmp_path):
    assert_refused(weft("template", "--template", tmp_path / "none"), 1, "No such file")
    (tmp_path / "t.jinja").write_text("")
    for text in ("2026-11-30", "2026-02-30 00:00:00", "yesterday"):
        done = weft("template", "--template", tmp_path / "t.jinja", "--now", text)
        assert_refused(done, 1, "--now", text)


def test_bad_lines_get_errors_in_their_place(tiny):
    lines = [
        {"text": "hello"},
        b"{broken",
        b"",
        [1],
        {},
        {"text": 5},
        {"text": None},
        {"text": "x", "add_special_tokens": 1},
        b'{"text":"\xff"}',
        b"[" * 1000,
        {"text": "hello"},
    ]
    answers, code = json_lines("tokenize", tiny, lines)
    assert code == 1
    assert answers[0] == answers[-1] and "ids" in answers[0]
    for answer in answers[1:-1]:
        assert list(answer) == ["error"] and answer["error"]
    assert "'text' is missing" in answers[4]["error"]
    count = len(tiny_model.vocabulary())
    lines = [{"ids": ids} for ids in ([0], [count], [-1], ["0"], 0, [0, 1.0])]
    answers, code = json_lines("detokenize", tiny, lines)
    assert code == 1
    assert ["error" in answer for answer in answers] == [False, True, True, True, True, False]
    assert f"between 0 and {count - 1}, not {count}" in answers[1]["error"]


def test_the_last_line_needs_no_newline(tiny):
    done = weft("tokenize", "--model", tiny, stdin=b'{"text":"a"}\n{"text":"b"}')
    assert done.returncode == 0 and done.stdout.count(b"\n") == 2
    assert weft("tokenize", "--model", tiny).stdout == b""


def test_each_answer_comes_before_the_next_question(tiny):
    process = subprocess.Popen(
        [BINARY, "tokenize", "--model", tiny],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    watchdog = threading.Timer(SECONDS_MAX, process.kill)
    watchdog.start()
    try:
        for _ in range(3):
            process.stdin.write(b'{"text":"hello"}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["ids"]
        process.stdin.close()
        assert process.wait(SECONDS_MAX) == 0
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()


def test_a_vocabulary_without_tensors_is_enough(tmp_path):
    keys = tiny_model.metadata(tiny_model.vocabulary())
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, len(keys)) + b"".join(keys))
    answers, code = json_lines("tokenize", path, [{"text": "hello"}])
    assert code == 0 and len(answers[0]["ids"]) == 1


# -- generate --


def test_generate_streams_what_the_model_says(tiny):
    done = weft(
        *("generate", "--model", tiny, "--device", "null", "--null-step-us", "0"),
        *("--raw", "--prompt", "hello world", "--max-tokens", "6"),
    )
    assert done.returncode == 0, done.stderr.decode()
    # The null device repeats the prompt's tokens.
    assert done.stdout.startswith(b"hello world")
    assert done.stdout.endswith(b"\n")
    summary = done.stderr.decode().splitlines()[-1]
    assert "6 generated" in summary and "tokens/s" in summary


def test_generate_reads_the_prompt_from_standard_input(tiny):
    options = ("generate", "--model", tiny, "--device", "null", "--raw", "--max-tokens", "4")
    by_pipe = weft(*options, stdin=b"hello world")
    by_option = weft(*options, "--prompt", "hello world")
    assert by_pipe.returncode == 0
    assert by_pipe.stdout == by_option.stdout != b""
    assert_no_answer(weft(*options), 1, "empty")


def test_generate_asks_for_the_prompt_on_a_terminal(tiny):
    options = ("generate", "--model", tiny, "--device", "null", "--raw", "--max-tokens", "4")
    leader, follower = pty.openpty()
    os.write(leader, b"hello world\n\x04")  # Ctrl-D
    done = subprocess.run(
        [BINARY, *map(str, options)],
        stdin=follower,
        capture_output=True,
        env=environment(),
        timeout=SECONDS_MAX,
        check=False,
    )
    os.close(follower)
    os.close(leader)
    assert done.returncode == 0 and done.stdout != b""
    assert b"Type the prompt" in done.stderr
    assert b"Type the prompt" not in weft(*options, stdin=b"hello").stderr


def test_generate_refuses_a_prompt_longer_than_the_context(tiny):
    done = weft("generate", "--model", tiny, "--device", "null", "--raw", stdin=b"\x01" * 5000)
    assert_no_answer(done, 1, "5000")
    assert "4096" in done.stderr.decode()


def test_generate_refuses_to_chat_without_a_template(tmp_path, tiny):
    data = pathlib.Path(tiny).read_bytes()
    path = tmp_path / "foreign.gguf"
    path.write_bytes(data.replace(b"tokenizer.chat_template", b"tokenizer.chat_tempXXXX"))
    done = weft("generate", "--model", path, "--device", "null", "--prompt", "hello")
    assert_no_answer(done, 1, "--raw")
    assert b"--chat-template FILE" in done.stderr


def test_interrupt_ends_generate_cleanly(tiny):
    process = subprocess.Popen(
        [BINARY, "generate", "--model", tiny, "--device", "null", "--null-step-us", "20000"]
        + ["--raw", "--prompt", "hello world", "--max-tokens", "4000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    watchdog = threading.Timer(SECONDS_MAX, process.kill)
    watchdog.start()
    try:
        assert process.stdout.read(5) == b"hello"
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate()
    finally:
        watchdog.cancel()
        process.kill()
    assert process.returncode == 130
    assert rest.endswith(b"\n") and len(rest) < 4000
    assert b"interrupted" in errors


@pytest.mark.parametrize("exact", ([], ["--cpu-exact"]))
def test_generate_with_the_demo_model(demo_model, exact):
    done = weft(
        *("generate", "--model", demo_model, "--max-tokens", "16", *exact),
        *("--prompt", "What is the capital of France?"),
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "Paris" in done.stdout.decode()


def test_a_seed_repeats_an_answer(demo_model):
    options = ("generate", "--model", demo_model, "--max-tokens", "12", "--temperature", "1.5")
    options += ("--prompt", "Tell me a story.")
    answers = [weft(*options, "--seed", seed).stdout for seed in (7, 7, 8)]
    assert answers[0] == answers[1] != answers[2]


def test_progress_is_a_bar_on_a_terminal_and_lines_otherwise(tiny):
    options = ["generate", "--model", tiny, "--device", "null", "--raw", "--prompt", "hello"]
    options += ["--max-tokens", "2"]
    errors = weft(*options).stderr
    assert b"\r" not in errors and b"\x1b" not in errors
    for part in (b"weights", b"kv cache", b"ready"):
        assert part in errors
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [BINARY, *options], stdout=subprocess.DEVNULL, stderr=follower, env=environment()
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            block = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        shown += block
    os.close(leader)
    assert process.wait(SECONDS_MAX) == 0
    assert b"kv cache" in shown and b"ready" in shown


# -- bench --


def test_bench(tiny):
    done = weft(
        *("bench", "--model", tiny, "--device", "null", "--null-step-us", "0", "--json"),
        *("--batch-sizes", "1,3", "--context-lengths", "40,5000"),
        *("--steps", "40", "--repeats", "2"),
    )
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert [(r["batch"], r["context"]) for r in report["results"]] == [(1, 40), (3, 40)]
    for result in report["results"]:
        assert result["prefill_tokens_per_second"] > 0
        per_second = result["batch"] * 1000 / result["decode_step_ms"]
        assert result["decode_tokens_per_second"] == pytest.approx(per_second, rel=1e-3)
        assert result["prefill_tflop_per_second"] > 0
        assert 0 < result["host_step_us"] <= result["decode_step_ms"] * 1000
        assert "memory_floor_share" not in result  # nothing to measure it against
    assert "read_bytes_per_second" not in report
    assert done.stderr.count(b"left out") == 2
    done = weft("bench", "--model", tiny, "--device", "null", "--steps", "4", "--repeats", "1")
    assert done.returncode == 0 and b"decode tok/s" in done.stdout


def test_bench_keeps_the_pace_of_the_device(tiny):
    done = weft(
        *("bench", "--model", tiny, "--device", "null", "--null-step-us", "5000", "--json"),
        *("--batch-sizes", "4", "--context-lengths", "8", "--steps", "20", "--repeats", "1"),
    )
    result = json.loads(done.stdout)["results"][0]
    assert result["decode_step_ms"] >= 5


def test_a_failed_device_ends_generate_and_bench(tiny):
    why = "the null device failed in step 5, as it was told to"
    fails = "--device", "null", "--null-step-us", "1000", "--null-fail-step", "5"
    done = weft("generate", "--model", tiny, *fails, "--prompt", "hello", "--max-tokens", "50")
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1].startswith(f"weft: {why}")
    done = weft("bench", "--model", tiny, *fails, "--steps", "8")
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1].startswith(f"weft: {why}")


def test_bench_refuses_bad_lists(tiny):
    for value in ("", "0", "1,", "1;2", "x", "5000", "-1", "1,,2"):
        done = weft("bench", "--model", tiny, f"--batch-sizes={value}")
        assert done.returncode in (1, 2) and done.stdout == b""
        assert b"batch-sizes" in done.stderr


# -- constrain --


def constrain(lines, *options):
    stdin = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    done = weft("constrain", *options, stdin=stdin)
    return [json.loads(line) for line in done.stdout.splitlines()], done


def test_constrain_by_a_regular_expression():
    answers, done = constrain(["12é", "1", "", "12é3", "1è", 7], "--regex", "[0-9]{2,3}é?")
    assert done.returncode == 1  # the 7 is no string
    assert answers[0] == {"accept": True}
    assert answers[1] == answers[2] == {"accept": False, "dead_at": None}
    assert answers[3] == {"accept": False, "dead_at": 4}
    assert answers[4] == {"accept": False, "dead_at": 1}
    assert "string" in answers[5]["error"]


def test_constrain_to_the_empty_text():
    answers, done = constrain(["", "a"], "--regex", "()")
    assert done.returncode == 0
    assert answers == [{"accept": True}, {"accept": False, "dead_at": 0}]


def test_constrain_by_a_grammar(tmp_path):
    path = tmp_path / "list.gbnf"
    path.write_text('root ::= "[" root* "]"\n')
    answers, done = constrain(["[[][]]", "[[", "[]]", "x"], "--grammar", path)
    assert done.returncode == 0
    assert answers[0] == {"accept": True}
    assert [a["dead_at"] for a in answers[1:]] == [None, 2, 0]


def test_constrain_by_a_schema(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    answers, done = constrain(['{"a": 1}', '{"a": x}', '{"a"'], "--schema", path)
    assert done.returncode == 0
    assert answers == [
        {"accept": True},
        {"accept": False, "dead_at": 6},
        {"accept": False, "dead_at": None},
    ]


def test_constrain_refuses(tmp_path):
    path = tmp_path / "bad"
    assert_refused(weft("constrain"), 2, "--schema", "--regex", "--grammar")
    assert_refused(weft("constrain", "--regex", "a", "--schema", path), 2, "one of")
    assert_refused(weft("constrain", "--regex", ""), 2, "empty --regex", "'()'")
    assert_refused(weft("constrain", "--schema", path), 1, str(path))
    assert_refused(weft("constrain", "--regex", r"(a)\1"), 2, "back-references")
    path.write_text('root ::= "a\n')
    assert_refused(weft("constrain", "--grammar", path), 2, "line 1, column 10")
    path.write_text('root ::= root "a" | "b"\n')
    assert_refused(weft("constrain", "--grammar", path), 2, "left-recursive")
    path.write_text('{"type": "string", "format": "no-such"}')
    assert_refused(weft("constrain", "--schema", path), 2, "format")


# -- parse --


def parse(lines, *options):
    stdin = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return weft("parse", *options, stdin=stdin)


def test_parse_every_case(tmp_path):
    """Whole, and cut as the reference says."""
    reference = json.loads((ROOT / "tests/data/tool_calls/tool_calls.json").read_text())
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps({"tools": reference["tools"]}))
    for name in sorted({case["format"] for case in reference["cases"]}):
        cases = [case for case in reference["cases"] if case["format"] == name]
        lines = [
            {
                "raw": case["raw"],
                "splits": splits,
                "starts_in_reasoning": case.get("starts_in_reasoning", False),
            }
            for case in cases
            for splits in [[], *case["splits"].values()]
        ]
        done = parse(lines, "--tool-parser", name, "--tools", tools)
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        expected = [case["expected"] for case in cases for _ in range(1 + len(case["splits"]))]
        assert len(answers) == len(expected)
        for answer, wanted in zip(answers, expected):
            assert list(answer) == ["content", "reasoning_content", "tool_calls", "finish_reason"]
            for part in ("content", "reasoning_content"):
                assert (answer[part] or "").strip() == (wanted[part] or "")
            assert answer["tool_calls"] == wanted["tool_calls"]
            assert answer["finish_reason"] == wanted["finish_reason"]


def test_parse_refuses():
    assert_refused(parse([]), 1, "--tool-parser", "hermes, ")
    assert_refused(parse([], "--tool-parser", "no-such"), 1, "no-such", "llama3_json")
    assert_refused(parse([], "--tool-parser", "hermes", "--tools", "/none"), 1, "/none")
    lines = [{"raw": "a"}, {}, {"raw": "abc", "splits": [2, 1]}, {"raw": "a", "splits": [9]}]
    done = parse(lines, "--tool-parser", "hermes")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and len(answers) == 4
    assert answers[0]["content"] == "a" and answers[0]["finish_reason"] == "stop"
    assert "'raw' is missing" in answers[1]["error"]
    assert "splits[1]" in answers[2]["error"] and "splits[0]" in answers[3]["error"]
