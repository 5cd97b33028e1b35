# SPDX-License-Identifier: Apache-2.0
"""Serves tiny models with vLLM and vllm-ascend, unmodified, on CANN's libraries for the CPU, and checks every token.

Prompts of different lengths are decoded greedily, in each mode: eagerly, in piecewise graphs, in graphs of whole
decode steps, and with both. The reference is transformers on the CPU in float32, given the tokens that vLLM chose: each
must be the one with the best logit, up to a rounding of bfloat16. DeepSeek V3.2, which transformers lacks, is computed
here from the formula. The exit code is 1 if a token is another one, or a mode fails. CASES has further models, and
features: quantisation, adapters, speculation, parallelism, embeddings.

    bash examples/serve_vllm.sh                                         # sets up, and runs this
    bash examples/serve_vllm.sh --models qwen3 --modes eager "full decode"
    bash examples/serve_vllm.sh --operator                              # DeepSeek V3.2 with custom_pypto's operators
    bash examples/serve_vllm.sh --models all                            # CASES, eagerly and in vLLM's default mode
"""

import argparse
import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

import torch
from tiny_models import VOCABULARY, write
from torch import Tensor, nn
from torch.nn.functional import embedding, layer_norm, linear, silu

NEW_TOKENS = 12
EQUAL_LOGITS = 2**-4  # two rounding steps of bfloat16 between 4 and 8, where most of the best logits lie
EQUAL_VECTORS = 2**-12  # the cosine distance of vectors that differ by 2 %; bfloat16 makes an eighth of it
LIMIT = 900
"""Seconds in which a row must be done."""
EXPLICIT_MODES = {
    "eager": {"enforce_eager": True},
    "piecewise": {"compilation_config": {"cudagraph_mode": "PIECEWISE"}},
    "full decode": {"compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY"}},
    "combined": {"compilation_config": {"cudagraph_mode": "FULL_AND_PIECEWISE"}},
}
MODES = EXPLICIT_MODES | {"default": {}}
MODES_OF_VLLM = {"NONE": "eager"} | {
    options["compilation_config"]["cudagraph_mode"]: mode
    for mode, options in EXPLICIT_MODES.items()
    if "compilation_config" in options
}
PROMPTS = ["Hi", "The quick brown fox jumps over the lazy dog.", "A cache has pages of 128 tokens. " * 5]
LONG_PROMPTS = [*PROMPTS[:2], " ".join(str(i * i) for i in range(500))[:2600]]
"""Of more tokens than the indexer selects, which decide what comes next: attention to all keys gives other tokens."""
COLUMNS = "{:<17} {:<12} {:>18} {:>7} {:>7} {:>11} {:>12}  {}"
IMAGE = "image.png"
OPERATOR_PLUGIN = "vllm_operator"


# ---- the references: logits of all positions, in float32


Reference = Callable[[tuple[int, ...]], Tensor]


def transformers_model(folder: Path, kind: str = "AutoModelForCausalLM") -> nn.Module:
    """The model of a folder, or of folder/reference, which tiny_models writes where transformers cannot load it."""
    import transformers

    folder = folder / "reference" if (folder / "reference").exists() else folder
    return getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32)


def transformers_logits(folder: Path) -> Callable[[Tensor], Tensor]:
    model = transformers_model(folder)
    return lambda tokens: model(tokens[None]).logits[0]


def quantized_input_logits(folder: Path) -> Callable[[Tensor], Tensor]:
    """The inputs of all products of the layers are rounded to int8, with a scale for each token."""
    model = transformers_model(folder)

    def quantize(_, arguments: tuple[Tensor]) -> Tensor:
        scale = arguments[0].abs().amax(-1, keepdim=True) / 127
        return (arguments[0] / scale).round() * scale

    for name, part in model.named_modules():
        if isinstance(part, nn.Linear) and ".layers." in name:
            part.register_forward_pre_hook(quantize)
    return lambda tokens: model(tokens[None]).logits[0]


def digits_logits(folder: Path) -> Callable[[Tensor], Tensor]:
    """Nothing but digits may come next."""
    from transformers import AutoTokenizer

    logits = transformers_logits(folder)
    others = torch.ones(VOCABULARY, dtype=torch.bool)
    others[AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(list("0123456789"))] = False
    return lambda tokens: logits(tokens).masked_fill(others, -torch.inf)


def image_logits(folder: Path) -> Callable[[Tensor], Tensor]:
    from PIL import Image
    from transformers import AutoImageProcessor

    model = transformers_model(folder, "AutoModelForImageTextToText")
    image = AutoImageProcessor.from_pretrained(folder, backend="pil")(Image.open(folder / IMAGE), return_tensors="pt")

    def logits(tokens: Tensor) -> Tensor:
        kinds = (tokens == model.config.image_token_id).int()[None]
        return model(tokens[None], mm_token_type_ids=kinds, **image).logits[0]

    return logits


def last_hidden_state(folder: Path) -> Callable[[Tensor], Tensor]:
    model = transformers_model(folder, "AutoModel")
    return lambda tokens: nn.functional.normalize(model(tokens[None]).last_hidden_state[0, -1], dim=0)


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


def first_other_vector(reference: Reference, prompts: list[list[int]], served: list[list[float]]) -> str:
    """Returns which vector is wrong first, or nothing."""
    for number, (prompt, vector) in enumerate(zip(prompts, served, strict=True)):
        distance = 1 - nn.functional.cosine_similarity(torch.tensor(vector), reference(tuple(prompt)), dim=0).item()
        if not distance < EQUAL_VECTORS:
            return f"prompt {number}: the cosine distance is {distance:.4f}"
    return ""


# ---- the table


@dataclass(frozen=True)
class Case:
    """A model of tiny_models, how vLLM serves it, and how the result is judged."""

    model: str
    arguments: dict = field(default_factory=dict)
    """Further arguments of vLLM."""
    counters: tuple[str, ...] = ()
    """What vLLM must have counted: the feature was in use."""
    processes: int = 1
    """Ranks of data parallelism: each is a process, with its share of the prompts."""
    regex: str | None = None
    """What the text must match."""
    settings: dict = field(default_factory=dict)
    """Environment variables."""
    reference: Callable[[Path], Callable[[Tensor], Tensor]] = transformers_logits
    judge: Callable[[Reference, list, list], str] = first_difference


def speculating(**config) -> dict:
    """Two faults of vllm-ascend are avoided (docs/vllm.md): a race, and a load around a tensor."""
    return {
        "arguments": {"speculative_config": {"num_speculative_tokens": 3, **config}, "async_scheduling": False},
        "counters": ("vllm:spec_decode_num_drafts",),
        "settings": {"CANN_CPU_TRITON_LOADS": "memory"},
    }


WHOLE_PROMPTS = {
    "enable_chunked_prefill": False,
    "enable_prefix_caching": False,
    "max_num_batched_tokens": 512,
    "block_size": 128,  # which vllm-ascend needs, and sets only with one of the two
}
CASES = {name: Case(name) for name in ("qwen3", "llama", "qwen3_moe", "mixtral", "deepseek_v2", "qwen3_next")} | {
    "deepseek_v32": Case("deepseek_v32", reference=deepseek_v32_logits),
    "qwen2_5_vl": Case("qwen2_5_vl", reference=image_logits),
    "embedding": Case("qwen3", {"runner": "pooling"}, reference=last_hidden_state, judge=first_other_vector),
    "w8a8": Case("qwen3_w8a8", {"quantization": "ascend"}, reference=quantized_input_logits),
    "w4a8": Case("qwen3_w4a8", {"quantization": "ascend"}),
    "lora": Case("qwen3_lora", {"enable_lora": True}),
    "ngram": Case("qwen3", **speculating(method="ngram", prompt_lookup_max=3)),
    "eagle": Case("qwen3_eagle", **speculating(method="eagle", model="draft")),
    "mtp": Case(
        "deepseek_v32_mtp", **speculating(method="mtp", num_speculative_tokens=1), reference=deepseek_v32_logits
    ),
    "structured": Case("qwen3", regex=f"[0-9]{{{NEW_TOKENS}}}", reference=digits_logits),
    "sleep": Case("qwen3", {"enable_sleep_mode": True, "additional_config": {"weight_nz_mode": 0}}),
    "prefix_cache": Case("qwen3", counters=("vllm:prefix_cache_hits",)),
    "whole_prompts": Case("qwen3", WHOLE_PROMPTS),
    "tensor_parallel": Case("qwen3_next", {"tensor_parallel_size": 2}),
    "pipeline_parallel": Case("qwen3", {"pipeline_parallel_size": 2}),
    "expert_parallel": Case("qwen3_moe", {"tensor_parallel_size": 2, "enable_expert_parallel": True}),
    "data_parallel": Case("qwen3_moe", {"enable_expert_parallel": True}, processes=2),
}
DEFAULT_CASES = ["qwen3", "deepseek_v32"]


# ---- serving, in a separate process


def prompts_of(model: str) -> list:
    if model == "qwen2_5_vl":
        from PIL import Image

        image = {"image": Image.open(IMAGE)}
        start = "<|vision_start|><|image_pad|><|vision_end|>"
        return [{"prompt": start + prompt, "multi_modal_data": image} for prompt in PROMPTS]
    return LONG_PROMPTS if "deepseek_v32" in model else PROMPTS


def serve(folder: Path, name: str, mode: str, result: Path):
    """Serves the case's prompts with vLLM twice; writes what came, and the time of a decode step."""
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import StructuredOutputsParams

    case = CASES[name]
    prompts = prompts_of(case.model)[int(os.environ.get("VLLM_DP_RANK", 0)) :: case.processes]
    is_long = "deepseek_v32" in case.model
    arguments = {
        "dtype": "bfloat16",
        "max_model_len": 4096 if is_long else 512,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 256 if is_long else 128,  # less than the prompts: prefill in chunks
        "gpu_memory_utilization": 0.2,
        "disable_log_stats": False,
    }
    llm = LLM(str(folder), **arguments | MODES[mode] | case.arguments)
    adapter = LoRARequest("adapter", 1, "adapter") if "enable_lora" in case.arguments else None

    def call(count: int) -> tuple[list, float]:
        start = time.perf_counter()
        if "runner" in case.arguments:
            outputs = llm.embed(prompts, use_tqdm=False)
        else:
            structure = StructuredOutputsParams(regex=case.regex) if case.regex else None
            sampling = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, structured_outputs=structure)
            outputs = llm.generate(prompts, sampling, use_tqdm=False, lora_request=adapter)
        return outputs, time.perf_counter() - start

    def served(output) -> list:
        return list(output.outputs.embedding if "runner" in case.arguments else output.outputs[0].token_ids)

    outputs, seconds = call(NEW_TOKENS)
    _, one = call(1)  # the keys of whole pages are cached now
    if "enable_sleep_mode" in case.arguments:
        llm.sleep(level=1)
        llm.wake_up()
    again, all_tokens = call(NEW_TOKENS)
    found = {
        "prompts": [output.prompt_token_ids for output in outputs + again],
        "served": [served(output) for output in outputs + again],
        "seconds": seconds,
        "step": (all_tokens - one) / (NEW_TOKENS - 1),
        "mode": llm.llm_engine.vllm_config.compilation_config.cudagraph_mode.name,
        "counted": {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")},
    }
    result.write_text(json.dumps(found))


SETTINGS = {
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",  # it rejects what vllm-ascend's compiler returns
    "TORCHINDUCTOR_ERROR_ON_CUSTOM_OP_ALIASING": "0",  # docs/vllm.md: an error where CI is set
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def plugins_of_vllm() -> list[str]:
    """The plugins that are installed, except the one of --operator."""
    groups = ("vllm.platform_plugins", "vllm.general_plugins")
    return [plugin.name for group in groups for plugin in entry_points(group=group) if plugin.name != OPERATOR_PLUGIN]


def failure(log: str) -> str:
    """Returns why serving failed, from a log: the first exception that the engine logs as an error, without what is
    before it in its line; of tasks that failed, the innermost; and what could not be imported, if it was called.
    """
    lines = log.splitlines()
    exceptions = [line for line in lines if re.search(r"\w(Error|Exception): ", line)]
    of_engine = [line for line in exceptions if " ERROR " in line]
    of_tasks = [line for line in lines if re.search(r" ERROR .*\w: .* failed: ", line)]
    why = (of_tasks or of_engine or exceptions[-1:] or lines[-1:] or ["no output"])[0]
    why = re.sub(r"^.*? ERROR .*?\] *", "", why).split(" failed: ")[-1]
    if "'NoneType' object is not callable" in why:
        why = next((line[line.index("Failed to import") :] for line in lines if "Failed to import" in line), why)
    return re.sub(r"/\S*/site-packages/", "", why)[:300].strip()


def run(folder: Path, name: str, mode: str, plugins: list[str]) -> tuple[list[dict], str]:
    """Serves a case in separate processes; returns what each found, and their logs. Nothing is found if one fails."""
    results, logs, running = [], [], []
    models = folder / "modelinfos"  # what vLLM finds out about a model's class in a separate process, in 8 s
    models.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    count = CASES[name].processes
    for rank in range(count):
        result, log = folder / f"{mode}{rank}.json", folder / f"{mode}{rank}.log"
        result.unlink(missing_ok=True)
        environment = {**os.environ, **SETTINGS, **CASES[name].settings, "VLLM_PLUGINS": ",".join(plugins)}
        cache = Path(tempfile.mkdtemp(prefix="cache_", dir=folder))  # docs/vllm.md
        (cache / "modelinfos").symlink_to(models)
        environment["VLLM_CACHE_ROOT"] = str(cache)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # docs/vllm.md
        if count > 1:
            ranks = {"RANK": rank, "RANK_LOCAL": rank, "SIZE": count, "MASTER_IP": "127.0.0.1", "MASTER_PORT": port}
            environment |= {f"VLLM_DP_{part}": str(value) for part, value in ranks.items()}
        command = [sys.executable, Path(__file__).resolve(), "--serve", folder, name, mode, result]
        with log.open("w") as output:
            options = {"env": environment, "stdout": output, "stderr": subprocess.STDOUT, "cwd": folder}
            running.append(subprocess.Popen(command, **options, start_new_session=True))
        results.append(result)
        logs.append(log)
    end, text = time.monotonic() + LIMIT, ""
    try:
        while any(process.poll() is None for process in running) and not any(process.poll() for process in running):
            if time.monotonic() > end:
                text = f"\nTimeoutError: not done after {LIMIT} s"
                break
            time.sleep(0.2)
    finally:
        for process in running:  # and those that it has started; a rank waits for another that has failed
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = "".join(log.read_text(errors="replace") for log in logs) + text
    done = all(process.returncode == 0 and result.exists() for process, result in zip(running, results, strict=True))
    return [json.loads(result.read_text()) for result in results] if done else [], text


def check(folder: Path, name: str, mode: str, reference: Reference, plugins: list[str]) -> bool:
    """Serves a case and prints its line of the table; returns whether it is right."""
    case, start = CASES[name], time.monotonic()
    found, text = run(folder, name, mode, plugins)
    whole = f"{time.monotonic() - start:.0f} s"
    if not found:
        print(COLUMNS.format(name, mode, "", "", whole, "", "", f"FAILED: {failure(text)} ({folder})"), flush=True)
        return False
    prompts, served = ([x for rank in found for x in rank[part]] for part in ("prompts", "served"))
    wrong = case.judge(reference, prompts, served)
    unused = [counter for counter in case.counters if not all(rank["counted"].get(counter) for rank in found)]
    wrong = wrong or ", ".join(f"{counter} is 0" for counter in unused)
    if OPERATOR_PLUGIN in plugins:
        names = ("npu_lightning_indexer", "npu_sparse_flash_attention")
        unused = [operator for operator in names if f"{operator} is custom_pypto's" not in text]
        wrong = wrong or ", ".join(f"custom_pypto's {operator} was not called" for operator in unused)
    lengths = ", ".join(map(str, sorted({len(prompt) for prompt in prompts})))
    tokens = sum(map(len, served))
    seconds, step = f"{found[0]['seconds']:.2f} s", f"{found[0]['step'] * 1e3:.1f} ms"
    step = "" if "runner" in case.arguments else step  # embeddings are not decoded
    used = MODES_OF_VLLM[found[0]["mode"]]
    print(COLUMNS.format(name, used, lengths, tokens, whole, seconds, step, wrong or "ok"), flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=[*CASES, "all"])
    parser.add_argument("--modes", nargs="+", choices=MODES)
    parser.add_argument(
        "--operator",
        action="store_true",
        help="DeepSeek V3.2 with custom_pypto's indexer and sparse attention, by the plugin in examples/vllm_operator",
    )
    parser.add_argument("--folder", type=Path, help="where models and logs are kept; by default a temporary folder")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        folder, name, mode, result = options.serve
        serve(Path(folder), name, mode, Path(result))
        return 0
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="serve_vllm_"))).resolve()
    print(COLUMNS.format("model", "mode", "lengths of prompts", "tokens", "all", "first call", "decode step", ""))
    plugins = plugins_of_vllm() + [OPERATOR_PLUGIN] * options.operator
    names = options.models or (["deepseek_v32"] if options.operator else DEFAULT_CASES)
    names, modes = (list(CASES), ["eager", "default"]) if names == ["all"] else (names, list(EXPLICIT_MODES))
    right = []
    for name in names:
        case = CASES[name]
        write(case.model, folder / name)
        reference = remembered(case.reference(folder / name))
        right += [check(folder / name, name, mode, reference, plugins) for mode in options.modes or modes]
    print(f"{sum(right)} of {len(right)} are right")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
