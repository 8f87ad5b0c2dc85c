"""Makes the small checkpoints of tests/data/arch/hf_*: families as Transformers writes them, with
its float32 results.

    pip install torch==2.15.0 transformers==5.24.0 numpy==2.4.6
    python tests/golden/make_arch.py [NAME ...]

Each folder has config.json, model.safetensors and golden.json: four prompts with the logits after
them, the five likeliest tokens at every position of one, and 24 greedy tokens of each with their
margins. Weights are random with a fixed seed; the last norm is scaled until logits scatter as a
trained model's do. The reference is eager attention in float32 without a cache, on the weights as
they are stored.
"""

import json
import pathlib
import re
import sys
import tempfile

try:
    import numpy
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"make_arch.py: {error.name} is not installed: the checkpoints stay as they are")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parents[1] / "data" / "arch"
PROMPT_LENGTHS = (1, 7, 33, 150)
SCORED = 2  # the prompt whose positions are all listed
GREEDY_TOKENS = 24
LOGIT_DEVIATION = 2.5
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

COMMON = {"hidden_size": 32, "intermediate_size": 52, "num_attention_heads": 4, "vocab_size": 107}


def sizes(layers, kv_heads=2, **more):
    return {**COMMON, "num_hidden_layers": layers, "num_key_value_heads": kv_heads, **more}


YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 64,
}
LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0, 1.1, 1.25, 1.4],
    "long_factor": [1.0, 1.9, 4.2, 9.0],
}
GEMMA3_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}

# name: class, type, keys of config.json (what is not here is left to the class), stored type
CHECKPOINTS = {
    "hf_llama_biases": ("LlamaForCausalLM", "llama", sizes(
        2, attention_bias=True, mlp_bias=True, head_dim=10), "bfloat16"),
    "hf_llama_dynamic": ("LlamaForCausalLM", "llama", sizes(
        1, 1, max_position_embeddings=200, rope_scaling={"type": "dynamic", "factor": 2.0}),
        "float16"),
    "hf_llama_yarn": ("LlamaForCausalLM", "llama", sizes(
        2, max_position_embeddings=512, rope_parameters=YARN), "bfloat16"),
    "hf_qwen2_window": ("Qwen2ForCausalLM", "qwen2", sizes(
        3, use_sliding_window=True, sliding_window=24, max_window_layers=1,
        max_position_embeddings=512), "bfloat16"),
    "hf_qwen3": ("Qwen3ForCausalLM", "qwen3", sizes(
        2, head_dim=12, attention_bias=True), "bfloat16"),
    "hf_qwen2_moe": ("Qwen2MoeForCausalLM", "qwen2_moe", sizes(
        3, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24,
        shared_expert_intermediate_size=36, norm_topk_prob=False, mlp_only_layers=[1]),
        "bfloat16"),
    "hf_deepseek_v2_groups": ("DeepseekV2ForCausalLM", "deepseek_v2", sizes(
        2, 4, q_lora_rank=20, kv_lora_rank=18, qk_nope_head_dim=10, qk_rope_head_dim=6,
        v_head_dim=14, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=24,
        n_shared_experts=None, n_group=3, topk_group=2, topk_method="group_limited_greedy",
        routed_scaling_factor=1.5, first_k_dense_replace=0), "bfloat16"),
    "hf_granite": ("GraniteForCausalLM", "granite", sizes(
        2, embedding_multiplier=6.0, logits_scaling=3.0, residual_multiplier=0.4,
        attention_multiplier=0.2), "bfloat16"),
    "hf_smollm3": ("SmolLM3ForCausalLM", "smollm3", sizes(
        3, no_rope_layer_interval=2, rope_theta=50000.0, pad_token_id=0), "bfloat16"),
    "hf_olmo2": ("Olmo2ForCausalLM", "olmo2", sizes(2, head_dim=None), "bfloat16"),
    "hf_stablelm": ("StableLmForCausalLM", "stablelm", sizes(
        2, 4, use_qkv_bias=True, partial_rotary_factor=0.5), "bfloat16"),
    "hf_stablelm_heads": ("StableLmForCausalLM", "stablelm", sizes(
        2, 2, qk_layernorm=True, use_parallel_residual=True, partial_rotary_factor=0.25),
        "float16"),
    "hf_phi": ("PhiForCausalLM", "phi", sizes(2, 4, partial_rotary_factor=0.5), "float16"),
    "hf_phi3_longrope": ("Phi3ForCausalLM", "phi3", sizes(
        2, rope_scaling=LONGROPE, max_position_embeddings=512, pad_token_id=0,
        original_max_position_embeddings=64), "bfloat16"),
    "hf_gemma2": ("Gemma2ForCausalLM", "gemma2", sizes(
        3, head_dim=16, sliding_window=20, query_pre_attn_scalar=12,
        attn_logit_softcapping=4.0, final_logit_softcapping=9.0), "bfloat16"),
    "hf_gemma3": ("Gemma3ForCausalLM", "gemma3_text", sizes(
        3, 1, head_dim=16, sliding_window=18, query_pre_attn_scalar=20,
        rope_parameters=GEMMA3_ROPE, final_logit_softcapping=12.0,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"]), "bfloat16"),
    "hf_glm4": ("Glm4ForCausalLM", "glm4", sizes(
        2, head_dim=12, partial_rotary_factor=0.5, pad_token_id=0), "bfloat16"),
    "hf_cohere_heads": ("CohereForCausalLM", "cohere", sizes(
        2, use_qk_norm=True, logit_scale=0.25, attention_bias=True), "bfloat16"),
    "hf_starcoder2": ("Starcoder2ForCausalLM", "starcoder2", sizes(
        2, sliding_window=30, max_position_embeddings=512), "bfloat16"),
    "hf_gpt2": ("GPT2LMHeadModel", "gpt2", {
        "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 192, "vocab_size": 107},
        "bfloat16"),
    "hf_gptj": ("GPTJForCausalLM", "gptj", {
        "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 192, "rotary_dim": 4,
        "n_inner": 52, "vocab_size": 107}, "bfloat16"),
    "hf_gpt_neox": ("GPTNeoXForCausalLM", "gpt_neox", {
        **COMMON, "num_hidden_layers": 2, "rotary_pct": 0.5, "attention_bias": False},
        "float16"),
    "hf_bloom": ("BloomForCausalLM", "bloom", {
        "hidden_size": 30, "n_head": 3, "n_layer": 2, "vocab_size": 107}, "bfloat16"),
    "hf_falcon_one_norm": ("FalconForCausalLM", "falcon", {
        "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "num_kv_heads": 2,
        "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1, "vocab_size": 107},
        "bfloat16"),
    "hf_opt": ("OPTForCausalLM", "opt", {
        "hidden_size": 32, "ffn_dim": 52, "num_attention_heads": 4, "num_hidden_layers": 2,
        "max_position_embeddings": 192, "enable_bias": False, "word_embed_proj_dim": 20,
        "do_layer_norm_before": False, "vocab_size": 107}, "bfloat16"),
}


def fill(model, generator):
    """Random weights, as large as training leaves them."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            noise = 0.1 * noise
        elif parameter.dim() == 1 or re.search(r"norm", name):
            plus_one = model.config.model_type.startswith("gemma")
            noise = 0.2 * noise + (0.0 if plus_one else 1.0)
        elif re.search(r"embed|wte|wpe", name):
            scaled = model.config.model_type.startswith("gemma")
            noise = noise * (0.5 / model.config.hidden_size**0.5 if scaled else 0.5)
        else:
            transposed = model.config.model_type == "gpt2"
            inputs = parameter.shape[0 if transposed else -1]
            noise = noise * (2.0 / inputs**0.5)
        parameter.data = noise


def last_norm(model):
    """The norm before the head: the parameter itself is scaled, or what is added to 1."""
    name = [n for n, _ in model.named_parameters() if re.search(
        r"(model\.norm|ln_f|final_layernorm|final_layer_norm|layers\.1\.final_layer_norm)"
        r"\.weight$", n)][-1]
    return name


def settle(model, prompt):
    parameters = dict(model.named_parameters())
    gain = parameters[last_norm(model)]
    offset = 1.0 if model.config.model_type.startswith("gemma") else 0.0
    wanted = min(LOGIT_DEVIATION, 0.3 * (getattr(model.config, "final_logit_softcapping", 0)
                                         or 10.0))
    for _ in range(6):
        factor = wanted / logits_of(model, prompt).std()
        gain.data = (gain.data + offset) * float(factor) - offset


@torch.no_grad()
def logits_of(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def log_softmax(row):
    row = row.astype(numpy.float64)
    row = row - row.max()
    return row - numpy.log(numpy.exp(row).sum())


def reals(values):
    return [float(str(numpy.float32(value))) for value in values]


def draw_prompts(generator, vocabulary):
    return [
        torch.randint(3, vocabulary, (length,), generator=generator).tolist()
        for length in PROMPT_LENGTHS
    ]


def greedy(model, prompt):
    ids, margins, logprobs = list(prompt), [], []
    for _ in range(GREEDY_TOKENS):
        row = logits_of(model, ids)[-1]
        best, second = numpy.argsort(-row, kind="stable")[:2]
        margins.append(row[best] - row[second])
        logprobs.append(log_softmax(row)[best])
        ids.append(int(best))
    return {
        "tokens": ids[len(prompt):],
        "margins": reals(margins),
        "logprobs": reals(logprobs),
    }


def likeliest(model, prompt):
    rows = [log_softmax(row) for row in logits_of(model, prompt)]
    order = [numpy.argsort(-row, kind="stable")[:5] for row in rows]
    return {
        "prompt": SCORED,
        "tokens": [best.tolist() for best in order],
        "logprobs": [reals(row[best]) for row, best in zip(rows, order)],
        "next_token_logprobs": reals(
            row[token] for row, token in zip(rows[:-1], prompt[1:])
        ),
    }


def bf16_run(folder, prompts, wanted):
    model = load(folder, torch.bfloat16)
    return {
        "max_abs_logit_diff": [
            round(float(abs(logits_of_bf16(model, ids) - last).max()), 4)
            for ids, last in zip(prompts, wanted)
        ]
    }


@torch.no_grad()
def logits_of_bf16(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0, -1].float().numpy()


def load(folder, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager"
    )
    return model.eval()


def build(name):
    class_name, model_type, keys, dtype = CHECKPOINTS[name]
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": [class_name],
        "model_type": model_type,
        "torch_dtype": dtype,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **{key: value for key, value in keys.items() if value is not None},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(folder), attn_implementation="eager"
    ).eval()
    fill(model, generator)
    prompts = draw_prompts(generator, config["vocab_size"])
    settle(model, prompts[SCORED])
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        tensors = load_file(f"{scratch}/model.safetensors")
    save_file(
        {key: tensor.to(DTYPES[dtype]).contiguous() for key, tensor in tensors.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    model = load(folder, torch.float32)
    last = [logits_of(model, ids)[-1] for ids in prompts]
    golden = {
        "name": name,
        "reference": f"transformers {transformers.__version__}, float32, eager attention",
        "prompts": [
            {"ids": ids, "last_logits": reals(row)} for ids, row in zip(prompts, last)
        ],
        "top5": likeliest(model, prompts[SCORED]),
        "greedy": [greedy(model, ids) for ids in prompts],
        "bf16_run": bf16_run(folder, prompts, last),
    }
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name:22s} {size // 1024:4d} KiB, logits scatter by {last[SCORED].std():.2f}, "
          f"{len(set(golden['greedy'][SCORED]['tokens']))} different tokens of {GREEDY_TOKENS}")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in sys.argv[1:] or CHECKPOINTS:
        build(name)


if __name__ == "__main__":
    main()
