"""Runs every operator in every mode at the model's sizes against a golden: a table; exit code 1 if a line failed."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

import custom_pypto
from custom_pypto.modes import MODES

COLUMNS = "{:<30} {:<16} {:<79} {:>22} {:>10}  {}"


@dataclass
class Case:
    """One call of an operator: its arguments, how to judge the result, and its sizes in words."""

    sizes: str
    arguments: dict[str, torch.Tensor]
    judge: Callable[[torch.Tensor], float]  # the error or the mismatches; raises AssertionError when that is too much
    unit: str  # how to print them


# ---- add_custom


def add_custom(self, other):
    return custom_pypto.add_custom(self, other)


def add_custom_case(rows: int, columns: int) -> Case:
    self, other = torch.randn(rows, columns).half(), torch.randn(columns)
    sizes = f"[{rows}, {columns}] float16 + [{columns}] float32"
    return Case(sizes, {"self": self, "other": other}, largest_error(torch.add(self, other)), "error {:.1e}")


def add_custom_gradients(self, other):
    """The gradients of sum((self + other) * self), in one tensor."""
    self, other = self.detach().requires_grad_(), other.detach().requires_grad_()
    (custom_pypto.add_custom(self, other) * self).sum().backward()
    return torch.cat([self.grad, other.grad[None]])


def add_custom_gradients_case(rows: int, columns: int) -> Case:
    self, other = torch.randn(rows, columns), torch.randn(columns)
    golden = torch.cat([2 * self.double() + other, self.double().sum(dim=0, keepdim=True)]).float()
    sizes = f"[{rows}, {columns}] + [{columns}] float32"
    return Case(sizes, {"self": self, "other": other}, largest_error(golden), "error {:.1e}")


def largest_error(golden: torch.Tensor) -> Callable[[torch.Tensor], float]:
    def judge(result):
        assert result.dtype == golden.dtype, f"the result is of {result.dtype}"
        assert result.shape == golden.shape, f"the result is of shape {tuple(result.shape)}"
        error = (result.double() - golden.double()).abs().max().item()
        assert error <= 1e-6 * golden.abs().max().item(), f"off by {error:.3g}"
        return error

    return judge


# ---- npu_lightning_indexer_pto: DeepSeek-V3.2's decode step


def npu_lightning_indexer_pto(**arguments):
    return custom_pypto.npu_lightning_indexer_pto(**arguments)


def indexer_scores(query, key, weights, lengths, block_table) -> list[torch.Tensor]:
    """Per sequence the scores [queries, keys] in float32, -inf where a query must not look."""
    scores, page, tokens = [], key.shape[1], query.shape[1]
    for b, length in enumerate(lengths.tolist()):
        keys = key[block_table[b, : -(-length // page)].long()].flatten(0, 2)[:length].float()
        score = (torch.einsum("shd,kd->shk", query[b].float(), keys).relu() * weights[b].float()[..., None]).sum(dim=1)
        last_visible = length - tokens + torch.arange(tokens)
        scores.append(score.masked_fill(torch.arange(length) > last_visible[:, None], -torch.inf))
    return scores


def indexer_mismatches(scores: list[torch.Tensor], count: int) -> Callable[[torch.Tensor], float]:
    """Counts selected positions that are not in the golden's top; only ties within float32's rounding may differ."""

    def mismatches(score, row):
        expected = min(count, int((score > -torch.inf).sum()))
        selected = row[:expected].long()
        assert (row[expected:] == -1).all(), "there is a position where -1 should be"
        assert ((selected >= 0) & (selected < len(score))).all(), "there is a position outside the sequence"
        assert selected.unique().numel() == expected, "there is a position twice"
        if expected == 0:
            return 0
        golden = score.topk(expected)
        lowest = golden.values[-1] - 1e-4 * golden.values.abs().max()
        assert (score[selected] >= lowest).all(), "there is a position whose score is too low"
        return int((~torch.isin(selected, golden.indices)).sum())

    def judge(result):
        assert result.shape == (len(scores), len(scores[0]), 1, count), f"the result is of shape {tuple(result.shape)}"
        rows = [row for sequence in result.flatten(2) for row in sequence]
        return max(mismatches(score, row) for score, row in zip([s for q in scores for s in q], rows, strict=True))

    return judge


def paged_block_table(lengths: torch.Tensor, page: int) -> tuple[torch.Tensor, int]:
    """A block table with the pages in random order, -1 past each sequence's, and how many pages there are."""
    pages = (lengths + page - 1) // page
    pool = torch.randperm(int(pages.sum()), dtype=torch.int32)
    return torch.nn.utils.rnn.pad_sequence(pool.split(pages.tolist()), batch_first=True, padding_value=-1), len(pool)


def indexer_case(
    batch: int, tokens: int, longest: int = 8192, heads: int = 64, dim: int = 128, page: int = 128
) -> Case:
    count = 2048
    lengths = torch.randint(1, longest + 1, (batch,), dtype=torch.int32)
    block_table, blocks = paged_block_table(lengths, page)
    query = torch.randn(batch, tokens, heads, dim).bfloat16()
    key = torch.randn(blocks, page, 1, dim).bfloat16()
    weights = torch.randn(batch, tokens, heads).bfloat16()
    sizes = f"B {batch}, S1 {tokens}, N1 {heads}, D {dim}, S2 <= {longest}, top {count}, bf16"
    arguments = {"query": query, "key": key, "weights": weights, "actual_seq_lengths_key": lengths}
    judge = indexer_mismatches(indexer_scores(query, key, weights, lengths, block_table), count)
    return Case(sizes, arguments | {"block_table": block_table}, judge, f"{{}} of {count} mismatch")


# ---- npu_sparse_flash_attention_pto: what DeepSeek-V3.2 then computes of the selected tokens


def npu_sparse_flash_attention_pto(**arguments):
    key = arguments["key"]  # of MLA with absorbed weights: the value is the key
    return custom_pypto.npu_sparse_flash_attention_pto(**arguments, value=key, scale_value=576**-0.5)


def attention_golden(query, query_rope, key, key_rope, sparse_indices, lengths, block_table) -> torch.Tensor:
    """[batch, tokens, heads, dim] in float32; each query token by itself."""
    out, page, tokens = torch.zeros(query.shape), key.shape[1], query.shape[1]
    for b, length in enumerate(lengths.tolist()):
        for s in range(tokens):
            named = sparse_indices[b, s, 0].long()
            named = named[(named >= 0) & (named <= length - tokens + s)]
            place = (block_table[b, named // page].long(), named % page, 0)
            scores = query[b, s].float() @ key[place].float().T + query_rope[b, s].float() @ key_rope[place].float().T
            out[b, s] = (576**-0.5 * scores).softmax(-1) @ key[place].float()
    return out


def close_to(golden: torch.Tensor) -> Callable[[torch.Tensor], float]:
    def judge(result):
        assert result.shape == golden.shape, f"the result is of shape {tuple(result.shape)}"
        error = (result.float() - golden).abs()
        close = (error <= 1e-4 + 5e-3 * golden.abs()).float().mean().item()
        assert close >= 0.99, f"only {close:.2%} are within rtol 5e-3 and atol 1e-4"
        assert error.max() <= 3e-2, f"off by {error.max():.3g}"
        return error.max().item()

    return judge


def attention_case(batch: int, tokens: int, longest: int = 8192, heads: int = 128, page: int = 128) -> Case:
    count = 2048
    lengths = torch.randint(tokens, longest + 1, (batch,), dtype=torch.int32)
    lengths[0] = longest
    block_table, blocks = paged_block_table(lengths, page)
    arguments = {
        "query": torch.randn(batch, tokens, heads, 512).bfloat16(),
        "query_rope": torch.randn(batch, tokens, heads, 64).bfloat16(),
        "key": torch.randn(blocks, page, 1, 512).bfloat16(),
        "key_rope": torch.randn(blocks, page, 1, 64).bfloat16(),
        "sparse_indices": torch.full((batch, tokens, 1, count), -1, dtype=torch.int32),
    }
    for b, length in enumerate(lengths.tolist()):
        for s in range(tokens):
            selected = torch.randperm(length - tokens + s + 1)[:count]
            arguments["sparse_indices"][b, s, 0, : len(selected)] = selected
    sizes = f"B {batch}, S1 {tokens}, N1 {heads}, D 512 + 64, S2 <= {longest}, top {count}, bf16"
    judge = close_to(attention_golden(**arguments, lengths=lengths, block_table=block_table))
    arguments |= {"actual_seq_lengths_kv": lengths, "block_table": block_table}
    return Case(sizes, arguments, judge, "error {:.1e}")


# ---- the table


def call_time(function, arguments) -> tuple[torch.Tensor, float]:
    """The result on the host and the milliseconds of a call, of the second one: the first one may compile."""
    arguments = {name: value.npu() for name, value in arguments.items()}
    function(**arguments)
    torch.npu.synchronize()
    start = time.perf_counter()
    result = function(**arguments)
    torch.npu.synchronize()
    return result.cpu(), (time.perf_counter() - start) * 1e3


def run_line(operator: str, mode: str, function, cases: list[Case]) -> bool:
    """Calls the function with each case in turn and prints the line; the time is that of the last case."""
    sizes = f"{cases[-1].sizes}" + (f" (+ {len(cases) - 1} shapes)" if len(cases) > 1 else "")
    error, verdict, duration = "", "ok", ""
    try:
        results = [call_time(function, case.arguments) for case in cases]
        error = cases[-1].unit.format(max(case.judge(result) for case, (result, _) in zip(cases, results, strict=True)))
        duration = f"{results[-1][1]:.1f} ms"
    except Exception as failure:
        verdict = f"FAILED: {type(failure).__name__}: {failure}"
    print(COLUMNS.format(operator, mode, sizes, error, duration, verdict), flush=True)
    return verdict == "ok"


def lines():
    """Yields a line of the table each: operator, mode, function, cases. A dynamic graph gets cases of several sizes."""
    operators = [
        ("add_custom", add_custom, [add_custom_case(*size) for size in ((1000, 30), (7, 2048), (4096, 4096))]),
        (
            "npu_lightning_indexer_pto",
            npu_lightning_indexer_pto,
            [indexer_case(*size) for size in ((3, 1, 300), (8, 4, 2048), (32, 3, 8192))],
        ),
        (
            "npu_sparse_flash_attention_pto",
            npu_sparse_flash_attention_pto,
            [attention_case(*size) for size in ((2, 3, 300, 16), (3, 1, 5000, 32), (4, 2, 8192))],
        ),
    ]
    for operator, function, cases in operators:
        for name, mode in MODES.items():
            yield operator, name, mode(function), cases if mode.dynamic else cases[-1:]
            if operator == "add_custom" and name == "eager":
                yield operator, "autograd", add_custom_gradients, [add_custom_gradients_case(4096, 4096)]


def main() -> int:
    torch.manual_seed(0)
    print(COLUMNS.format("operator", "mode", "sizes", "error", "a call", ""), flush=True)
    passed = [run_line(*line) for line in lines()]
    print(f"{sum(passed)} of {len(passed)} lines passed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
