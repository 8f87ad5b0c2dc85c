"""Two hundred streams at once: each arrives whole, and none holds a token of another.

On the null device every stream echoes its own prompt, so a token that is lost, doubled or another's
shows itself, also after preemption. On the demo model each stream must say what the same prompt
says alone, as far as its tokens were not nearly tied.
"""

import random

from streams import run_streams

STREAMS = 200
BYTE_ID = 3  # of byte 0 in the tiny model's vocabulary
CLOSE_MARGIN = 0.05  # log-probability; below it company may change the choice


def letters(number):
    """A prompt of letters that no other number has."""
    numbers = random.Random(number)
    return "".join(numbers.choices("abcdefghijklmnopqrstuvwxyz", k=numbers.randint(4, 40)))


def echo(text, count):
    return (text * (count // len(text) + 1))[:count]


def check_echoes(server, tokens):
    prompts = [letters(n) for n in range(STREAMS)]
    bodies = [
        {"prompt": [BYTE_ID + ord(c) for c in p], "max_tokens": tokens + n % 7}
        for n, p in enumerate(prompts)
    ]
    streams = run_streams(server, bodies)
    for body, prompt, stream in zip(bodies, prompts, streams):
        expected = echo(prompt, body["max_tokens"])
        assert stream.whole, f"{prompt}: {stream.status} {stream.finish} {stream.error}"
        assert stream.text == expected
        assert stream.ids == [BYTE_ID + ord(c) for c in expected]
        assert stream.finish == "length"
    assert server.gauge("vllm:num_requests_running") == 0
    assert server.gauge("vllm:kv_cache_usage_perc") == 0


def test_null_device_echoes_each_ones_own_prompt(null_server):
    check_echoes(null_server, tokens=100)


def test_nothing_is_lost_or_doubled_when_pages_run_out(start):
    """400 pages for streams that want some 1,600: most are preempted and computed anew."""
    server = start("--null-step-us", 200, "--max-batch", STREAMS, "--kv-bytes", 400 * 64)
    check_echoes(server, tokens=100)
    assert server.gauge("vllm:num_preemptions_total") > 0


def test_demo_model_says_in_company_what_it_says_alone(demo_server):
    topics = "sea moon bread clock river piano winter garden train mirror".split()
    bodies = [
        {"prompt": f"The {t} is", "max_tokens": 6, "temperature": 0, "logprobs": 2} for t in topics
    ]
    alone = [run_streams(demo_server, [body])[0] for body in bodies]
    company = run_streams(demo_server, bodies * (STREAMS // len(bodies)))
    compared = 0
    for n, stream in enumerate(company):
        expected = alone[n % len(bodies)]
        assert expected.whole and stream.whole, stream.error
        assert len(stream.ids) == 6
        for step, top in enumerate(tops(expected)):
            if top[0] - top[1] < CLOSE_MARGIN:
                break
            assert stream.ids[step] == expected.ids[step]
            compared += 1
    assert compared > 2 * STREAMS


def tops(stream):
    """Of each token, the log-probabilities of the likeliest two."""
    for piece in stream.logprobs:
        for alternatives in piece["top_logprobs"]:
            yield sorted(alternatives.values(), reverse=True)[:2]
