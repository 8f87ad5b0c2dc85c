"""Structured output through the clients that people use: the `openai` package's parsing and tools
with Pydantic, whole and streamed, LangChain's with_structured_output, LiteLLM's response_format. A
model of random weights answers, so what they parse is what the server made to fit; the demo model
shows that sense is kept."""

import enum
import json
import os
import typing

import openai
import pydantic
import pytest

from weft import Weft

# It would ask the network for prices at import.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
HELLO = [{"role": "user", "content": "Give me one."}]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Step(pydantic.BaseModel):
    title: str = pydantic.Field(max_length=12)
    minutes: int = pydantic.Field(ge=0, le=600)


class Plan(pydantic.BaseModel):
    """A plan of steps."""

    name: typing.Literal["first", "second"]
    color: Color
    note: typing.Optional[str] = pydantic.Field(max_length=9)
    steps: list[Step] = pydantic.Field(min_length=1, max_length=3)


class Weather(pydantic.BaseModel):
    """The weather at a place."""

    place: str = pydantic.Field(max_length=10)
    unit: typing.Literal["C", "F"]


class Now(pydantic.BaseModel):
    """The time."""


@pytest.fixture(scope="module")
def server(tiny):
    with Weft("--tool-parser", "hermes", model=tiny, device="cpu") as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def options(**more):
    return {"model": "tiny", "messages": HELLO, "max_tokens": 800, "seed": 3, **more}


def test_parse(client):
    for seed in range(5):
        answer = client.beta.chat.completions.parse(
            **options(response_format=Plan, seed=seed))
        choice = answer.choices[0]
        assert choice.finish_reason == "stop"
        assert isinstance(choice.message.parsed, Plan)


def test_parse_as_a_stream(client):
    with client.chat.completions.stream(**options(response_format=Plan)) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in kinds and "content.done" in kinds
    assert isinstance(final.choices[0].message.parsed, Plan)


def test_a_schema_that_cannot_be_kept(client):
    class Tags(pydantic.BaseModel):
        tags: set[str]  # "uniqueItems"

    with pytest.raises(openai.BadRequestError) as caught:
        client.beta.chat.completions.parse(**options(response_format=Tags))
    assert caught.value.param == "response_format.json_schema.schema"
    assert "uniqueItems" in str(caught.value)


def tools():
    return [openai.pydantic_function_tool(Weather), openai.pydantic_function_tool(Now)]


def test_tools_that_must_be_called(client):
    kinds = set()
    for seed in range(6):
        answer = client.beta.chat.completions.parse(
            **options(tools=tools(), tool_choice="required", seed=seed))
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
        for call in choice.message.tool_calls:
            assert isinstance(call.function.parsed_arguments, (Weather, Now))
            kinds.add(call.function.name)
    assert kinds == {"Weather", "Now"}


def test_a_named_tool(client):
    named = {"type": "function", "function": {"name": "Weather"}}
    answer = client.beta.chat.completions.parse(**options(tools=tools(), tool_choice=named))
    (call,) = answer.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)
    assert answer.choices[0].finish_reason == "stop"


def test_streamed_calls(client):
    more = options(tools=tools(), tool_choice="required", parallel_tool_calls=False)
    with client.chat.completions.stream(**more) as stream:
        done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls
    assert [json.loads(e.arguments) for e in done] == [json.loads(call.function.arguments)]
    assert isinstance(call.function.parsed_arguments, (Weather, Now))


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain(server, method):
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model="tiny", base_url=server.url + "/v1", api_key="none", max_tokens=800,
                      max_retries=0)
    held = chat.with_structured_output(Plan, method=method)
    for _ in range(3):
        assert isinstance(held.invoke("Give me one."), Plan)
    pieces = list(held.stream("Give me one."))
    assert isinstance(pieces[-1], Plan)


def test_langchain_json_mode(server):
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model="tiny", base_url=server.url + "/v1", api_key="none", max_tokens=800,
                      max_retries=0)
    held = chat.with_structured_output({"title": "any", "type": "object"}, method="json_mode")
    assert isinstance(held.invoke("Give me JSON."), dict)


def test_litellm(server):
    import litellm

    more = {"model": "openai/tiny", "api_base": server.url + "/v1", "api_key": "none",
            "messages": HELLO, "max_tokens": 800, "num_retries": 0}
    answer = litellm.completion(response_format=Plan, **more)
    Plan.model_validate_json(answer.choices[0].message.content)
    pieces = litellm.completion(response_format=Plan, stream=True, **more)
    Plan.model_validate_json("".join(p.choices[0].delta.content or "" for p in pieces))
    called = litellm.completion(tools=tools(), tool_choice="required", **more)
    for call in called.choices[0].message.tool_calls:
        kind = {"Weather": Weather, "Now": Now}[call.function.name]
        kind.model_validate_json(call.function.arguments)


def test_sense_is_kept(demo_server):
    """Held to a form, the demo model still says what it would say."""
    class Answer(pydantic.BaseModel):
        capital: typing.Literal["London", "Paris", "Berlin", "Madrid"]

    question = [{"role": "user", "content": "What is the capital of France?"}]
    with openai.OpenAI(base_url=demo_server.url + "/v1", api_key="none", max_retries=0) as client:
        answer = client.beta.chat.completions.parse(
            model=client.models.list().data[0].id, messages=question, temperature=0,
            response_format=Answer)
    assert answer.choices[0].message.parsed.capital == "Paris"
