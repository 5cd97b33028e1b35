# SPDX-License-Identifier: Apache-2.0
"""Writes models for tests of serving programs: the structure of real ones, tiny, with random weights, and a tokenizer.

A folder is what `from_pretrained` and vLLM load: config.json, model.safetensors, tokenizer.json. Weights are bfloat16.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

VOCABULARY = 320  # 256 bytes, the end, and names that no text has
END = 0


def write_tokenizer(folder: Path):
    """Writes a tokenizer with a token for each byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = {"<|end|>": END} | {byte: 1 + i for i, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=names, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>").save_pretrained(
        folder
    )


def randomize(name: str, weight: Tensor):
    """Fills a weight so that layers change their input, and logits differ by more than rounding."""
    if "norm" in name and name.endswith("bias"):
        nn.init.uniform_(weight, -0.5, 0.5)
    elif "norm" in name:
        nn.init.uniform_(weight, 0.5, 1.5)
    elif weight.dim() < 2:
        nn.init.normal_(weight, std=0.1)
    else:
        gain = 1 if "embed" in name else 4 if name == "lm_head.weight" else 1.5
        nn.init.normal_(weight, std=gain if "embed" in name else gain * weight.shape[-1] ** -0.5)


def write_of_transformers(folder: Path, config):
    """Writes a model that transformers implements."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            randomize(name, weight)
    model.to(torch.bfloat16).save_pretrained(folder)


COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "bos_token_id": END,
    "eos_token_id": END,
    "dtype": "bfloat16",
}

HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}


def write_qwen3(folder: Path):
    """Qwen3, dense."""
    from transformers import Qwen3Config

    write_of_transformers(folder, Qwen3Config(**COMMON, **HEADS, architectures=["Qwen3ForCausalLM"]))


def write_llama(folder: Path):
    """Llama 3, with its scaled rotary embedding."""
    from transformers import LlamaConfig

    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
        "rope_theta": 500000.0,
    }
    config = LlamaConfig(**COMMON, **HEADS, rope_parameters=rope, architectures=["LlamaForCausalLM"])
    write_of_transformers(folder, config)


def write_qwen3_moe(folder: Path):
    """Qwen3 with experts in every layer."""
    from transformers import Qwen3MoeConfig

    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": True}
    write_of_transformers(folder, Qwen3MoeConfig(**COMMON, **HEADS, **experts, architectures=["Qwen3MoeForCausalLM"]))


def write_mixtral(folder: Path):
    """Mixtral: experts as wide as a dense model's layer."""
    from transformers import MixtralConfig

    experts = {"num_local_experts": 8, "num_experts_per_tok": 2}
    write_of_transformers(folder, MixtralConfig(**COMMON, **HEADS, **experts, architectures=["MixtralForCausalLM"]))


def write_deepseek_v2(folder: Path):
    """DeepSeek V2: latent attention to all keys, experts."""
    from transformers import DeepseekV2Config

    attention = {
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "q_lora_rank": 128,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
    }
    experts = {
        "first_k_dense_replace": 1,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 128,
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
    }
    config = DeepseekV2Config(**COMMON, **attention, **experts, architectures=["DeepseekV2ForCausalLM"])
    write_of_transformers(folder, config)


# ---- DeepSeek V3.2, which transformers does not implement

DEEPSEEK_V32 = COMMON | {
    "model_type": "deepseek_v32",
    "architectures": ["DeepseekV32ForCausalLM"],
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 128,
    "kv_lora_rank": 512,  # this, and the next three, are the sizes that the sparse attention takes
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 2048,  # vllm-ascend takes no other
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 128,
    "n_group": 2,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "num_nextn_predict_layers": 0,
}


def deepseek_v32_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    index_heads, index_dim, experts = config["index_n_heads"], config["index_head_dim"], config["n_routed_experts"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    shapes["lm_head.weight"] = (config["vocab_size"], hidden)

    def feed_forward(name, width):
        shapes[f"{name}.gate_proj.weight"] = shapes[f"{name}.up_proj.weight"] = (width, hidden)
        shapes[f"{name}.down_proj.weight"] = (hidden, width)

    for layer in range(config["num_hidden_layers"]):
        at, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        shapes |= {
            f"model.layers.{layer}.input_layernorm.weight": (hidden,),
            f"model.layers.{layer}.post_attention_layernorm.weight": (hidden,),
            f"{at}.q_a_proj.weight": (config["q_lora_rank"], hidden),
            f"{at}.q_a_layernorm.weight": (config["q_lora_rank"],),
            f"{at}.q_b_proj.weight": (heads * (nope + rope), config["q_lora_rank"]),
            f"{at}.kv_a_proj_with_mqa.weight": (config["kv_lora_rank"] + rope, hidden),
            f"{at}.kv_a_layernorm.weight": (config["kv_lora_rank"],),
            f"{at}.kv_b_proj.weight": (heads * (nope + value), config["kv_lora_rank"]),
            f"{at}.o_proj.weight": (hidden, heads * value),
            f"{at}.indexer.wq_b.weight": (index_heads * index_dim, config["q_lora_rank"]),
            f"{at}.indexer.wk.weight": (index_dim, hidden),
            f"{at}.indexer.k_norm.weight": (index_dim,),
            f"{at}.indexer.k_norm.bias": (index_dim,),
            f"{at}.indexer.weights_proj.weight": (index_heads, hidden),
        }
        if layer < config["first_k_dense_replace"]:
            feed_forward(mlp, config["intermediate_size"])
            continue
        shapes[f"{mlp}.gate.weight"] = (experts, hidden)
        shapes[f"{mlp}.gate.e_score_correction_bias"] = (experts,)
        feed_forward(f"{mlp}.shared_experts", config["moe_intermediate_size"] * config["n_shared_experts"])
        for expert in range(experts):
            feed_forward(f"{mlp}.experts.{expert}", config["moe_intermediate_size"])
    return shapes


def write_deepseek_v32(folder: Path):
    """DeepSeek V3.2: latent attention to the keys that an indexer selects, experts."""
    from safetensors.torch import save_file

    weights = {name: torch.empty(shape) for name, shape in deepseek_v32_shapes(DEEPSEEK_V32).items()}
    for name, weight in weights.items():
        randomize(name, weight)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(DEEPSEEK_V32, indent=2))
    weights = {name: weight.to(torch.bfloat16).contiguous() for name, weight in weights.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


MODELS: dict[str, Callable[[Path], None]] = {
    "qwen3": write_qwen3,
    "llama": write_llama,
    "qwen3_moe": write_qwen3_moe,
    "mixtral": write_mixtral,
    "deepseek_v2": write_deepseek_v2,
    "deepseek_v32": write_deepseek_v32,
}


def write(name: str, folder: Path):
    """Writes a model of MODELS and its tokenizer."""
    torch.manual_seed(0)
    MODELS[name](folder)
    write_tokenizer(folder)
