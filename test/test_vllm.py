# SPDX-License-Identifier: Apache-2.0
"""The judge of examples/serve_vllm.py, and the operators that cann_cpu's plugin defines for vllm-ascend."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cann_cpu.vllm_plugin import OPERATORS, define_operators

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import serve_vllm
import tiny_models

ROOT = Path(__file__).parents[1]
VLLM = ROOT / ".venv-vllm/bin/python"


def counting(tokens):
    """Logits of a model whose next token is the last one and 1."""
    return 10.0 * torch.nn.functional.one_hot((torch.tensor(tokens) + 1) % 64, 64)


def served(*firsts):
    return [list(range(first, first + serve_vllm.NEW_TOKENS)) for first in firsts]


def test_the_right_tokens_have_no_difference():
    assert serve_vllm.first_difference(counting, [[1, 2], [7]], served(3, 8)) == ""


@pytest.mark.parametrize("place", [0, 5, serve_vllm.NEW_TOKENS - 1])
def test_the_first_wrong_token_is_named(place):
    tokens = served(3, 8)
    tokens[1][place] = 50
    wrong = serve_vllm.first_difference(counting, [[1, 2], [7]], tokens)
    assert wrong == f"prompt 1, token {place}: 50 instead of {8 + place}, whose logit is 10.00 higher"


def test_tokens_that_are_missing_are_named():
    tokens = served(3)
    tokens[0].pop()
    count = serve_vllm.NEW_TOKENS
    wrong = serve_vllm.first_difference(counting, [[1, 2]], tokens)
    assert wrong == f"prompt 0: {count - 1} tokens instead of {count}"


@pytest.mark.parametrize(("gap", "is_right"), [(0.5, True), (2, False)])
def test_only_tokens_that_rounding_cannot_tell_apart_are_taken_for_each_other(gap, is_right):
    def with_rival(tokens):
        logits = counting(tokens)
        logits[:, 60] = 10 - gap * serve_vllm.EQUAL_LOGITS
        return logits

    tokens = served(3)
    tokens[0][-1] = 60
    assert (serve_vllm.first_difference(with_rival, [[1, 2]], tokens) == "") == is_right


def test_vectors_are_judged_by_their_direction():
    vectors = {(1, 2): torch.tensor([3.0, 4.0]), (7,): torch.tensor([1.0, 0.0])}
    assert serve_vllm.first_other_vector(vectors.get, [[1, 2], [7]], [[0.6, 0.8], [1.0, 0.01]]) == ""
    wrong = serve_vllm.first_other_vector(vectors.get, [[1, 2], [7]], [[0.6, 0.8], [0.6, 0.8]])
    assert wrong == "prompt 1: the cosine distance is 0.4000"
    nan = float("nan")
    assert "prompt 0" in serve_vllm.first_other_vector(vectors.get, [[1, 2]], [[nan, nan]])


def rank(prompt, first, counted):
    found = {"prompts": [[prompt]], "served": served(first), "mode": "FULL_AND_PIECEWISE", "counted": counted}
    return found | {"seconds": 1.0, "step": 0.01}


@pytest.mark.parametrize(
    ("counts", "second", "result"),
    [
        ((3, 5), 8, "ok"),
        ((3, 0), 8, "tried is 0"),
        ((3, None), 8, "tried is 0"),
        ((3, 5), 9, "prompt 1, token 0: 9 instead of 8, whose logit is 10.00 higher"),
    ],
)
def test_every_rank_must_be_right_and_have_used_the_feature(monkeypatch, capsys, counts, second, result):
    ranks = [rank(2, 3, {"tried": counts[0]}), rank(7, second, {"tried": counts[1]} if counts[1] is not None else {})]
    monkeypatch.setattr(serve_vllm, "run", lambda *_: (ranks, ""))
    monkeypatch.setitem(serve_vllm.CASES, "two", serve_vllm.Case("qwen3", counters=("tried",), processes=2))
    assert serve_vllm.check(Path(), "two", "default", counting, []) == (result == "ok")
    assert capsys.readouterr().out.split(maxsplit=9) == f"two combined 1, 1 24 1.00 s 10.0 ms {result}\n".split(
        maxsplit=9
    )


@pytest.mark.parametrize("name", ["qwen3", "data_parallel"])
def test_the_reason_of_a_process_that_fails_is_reported(tmp_path, monkeypatch, name):
    (tmp_path / "vllm.py").write_text("raise RuntimeError('there is no aclnnFoo')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found, log = serve_vllm.run(tmp_path, name, "eager", [])
    assert found == []
    assert serve_vllm.failure(log) == "RuntimeError: there is no aclnnFoo"


def test_a_case_that_hangs_is_ended(tmp_path, monkeypatch):
    (tmp_path / "vllm.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(serve_vllm, "LIMIT", 3)
    found, log = serve_vllm.run(tmp_path, "qwen3", "eager", [])
    assert found == []
    assert serve_vllm.failure(log) == "TimeoutError: not done after 3 s"


def test_every_case_is_of_a_model_that_is_written():
    assert {case.model for case in serve_vllm.CASES.values()} == set(tiny_models.MODELS)


def test_the_scores_of_two_experts_are_never_near_each_other():
    torch.manual_seed(0)
    hidden, router = torch.empty(tiny_models.VOCABULARY, 256), torch.empty(tiny_models.EXPERTS, 256)
    tiny_models.randomize("model.embed_tokens.weight", hidden)
    tiny_models.randomize("model.layers.0.mlp.gate.weight", router)
    for layer in ("self_attn.o_proj.weight", "mlp.experts.0.down_proj.weight", "mlp.experts.down_proj"):
        weight = torch.empty(3, 256, 64) if layer == "mlp.experts.down_proj" else torch.empty(256, 64)
        tiny_models.randomize(f"model.layers.0.{layer}", weight)
        hidden = hidden + torch.randn(len(hidden), 64) @ weight.mT
    scores = hidden.flatten(0, -2) @ router.T
    assert scores.sort().values.diff().min() > 0.5
    assert len(scores.topk(2).indices.unique(dim=0)) > 50


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (
            "ImportError: handled\nX ERROR 1 [a.py:1] ValueError: first\nX ERROR 2 [a.py:1] OSError: second",
            "ValueError: first",
        ),
        ("INFO start\nImportError: one\nRuntimeError: the last", "RuntimeError: the last"),
        (
            "X ERROR 1 [a.py:1] RuntimeError: error code is 500000\n"
            "X ERROR 2 [a.py:1] aclrtFoo: stream 4 failed: its work failed: bar failed: KernelError: line 91",
            "KernelError: line 91",
        ),
        (
            "WARNING [b.py:6] Failed to import foo_C: undefined symbol: bar\n"
            "X ERROR 1 [a.py:1] TypeError: 'NoneType' object is not callable",
            "Failed to import foo_C: undefined symbol: bar",
        ),
        ("Failed to import foo_C\nX ERROR 1 [a.py:1] TypeError: other", "TypeError: other"),
        ("INFO start\nKilled", "Killed"),
        ("", "no output"),
    ],
)
def test_the_line_that_says_why_serving_failed(log, why):
    assert serve_vllm.failure(log) == why


@pytest.fixture(scope="module")
def operators():
    if not hasattr(torch.ops._C_ascend, "moe_gating_top_k"):
        define_operators()
    return torch.ops._C_ascend


def test_every_operator_of_the_plugin_is_defined(operators):
    assert len(OPERATORS) == 8
    assert all(hasattr(operators, schema[: schema.index("(")]) for schema in OPERATORS)


@pytest.mark.parametrize("norm_type", [0, 1])
@pytest.mark.parametrize("renorm", [0, 1])
def test_gates_normalize_the_weights_of_the_chosen_experts(operators, norm_type, renorm):
    torch.manual_seed(0)
    x, bias = torch.randn(7, 16), torch.randn(16)
    y, experts, _ = operators.moe_gating_top_k(x.npu(), 4, 1, 1, 0, renorm, norm_type, False, 2.5, 1e-20, bias.npu())
    scores = x.softmax(-1) if norm_type == 0 else x.sigmoid()
    chosen = (scores + bias).topk(4).indices
    weights = scores.gather(1, chosen)
    if renorm or norm_type == 1:  # sigmoids always
        weights = weights / weights.sum(1, keepdim=True)
    assert torch.equal(experts.cpu().long(), chosen)
    torch.testing.assert_close(y.cpu(), 2.5 * weights)


def test_defaults_are_those_of_the_operator_and_not_of_torch_npu(operators):
    x, experts = torch.randn(3, 32).npu(), torch.tensor([[0, 1], [2, 3], [1, 2]], dtype=torch.int32).npu()
    options = {"active_num": 6, "expert_num": 4, "expert_tokens_num_type": 1, "active_expert_range": [0, 4]}
    options["expert_tokens_num_flag"] = True
    with pytest.raises(RuntimeError, match="must be given for quant_mode 0"):  # torch_npu's default is -1
        operators.npu_moe_init_routing_custom(x, experts, **options)
    rows, places, counts, _ = operators.npu_moe_init_routing_custom(x, experts, **options, quant_mode=-1)
    assert counts.tolist() == [1, 2, 2, 1]
    assert torch.equal(rows.cpu()[places.long().cpu()].view(3, 2, 32), x.cpu()[:, None].expand(-1, 2, -1))


def test_adapters_change_the_rows_of_their_sequences(operators):
    torch.manual_seed(0)
    x, down, up = torch.randn(6, 32), torch.randn(2, 1, 4, 32), torch.randn(2, 1, 16, 4)
    adapters = [1, 1, -1, 0, None, None]  # of sequences of 2, 1 and 1 tokens, and rows that belong to none
    lengths, of_sequences = torch.tensor([2, 1, 1]).npu(), torch.tensor([1, -1, 0]).npu()
    y = torch.randn(6, 40)
    expected, inner = y.clone(), torch.zeros(6, 4)
    for row, adapter in enumerate(adapters):
        if adapter in (0, 1):
            inner[row] = 0.5 * down[adapter, 0] @ x[row]
            expected[row, 8:24] += up[adapter, 0] @ inner[row]
    buffer, served = torch.ones(6, 4).npu(), y.npu()
    operators.sgmv_shrink(x.npu(), down.npu(), of_sequences, lengths, buffer, 0.5)
    operators.sgmv_expand(buffer, up.npu(), of_sequences, lengths, served, 8, 16)
    torch.testing.assert_close(buffer.cpu(), inner)
    torch.testing.assert_close(served.cpu(), expected)
    of_tokens = torch.tensor([-1 if adapter is None else adapter for adapter in adapters]).npu()
    buffer, served = torch.ones(6, 4).npu(), y.npu()
    operators.bgmv_shrink(x.npu(), down.npu(), of_tokens, buffer, 0.5)
    operators.bgmv_expand(buffer, up.npu(), of_tokens, served, 8, 16)
    torch.testing.assert_close(buffer.cpu(), inner)
    torch.testing.assert_close(served.cpu(), expected)


def test_a_kernel_for_npus_is_called_in_place_of_the_plugins(operators):
    x = torch.randn(2, 64, 128, dtype=torch.bfloat16).npu()
    lengths = {name: torch.tensor([2], dtype=torch.int32).npu() for name in ("query", "key")}
    options = {f"actual_seq_lengths_{name}": length for name, length in lengths.items()}
    options |= {"layout_query": "TND", "layout_key": "TND", "sparse_count": 4}
    arguments = x, x[:, :1].contiguous(), x[..., 0].contiguous()
    indices, _ = operators.npu_lightning_indexer(*arguments, **options)
    assert indices[0, 0].tolist() == [0, -1, -1, -1]
    library = torch.library.Library("_C_ascend", "IMPL")
    library.impl("npu_lightning_indexer", lambda query, *_, **__: (query[0], query[1]), "PrivateUse1")
    replaced, _ = operators.npu_lightning_indexer(*arguments, **options)
    library._destroy()
    assert torch.equal(replaced.cpu(), x[0].cpu())
    assert torch.equal(operators.npu_lightning_indexer(*arguments, **options)[0].cpu(), indices.cpu())


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.skipif(not VLLM.exists(), reason="vLLM is not installed: `bash run.sh vllm` makes .venv-vllm, from PyPI")
def test_vllm_serves_a_model_in_graphs(tmp_path):
    command = [
        VLLM,
        ROOT / "examples/serve_vllm.py",
        "--models",
        "qwen3",
        "--modes",
        "full decode",
        "--folder",
        tmp_path,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("ok")
