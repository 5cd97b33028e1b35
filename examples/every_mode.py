# SPDX-License-Identifier: Apache-2.0
"""Runs every operator in every mode at the model's sizes and prints a table; the exit code is 1 if a line failed.

Eager is compared with a reference in float64, and the graphs with eager, bitwise.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import custom_pypto
from custom_pypto.modes import MODES, late_warnings

sys.path.insert(0, str(Path(__file__).parents[1] / "test/support"))
import references

COLUMNS = "{:<32} {:<16} {:<79} {:>14} {:>10}  {}"
TOP = 2048


@dataclass
class Case:
    """One call of an operator: its sizes in words, its arguments, and how to judge it."""

    sizes: str
    arguments: dict[str, Tensor]
    judge: Callable[..., float]  # of the result and what was written: the error; AssertionError when it is too large
    written: tuple[str, ...] = ()  # arguments that the operator writes to
    weights: tuple[str, ...] = ()  # arguments that are parameters of a model, whose sizes no graph takes for dynamic


def tensors(inputs: dict, *without: str) -> dict[str, Tensor]:
    return {name: value for name, value in inputs.items() if isinstance(value, Tensor) and name not in without}


# ---- add_custom


def add_custom(self, other):
    return custom_pypto.add_custom(self, other)


def add_custom_case(rows: int, columns: int) -> Case:
    self, other = torch.randn(rows, columns).half(), torch.randn(columns)
    sizes = f"[{rows}, {columns}] float16 + [{columns}] float32"
    return Case(sizes, {"self": self, "other": other}, largest_error(torch.add(self, other)))


def add_custom_gradients(self, other):
    """The gradients of sum((self + other) * self), in one tensor."""
    self, other = self.detach().requires_grad_(), other.detach().requires_grad_()
    (custom_pypto.add_custom(self, other) * self).sum().backward()
    return torch.cat([self.grad, other.grad[None]])


def add_custom_gradients_case(rows: int, columns: int) -> Case:
    self, other = torch.randn(rows, columns), torch.randn(columns)
    expected = torch.cat([2 * self.double() + other, self.double().sum(dim=0, keepdim=True)]).float()
    return Case(f"[{rows}, {columns}] + [{columns}] float32", {"self": self, "other": other}, largest_error(expected))


def largest_error(expected: Tensor) -> Callable[[Tensor], float]:
    def judge(result):
        assert result.dtype == expected.dtype, f"the result is of {result.dtype}"
        assert result.shape == expected.shape, f"the result is of shape {tuple(result.shape)}"
        error = (result.double() - expected.double()).abs().max().item()
        assert error <= 1e-6 * expected.abs().max().item(), f"off by {error:.3g}"
        return error

    return judge


# ---- DeepSeek-V3.2's decode step: the indexer, and the attention over the tokens that it selects


def lengths_up_to(longest: int, batch: int, tokens: int) -> list[int]:
    return [longest, *torch.randint(tokens, longest + 1, (batch - 1,)).tolist()]


def npu_lightning_indexer_pto(**arguments):
    return custom_pypto.npu_lightning_indexer_pto(**arguments)


def indexer_case(batch: int, tokens: int, longest: int, heads: int = 64, dim: int = 128) -> Case:
    lengths = lengths_up_to(longest, batch, tokens)
    inputs = references.lightning_indexer_inputs(lengths, queries=tokens, heads=heads, depth=dim)
    sizes = f"B {batch}, S1 {tokens}, N1 {heads}, D {dim}, S2 <= {longest}, top {TOP}, bf16"
    return Case(sizes, tensors(inputs), lambda result: references.check_lightning_indexer(result, **inputs))


def npu_lightning_indexer_quant_pto(**arguments):
    return custom_pypto.npu_lightning_indexer_quant_pto(**arguments)


def quantised_indexer_case(batch: int, tokens: int, longest: int, heads: int = 64, dim: int = 128) -> Case:
    lengths = lengths_up_to(longest, batch, tokens)
    inputs = references.lightning_indexer_quant_inputs(lengths, queries=tokens, heads=heads, depth=dim)
    sizes = f"B {batch}, S1 {tokens}, N1 {heads}, D {dim}, S2 <= {longest}, top {TOP}, int8"
    return Case(sizes, tensors(inputs), lambda result: references.check_lightning_indexer_quant(result, **inputs))


def npu_sparse_flash_attention_pto(**arguments):
    key = arguments["key"]  # of MLA with absorbed weights: the value is the key
    return custom_pypto.npu_sparse_flash_attention_pto(**arguments, value=key, scale_value=576**-0.5)


def attention_case(batch: int, tokens: int, longest: int, heads: int = 128) -> Case:
    lengths = lengths_up_to(longest, batch, tokens)
    inputs = references.sparse_flash_attention_inputs(lengths, queries=tokens, heads=heads, count=TOP)
    expected = references.sparse_flash_attention(**inputs)
    sizes = f"B {batch}, S1 {tokens}, N1 {heads}, D 512 + 64, S2 <= {longest}, top {TOP}, bf16"
    return Case(sizes, tensors(inputs, "value"), lambda result: references.check_attention(result, expected))


# ---- what writes to caches: the prolog of the quantised indexer, and the whole layer


PROLOG_CACHES = ("idx_k_cache", "idx_k_scale_cache")
PROLOG_WEIGHTS = ("wq_b", "wq_b_scale", "wk", "weights_proj", "ln_gamma_k", "ln_beta_k", "hadamard_q", "hadamard_k")
CACHES = ("kv_cache", "kr_cache", "index_k_cache")
WEIGHTS = (
    *("w_dq", "w_uq_qr", "w_uk", "w_dkv_kr", "gamma_cq", "gamma_ckv"),
    *("w_idx_qb", "w_idx_k", "w_idx_proj", "in_gamma_k", "in_beta_k"),
)


def npu_lightning_indexer_prolog_pto(**arguments):
    return custom_pypto.npu_lightning_indexer_prolog_pto(**arguments, layernorm_epsilon_k=1e-6)


def prolog_case(tokens: int) -> Case:
    inputs = references.lightning_indexer_prolog_inputs(tokens)
    expected = references.lightning_indexer_prolog(**inputs)
    sizes = f"T {tokens}, h 7168, q_lora 1536, N 64, D 128, int8"

    def judge(*results):
        references.check_lightning_indexer_prolog(results, **inputs)
        return (results[0].double() - expected[0].double()).abs().max().item() / 127  # of the int8 query

    return Case(sizes, tensors(inputs), judge, PROLOG_CACHES, PROLOG_WEIGHTS)


def npu_sparse_attention_pto(**arguments):
    return custom_pypto.npu_sparse_attention_pto(**arguments)


def sparse_attention_case(batch: int, tokens: int, longest: int) -> Case:
    inputs = references.sparse_attention_inputs(lengths_up_to(longest, batch, tokens), queries=tokens, count=TOP)
    sizes = f"B {batch}, S1 {tokens}, h 7168, q_lora 1536, N 128, S2 <= {longest}, top {TOP}, bf16"

    def judge(attn_out, *caches):
        return references.check_sparse_attention(attn_out, caches, **inputs)

    return Case(sizes, tensors(inputs), judge, CACHES, WEIGHTS)


# ---- the paged KV cache, and the step from token to token


def reshape_and_cache(**arguments):
    custom_pypto.reshape_and_cache(**arguments)


def cache_case(tokens: int, cache_layout: str) -> Case:
    inputs = references.reshape_and_cache_inputs(tokens, cache_layout=cache_layout)
    written = ("key_cache", "value_cache")
    sizes = f"T {tokens}, N 8, D 128, 64 blocks of 128, bf16, {cache_layout}"
    return Case(sizes, tensors(inputs), equal_to(references.reshape_and_cache(**inputs)), written)


def reshape_and_cache_nz(**arguments):
    custom_pypto.reshape_and_cache(**arguments, cache_mode=1)


def advance_step_flashattn(**arguments):
    num_seqs, num_queries = arguments["input_tokens"].shape[0], arguments["sampled_token_ids"].shape[0]
    custom_pypto.advance_step_flashattn(num_seqs, num_queries, 128, **arguments)


def step_case(sequences: int, padding: int, longest: int) -> Case:
    lengths = lengths_up_to(longest, sequences, 1)
    inputs = references.advance_step_flashattn_inputs(lengths, padding=padding, block_size=128, dtype=torch.int32)
    written = ("input_tokens", "input_positions", "seq_lens", "slot_mapping")
    sizes = f"{sequences} sequences and {padding} rows of padding, S2 <= {longest}, int32"
    return Case(sizes, tensors(inputs), equal_to(references.advance_step_flashattn(**inputs)), written)


def equal_to(expected: tuple[Tensor, ...]) -> Callable[..., float]:
    def judge(*written):
        assert all(map(torch.equal, written, expected)), "something else is written"
        return 0.0

    return judge


# ---- the table


def call_time(function, case: Case) -> tuple[list[Tensor], float]:
    """What the call gives and writes, on the host, and its milliseconds, of the second one: the first one may compile.

    Before the second call what the first one wrote is undone, at the same address: captured graphs hold it.
    """
    arguments = {name: value.npu() for name, value in case.arguments.items()}
    for name in case.weights:
        arguments[name] = torch.nn.Parameter(arguments[name], requires_grad=False)
    function(**arguments)
    for name in case.written:
        arguments[name].copy_(case.arguments[name])
    torch.npu.synchronize()
    start = time.perf_counter()
    result = function(**arguments)
    torch.npu.synchronize()
    duration = (time.perf_counter() - start) * 1e3
    results = [result] if isinstance(result, Tensor) else list(result or ())
    return [tensor.cpu() for tensor in [*results, *(arguments[name] for name in case.written)]], duration


def run_line(operator: str, mode: str, function, cases: list[Case], eager: list[list[Tensor]]) -> bool:
    """Calls the function with each case in turn and prints the line; the time is that of the last case.

    `eager` holds the results of these cases in eager mode. Where it is empty, the results are judged and added to it.
    """
    sizes = f"{cases[-1].sizes}" + (f" (+ {len(cases) - 1} shapes)" if len(cases) > 1 else "")
    error, verdict, duration = "", "ok", ""
    try:
        called = [call_time(function, case) for case in cases]
        if eager:
            for (results, _), expected in zip(called, eager[-len(cases) :], strict=True):
                assert equal(results, expected), "differs from eager"
            error = "as eager"
        else:
            error = f"{max(case.judge(*results) for case, (results, _) in zip(cases, called, strict=True)):.1e}"
            eager += [results for results, _ in called]
        duration = f"{called[-1][1]:.1f} ms"
    except Exception as failure:
        verdict = f"FAILED: {type(failure).__name__}: {failure}"
    print(COLUMNS.format(operator, mode, sizes, error, duration, verdict), flush=True)
    return verdict == "ok"


def equal(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


# An operator's function and its cases. Eager and dynamic graphs get all of them, the others the last one, which has the
# model's sizes.
OPERATORS = [
    (add_custom, add_custom_case, [(1000, 30), (7, 2048), (4096, 4096)]),
    (npu_lightning_indexer_pto, indexer_case, [(3, 1, 300), (8, 4, 2048), (32, 3, 8192)]),
    (npu_lightning_indexer_quant_pto, quantised_indexer_case, [(3, 1, 300), (8, 4, 2048), (32, 3, 8192)]),
    (npu_sparse_flash_attention_pto, attention_case, [(2, 3, 300, 16), (3, 1, 5000, 32), (4, 2, 8192)]),
    (npu_lightning_indexer_prolog_pto, prolog_case, [(3,), (50,), (8,)]),
    (npu_sparse_attention_pto, sparse_attention_case, [(2, 3, 300), (3, 1, 5000), (4, 2, 8192)]),
    (reshape_and_cache, cache_case, [(39, "ND"), (1, "ND"), (4096, "ND")]),
    (reshape_and_cache_nz, cache_case, [(39, "NZ"), (1, "NZ"), (4096, "NZ")]),
    (advance_step_flashattn, step_case, [(5, 0, 300), (256, 7, 5000), (500, 12, 131072)]),
]


def lines():
    """Yields the arguments of run_line, a line of the table each."""
    for function, make_case, sizes in OPERATORS:
        cases, eager = [make_case(*size) for size in sizes], []
        for name, mode in MODES.items():
            all_cases = name == "eager" or mode.dynamic
            yield function.__name__, name, mode(function), cases if all_cases else cases[-1:], eager
            if function is add_custom and name == "eager":
                yield "add_custom", "autograd", add_custom_gradients, [add_custom_gradients_case(4096, 4096)], []


def main() -> int:
    torch.manual_seed(0)
    print(COLUMNS.format("operator", "mode", "sizes", "error", "a call", ""), flush=True)
    with late_warnings():
        passed = [run_line(*line) for line in lines()]
    print(f"{sum(passed)} of {len(passed)} lines passed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
