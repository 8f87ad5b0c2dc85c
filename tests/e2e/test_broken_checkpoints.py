"""Protects: folders in Hugging Face's layout that are broken, cut or hostile are refused, and the
message names the tensor or file and says what was expected; those that are only unusual are read.
"""

import json
import os
import struct
import subprocess

import pytest

from test_cli import weft
from tiny_folder import INDEX, TinyFolder, describe, header, safetensors
from weft import BINARY, Weft

Q = "model.layers.0.self_attn.q_proj.weight"
NORM = "model.norm.weight"
LAST = "model-00003-of-00003.safetensors"


def inspect(path, *options):
    return weft("inspect", path, "--device", "null", *options)


def refused(path, *parts):
    """What a folder says is shown before it is judged; then one line has all the parts."""
    done = inspect(path)
    message = done.stderr.decode()
    assert done.returncode == 1, message
    assert message.startswith("weft: ") and message.count("\n") == 1, message
    for part in parts:
        assert part in message


def opens(path, *options):
    done = inspect(path, *options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def folder_of(path, content):
    """A right folder, but for the content of its weights' file."""
    TinyFolder().write(path)
    (path / "model.safetensors").write_bytes(content)
    return path


def changed(path, change):
    """`change` is given the header's object, which it changes in place."""
    tensors = TinyFolder().tensors
    entries = describe(tensors)
    change(entries)
    return folder_of(path, header(entries) + b"".join(t[2] for t in tensors.values()))


# -- the file --


@pytest.mark.parametrize(
    "content, parts",
    [
        (b"", ["is empty"]),
        (b"{}", ["has only 2 bytes"]),
        (b"PK\x03\x04" + bytes(60), ["is not a safetensors file"]),
        (struct.pack("<Q", 1 << 60) + b"{}", ["the header has 1152921504606846976 bytes"]),
        (struct.pack("<Q", 4) + b"[{}]", ["is not a safetensors file"]),
        (header(b'{"a":'), ["the header", "Invalid JSON"]),
        (header(b'{"a": {"dtype": "F32"}} x'), ["the header", "Invalid JSON"]),
        (header(b'{"a":' + b"[" * 100 + b"]" * 100 + b"}"), ["the header", "64 levels"]),
        (header(b'{"a":1,"a":2}'), ["the header", "duplicate"]),
        (header(b'{"\\u0000":1}'), ["the header", "u0000"]),
        (header(b'{"\xff":1}'), ["the header", "Invalid JSON"]),
        (header({"__metadata__": {"format": 1}}), ["'__metadata__'"]),
        (header({"__metadata__": []}), ["'__metadata__'"]),
        (header({"a": 1}), ["the tensor a ", "no object"]),
        (header({}), ["the tensor model.embed_tokens.weight is missing"]),
        (header({}) + b"more", ["4 bytes after the last tensor"]),
    ],
)
def test_files(tmp_path, content, parts):
    refused(folder_of(tmp_path / "m", content), *parts)


def test_a_header_larger_than_any(tmp_path):
    size = 40 << 20
    path = folder_of(tmp_path / "m", b"")
    with open(path / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", size) + b"{")
        file.truncate(size + 100)
    refused(path, "the header has 41943040 bytes")


@pytest.mark.parametrize("cut", [1, 100, 5000])
def test_cut(tmp_path, cut):
    whole = safetensors(TinyFolder().tensors)
    refused(folder_of(tmp_path / "m", whole[:-cut]), "the tensor model", "the file has only")


def test_grown(tmp_path):
    whole = safetensors(TinyFolder().tensors)
    refused(folder_of(tmp_path / "m", whole + bytes(10)), "10 bytes after the last tensor")


def test_what_git_leaves_without_its_extension(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1000\n"
    path = folder_of(tmp_path / "m", pointer)
    refused(path, "model.safetensors only stands for the file", "git lfs pull")
    (tmp_path / "m.gguf").write_bytes(pointer)
    refused(tmp_path / "m.gguf", "m.gguf only stands for the file", "git lfs pull")


# -- entries of the header --


@pytest.mark.parametrize(
    "key, value, part",
    [
        ("dtype", None, "has no 'dtype'"),
        ("dtype", 3, "has no 'dtype'"),
        ("dtype", "BF17", 'has the dtype "BF17"'),
        ("dtype", "F32", "its shape and dtype F32 want 4096"),
        ("shape", None, "has no 'shape'"),
        ("shape", "32", "has no 'shape'"),
        ("shape", [32, -32], "is no size"),
        ("shape", [32, 32.5], "is no size"),
        ("shape", [32, "32"], "is no size"),
        ("shape", [1 << 62, 1 << 62], "beyond counting"),
        ("shape", [1 << 62, 2], "beyond counting"),
        ("shape", [1] * 9, "more than 8 dimensions"),
        ("shape", [32, 31], "takes 2048 bytes"),
        ("shape", [], "takes 2048 bytes"),
        ("data_offsets", None, "has no 'data_offsets'"),
        ("data_offsets", [0], "has no 'data_offsets'"),
        ("data_offsets", [0, 1, 2], "has no 'data_offsets'"),
        ("data_offsets", [-8, 2040], "has no 'data_offsets'"),
        ("data_offsets", [4096, 2048], "has no 'data_offsets'"),
        ("data_offsets", [0, 1 << 62], "the file has only"),
        ("data_offsets", [1 << 61, 1 << 62], "the file has only"),
        ("data_offsets", ["0", "2048"], "has no 'data_offsets'"),
    ],
)
def test_entries(tmp_path, key, value, part):
    def change(entries):
        if value is None:
            del entries[Q][key]
        else:
            entries[Q][key] = value

    refused(changed(tmp_path / "m", change), Q, part)


def test_overlapping_tensors(tmp_path):
    def change(entries):
        entries[Q]["data_offsets"] = [at - 64 for at in entries[Q]["data_offsets"]]

    before = "model.layers.0.self_attn.o_proj"
    refused(changed(tmp_path / "m", change), Q, f"overlaps the tensor {before}")


def test_the_same_data_twice(tmp_path):
    def change(entries):
        entries["model.again"] = entries[Q]

    refused(changed(tmp_path / "m", change), "overlaps the tensor")


def test_a_hole(tmp_path):
    def change(entries):
        del entries[Q]

    refused(changed(tmp_path / "m", change), "v_proj", "after 2048 bytes that belong to no tensor")


# -- what the model wants --


def test_missing_tensors(tmp_path):
    for n, name in enumerate(TinyFolder().tensors):
        folder = TinyFolder()
        del folder.tensors[name]
        refused(folder.write(tmp_path / str(n)), f"the tensor {name} is missing")


def test_misshapen_tensors(tmp_path):
    for n, (name, shape, wanted) in enumerate(
        [
            (Q, [32, 31], "[32, 31], not [32, 32]"),
            (Q, [31, 32], "[31, 32], not [32, 32]"),
            (Q, [1, 32, 32], "[1, 32, 32], not [32, 32]"),
            (Q, [2, 16, 32], "[2, 16, 32], not [32, 32]"),
            (Q, [1024], "[1024], not [32, 32]"),
            (Q, [0, 32], "[0, 32], not [32, 32]"),
            (NORM, [33], "[33], not [32]"),
            (NORM, [32, 2], "[32, 2], not [32]"),
            (NORM, [], "[], not [32]"),
            ("model.embed_tokens.weight", [41, 32], "[41, 32], not [40, 32]"),
        ]
    ):
        folder = TinyFolder()
        count = 1
        for size in shape:
            count *= size
        folder.tensors[name] = ("BF16", shape, bytes(2 * count))
        refused(folder.write(tmp_path / str(n)), f"the tensor {name} is {wanted}")


@pytest.mark.parametrize("dtype, size", [("I64", 8), ("F64", 8), ("U8", 1), ("BOOL", 1)])
def test_dtypes_that_are_no_weights(tmp_path, dtype, size):
    folder = TinyFolder()
    folder.tensors[Q] = (dtype, [32, 32], bytes(1024 * size))
    refused(folder.write(tmp_path / "m"), Q, f"of dtype {dtype}")


def test_config(tmp_path):
    for n, (key, value, part) in enumerate(
        [
            ("architectures", ["LlamaForCausalML"], "'LlamaForCausalML'"),
            ("hidden_size", "32", "'hidden_size'"),
            ("hidden_size", None, "'hidden_size' is missing"),
            ("vocab_size", 1 << 40, "'vocab_size'"),
            ("num_hidden_layers", 2, "model.layers.1.input_layernorm.weight is missing"),
        ]
    ):
        folder = TinyFolder()
        folder.config[key] = value
        refused(folder.write(tmp_path / str(n)), part)
    path = TinyFolder().write(tmp_path / "text")
    (path / "config.json").write_text('{"architectures": [')
    refused(path, "config.json: Invalid JSON")
    (path / "config.json").write_text("[]")
    refused(path, "config.json")
    (path / "config.json").unlink()
    refused(path, "has no config.json")


def test_a_folder_without_weights(tmp_path):
    path = TinyFolder().write(tmp_path / "m")
    (path / "model.safetensors").unlink()
    refused(path, "neither model.safetensors nor " + INDEX)
    (path / "pytorch_model.bin").write_bytes(b"")
    refused(path, "PyTorch's own files are not read")
    refused(tmp_path / "m" / "other.safetensors", "cannot open", "other.safetensors")


# -- the index --


def reindexed(path, change):
    """A folder of three files; `change` is given the index."""
    TinyFolder().write(path, shards=3)
    index = json.loads((path / INDEX).read_text())
    change(index)
    (path / INDEX).write_text(json.dumps(index))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "../outside.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "..",
        ".",
        "",
        "a\\b",
        "x" * 256,
        7,
        None,
        ["model.safetensors"],
    ],
)
def test_names_that_leave_the_folder(tmp_path, name):
    (tmp_path / "outside.safetensors").write_bytes(safetensors(TinyFolder().tensors))
    path = reindexed(tmp_path / "m", lambda index: index["weight_map"].update({Q: name}))
    refused(path, INDEX, f"the tensor {Q}", "no name of a file in the folder")


def test_missing_files(tmp_path):
    path = TinyFolder().write(tmp_path / "m", shards=3)
    (path / LAST).unlink()
    refused(path, f"{INDEX} names {LAST}", "No such file")
    (path / LAST).mkdir()
    refused(path, f"{INDEX} names {LAST}", "is a folder")


def test_an_index_that_names_itself(tmp_path):
    path = reindexed(tmp_path / "m", lambda index: index["weight_map"].update({Q: INDEX}))
    refused(path, f"{INDEX} names {INDEX}", "is not a safetensors file")


def test_links_in_a_circle(tmp_path):
    path = TinyFolder().write(tmp_path / "m", shards=3)
    (path / LAST).unlink()
    (path / LAST).symlink_to("again")
    (path / "again").symlink_to(LAST)
    refused(path, f"{INDEX} names {LAST}", "Too many levels of symbolic links")


def test_one_file_under_two_names(tmp_path):
    path = reindexed(tmp_path / "m", lambda index: index["weight_map"].update({NORM: "again"}))
    os.link(path / LAST, path / "again")
    refused(path, "is in two files")


def test_tensors_that_are_elsewhere(tmp_path):
    path = reindexed(tmp_path / "a", lambda index: index["weight_map"].update({"more": LAST}))
    refused(path, f"the tensor more is in {LAST}, but it is not there")
    first = "model-00001-of-00003.safetensors"
    path = reindexed(tmp_path / "b", lambda index: index["weight_map"].update({NORM: first}))
    refused(path, f"the tensor {NORM} is in {first}, but it is not there")


@pytest.mark.parametrize(
    "text, part",
    [
        ("", "empty"),
        ("{", "Invalid JSON"),
        ("[]", "no 'weight_map'"),
        ("{}", "no 'weight_map'"),
        ('{"weight_map": []}', "no 'weight_map'"),
        ('{"weight_map": {}}', "no 'weight_map'"),
        ('{"weight_map": {"a": "b", "a": "b"}}', "duplicate"),
    ],
)
def test_texts_of_the_index(tmp_path, text, part):
    path = TinyFolder().write(tmp_path / "m", shards=3)
    (path / INDEX).write_text(text)
    refused(path, INDEX, part)


# -- unusual, and right --


def answer(path):
    body = {
        "prompt": [3, 1, 4, 1, 5],
        "max_tokens": 8,
        "temperature": 0,
        "logprobs": 2,
        "ignore_eos": True,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    with Weft("--cpu-exact", "--max-batch", "2", model=path, device="cpu") as server:
        status, _, data = server.post("/v1/completions", body)
    assert status == 200, data
    choice = json.loads(data)["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def test_formats(tmp_path):
    """The same numbers in three formats, norms too, in one file or several: the same answers."""
    folders = [TinyFolder(dtype).write(tmp_path / dtype) for dtype in ("F32", "F16", "BF16")]
    for folder in folders:
        assert f"\n  {folder.name} " in opens(folder)
    mixed = TinyFolder()
    for name, dtype in ((NORM, "F32"), (Q, "F16"), ("lm_head.weight", "F32")):
        mixed.tensors[name] = TinyFolder(dtype).tensors[name]
    folders += [mixed.write(tmp_path / "mixed"), TinyFolder().write(tmp_path / "three", shards=3)]
    answers = [answer(folder) for folder in folders]
    assert len(answers[0][0]) == 8
    for ids, logprobs in answers[1:]:
        assert ids == answers[0][0]
        assert logprobs == pytest.approx(answers[0][1], abs=1e-5)


def test_headers_of_any_length(tmp_path):
    """Old files begin their data anywhere."""
    tensors = TinyFolder().tensors
    data = b"".join(t[2] for t in tensors.values())
    for padding in range(1, 8):
        content = header(describe(tensors), b" " * padding) + data
        opens(folder_of(tmp_path / str(padding), content))


def test_tensors_without_use(tmp_path):
    folder = TinyFolder()
    folder.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", [8], bytes(32))
    assert "not used" not in opens(folder.write(tmp_path / "leftover"))
    folder.tensors["model.layers.7.mlp.up_proj.weight"] = ("I32", [3], bytes(12))
    folder.tensors["zzz"] = ("F64", [], bytes(8))
    text = opens(folder.write(tmp_path / "more"))
    assert "2  tensors, the first is model.layers.7.mlp.up_proj.weight" in text


def test_names_without_their_prefix(tmp_path):
    folder = TinyFolder()
    folder.tensors = {n.removeprefix("model."): t for n, t in folder.tensors.items()}
    opens(folder.write(tmp_path / "m"))


def test_a_tied_head_counts_whatever_the_file_has(tmp_path):
    folder = TinyFolder()
    folder.config["tie_word_embeddings"] = True
    opens(folder.write(tmp_path / "with"))
    del folder.tensors["lm_head.weight"]
    opens(folder.write(tmp_path / "without"))


def test_links_out_of_the_folder(tmp_path):
    """As Hugging Face's cache has them."""
    path = TinyFolder().write(tmp_path / "m", shards=3)
    (path / LAST).rename(tmp_path / "blob")
    (path / LAST).symlink_to("../blob")
    opens(path)


def test_a_file_stands_for_its_folder(tmp_path):
    path = TinyFolder().write(tmp_path / "m", shards=3)
    assert "in 3 files" in opens(path / LAST)
    (path / "other.safetensors").write_bytes(safetensors(TinyFolder().tensors))
    assert "in 1 file," in opens(path / "other.safetensors")
    (path / "model.safetensors").write_bytes(safetensors(TinyFolder().tensors))
    assert "in 1 file," in opens(path)  # as Transformers chooses
    done = subprocess.run(
        [BINARY, "inspect", "--device", "null", LAST], cwd=path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("name", [".", "../loom", "./", "../loom/.", "x/..", str(LAST)])
def test_a_folder_is_named_however_it_is_reached(tmp_path, name):
    path = TinyFolder().write(tmp_path / "loom", shards=3)
    (path / "x").mkdir()
    done = subprocess.run(
        [BINARY, "inspect", "--device", "null", name], cwd=path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "\nmodel: loom\n" in done.stdout.decode()


def test_empty_tensors(tmp_path):
    folder = TinyFolder()
    folder.tensors = {"nothing": ("F32", [0, 7], b"")} | folder.tensors | {"end": ("U8", [0], b"")}
    opens(folder.write(tmp_path / "m"))
