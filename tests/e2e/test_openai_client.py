"""The real `openai` Python client against the demo model: chat, completions, streams, errors,
log-probabilities. Protects the shapes that client libraries rely on."""

import asyncio

import openai
import pytest

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(demo_server):
    with openai.OpenAI(base_url=demo_server.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def chat(client, model, **options):
    options = {"messages": CAPITAL, "temperature": 0, "max_tokens": 32, **options}
    return client.chat.completions.create(model=model, **options)


def test_models(client, model):
    one = client.models.retrieve(model)
    assert one.id == model and one.object == "model"
    assert one.max_model_len > 0


def test_chat(client, model):
    answer = chat(client, model)
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert "Paris" in choice.message.content
    assert choice.message.role == "assistant" and choice.message.tool_calls is None
    assert choice.finish_reason == "stop"
    assert answer.usage.prompt_tokens == 37
    assert answer.usage.total_tokens == 37 + answer.usage.completion_tokens


def test_chat_stream_says_the_same(client, model):
    whole = chat(client, model)
    stream = chat(client, model, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert len({c.id for c in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage == whole.usage and not chunks[-1].choices


def test_content_as_parts(client, model):
    parts = [{"role": "user", "content": [{"type": "text", "text": CAPITAL[0]["content"]}]}]
    same = chat(client, model, messages=parts)
    assert same.choices[0].message.content == chat(client, model).choices[0].message.content


def test_chat_logprobs(client, model):
    answer = chat(client, model, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert "".join(e.token for e in content) == answer.choices[0].message.content
    for entry in content:
        tops = [t.logprob for t in entry.top_logprobs]
        assert len(tops) == 3 and tops == sorted(tops, reverse=True)
        assert entry.logprob == tops[0] and entry.logprob <= 0
        assert bytes(entry.bytes).decode() == entry.token


def test_chat_logprobs_come_whole_in_a_stream(client, model):
    whole = chat(client, model, logprobs=True, top_logprobs=1).choices[0].logprobs.content
    pieces = []
    for chunk in chat(client, model, logprobs=True, top_logprobs=1, stream=True):
        if chunk.choices and chunk.choices[0].logprobs:
            pieces += chunk.choices[0].logprobs.content or []
    assert [p.token for p in pieces] == [w.token for w in whole]


def test_completion(client, model):
    answer = client.completions.create(
        model=model, prompt="1, 2, 3, 4,", max_tokens=6, temperature=0
    )
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert " 5" in answer.choices[0].text
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 6


def test_completion_stream_says_the_same(client, model):
    options = {"model": model, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
    whole = client.completions.create(**options).choices[0].text
    pieces = [c.choices[0].text for c in client.completions.create(**options, stream=True)]
    assert "".join(pieces) == whole and len(pieces) > 6


def test_completion_of_many_prompts(client, model):
    """choices[i * n + k] answers prompt i."""
    prompts = ["One, two,", "Monday, Tuesday,"]
    options = {"n": 2, "max_tokens": 4, "temperature": 0}
    answer = client.completions.create(model=model, prompt=prompts, **options)
    texts = [c.text for c in sorted(answer.choices, key=lambda c: c.index)]
    assert len(texts) == 4
    assert texts[0] == texts[1] and texts[2] == texts[3] and texts[0] != texts[2]
    assert "three" in texts[0] and "Wednesday" in texts[2]


def test_completion_echo_and_logprobs(client, model):
    """What evaluation harnesses score with."""
    answer = client.completions.create(
        model=model, prompt="The sky is blue", max_tokens=0, echo=True, logprobs=2, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text == "The sky is blue"
    assert "".join(logprobs.tokens) == "The sky is blue"
    assert logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert logprobs.text_offset == [0, 3, 7, 10]


def test_a_seed_repeats_and_choices_differ(client, model):
    options = {"temperature": 1.2, "seed": 11, "n": 3, "max_tokens": 16, "model": model}
    first, again = (
        [c.message.content for c in chat(client, **options).choices] for _ in range(2)
    )
    assert first == again
    assert len(set(first)) == 3


def test_stop_strings(client, model):
    answer = client.completions.create(
        model=model, prompt="1, 2, 3, 4,", max_tokens=40, temperature=0, stop=["8"]
    )
    assert answer.choices[0].finish_reason == "stop"
    assert "7" in answer.choices[0].text and "8" not in answer.choices[0].text


def test_many_clients_at_once(demo_server, model):
    async def together():
        url = demo_server.url + "/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            asked = [
                client.chat.completions.create(
                    model=model, messages=CAPITAL, temperature=0, max_tokens=12
                )
                for _ in range(20)
            ]
            return await asyncio.gather(*asked)

    answers = asyncio.run(together())
    assert all("Paris" in a.choices[0].message.content for a in answers)


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as caught:
        chat(client, "no-such-model")
    assert caught.value.code == "model_not_found"


def test_a_prompt_longer_than_the_context(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt=[100] * 100_000, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"
    assert "100000" in caught.value.message.replace(",", "")


@pytest.mark.parametrize(
    "options,param",
    [
        ({"messages": []}, "messages"),
        ({"temperature": 3}, "temperature"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"n": 0}, "n"),
        ({"stop": [""]}, "stop"),
    ],
)
def test_a_wrong_field_is_named(client, model, options, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, model, **options)
    assert caught.value.type == "invalid_request_error"
    assert param in (caught.value.param or "")


def test_errors_of_a_stream_come_before_it(client, model):
    with pytest.raises(openai.BadRequestError):
        chat(client, model, temperature=3, stream=True)
