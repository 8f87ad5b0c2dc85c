"""Makes tests/data/embeddings.json: vectors of the checkpoints in tests/data/arch, as Transformers
computes them in float32 (hidden states behind the final norm, pooled, divided by their length).

    python3 tests/golden/make_embeddings.py        with torch and transformers
"""

import json
import pathlib
import random

import torch
import transformers

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
MODELS = ["hf_qwen3", "hf_gpt2", "hf_gemma2", "hf_qwen2_moe"]
LENGTHS = [1, 7, 45]


def pooled(states):
    vectors = {"last": states[-1], "mean": states.mean(0), "cls": states[0]}
    unit = {name: torch.nn.functional.normalize(v, dim=0) for name, v in vectors.items()}
    return {name: [round(x, 7) for x in v.tolist()] for name, v in unit.items()}


def main():
    numbers, cases = random.Random(7), []
    for name in MODELS:
        folder = DATA / "arch" / name
        model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        for length in LENGTHS:
            ids = [numbers.randrange(model.config.vocab_size) for _ in range(length)]
            with torch.no_grad():
                states = model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
            cases.append({"model": name, "input": ids, **pooled(states)})
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    made_by = f"transformers {transformers.__version__}, torch {torch.__version__}"
    (DATA / "embeddings.json").write_text(f'{{"made_by":"{made_by}","cases":[\n{text}\n]}}\n')


if __name__ == "__main__":
    main()
