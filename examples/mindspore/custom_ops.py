# SPDX-License-Identifier: Apache-2.0
"""Builds the operators in custom_ops/ with CustomOpBuilder and calls them: `python custom_ops.py results.npz`.

advance_step_flashattn is vLLM-MindSpore's operator: its kernel is in the module, and PyNative mode calls it.
reshape_and_cache is ms_custom_ops's: it calls the aclnn function of the installed operator package in both modes.
"""

import subprocess
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn, ops

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "custom_ops"
BUILD = HERE.parents[1] / "build" / "mindspore"

BLOCKS, BLOCK_SIZE, HEADS, DEPTH, TOKENS = 12, 16, 2, 32, 7
HIDDEN = HEADS * DEPTH
ND, NZ = 0, 1  # cache_mode


def build():
    """The module: the kernels by CMake, as the guide of vLLM-MindSpore has it, and the rest by CustomOpBuilder."""
    kernels = BUILD / "kernels"
    for command in (["-S", SOURCES, "-B", kernels, "-DCMAKE_BUILD_TYPE=Release"], ["--build", kernels]):
        done = subprocess.run(["cmake", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"the kernels do not build:\n{done.stdout}")
    return ops.CustomOpBuilder(
        name="custom_ops",
        sources=[str(path) for path in sorted(SOURCES.glob("*.cpp"))],
        op_def=[str(SOURCES / "reshape_and_cache_op.yaml")],
        backend="Ascend",
        cflags=f"-I{SOURCES} -O0",  # its headers take minutes to optimise; the kernels are not compiled here
        ldflags=f"-L{kernels / 'lib'} -lkernels -lmindspore_ops_ascend",
        build_dir=str(BUILD / "module"),
    ).load()


# ---- advance_step_flashattn


def step_inputs() -> dict[str, np.ndarray]:
    """Five sequences and a row of padding. The fourth has no block for its next token."""
    tables = np.arange(18, dtype=np.int32)[::-1].reshape(6, 3).copy()
    tables[3] = [4, -1, -1]
    return {
        "input_tokens": np.full(6, 9, np.int32),
        "sampled_token_ids": np.array([[101], [102], [103], [104], [105]], np.int32),
        "input_positions": np.full(6, 9, np.int32),
        "seq_lens": np.array([0, 15, 16, 16, 47, 1], np.int32),
        "slot_mapping": np.full(6, 9, np.int32),
        "block_tables": tables,
    }


def step_expected(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    queries = len(tensors["sampled_token_ids"])
    expected = {name: np.zeros(6, np.int32) for name in ("input_tokens", "input_positions", "slot_mapping")}
    expected["seq_lens"] = tensors["seq_lens"].copy()
    expected["slot_mapping"][:] = -1
    for row in range(queries):
        position = tensors["seq_lens"][row]
        block = tensors["block_tables"][row, position // BLOCK_SIZE]
        expected["input_tokens"][row] = tensors["sampled_token_ids"][row, 0]
        expected["input_positions"][row] = position
        expected["slot_mapping"][row] = -1 if block < 0 else block * BLOCK_SIZE + position % BLOCK_SIZE
        expected["seq_lens"][row] += 1
    return expected


def step(module, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    given = {name: ms.Tensor(value) for name, value in tensors.items()}
    module.advance_step_flashattn(num_seqs=6, num_queries=5, block_size=BLOCK_SIZE, **given)
    return {name: given[name].asnumpy() for name in ("input_tokens", "input_positions", "seq_lens", "slot_mapping")}


# ---- reshape_and_cache


def cache_inputs(dtype: type, mode: int) -> dict[str, np.ndarray]:
    """Keys and values are [T, hidden], caches [blocks, block_size, N, D], or [blocks, block_size, hidden] in NZ."""
    random = np.random.default_rng(mode)

    def numbers(*shape: int) -> np.ndarray:
        return random.integers(-100, 100, shape).astype(dtype)

    cache = (BLOCKS, BLOCK_SIZE, HIDDEN) if mode == NZ else (BLOCKS, BLOCK_SIZE, HEADS, DEPTH)
    slots = random.permutation(BLOCKS * BLOCK_SIZE)[:TOKENS].astype(np.int32)
    slots[2] = -1  # this token is not cached
    return {
        "key": numbers(TOKENS, HIDDEN),
        "value": numbers(TOKENS, HIDDEN),
        "key_cache": numbers(*cache),
        "value_cache": numbers(*cache),
        "slot_mapping": slots,
    }


def cache_expected(tensors: dict[str, np.ndarray], mode: int) -> dict[str, np.ndarray]:
    expected = {}
    for name in ("key", "value"):
        cache = tensors[f"{name}_cache"].copy()
        # In NZ the memory of a block is [hidden / c0, block_size, c0]: 32 bytes of each token side by side.
        c0 = 32 // cache.itemsize if mode == NZ else HIDDEN
        blocks = cache.reshape(BLOCKS, HIDDEN // c0, BLOCK_SIZE, c0)
        for row, slot in zip(tensors[name], tensors["slot_mapping"], strict=True):
            if slot >= 0:
                blocks[slot // BLOCK_SIZE, :, slot % BLOCK_SIZE] = row.reshape(-1, c0)
        expected[f"{name}_cache"] = cache
    return expected


class Cache(nn.Cell):
    """Writes to the caches, and gives what a later operator reads from them."""

    def __init__(self, module):
        super().__init__()
        self.reshape_and_cache = module.reshape_and_cache

    def construct(self, key, value, key_cache, value_cache, slot_mapping, cache_mode):
        self.reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, cache_mode, HEADS)
        return key_cache + 0


def cache(module, tensors: dict[str, np.ndarray], mode: int) -> dict[str, np.ndarray]:
    # On the device, as caches are: graph mode of MindSpore 2.10 writes to a copy of a tensor of the host.
    given = {name: ms.Tensor(value).move_to("Ascend") for name, value in tensors.items()}
    read_later = Cache(module)(*given.values(), mode)
    written = {name: given[name].asnumpy() for name in ("key_cache", "value_cache")}
    assert np.array_equal(read_later.asnumpy(), written["key_cache"]), "a later operator reads something else"
    return written


def keys_only(module, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    given = {name: ms.Tensor(tensors[name]) for name in ("key", "key_cache", "slot_mapping")}
    module.reshape_and_cache(**given)
    return {"key_cache": given["key_cache"].asnumpy()}


def main(path: str) -> None:
    ms.set_device("Ascend")
    module = build()
    results = {}

    def add(name: str, mode: str, tensors: dict[str, np.ndarray]) -> None:
        results.update({f"{name}/{mode}/{what}": value for what, value in tensors.items()})

    for mode in ("PyNative", "graph"):
        ms.set_context(mode=ms.PYNATIVE_MODE if mode == "PyNative" else ms.GRAPH_MODE)
        if mode == "PyNative":
            add("advance_step_flashattn", "NumPy", step_expected(step_inputs()))
            add("advance_step_flashattn", mode, step(module, step_inputs()))
            tensors = cache_inputs(np.float16, ND)
            only = "reshape_and_cache, keys only"
            add(only, "NumPy", {"key_cache": cache_expected(tensors, ND)["key_cache"]})
            add(only, mode, keys_only(module, tensors))
        for dtype in (np.float16, np.int8):
            for layout, cache_mode in {"ND": ND, "NZ": NZ}.items():
                name, tensors = f"reshape_and_cache, {layout}, {dtype.__name__}", cache_inputs(dtype, cache_mode)
                add(name, "NumPy", cache_expected(tensors, cache_mode))
                add(name, mode, cache(module, tensors, cache_mode))
    np.savez(path, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
