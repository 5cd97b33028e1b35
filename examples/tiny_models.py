# SPDX-License-Identifier: Apache-2.0
"""Writes models for tests of serving programs: the structure of real ones, tiny, with random weights, and a tokenizer.

A folder is what `from_pretrained` and vLLM load: config.json, model.safetensors, tokenizer.json. Weights are bfloat16.
"""

import functools
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

VOCABULARY = 320  # 256 bytes, the end, and names that no text has
END = 0
EXPERTS = 8


def write_tokenizer(folder: Path, special: Sequence[str] = ()):
    """Writes a tokenizer with a token for each byte, and special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = {"<|end|>": END} | {byte: 1 + i for i, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=names, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|end|>",
        pad_token="<|end|>",
        additional_special_tokens=list(special),
    ).save_pretrained(folder)


def randomize(name: str, weight: Tensor):
    """Fills a weight so that layers change their input, and results differ by more than rounding.

    A few rows of the output layer are larger than the others: the best two logits are seldom near each other. Routers
    read the first numbers of the hidden state only, which are a permutation of equally spaced ones for each token, and
    which no layer changes: the scores of two experts are never near each other.
    """
    if "norm" in name and name.endswith("bias"):
        nn.init.uniform_(weight, -0.5, 0.5)
    elif "norm" in name:
        nn.init.uniform_(weight, 0.5, 1.5)
        weight[:EXPERTS] = 1
    elif weight.dim() < 2:
        nn.init.normal_(weight, std=0.1)
    elif "embed_tokens" in name:
        nn.init.normal_(weight)
        weight[:, :EXPERTS] = torch.linspace(-2, 2, EXPERTS)[torch.rand(len(weight), EXPERTS).argsort()]
    elif name == "lm_head.weight":
        nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
        weight *= (torch.randn(len(weight), 1) / 2).exp()
    elif name.endswith(".gate.weight"):
        weight.zero_()
        weight[:, :EXPERTS] = torch.eye(EXPERTS)[torch.randperm(EXPERTS)]
    else:
        nn.init.normal_(weight, std=1.2 * weight.shape[-1] ** -0.5)
        if name.removesuffix(".weight").endswith(("o_proj", "out_proj", "down_proj")):
            weight[..., :EXPERTS, :] = 0


def write_of_transformers(folder: Path, config, kind: str = "AutoModelForCausalLM"):
    """Writes a model that transformers implements."""
    import transformers

    model = getattr(transformers, kind).from_config(config)
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
LATENT_HEADS = {
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 128,
    "kv_lora_rank": 512,  # this, and the next three, are the sizes that the sparse attention takes
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}


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

    experts = {"num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": True}
    write_of_transformers(folder, Qwen3MoeConfig(**COMMON, **HEADS, **experts, architectures=["Qwen3MoeForCausalLM"]))


def write_mixtral(folder: Path):
    """Mixtral: experts as wide as a dense model's layer."""
    from transformers import MixtralConfig

    experts = {"num_local_experts": EXPERTS, "num_experts_per_tok": 2}
    write_of_transformers(folder, MixtralConfig(**COMMON, **HEADS, **experts, architectures=["MixtralForCausalLM"]))


def write_deepseek_v2(folder: Path):
    """DeepSeek V2: latent attention to all keys, experts."""
    from transformers import DeepseekV2Config

    experts = {
        "first_k_dense_replace": 1,
        "n_routed_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 128,
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
    }
    config = DeepseekV2Config(**COMMON, **LATENT_HEADS, **experts, architectures=["DeepseekV2ForCausalLM"])
    write_of_transformers(folder, config)


def write_qwen3_next(folder: Path):
    """Qwen3-Next: a layer with the gated delta rule, a layer with attention, experts in both."""
    from transformers import Qwen3NextConfig

    linear_attention = {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "layer_types": ["linear_attention", "full_attention"],
    }
    experts = {
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 128,
    }
    heads = HEADS | {"head_dim": 128}
    config = Qwen3NextConfig(**COMMON, **heads, **linear_attention, **experts, architectures=["Qwen3NextForCausalLM"])
    write_of_transformers(folder, config)


def write_qwen2_5_vl(folder: Path):
    """Qwen2.5-VL: images and text."""
    from PIL import Image
    from transformers import AutoTokenizer, Qwen2_5_VLConfig

    names = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    write_tokenizer(folder, names)
    ids = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(names)
    kinds = ("vision_start", "vision_end", "image", "video")
    vision = {
        "depth": 2,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_heads": 2,
        "out_hidden_size": COMMON["hidden_size"],
        "fullatt_block_indexes": [1],
    }
    rope = {"rope_type": "default", "mrope_section": [8, 12, 12], "rope_theta": 1e6}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_parameters": rope}
    config = Qwen2_5_VLConfig(
        text_config=COMMON | heads,
        vision_config=vision,
        tie_word_embeddings=False,
        dtype="bfloat16",
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        **{f"{kind}_token_id": token for kind, token in zip(kinds, ids, strict=True)},
    )
    write_of_transformers(folder, config, "AutoModelForImageTextToText")
    limits = {"size": {"shortest_edge": 56 * 56, "longest_edge": 224 * 224}, "patch_size": 14, "merge_size": 2}
    (folder / "preprocessor_config.json").write_text(
        json.dumps(limits | {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor"})
    )
    (folder / "video_preprocessor_config.json").write_text(
        json.dumps(limits | {"video_processor_type": "Qwen2VLVideoProcessor"})
    )
    pixels = torch.randint(0, 256, (84, 112, 3), dtype=torch.uint8)
    Image.fromarray(pixels.numpy()).save(folder / "image.png")


# ---- Qwen3 with changed weights; folder/reference has the same model for transformers


def change(folder: Path, changed: Callable[[str, Tensor], Tensor]) -> dict[str, Tensor]:
    """Writes in folder/reference the model of `folder` with changed weights of its layers; returns its own weights."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    reference = {
        name: changed(name, weight.float()) if ".layers." in name and weight.dim() == 2 else weight.float()
        for name, weight in weights.items()
    }
    (folder / "reference").mkdir(exist_ok=True)
    shutil.copy(folder / "config.json", folder / "reference")
    save_file(reference, folder / "reference/model.safetensors", {"format": "pt"})
    return weights


def write_qwen3_lora(folder: Path):
    """Qwen3, and an adapter in folder/adapter."""
    from safetensors.torch import save_file

    write_qwen3(folder)
    rank, targets, adapter = 8, ["q_proj", "v_proj", "down_proj"], {}

    def adapted(name: str, weight: Tensor) -> Tensor:
        layer = name.removesuffix(".weight")
        if layer.split(".")[-1] not in targets:
            return weight
        down = (torch.randn(rank, weight.shape[1]) * weight.shape[1] ** -0.5).bfloat16()
        up = (torch.randn(weight.shape[0], rank) * rank**-0.5).bfloat16()
        adapter[f"base_model.model.{layer}.lora_A.weight"], adapter[f"base_model.model.{layer}.lora_B.weight"] = (
            down,
            up,
        )
        return weight + 2 * up.float() @ down.float()

    change(folder, adapted)
    (folder / "adapter").mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": targets, "bias": "none"}
    (folder / "adapter/adapter_config.json").write_text(json.dumps(config))
    save_file(adapter, folder / "adapter/adapter_model.safetensors", {"format": "pt"})


def write_quantized_qwen3(folder: Path, kind: str):
    """Qwen3 with quantised layers, in the format of msModelSlim that vllm-ascend reads."""
    from safetensors.torch import save_file

    write_qwen3(folder)
    bits, group = (8, None) if kind == "W8A8_DYNAMIC" else (4, 64)
    most = 2 ** (bits - 1) - 1
    parts = {}

    def quantized(name: str, weight: Tensor) -> Tensor:
        scale = (weight.abs().amax(1, keepdim=True) / most).bfloat16()
        total = scale.float()
        parts[f"{name}_scale"], parts[f"{name}_offset"] = scale, torch.zeros_like(scale)
        if group:  # a second factor for each group of inputs
            groups = weight.unflatten(1, (-1, group)).abs().amax(2)
            second = (groups / (most * total)).bfloat16()
            parts[f"{name}_scale_second"], parts[f"{name}_offset_second"] = second, torch.zeros_like(second)
            total = (total * second.float()).bfloat16().float().repeat_interleave(group, 1)
        parts[name] = (weight / total).round().clamp(-most - 1, most).to(torch.int8)
        return parts[name] * total

    weights = change(folder, quantized)
    description = {name: kind if name in parts else "FLOAT" for name in weights} | {name: kind for name in parts}
    description |= {"model_quant_type": kind, "group_size": group or 0}
    (folder / "quant_model_description.json").write_text(json.dumps(description, indent=2))
    save_file(weights | parts, folder / "model.safetensors", {"format": "pt"})


def write_qwen3_eagle(folder: Path):
    """Qwen3, and a draft model of EAGLE in folder/draft: a layer of Llama, and what merges its two inputs."""
    from safetensors.torch import load_file, save_file
    from transformers import LlamaConfig

    write_qwen3(folder)
    draft = folder / "draft"
    config = LlamaConfig(**COMMON | {"num_hidden_layers": 1}, **HEADS, architectures=["LlamaForCausalLM"])
    write_of_transformers(draft, config)
    weights = {
        name.removeprefix("model."): weight
        for name, weight in load_file(draft / "model.safetensors").items()
        if "layers.0." in name and "input_layernorm" not in name
    }
    hidden = COMMON["hidden_size"]
    weights["fc.weight"] = (torch.randn(hidden, 2 * hidden) * (2 * hidden) ** -0.5).bfloat16()
    save_file(weights, draft / "model.safetensors", {"format": "pt"})


# ---- DeepSeek V3.2, which transformers does not implement

DEEPSEEK_V32 = (
    COMMON
    | LATENT_HEADS
    | {
        "model_type": "deepseek_v32",
        "architectures": ["DeepseekV32ForCausalLM"],
        "index_n_heads": 64,
        "index_head_dim": 128,
        "index_topk": 2048,  # vllm-ascend takes no other
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_routed_experts": EXPERTS,
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
    }
)


def deepseek_v32_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    index_heads, index_dim, experts = config["index_n_heads"], config["index_head_dim"], config["n_routed_experts"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    shapes["lm_head.weight"] = (config["vocab_size"], hidden)

    def feed_forward(name, width):
        shapes[f"{name}.gate_proj.weight"] = shapes[f"{name}.up_proj.weight"] = (width, hidden)
        shapes[f"{name}.down_proj.weight"] = (hidden, width)

    for layer in range(config["num_hidden_layers"] + config["num_nextn_predict_layers"]):
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
        if layer >= config["num_hidden_layers"]:  # predicts a further token
            name = f"model.layers.{layer}"
            shapes |= {f"{name}.{part}.weight": (hidden,) for part in ("enorm", "hnorm", "shared_head.norm")}
            shapes |= {
                f"{name}.{part}.weight": (config["vocab_size"], hidden) for part in ("embed_tokens", "shared_head.head")
            }
            shapes[f"{name}.eh_proj.weight"] = (hidden, 2 * hidden)
        if layer < config["first_k_dense_replace"]:
            feed_forward(mlp, config["intermediate_size"])
            continue
        shapes[f"{mlp}.gate.weight"] = (experts, hidden)
        shapes[f"{mlp}.gate.e_score_correction_bias"] = (experts,)
        feed_forward(f"{mlp}.shared_experts", config["moe_intermediate_size"] * config["n_shared_experts"])
        for expert in range(experts):
            feed_forward(f"{mlp}.experts.{expert}", config["moe_intermediate_size"])
    return shapes


def write_deepseek_v32(folder: Path, predict_layers: int = 0):
    """DeepSeek V3.2: latent attention to the keys that an indexer selects, experts, layers of MTP."""
    from safetensors.torch import save_file

    config = DEEPSEEK_V32 | {"num_nextn_predict_layers": predict_layers}
    weights = {name: torch.empty(shape) for name, shape in deepseek_v32_shapes(config).items()}
    for name, weight in weights.items():
        randomize(name, weight)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    weights = {name: weight.to(torch.bfloat16).contiguous() for name, weight in weights.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


MODELS: dict[str, Callable[[Path], None]] = {
    "qwen3": write_qwen3,
    "llama": write_llama,
    "qwen3_moe": write_qwen3_moe,
    "mixtral": write_mixtral,
    "deepseek_v2": write_deepseek_v2,
    "deepseek_v32": write_deepseek_v32,
    "qwen3_next": write_qwen3_next,
    "qwen2_5_vl": write_qwen2_5_vl,
    "qwen3_w8a8": functools.partial(write_quantized_qwen3, kind="W8A8_DYNAMIC"),
    "qwen3_w4a8": functools.partial(write_quantized_qwen3, kind="W4A8_DYNAMIC"),
    "qwen3_lora": write_qwen3_lora,
    "qwen3_eagle": write_qwen3_eagle,
    "deepseek_v32_mtp": functools.partial(write_deepseek_v32, predict_layers=1),
}


def write(name: str, folder: Path):
    """Writes a model of MODELS and its tokenizer."""
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    MODELS[name](folder)
    if not (folder / "tokenizer.json").exists():
        write_tokenizer(folder)
