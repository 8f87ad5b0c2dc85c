#!/usr/bin/env python3
"""Transformers' plain `generate` on random weights, for a table beside `weft bench`.

    python3 tests/load/transformers_generate.py [--shapes llama-3.1-8b] [--json FILE]

Needs PyTorch with CUDA and Transformers; nothing is downloaded. Each shape of config/shapes is
built in bf16 on the GPU with Transformers' own random weights, and generates greedily after random
prompts. A time is the median between two tokens, the first few left out, taken where `generate`
itself looks whether all sequences have ended, once a token: nothing is added that waits for the
device.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
import transformers

SHAPES = pathlib.Path(__file__).resolve().parents[2] / "config" / "shapes"
WARM_TOKENS = 4


class Clock(transformers.StoppingCriteria):
    """Notes when each token is there; stops nothing."""

    def __init__(self):
        super().__init__()
        self.times = []

    def __call__(self, input_ids, scores, **more):
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def build(shape):
    values = json.loads((SHAPES / f"{shape}.json").read_text())
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    torch.set_default_dtype(torch.float32)
    model = model.to(device="cuda", dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None  # all answers are of the same length
    model.generation_config.pad_token_id = 0
    return model


def generate(model, batch, context, tokens):
    """Seconds a token, the median."""
    prompt = torch.randint(0, model.config.vocab_size, (batch, context), device="cuda")
    clock = Clock()
    answer = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=tokens,
        do_sample=False,
        stopping_criteria=transformers.StoppingCriteriaList([clock]),
    )
    if answer.shape != (batch, context + tokens) or len(clock.times) != tokens:
        sys.exit(f"{len(clock.times)} steps, and an answer of {tuple(answer.shape)}")
    spans = [later - earlier for earlier, later in zip(clock.times, clock.times[1:])]
    return statistics.median(spans[WARM_TOKENS:])


def measure(args):
    results = []
    for shape in args.shapes.split(","):
        model = build(shape)
        with torch.inference_mode():
            generate(model, 1, 64, 2 * WARM_TOKENS)
            for batch in map(int, args.batch_sizes.split(",")):
                ms = generate(model, batch, args.context, args.tokens) * 1e3
                results.append({"shape": shape, "batch": batch, "token_ms": ms})
                print(f"{shape:16} {batch:5} {ms:9.3f} ms a token", flush=True)
        del model
        torch.cuda.empty_cache()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--shapes", default="smollm2-135m,llama-3.2-1b,llama-3.1-8b")
    parser.add_argument("--batch-sizes", default="1,8,32")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--json", help="write the results to this file too")
    args = parser.parse_args()
    versions = f"Transformers {transformers.__version__}, PyTorch {torch.__version__}"
    print(f"{versions}, {torch.cuda.get_device_name()}, context {args.context}", flush=True)
    results = measure(args)
    if args.json:
        report = {"versions": versions, "context": args.context, "results": results}
        pathlib.Path(args.json).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
