# SPDX-License-Identifier: Apache-2.0
"""Serves tiny models with vLLM and vllm-ascend, unmodified, on CANN's libraries for the CPU, and checks every token.

Prompts of different lengths are decoded greedily, in each mode: eagerly, in piecewise graphs, in graphs of whole
decode steps, and with both. The reference is transformers on the CPU in float32, given the tokens that vLLM chose: each
must be the one with the best logit, up to a rounding of bfloat16. DeepSeek V3.2, which transformers lacks, is computed
here from the formula. The exit code is 1 if a token is another one, or a mode fails.

    bash examples/serve_vllm.sh                                         # sets up, and runs this
    bash examples/serve_vllm.sh --models qwen3 --modes eager "full decode"
    bash examples/serve_vllm.sh --operator                              # DeepSeek V3.2 with custom_pypto's operators
"""

import argparse
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import torch
from tiny_models import MODELS, write
from torch import Tensor, nn
from torch.nn.functional import embedding, layer_norm, linear, silu

NEW_TOKENS = 12
EQUAL_LOGITS = 2**-3  # two rounding steps of bfloat16 between 8 and 16, where the best logits lie
MODES = {
    "eager": {"enforce_eager": True},
    "piecewise": {"compilation_config": {"cudagraph_mode": "PIECEWISE"}},
    "full decode": {"compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY"}},
    "combined": {"compilation_config": {"cudagraph_mode": "FULL_AND_PIECEWISE"}},
}
PROMPTS = ["Hi", "The quick brown fox jumps over the lazy dog.", "A cache has pages of 128 tokens. " * 5]
LONG_PROMPTS = [*PROMPTS[:2], " ".join(str(i * i) for i in range(500))[:2600]]
"""Of more tokens than the indexer selects, which decide what comes next: attention to all keys gives other tokens."""
COLUMNS = "{:<14} {:<12} {:>20} {:>7} {:>10} {:>12}  {}"
OPERATOR_PLUGIN = "vllm_operator"


# ---- the references: logits of all positions, in float32


Reference = Callable[[tuple[int, ...]], Tensor]


def transformers_logits(folder: Path) -> Callable[[Tensor], Tensor]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return lambda tokens: model(tokens[None]).logits[0]


def rms_norm(x: Tensor, weight: Tensor, epsilon: float = 1e-6) -> Tensor:
    return nn.functional.rms_norm(x, weight.shape, weight, epsilon)


def rotate(x: Tensor, angles: Tensor, *, interleaved: bool) -> Tensor:
    """Rotates pairs of numbers by angles [tokens, pairs]; x is [tokens, heads, 2 * pairs].

    A pair is two neighbours if `interleaved`, otherwise a number and the one half the width further on.
    """
    pairs = x.unflatten(-1, (-1, 2)) if interleaved else x.unflatten(-1, (2, -1)).transpose(-1, -2)
    first, second = pairs.unbind(-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def deepseek_v32_logits(folder: Path) -> Callable[[Tensor], Tensor]:
    """DeepSeek V3.2, uncompressed: the attention of every head to the keys that the indexer selects."""
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text())
    weights = {name: weight.float() for name, weight in load_file(folder / "model.safetensors").items()}
    heads, latent, rope = config["num_attention_heads"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]

    def attend(name: str, x: Tensor, angles: Tensor) -> Tensor:
        def project(part: str, y: Tensor = x) -> Tensor:
            return linear(y, weights[f"{name}.{part}.weight"])

        tokens = len(x)
        query_latent = rms_norm(project("q_a_proj"), weights[f"{name}.q_a_layernorm.weight"])
        query = project("q_b_proj", query_latent).view(tokens, heads, nope + rope)
        query = torch.cat([query[..., :nope], rotate(query[..., nope:], angles, interleaved=True)], -1)
        compressed, key_rope = project("kv_a_proj_with_mqa").split([latent, rope], -1)
        compressed = rms_norm(compressed, weights[f"{name}.kv_a_layernorm.weight"])
        expanded = project("kv_b_proj", compressed).view(tokens, heads, nope + value)
        key_rope = rotate(key_rope[:, None], angles, interleaved=True).expand(-1, heads, -1)
        key = torch.cat([expanded[..., :nope], key_rope], -1)

        index_heads, index_dim = config["index_n_heads"], config["index_head_dim"]
        index_key = layer_norm(
            project("indexer.wk"),
            (index_dim,),
            weights[f"{name}.indexer.k_norm.weight"],
            weights[f"{name}.indexer.k_norm.bias"],
            1e-6,
        )[:, None]
        index_query = project("indexer.wq_b", query_latent).view(tokens, index_heads, index_dim)
        index_query, index_key = (
            torch.cat([rotate(y[..., :rope], angles, interleaved=False), y[..., rope:]], -1)
            for y in (index_query, index_key)
        )
        products = torch.einsum("qhd,kd->qhk", index_query, index_key[:, 0]).relu()
        scores = torch.einsum("qhk,qh->qk", products, project("indexer.weights_proj"))
        future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
        selected = scores.topk(min(config["index_topk"], tokens), -1).indices
        hidden = torch.ones(tokens, tokens, dtype=torch.bool).scatter_(-1, selected, 0) | future

        logits = torch.einsum("qhd,khd->hqk", query, key) * (nope + rope) ** -0.5
        probabilities = logits.masked_fill(hidden, -torch.inf).softmax(-1)
        return project("o_proj", torch.einsum("hqk,khd->qhd", probabilities, expanded[..., nope:]).flatten(1))

    def feed_forward(name: str, x: Tensor) -> Tensor:
        gate, up, down = (weights[f"{name}.{part}_proj.weight"] for part in ("gate", "up", "down"))
        return linear(silu(linear(x, gate)) * linear(x, up), down)

    def experts(name: str, x: Tensor) -> Tensor:
        scores = linear(x, weights[f"{name}.gate.weight"]).sigmoid()
        corrected = scores + weights[f"{name}.gate.e_score_correction_bias"]
        grouped = corrected.unflatten(-1, (config["n_group"], -1))
        best_groups = grouped.topk(2, -1).values.sum(-1).topk(config["topk_group"], -1).indices
        left_out = torch.ones(grouped.shape[:-1], dtype=torch.bool).scatter_(-1, best_groups, 0)
        chosen = grouped.masked_fill(left_out[..., None], -torch.inf).flatten(-2)
        chosen = chosen.topk(config["num_experts_per_tok"], -1).indices
        factors = scores.gather(-1, chosen)
        factors = factors / factors.sum(-1, keepdim=True) * config["routed_scaling_factor"]
        y = feed_forward(f"{name}.shared_experts", x)
        for expert in range(config["n_routed_experts"]):
            token, place = (chosen == expert).nonzero(as_tuple=True)
            y[token] += factors[token, place, None] * feed_forward(f"{name}.experts.{expert}", x[token])
        return y

    def logits(tokens: Tensor) -> Tensor:
        frequencies = config["rope_theta"] ** -(torch.arange(0, rope, 2) / rope)
        angles = torch.arange(len(tokens))[:, None] * frequencies
        x = embedding(tokens, weights["model.embed_tokens.weight"])
        for layer in range(config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            x = x + attend(f"{name}.self_attn", rms_norm(x, weights[f"{name}.input_layernorm.weight"]), angles)
            normal = rms_norm(x, weights[f"{name}.post_attention_layernorm.weight"])
            dense = layer < config["first_k_dense_replace"]
            x = x + (feed_forward if dense else experts)(f"{name}.mlp", normal)
        return linear(rms_norm(x, weights["model.norm.weight"]), weights["lm_head.weight"])

    return logits


FEATURES = {
    "ngram": (
        "qwen3",
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}},
    ),
    "two_ranks": ("qwen3", {"tensor_parallel_size": 2}),
}
"""A model, and further arguments of vLLM."""
DEFAULT_MODELS = ["qwen3", "deepseek_v32"]
ALL_MODELS = [*MODELS, *FEATURES]
REFERENCES = {"deepseek_v32": deepseek_v32_logits}
"""By model; that of all others is transformers'."""


def remembered(reference: Callable[[Tensor], Tensor]) -> Reference:
    @functools.cache
    @torch.inference_mode()
    def logits(tokens: tuple[int, ...]) -> Tensor:
        return reference(torch.tensor(tokens))

    return logits


def first_difference(reference: Reference, prompts: list[list[int]], served: list[list[int]]) -> str:
    """Returns what is wrong first, or nothing."""
    for number, (prompt, tokens) in enumerate(zip(prompts, served, strict=True)):
        if len(tokens) != NEW_TOKENS:
            return f"prompt {number}: {len(tokens)} tokens instead of {NEW_TOKENS}"
        logits = reference((*prompt, *tokens[:-1]))[len(prompt) - 1 :]
        for place, (token, row) in enumerate(zip(tokens, logits, strict=True)):
            gap = (row.max() - row[token]).item()
            if gap > EQUAL_LOGITS:
                best = row.argmax().item()
                return f"prompt {number}, token {place}: {token} instead of {best}, whose logit is {gap:.2f} higher"
    return ""


# ---- serving, in a separate process


def prompts_of(model: str) -> list[str]:
    return LONG_PROMPTS if model == "deepseek_v32" else PROMPTS


def serve(folder: Path, model: str, mode: str, result: Path):
    """Decodes with vLLM; writes the tokens and the time of a decode step."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        str(folder),
        dtype="bfloat16",
        max_model_len=4096 if model == "deepseek_v32" else 512,
        max_num_seqs=4,
        max_num_batched_tokens=256 if model == "deepseek_v32" else 128,  # less than the prompts: prefill in chunks
        gpu_memory_utilization=0.2,
        **MODES[mode],
        **(FEATURES[model][1] if model in FEATURES else {}),
    )

    def decode(count: int) -> tuple[list, float]:
        start = time.perf_counter()
        sampling = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
        outputs = llm.generate(prompts_of(model), sampling, use_tqdm=False)
        return outputs, time.perf_counter() - start

    outputs, seconds = decode(NEW_TOKENS)
    _, one = decode(1)  # the keys of whole pages are cached now
    again, all_tokens = decode(NEW_TOKENS)
    prompts = [output.prompt_token_ids for output in outputs + again]
    served = [list(output.outputs[0].token_ids) for output in outputs + again]
    step = (all_tokens - one) / (NEW_TOKENS - 1)
    result.write_text(json.dumps({"prompts": prompts, "served": served, "seconds": seconds, "step": step}))


SETTINGS = {
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",  # it rejects what vllm-ascend's compiler returns
    "VLLM_CACHE_ROOT": str(Path(tempfile.gettempdir()) / "serve_vllm_cache"),
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def plugins_of_vllm() -> list[str]:
    """The plugins that are installed, except the one of --operator."""
    groups = ("vllm.platform_plugins", "vllm.general_plugins")
    return [plugin.name for group in groups for plugin in entry_points(group=group) if plugin.name != OPERATOR_PLUGIN]


def failure(log: str) -> str:
    """Returns the line of a log that says why serving failed: the first exception that the engine logs as an error."""
    lines = log.splitlines()
    exceptions = [line for line in lines if re.search(r"\w(Error|Exception): ", line)]
    of_engine = [line for line in exceptions if " ERROR " in line]
    return (of_engine or exceptions[-1:] or lines[-1:] or ["no output"])[0][-200:]


def check(folder: Path, model: str, mode: str, reference: Reference, plugins: list[str]) -> bool:
    """Serves in another process and prints a line of the table; returns whether it is right."""
    result, log = folder / f"{mode}.json", folder / f"{mode}.log"
    environment = {**os.environ, **SETTINGS, "VLLM_PLUGINS": ",".join(plugins)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # docs/vllm.md
    command = [sys.executable, __file__, "--serve", str(folder), model, mode, str(result)]
    result.unlink(missing_ok=True)
    with log.open("w") as output:
        code = subprocess.run(command, env=environment, stdout=output, stderr=subprocess.STDOUT).returncode
    text = log.read_text(errors="replace")
    if code != 0 or not result.exists():
        print(COLUMNS.format(model, mode, "", "", "", "", f"FAILED: {failure(text)} ({log})"), flush=True)
        return False
    found = json.loads(result.read_text())
    wrong = first_difference(reference, found["prompts"], found["served"])
    if OPERATOR_PLUGIN in plugins:
        names = ("npu_lightning_indexer", "npu_sparse_flash_attention")
        unused = [name for name in names if f"{name} is custom_pypto's" not in text]
        wrong = wrong or ", ".join(f"custom_pypto's {name} was not called" for name in unused)
    lengths = ", ".join(str(len(prompt)) for prompt in found["prompts"][: len(PROMPTS)])
    tokens = sum(map(len, found["served"]))
    seconds, step = f"{found['seconds']:.2f} s", f"{found['step'] * 1e3:.1f} ms"
    print(COLUMNS.format(model, mode, lengths, tokens, seconds, step, wrong or "ok"), flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=[*ALL_MODELS, "all"])
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument(
        "--operator",
        action="store_true",
        help="DeepSeek V3.2 with custom_pypto's indexer and sparse attention, by the plugin in examples/vllm_operator",
    )
    parser.add_argument("--folder", type=Path, help="where models and logs are kept; by default a temporary folder")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        folder, model, mode, result = options.serve
        serve(Path(folder), model, mode, Path(result))
        return 0
    folder = options.folder or Path(tempfile.mkdtemp(prefix="serve_vllm_"))
    print(COLUMNS.format("model", "mode", "lengths of prompts", "tokens", "first call", "decode step", ""))
    right = True
    plugins = plugins_of_vllm() + [OPERATOR_PLUGIN] * options.operator
    models = options.models or (["deepseek_v32"] if options.operator else DEFAULT_MODELS)
    for model in ALL_MODELS if models == ["all"] else models:
        written = FEATURES[model][0] if model in FEATURES else model
        write(written, folder / model)
        reference = remembered(REFERENCES.get(written, transformers_logits)(folder / model))
        for mode in options.modes:
            right &= check(folder / model, model, mode, reference, plugins)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
