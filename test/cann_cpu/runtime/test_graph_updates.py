# SPDX-License-Identifier: Apache-2.0
"""Captured attention whose lengths are lists of the host, updated as serving programs do it in torch_npu."""

from functools import partial

import pytest
import torch
import torch_npu

HEADS, KEY_HEADS, SIZE, BLOCK = 4, 2, 32, 16
LENGTHS = [[20, 9, 33], [1, 64, 7], [40, 40, 40], [64, 1, 2]]


@pytest.fixture(scope="module")
def tensors():
    """Queries of three sequences, their keys and values in blocks, and the table of the blocks."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(shape, generator=generator).half().npu()

    blocks = torch.randperm(12, generator=generator).reshape(3, 4).int().npu()
    keys, values = (random(12, BLOCK, KEY_HEADS * SIZE) for _ in "kv")
    return {"query": random(3, 1, HEADS * SIZE), "key": keys, "value": values, "block_table": blocks}


OPTIONS = {
    "num_heads": HEADS, "num_key_value_heads": KEY_HEADS, "scale": SIZE**-0.5, "input_layout": "BSH",
    "block_size": BLOCK,
}  # fmt: skip


def eager(tensors, lengths):
    return torch_npu.npu_fused_infer_attention_score(**tensors, **OPTIONS, actual_seq_lengths_kv=lengths)[0].cpu()


class Attention:
    """A captured call with an external wait before it, and what doubles its result behind it."""

    def __init__(self, tensors, lengths):
        self.arguments = tensors | OPTIONS
        self.out = torch.empty_like(tensors["query"])
        self.sums = torch.empty(0, device="npu")
        self.workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(
            **self.arguments, actual_seq_lengths_kv=lengths
        )
        self.graph, self.update_stream = torch.npu.NPUGraph(), torch.npu.Stream()
        torch.npu.synchronize()
        with torch.npu.graph(self.graph):
            stream = torch.npu.current_stream()
            self.event = torch.npu.ExternalEvent()
            self.event.wait(stream)
            self.event.reset(stream)
            torch.npu.graph_task_group_begin(stream)
            self.call(lengths)
            self.handle = torch.npu.graph_task_group_end(stream)
            self.doubled = self.out * 2

    def call(self, lengths):
        torch_npu.npu_fused_infer_attention_score.out(
            **self.arguments, actual_seq_lengths_kv=lengths, workspace=self.workspace, out=[self.out, self.sums]
        )

    def update(self, call):
        with torch.npu.stream(self.update_stream):
            torch.npu.graph_task_update_begin(self.update_stream, self.handle)
            call()
            torch.npu.graph_task_update_end(self.update_stream)
            self.event.record(self.update_stream)


@pytest.mark.parametrize("replays_first", [False, True])
def test_a_replay_after_an_update_is_bitwise_equal_to_the_eager_call(tensors, replays_first):
    attention = Attention(tensors, LENGTHS[0])
    for lengths in LENGTHS[1:] + LENGTHS:
        attention.out.zero_()
        torch.npu.synchronize()
        if replays_first:  # the graph waits for the update
            attention.graph.replay()
        attention.update(partial(attention.call, lengths))
        if not replays_first:
            attention.graph.replay()
        torch.npu.synchronize()
        expected = eager(tensors, lengths)
        assert torch.equal(attention.out.cpu(), expected)
        assert torch.equal(attention.doubled.cpu(), expected * 2)


def test_an_update_by_other_kernels_fails_and_the_next_replay_runs_the_old_ones(tensors):
    attention = Attention(tensors, LENGTHS[0])
    with pytest.raises(RuntimeError, match="error code is 507000") as failure:
        attention.update(lambda: torch.add(attention.out, 1, out=attention.out))
    assert "the update has aclnn" in str(failure.value)
    with pytest.raises(RuntimeError, match="the task group has 1 tasks, and the update has 2"):
        attention.update(lambda: [attention.call(LENGTHS[1]) for _ in range(2)])
    attention.event.record(attention.update_stream)
    attention.graph.replay()
    torch.npu.synchronize()
    assert torch.equal(attention.out.cpu(), eager(tensors, LENGTHS[0]))


def test_an_update_of_paged_attention_whose_lengths_are_a_tensor_of_the_host(tensors):
    query = tensors["query"].view(3, HEADS, SIZE)
    caches = {f"{name}_cache": tensors[name].view(12, BLOCK, KEY_HEADS, SIZE) for name in ("key", "value")}
    options = {"num_kv_heads": KEY_HEADS, "num_heads": HEADS, "scale_value": SIZE**-0.5}
    arguments = {"query": query, "block_table": tensors["block_table"]} | caches | options

    def call(lengths, out, **workspace):
        torch_npu._npu_paged_attention(**arguments, context_lens=torch.tensor(lengths).int(), out=out, **workspace)

    out = torch.empty_like(query)
    workspace = torch_npu._npu_paged_attention_get_workspace(
        **arguments, context_lens=torch.tensor(LENGTHS[0]).int(), out=out
    )
    graph, update_stream = torch.npu.NPUGraph(), torch.npu.Stream()
    with torch.npu.graph(graph):
        torch.npu.graph_task_group_begin(torch.npu.current_stream())
        call(LENGTHS[0], out, workspace=workspace)
        handle = torch.npu.graph_task_group_end(torch.npu.current_stream())
    for lengths in LENGTHS:
        with torch.npu.stream(update_stream):
            torch.npu.graph_task_update_begin(update_stream, handle)
            call(lengths, out, workspace=workspace)
            torch.npu.graph_task_update_end(update_stream)
        update_stream.synchronize()
        graph.replay()
        expected = torch.empty_like(query)
        call(lengths, expected)
        torch.npu.synchronize()
        assert torch.equal(out.cpu(), expected.cpu())


def test_torch_npus_own_update_of_captured_attention(tensors):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        out, _ = torch_npu.npu_fused_infer_attention_score(**tensors, **OPTIONS, actual_seq_lengths_kv=LENGTHS[0])
    for lengths in LENGTHS:
        graph.replay()
        graph.update(cpu_update_input=[{"actual_seq_lengths_kv": lengths}])
        torch.npu.synchronize()
        assert torch.equal(out.cpu(), eager(tensors, lengths))


def test_what_torch_npu_says_of_wrong_brackets():
    stream = torch.npu.Stream()
    with pytest.raises(RuntimeError, match="error code is 107029"):
        torch.npu.graph_task_group_begin(stream)
    with pytest.raises(RuntimeError, match="error code is 107033"):
        torch.npu.graph_task_update_end(stream)
    graph = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError, match="error code is 107033"), torch.npu.graph(graph):
        torch.npu.graph_task_group_begin(torch.npu.current_stream())
