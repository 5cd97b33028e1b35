# SPDX-License-Identifier: Apache-2.0
"""The judge of examples/serve_vllm.py, and the operators that cann_cpu's plugin defines for vllm-ascend."""

import itertools
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from cann_cpu.vllm_operators import OPERATORS
from cann_cpu.vllm_plugin import define_operators

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
    assert capsys.readouterr().out.split() == f"two combined 1 24 0 s 1.00 s 10.0 ms {result}".split()


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
            "X ERROR 2 [a.py:1] aclrtFoo: stream 4 failed: its work failed: bar failed: aclnnBar: no x",
            "aclnnBar: no x",
        ),
        (
            "WARNING [b.py:6] Failed to import foo_C: /a/site-packages/foo/libfoo.so: undefined symbol: bar\n"
            "X ERROR 1 [a.py:1] TypeError: 'NoneType' object is not callable",
            "Failed to import foo_C: foo/libfoo.so: undefined symbol: bar",
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
    assert len(OPERATORS) == 14
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


@pytest.mark.parametrize("parts", [[[5, 2, 3]], [[2, 1, 3], [3, 1, 0]], [[3, 1, 2], [1, 1, 1], [1, 0, 0]]])
def test_convolutions_go_on_from_what_they_have_seen(operators, parts):
    torch.manual_seed(0)
    width, channels, places = 4, 6, [3, 1, 4]
    sequences = [torch.randn(length, channels) for length in (5, 2, 3)]
    weight, bias, old = torch.randn(width, channels), torch.randn(channels), torch.randn(2, width - 1, channels)
    before = [old[0], torch.zeros(width - 1, channels), old[1]]  # the second has no inputs before
    full = [torch.cat(pair) for pair in zip(before, sequences, strict=True)]
    expected = [torch.stack([(x[i : i + width] * weight).sum(0) for i in range(len(x) - width + 1)]) for x in full]
    state = torch.randn(6, width + 1, channels)  # wider than the convolution needs
    untouched = state.clone()
    state[3, : width - 1], state[4, : width - 1] = old
    state, begun, outputs = state.npu(), [0, 0, 0], [[], [], []]
    for number, lengths in enumerate(parts):
        x = torch.cat(
            [x[i : i + n] for x, i, n in zip(sequences, begun, lengths, strict=True)] + [torch.ones(2, channels)]
        )
        starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        out = torch.empty(len(x), channels).npu()
        has_state = torch.tensor([True, number > 0, True]).npu()
        indices = torch.tensor([[place, 5] for place in places] if number else places)  # a block table, or its column
        operators.npu_causal_conv1d_custom(
            out,
            x.npu(),
            weight.npu(),
            state,
            bias.npu(),
            starts.npu(),
            indices.npu(),
            has_state,
            None,
            1,
            -1,
            0,
        )
        for i, part in enumerate(out.cpu()[: sum(lengths)].split(lengths)):
            outputs[i].append(part)
        begun = [i + n for i, n in zip(begun, lengths, strict=True)]
    for i, out in enumerate(expected):
        torch.testing.assert_close(torch.cat(outputs[i]), torch.nn.functional.silu(out + bias))
        torch.testing.assert_close(state[places[i], : width - 1].cpu(), full[i][-width + 1 :])
    assert torch.equal(state[[0, 2, 5]].cpu(), untouched[[0, 2, 5]])
    assert torch.equal(state[:, width - 1 :].cpu(), untouched[:, width - 1 :])


def test_convolutions_of_padding_change_nothing(operators):
    state, x = torch.randn(3, 3, 6).npu(), torch.randn(4, 6).npu()
    before, out = state.clone(), torch.empty_like(x)
    starts, places = torch.tensor([0, 0, 0, 1, 2]).npu(), torch.tensor([0, 0, -1, -1]).npu()
    operators.npu_causal_conv1d_custom(
        out, x, torch.randn(4, 6).npu(), state, None, starts, places, None, None, 1, -1, 1
    )
    assert torch.equal(state.cpu(), before.cpu())


def delta_rule(q, k, v, g, beta, state, scale):
    """Token by token: what the state predicts for a key moves to the value by beta, after it decayed by the gate."""
    out = []
    for t in range(len(q)):
        state = state * g[t].exp()
        state = state + torch.outer(k[t], beta[t] * (v[t] - k[t] @ state))
        out.append(q[t] @ state * scale)
    return torch.stack(out), state


def test_chunks_of_the_gated_delta_rule_are_its_recurrence(operators):
    torch.manual_seed(0)
    ends, heads, keys, values, size, scale = [0, 7, 8, 19], 2, 16, 24, 4, 0.25  # two value heads for one key head
    tokens = ends[-1]
    q, k = (torch.nn.functional.normalize(torch.randn(1, tokens, keys), dim=-1).bfloat16().float() for _ in range(2))
    v, beta = torch.randn(heads, tokens, values).bfloat16().float(), torch.rand(heads, tokens)
    gates, initial = -torch.rand(heads, tokens), torch.randn(3, heads, keys, values)
    w, u = torch.empty(heads, tokens, keys), torch.empty(heads, tokens, values)
    sums = torch.empty_like(gates)
    for first, last in itertools.pairwise(ends):
        for start in range(first, last, size):
            part = slice(start, min(start + size, last))
            for head in range(heads):
                g, b, kk = gates[head, part].cumsum(0), beta[head, part, None], k[0, part]
                sums[head, part] = g
                inverse = (b * (kk @ kk.T) * (g[:, None] - g).exp()).tril(-1) + torch.eye(len(g))
                u[head, part] = torch.linalg.solve(inverse, b * v[head, part])
                w[head, part] = torch.linalg.solve(inverse, b * kk * g.exp()[:, None])
    arguments = [x[None].npu() for x in (k, w, u)]
    options = {"g": sums[None].npu(), "cu_seqlens": ends, "chunk_size": size}
    h, new, final = operators.chunk_gated_delta_rule_fwd_h(*arguments, initial_state=initial.npu(), **options)
    out = operators.chunk_fwd_o(q[None].npu(), k[None].npu(), new, h, scale, **options)[0].float().cpu()
    for number, (first, last) in enumerate(itertools.pairwise(ends)):
        part = slice(first, last)
        for head in range(heads):
            expected, state = delta_rule(
                q[0, part], k[0, part], v[head, part], gates[head, part], beta[head, part], initial[number, head], scale
            )
            torch.testing.assert_close(out[head, part], expected, rtol=0.02, atol=0.02)
            torch.testing.assert_close(final[number, head].cpu(), state, rtol=1e-4, atol=1e-4)
    with pytest.raises(NotImplementedError, match="use_exp2"):
        operators.chunk_gated_delta_rule_fwd_h(*arguments, use_exp2=True, **options)


def test_gates_of_the_delta_rule(operators):
    torch.manual_seed(0)
    a, b, decay, bias = torch.randn(5, 3), torch.randn(5, 3).bfloat16(), torch.randn(3), torch.randn(3)
    g, beta = operators.npu_fused_gdn_gating(decay.npu(), a.npu(), b.npu(), bias.npu())
    torch.testing.assert_close(g.cpu()[0], -decay.exp() * (1 + (a + bias).exp()).log())
    torch.testing.assert_close(beta.cpu()[0], b.sigmoid())


def test_gemmas_normalization_adds_one_to_the_weights(operators):
    torch.manual_seed(0)
    x, weight = torch.randn(3, 32), torch.randn(32)
    y, _ = operators.npu_gemma_rms_norm(x.npu(), weight.npu(), 1e-5)
    torch.testing.assert_close(y.cpu(), torch.nn.functional.rms_norm(x, (32,), 1 + weight, 1e-5))


def test_steps_of_the_delta_rule_skip_padding(operators):
    torch.manual_seed(0)
    q, k = (torch.nn.functional.normalize(torch.randn(3, 1, 16), dim=-1).bfloat16() for _ in range(2))
    v, beta, g = torch.randn(3, 2, 16).bfloat16(), torch.rand(3, 2).bfloat16(), -torch.rand(3, 2)
    state = torch.randn(4, 2, 16, 16).bfloat16()
    served = state.npu()
    lengths = torch.tensor([0, 1, 1, 0], dtype=torch.int32).npu()  # where the first starts, and three lengths
    out = operators.npu_recurrent_gated_delta_rule(
        *(x.npu() for x in (q, k, v)),
        served,
        beta=beta.npu(),
        scale=0.25,
        actual_seq_lengths=lengths,
        ssm_state_indices=torch.tensor([3, 1, 0], dtype=torch.int32).npu(),
        g=g.npu(),
    )
    for token, place in enumerate([3, 1]):
        for head in range(2):
            one = slice(token, token + 1)
            arguments = [x.float() for x in (q[one, 0], k[one, 0], v[one, head], g[one, head], beta[one, head])]
            expected, after = delta_rule(*arguments, state[place, head].float().T, 0.25)
            torch.testing.assert_close(out[token, head].float().cpu(), expected[0], rtol=0.02, atol=0.02)
            torch.testing.assert_close(served[place, head].float().cpu(), after.T, rtol=0.02, atol=0.02)
    assert torch.equal(served[[0, 2]].cpu(), state[[0, 2]])


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


def workflow() -> dict:
    """The workflow that docs/vllm.md shows."""
    return yaml.safe_load((ROOT / "docs/vllm.md").read_text().split("```yaml\n")[1].split("```")[0])


def test_the_workflow_runs_scripts_of_this_tree():
    (job,) = workflow()["jobs"].values()
    commands = [shlex.split(step["run"]) for step in job["steps"] if "run" in step]
    assert [command[:3] for command in commands] == [["bash", "run.sh", "vllm"]]


@pytest.mark.nightly  # it downloads vLLM, 1 GB: 3 to 6 minutes
@pytest.mark.timeout(1800)
def test_the_workflow_serves_a_model_with_an_author_s_operators():
    (job,) = workflow()["jobs"].values()
    environment = os.environ | {"VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}", "CI": "1"}
    for step in job["steps"]:
        if "run" in step:
            command = ["bash", "-ec", step["run"]]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("2 of 2 are right\n")


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_two_ranks_serve_a_model_with_linear_attention(tmp_path):
    """In the environment that the workflow has made."""
    options = ["--models", "tensor_parallel", "--modes", "default", "--folder", tmp_path]
    command = [VLLM, ROOT / "examples/serve_vllm.py", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ok\n1 of 1 are right\n")
