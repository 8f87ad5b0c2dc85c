"""Random texts under a schema: they come to their end, parse, and are valid by jsonschema.

Every token is drawn evenly among the allowed ones (tests/lib/random_generate.c), so nothing but the
constraint makes them what they are. Through the server they are drawn as a model of random weights
has it. WEFT_RANDOM_GENERATIONS=1000 draws so many under each schema.
"""

import json
import os
import pathlib
import subprocess

import jsonschema
import pytest

from make import ROOT, make
from weft import Weft

CASES = json.loads((ROOT / "tests/data/constrained/json_schema.json").read_text())["cases"]
COUNT = int(os.environ.get("WEFT_RANDOM_GENERATIONS", "25"))
TOKENS_MAX = 2000
FINISHED_MIN = 0.95

# What the reference cases do not ask.
MORE = {
    "multiple-of": {"type": "integer", "multipleOf": 7, "minimum": -100, "maximum": 1000},
    "multiple-of-endless": {"type": "integer", "multipleOf": 1250},
    "multiple-of-thousands": {"type": "integer", "multipleOf": 12000},
    "multiple-of-half": {"type": "number", "multipleOf": 2.5, "minimum": -40},
    "multiple-of-decimal": {"type": "number", "multipleOf": 0.25, "exclusiveMinimum": -3},
    "exclusive-number": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "negative-number": {"type": "number", "minimum": -12.75, "maximum": -0.125},
    "large-range": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    "integer-of-decimals": {"type": "integer", "minimum": 1.5, "maximum": 4.5},
    "number-min": {"type": "number", "minimum": 0},
    "pattern-and-length": {"pattern": "[a-c]+x", "minLength": 5, "maxLength": 9, "type": "string"},
    "counted-pattern": {"type": "string", "pattern": "^([a-z]{2,4000}-?){1,40}[\u00e9/]{3,9000}$"},
    "two-patterns": {"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "[0-9]$"}]},
    "pattern-and-format": {"type": "string", "format": "uuid", "pattern": "^[0-9]{8}-f"},
    "not-these": {"type": "string", "not": {"enum": ["a", "b", ""]}, "maxLength": 1},
    "not-type": {"not": {"type": ["object", "array", "string"]}},
    "pattern-properties": {
        "type": "object",
        "properties": {"id": {"type": "integer"}},
        "patternProperties": {"^n_": {"type": "null"}, "_b$": {"type": ["boolean", "null"]}},
        "additionalProperties": {"type": "integer"},
        "required": ["id"],
        "minProperties": 2,
        "maxProperties": 6,
    },
    "closed-patterns": {
        "type": "object",
        "patternProperties": {"^[a-z]{1,3}$": {"type": "integer"}},
        "additionalProperties": False,
    },
    "property-names": {
        "type": "object",
        "propertyNames": {"pattern": "^[A-Z]", "maxLength": 4},
        "additionalProperties": {"type": "boolean"},
    },
    "declared-by-pattern": {
        "type": "object",
        "properties": {"n_x": {"maximum": 5}},
        "patternProperties": {"^n_": {"type": "integer"}},
        "additionalProperties": False,
        "required": ["n_x"],
    },
    "max-properties": {
        "type": "object",
        "properties": {k: {"type": "null"} for k in "abcdef"},
        "additionalProperties": False,
        "minProperties": 2,
        "maxProperties": 4,
    },
    "contains": {
        "type": "array",
        "items": {"type": ["integer", "null"]},
        "contains": {"type": "null"},
        "minContains": 2,
    },
    "unique": {"type": "array", "items": {"enum": [1, 2, "a", None]}, "uniqueItems": True,
               "minItems": 2},
    "prefix-open": {"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}],
                    "items": {"type": "integer"}, "minItems": 1, "maxItems": 4},
    "prefix-merged": {
        "type": "array",
        "allOf": [{"prefixItems": [{"minimum": 3}, {}]}, {"items": {"type": "integer"}}],
        "minItems": 3,
    },
    "any-of-beside": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "additionalProperties": False,
    },
    "all-of-choices": {
        "allOf": [
            {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            {"anyOf": [{"minimum": 10, "maxLength": 2}, {"maximum": 3, "minLength": 4}]},
        ]
    },
    "ref-beside": {
        "$defs": {"s": {"type": "string", "minLength": 2}},
        "$ref": "#/$defs/s",
        "maxLength": 3,
    },
    "any-of-recursive": {
        "$defs": {"e": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/sum"}]},
                  "sum": {"type": "object", "properties": {"l": {"$ref": "#/$defs/e"},
                                                           "r": {"$ref": "#/$defs/e"}},
                          "required": ["l", "r"], "additionalProperties": False}},
        "$ref": "#/$defs/e",
    },
    "enum-filtered": {"enum": [1, 5, "ab", "abc", None, 2.5], "maximum": 3, "minLength": 3},
    "false-property": {"type": "object", "properties": {"a": False, "b": {"type": "null"}}},
    "format-time": {"type": "string", "format": "time"},
    "format-date-time": {"type": "string", "format": "date-time"},
    "format-duration": {"type": "string", "format": "duration"},
    "format-email": {"type": "string", "format": "email"},
    "format-hostname": {"type": "string", "format": "hostname"},
    "format-ipv4": {"type": "string", "format": "ipv4"},
    "format-ipv6": {"type": "string", "format": "ipv6"},
    "format-uri": {"type": "string", "format": "uri"},
    "format-json-pointer": {"type": "string", "format": "json-pointer"},
}
SCHEMAS = {case["id"]: case["schema"] for case in CASES} | MORE


@pytest.fixture(scope="module")
def program():
    built = make("build/tests/lib/random_generate")
    assert built.returncode == 0, built.stderr
    return ROOT / "build" / "tests" / "lib" / "random_generate"


def generate(program, folder, schema, count, *vocabulary):
    path = pathlib.Path(folder) / "schema.json"
    path.write_text(json.dumps(schema))
    done = subprocess.run(
        [program, path, str(count), "7", str(TOKENS_MAX), *vocabulary],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def check(schema, texts):
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    finished = [t["text"] for t in texts if t["finished"]]
    for text in finished:
        validator.validate(json.loads(text, parse_constant=refuse_constant))
    assert len(finished) >= FINISHED_MIN * len(texts)


@pytest.mark.parametrize("name", SCHEMAS)
def test_bytes_and_pieces(program, tmp_path, name):
    check(SCHEMAS[name], generate(program, tmp_path, SCHEMAS[name], COUNT))


# A run of letters is read in some 4,000 x 40 ways at once. Letter by letter that is within the
# bound on one call, through the tokens of a model it is not.
AMBIGUOUS = "counted-pattern"


def test_too_many_readings_are_a_fault(program, tmp_path, demo_model):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMAS[AMBIGUOUS]))
    done = subprocess.run(
        [program, path, "1", "7", str(TOKENS_MAX), demo_model], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"too ambiguous" in done.stderr


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name != AMBIGUOUS])
def test_vocabulary_of_a_model(program, tmp_path, name, demo_model):
    texts = generate(program, tmp_path, SCHEMAS[name], max(COUNT // 5, 1), demo_model)
    check(SCHEMAS[name], texts)


# -- through the server --

SERVER_COUNT = min(COUNT, 128)  # answers to one request


@pytest.fixture(scope="module")
def server(tiny):
    with Weft("--max-batch", 32, model=tiny, device="cpu") as running:
        yield running


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_random_model_through_the_server(server, name):
    """Sampled, masked and finished by the engine, from a model whose weights are noise."""
    schema = SCHEMAS[name]
    body = {
        "prompt": "x",
        "n": SERVER_COUNT,
        "max_tokens": TOKENS_MAX,
        "seed": 11,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    }
    status, _, data = server.post("/v1/completions", body)
    assert status == 200, data
    choices = json.loads(data)["choices"]
    check(schema, [{"text": c["text"], "finished": c["finish_reason"] == "stop"} for c in choices])
