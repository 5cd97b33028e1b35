# SPDX-License-Identifier: Apache-2.0
"""The examples without a page: decoding at small sizes, where the verdict is to be trusted, and compiling ahead."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch_versions
import torchair

import custom_pypto  # noqa: F401

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import compiled_ahead
import deepseek_sparse_decode as decode

SMALL = decode.Sizes(
    hidden=96,
    q_lora=64,
    kv_lora=64,
    heads=4,
    depth=32,
    rope_depth=16,
    index_heads=4,
    index_depth=32,
    top=32,
    page=16,
    vocabulary=64,
)
LENGTHS = [64, 100, 33, 5]


def test_each_token_has_a_slot_of_its_own_and_the_table_names_its_page():
    pages = decode.Pages([32, 47, 1], max_new_tokens=20, page=16)
    step, slots = decode.Step(pages), {}
    for number in range(10):
        sampled = torch.arange(6).view(3, 2) + 6 * number
        step.advance(sampled.npu())
        assert torch.equal(step.tokens.cpu(), sampled)
        inputs = {name: value.cpu() for name, value in step.inputs.items()}
        for b, (positions, indices) in enumerate(zip(inputs["positions"], inputs["cache_index"], strict=True)):
            for position, slot in zip(positions.tolist(), indices.tolist(), strict=True):
                assert slot // 16 == inputs["block_table"][b, position // 16]
                assert slot % 16 == position % 16
                assert slots.setdefault(slot, (b, position)) == (b, position)
    assert len(slots) == 3 * 20
    assert inputs["act_seqs"].tolist() == pages.lengths.tolist() == [52, 67, 21]
    named = pages.block_table[pages.block_table >= 0]
    assert len(named.unique()) == len(named) == 4 + 5 + 2


@pytest.mark.parametrize("layer", decode.LAYERS)
def test_all_modes_decode_the_same_tokens(layer, tmp_path, capsys):
    picture = tmp_path / "build" / "picture.png"
    assert decode.serve(SMALL, LENGTHS, {layer: list(decode.MODES)}, 3, picture) == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(layer)]
    assert [line[-2:] for line in table] == [["the", "same"]] * len(decode.MODES)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_how_many_tokens_quantisation_leaves_is_said(tmp_path, capsys):
    eager_only = {"stages": ["eager"], "quantised": ["eager"]}
    assert decode.serve(SMALL, LENGTHS, eager_only, 2, tmp_path / "picture.png") == 0
    said = re.search(r"the first \[(.*)\] of (\d+) tokens", capsys.readouterr().out)
    assert all(0 <= int(count) <= int(said[2]) == 2 * decode.NEW_TOKENS for count in said[1].split(","))
    assert len(said[1].split(",")) == len(LENGTHS)


@pytest.fixture(scope="module", params=["stages", "quantised"])
def decoded(request):
    torch.manual_seed(0)
    server = decode.Server(SMALL, LENGTHS, 2)
    run = decode.Run(request.param, "eager")
    for _ in server.decode(run, 2):
        pass
    return run, server.first_arguments(request.param)


@pytest.mark.parametrize("wrong", ["tokens", "attention", "caches"])
def test_what_differs_is_a_failure(decoded, wrong):
    eager, arguments = decoded
    other = replace(eager, mode="GE static", tokens=list(eager.tokens), caches=dict(eager.caches))
    if wrong == "tokens":
        other.tokens[-1] = other.tokens[-1] + 1
    elif wrong == "attention":
        other.attention = other.attention + 1
    else:
        other.caches["kr_cache"] = other.caches["kr_cache"] + 1
    same = replace(eager, mode="GE dynamic")
    for run in (eager, other, same):
        decode.judge(run, eager, arguments)
    assert eager.verdict == same.verdict == "ok"
    assert other.verdict.startswith("FAILED")


def test_a_step_is_compiled_ahead_and_loaded_again(tmp_path, capsys):
    for _ in range(2):
        compiled_ahead.main(tmp_path)
        exported = "dynamo.pbtxt, export.air" + ", options.json" * torch_versions.EXPORT_WRITES_OPTIONS
        assert f"dynamo_export: {exported}\n" in capsys.readouterr().out
    assert len(list((tmp_path / "cache").rglob("compiled_module"))) == 1


def test_a_dynamic_graph_of_the_step_takes_other_batches():
    step = compiled_ahead.Step()
    with torch._dynamo.config.patch(fake_tensor_cache_enabled=False):
        graph = torch.compile(step, backend=torchair.get_npu_backend(), dynamic=True, fullgraph=True)
        for batch in (3, 5):
            arguments = compiled_ahead.inputs(batch)
            assert torch.equal(graph(*arguments).cpu(), step(*arguments).cpu())
