# SPDX-License-Identifier: Apache-2.0
"""Workers of attention and of feed-forward layers: the schedule context, the tables that it points to, and what comes
out of them. The layout is CANN's; each table is a tensor on the device."""

import struct
import time

import pytest
import torch
import torch_npu
from aclnn import Out, Rejected, written_by

from custom_pypto.modes import MODES

TAKEN = 0x7F7F7F7F
FEED_FORWARD, ATTENTION = 0, 1


class Tables:
    """A schedule context of so many sessions, micro batches, tokens and choices (experts of a token)."""

    def __init__(self, mode, sessions=1, micro_batches=1, tokens=1, choices=1, token_size=0, running=1, **given):
        self.sizes = (sessions, micro_batches, tokens, choices)
        rows = tokens * choices
        self.given = {
            "attention_info": torch.zeros(micro_batches, rows, dtype=torch.int32),
            "attention_data": None,
            "micro_batch_id": 0,
            "info": torch.full((sessions, micro_batches, 2 + rows), TAKEN, dtype=torch.int32),
            "data": None,
            "polling_index": 0,
            "layers": torch.full((sessions,), -1, dtype=torch.int32),
            "session_ids": torch.full((sessions,), -1, dtype=torch.int32),
            "micro_batch_ids": torch.full((sessions,), -1, dtype=torch.int32),
            "expert_ids": torch.full((sessions, rows), -1, dtype=torch.int32),
            "out_num": 0,
        } | given
        if "info" not in given:
            self.given["info"][:, :, 0] = 0
        self.on_device = {k: v.npu() for k, v in self.given.items() if isinstance(v, torch.Tensor)}
        torch.npu.synchronize()
        common = struct.pack("<7Ii96x", sessions, micro_batches, tokens, choices, 0, token_size, 0, mode)
        control = struct.pack("<i124x", running)
        attention = self.buffer("attention_info") + self.buffer("attention_data")
        attention += struct.pack("<I92x", self.given["micro_batch_id"])
        ffn = self.buffer("info") + self.buffer("data") + struct.pack("<Q88x", self.given["polling_index"])
        for name in "layers", "session_ids", "micro_batch_ids", "expert_ids":
            ffn += self.buffer(name)
        ffn += struct.pack("<I60x", self.given["out_num"])
        whole = common + control + attention + ffn + bytes(384)
        assert len(whole) == 1024
        self.context = torch.frombuffer(bytearray(whole), dtype=torch.int8).npu()
        torch.npu.synchronize()

    def buffer(self, name):
        table = self.on_device.get(name)
        return bytes(16) if table is None else struct.pack("<QQ", table.data_ptr(), table.nbytes)

    def field(self, offset, kind):
        return struct.unpack_from(kind, bytes(self.context.cpu().numpy().tobytes()), offset)[0]

    micro_batch_id = property(lambda self: self.field(256 + 32, "<I"))
    polling_index = property(lambda self: self.field(384 + 32, "<Q"))
    out_num = property(lambda self: self.field(384 + 192, "<I"))

    def __getitem__(self, name):
        return self.on_device[name].cpu()


def info(sessions, micro_batches, rows, ready, experts=50):
    """A table of descriptions: flag, layer and experts; ready is a set of (session, micro batch)."""
    table = torch.randint(0, experts, (sessions, micro_batches, 2 + rows), dtype=torch.int32)
    for s in range(sessions):
        for m in range(micro_batches):
            table[s, m, 0] = int((s, m) in ready)
            table[s, m, 1] = 10 * s + m
    return table


@pytest.mark.parametrize("last", [0, 1, 2])
def test_attention_scheduler_takes_the_next_micro_batch(last):
    flags = torch.zeros(3, 10, dtype=torch.int32)
    taken = (last + 1) % 3
    flags[taken] = 1
    flags[last, 3] = 1
    tables = Tables(ATTENTION, 1, 3, 5, 2, attention_info=flags, micro_batch_id=last)
    torch_npu.attention_worker_scheduler_(tables.context)
    assert tables.micro_batch_id == taken
    flags[taken] = 0
    assert torch.equal(tables["attention_info"], flags)


def test_attention_scheduler_waits_for_the_last_flag():
    tables = Tables(ATTENTION, tokens=5, choices=3, attention_info=torch.ones(1, 15, dtype=torch.int32))
    flags = tables.on_device["attention_info"]
    flags[0, 14] = 0
    torch.npu.synchronize()
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        torch_npu.attention_worker_scheduler_(tables.context)
    time.sleep(0.05)
    assert not side.query()
    flags[0, 14] = 1
    torch.npu.synchronize()
    assert torch.equal(tables["attention_info"], torch.zeros(1, 15, dtype=torch.int32))


@pytest.mark.parametrize("scheduler", ["attention_worker_scheduler_", "ffn_worker_scheduler_"])
def test_a_scheduler_changes_nothing_once_the_run_has_ended(scheduler):
    mode = ATTENTION if scheduler.startswith("attention") else FEED_FORWARD
    tables = Tables(mode, 2, 2, 2, 2, running=0, attention_info=torch.ones(2, 4, dtype=torch.int32),
                    info=info(2, 2, 4, {(0, 0), (1, 0)}))  # fmt: skip
    getattr(torch_npu, scheduler)(tables.context)
    for name in "attention_info", "info", "session_ids":
        assert torch.equal(tables[name], tables.given[name]), name
    assert (tables.micro_batch_id, tables.polling_index, tables.out_num) == (0, 0, 0)


@pytest.mark.parametrize(
    "group_size, polling, ready, expected",
    [
        (3, 1, {(0, 1), (1, 1), (2, 1), (0, 0)}, [(0, 1), (1, 1), (2, 1)]),
        (1, 0, {(0, 1), (2, 0), (2, 1)}, [(0, 1), (2, 0)]),
        (1, 0, {(1, 0)}, [(1, 0)]),
    ],
)
def test_feed_forward_scheduler_collects_what_is_ready(group_size, polling, ready, expected):
    torch.manual_seed(1)
    table = info(3, 2, 8, ready)
    data = torch.zeros(1, dtype=torch.int8)
    tables = Tables(FEED_FORWARD, 3, 2, 4, 2, info=table, data=data, polling_index=polling)
    torch_npu.ffn_worker_scheduler_(tables.context, sync_group_size=group_size)
    assert tables.out_num == len(expected)
    found = list(zip(tables["session_ids"].tolist(), tables["micro_batch_ids"].tolist(), strict=True))
    assert found[: len(expected)] == expected
    for i, (session, batch) in enumerate(expected):
        assert tables["layers"][i] == table[session, batch, 1]
        assert torch.equal(tables["expert_ids"][i], table[session, batch, 2:])
        table[session, batch, 2:] = TAKEN
        table[session, batch, 0] = 0
    assert torch.equal(tables["info"], table)
    assert tables.polling_index == ((polling + 1) % 2 if group_size == 3 else polling)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tokens, k, hidden, has_shared", [(1, 1, 8, True), (65, 8, 7, True), (5, 3, 1024, False)])
@pytest.mark.parametrize("need_schedule", [0, 1])
def test_combine_weights_the_experts_and_adds_the_shared_one(dtype, tokens, k, hidden, has_shared, need_schedule):
    torch.manual_seed(2)
    data = torch.randn(3, tokens, k + has_shared, hidden).to(dtype)
    flags = torch.zeros(3, tokens * (k + has_shared), dtype=torch.int32)
    taken = 2 if need_schedule else 1
    flags[2] = 1
    tables = Tables(ATTENTION, 1, 3, tokens, k + has_shared, attention_info=flags, attention_data=data,
                    micro_batch_id=1)  # fmt: skip
    scales = torch.rand(tokens, k)
    y, layer = torch_npu.npu_attention_worker_combine(
        tables.context, scales.npu(), torch.tensor([6], dtype=torch.int32).npu(), hidden,
        token_dtype=int(dtype == torch.bfloat16), need_schedule=need_schedule,
    )  # fmt: skip
    exact = (data[taken, :, :k].double() * scales.double().unsqueeze(2)).sum(1)
    if has_shared:
        exact += data[taken, :, k].double()
    torch.testing.assert_close(y.cpu().double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-5)
    assert layer.tolist() == [7] and y.dtype == dtype
    assert tables.micro_batch_id == taken
    if need_schedule:
        flags[2] = 0
    assert torch.equal(tables["attention_info"], flags)


def batched(experts, sessions, batches, tokens, choices, expert_num):
    """By expert, then by session and place: (session, micro batch, token, choice)."""
    rows = [
        (int(expert), s, b, i // choices, i % choices)
        for s, b, of_session in zip(sessions, batches, experts, strict=True)
        for i, expert in enumerate(of_session)
        if expert < expert_num
    ]
    order = sorted(range(len(rows)), key=lambda i: rows[i][0])
    return [rows[i] for i in order]


@pytest.mark.parametrize("token_dtype, dtype", list(enumerate([torch.float16, torch.bfloat16, torch.int8])))
@pytest.mark.parametrize("need_schedule", [0, 1])
@pytest.mark.parametrize("sessions, tokens, choices, hidden", [(3, 5, 3, 16), (1, 1, 1, 7), (4, 67, 9, 24)])
def test_batching_sorts_the_tokens_by_expert(token_dtype, dtype, need_schedule, sessions, tokens, choices, hidden):
    torch.manual_seed(3)
    micro_batches, experts, rows = 2, 6, tokens * choices
    size = 64 + hidden * dtype.itemsize
    data = torch.randint(-128, 128, (sessions, micro_batches, tokens, choices, size), dtype=torch.int8)
    scales = torch.rand(sessions, micro_batches, tokens, choices)
    if dtype == torch.int8:
        data[..., hidden : hidden + 4] = scales.unsqueeze(-1).view(torch.int8)
    described = info(sessions, micro_batches, rows, {(s, 1) for s in range(sessions)}, experts)
    described[:, :, 2:][torch.rand(sessions, micro_batches, rows) > 0.7] = TAKEN
    ids = list(reversed(range(sessions)))[: max(1, sessions - 1)]  # the sessions that a scheduler has collected
    batches = [i % micro_batches for i in range(len(ids))]
    expert_ids = torch.full((sessions, rows), -1, dtype=torch.int32)
    for i, (s, b) in enumerate(zip(ids, batches, strict=True)):
        expert_ids[i] = described[s, b, 2:]
    padded = lambda values: torch.tensor(values + [-1] * (sessions - len(values)), dtype=torch.int32)  # noqa: E731
    tables = Tables(
        FEED_FORWARD, sessions, micro_batches, tokens, choices, token_size=size, info=described, data=data,
        session_ids=padded(ids), micro_batch_ids=padded(batches), expert_ids=expert_ids, out_num=len(ids),
        polling_index=1,
    )  # fmt: skip
    found = torch_npu.npu_ffn_worker_batching(
        tables.context, experts, [sessions + 1, tokens, choices, hidden], token_dtype=token_dtype,
        need_schedule=need_schedule,
    )  # fmt: skip
    y, groups, session_ids, batch_ids, token_ids, offsets, dynamic, count = (t.cpu() for t in found)
    if need_schedule:
        ids, batches = list(range(sessions)), [1] * sessions
        expert_ids = described[:, 1, 2:].clone()
    expected = batched(expert_ids[: len(ids)].tolist(), ids, batches, tokens, choices, experts)
    assert count.tolist() == [len(expected)]
    places = torch.stack([session_ids, batch_ids, token_ids, offsets], 1)[: len(expected)]
    assert places.tolist() == [list(row[1:]) for row in expected]
    assert y.shape == ((sessions + 1) * rows, hidden) and y.dtype == dtype
    for i, (_, s, b, token, choice) in enumerate(expected):
        assert torch.equal(y[i].view(torch.int8), data[s, b, token, choice, : hidden * dtype.itemsize]), i
        assert dtype != torch.int8 or dynamic[i] == scales[s, b, token, choice]
    numbers = [row[0] for row in expected]
    counts = [[e, numbers.count(e)] for e in sorted(set(numbers))]
    assert groups.tolist() == counts + [[0, 0]] * (experts - len(counts))
    if need_schedule:
        described[:, 1, 2:] = TAKEN
        described[:, 1, 0] = 0
    assert torch.equal(tables["info"], described)
    assert tables.polling_index == (0 if need_schedule else 1)


@pytest.mark.parametrize("mode", ["GE static", "GE dynamic", "reduce-overhead"])
def test_graphs_do_what_eager_does(mode):
    """A scheduler changes a copy of the context, which the next function reads."""
    torch.manual_seed(4)
    flags = torch.zeros(2, 15, dtype=torch.int32)
    flags[1] = 1
    returned, scales, layer = torch.randn(2, 5, 3, 6).half(), torch.rand(5, 2).npu(), torch.ones(1).int().npu()
    described = info(2, 2, 15, {(0, 0), (1, 0)}, experts=4)
    sent = torch.randn(2, 2, 5, 3, 6).half()
    results = []

    def of_attention(context, scales, layer):
        scheduled = torch.ops.npu.attention_worker_scheduler(context)
        return scheduled, *torch_npu.npu_attention_worker_combine(scheduled, scales, layer, 6)

    def of_feed_forward(context):
        scheduled = torch.ops.npu.ffn_worker_scheduler(context)
        return scheduled, *torch_npu.npu_ffn_worker_batching(scheduled, 4, [2, 5, 3, 6])

    for way in "eager", mode:
        torch._dynamo.reset()
        first = Tables(ATTENTION, 1, 2, 5, 3, attention_info=flags, attention_data=returned)
        second = Tables(FEED_FORWARD, 2, 2, 5, 3, 12, info=described, data=sent)
        found = (*MODES[way](of_attention)(first.context, scales, layer), *MODES[way](of_feed_forward)(second.context))
        torch.npu.synchronize()
        assert not first["attention_info"].any() and not second["info"][:, 0, 0].any(), way
        assert first.micro_batch_id == 0 and second.out_num == 0, way  # of the original, not of the copy
        first.context, second.context = found[0], found[3]
        assert (first.micro_batch_id, second.out_num) == (1, 2), way
        results.append([t.cpu() for t in (*found[1:3], *found[4:10], found[11])])
    for eager, in_graph in zip(*results, strict=True):
        assert torch.equal(eager, in_graph)


def combine(tables, k=2, hidden=4, **options):
    scales = torch.rand(tables.sizes[2], k).npu()
    layer = torch.zeros(1, dtype=torch.int32).npu()
    return torch_npu.npu_attention_worker_combine(tables.context, scales, layer, hidden, **options)


def attention(**given):
    return Tables(ATTENTION, 1, 2, 3, 3, attention_data=torch.zeros(2, 3, 3, 4).half(), **given)


def feed_forward(**given):
    return Tables(FEED_FORWARD, **{"sessions": 2, "tokens": 3, "choices": 2, "token_size": 8,
                                   "data": torch.zeros(2 * 3 * 2 * 8, dtype=torch.int8), **given})  # fmt: skip


def vast():
    tables = feed_forward()
    tables.context[4:16] = torch.full((3,), 2**31 - 1, dtype=torch.int32).view(torch.int8).npu()
    torch.npu.synchronize()
    return tables


def batching(tables, shape=(2, 3, 2, 4), experts=4, **options):
    return torch_npu.npu_ffn_worker_batching(tables.context, experts, list(shape), **options)


def ready(experts):
    return {
        "session_ids": torch.arange(2, dtype=torch.int32),
        "micro_batch_ids": torch.zeros(2, dtype=torch.int32),
        "expert_ids": torch.full((2, 6), experts, dtype=torch.int32),
        "out_num": 2,
    }


WRONG = {
    "short context": (
        lambda: torch_npu.attention_worker_scheduler_(torch.zeros(512, dtype=torch.int8).npu()),
        "schedule_context has shape [512]; expected [1024]",
    ),
    "mode": (
        lambda: torch_npu.ffn_worker_scheduler_(attention().context),
        "schedule_context.schedule_mode is 1; expected 0",
    ),
    "no table": (
        lambda: torch_npu.attention_worker_scheduler_(attention(attention_info=None).context),
        "schedule_context.attention.token_info_buf is null",
    ),
    "small table": (
        lambda: torch_npu.attention_worker_scheduler_(attention(attention_info=torch.ones(17).int()).context),
        "schedule_context.attention.token_info_buf_size is 68; expected at least 72",
    ),
    "sizes": (lambda: torch_npu.ffn_worker_scheduler_(vast().context), "more than there is memory for"),
    "micro batch": (lambda: combine(attention(micro_batch_id=2)), "micro_batch_id is 2; expected 0 to 1"),
    "polling index": (lambda: batching(feed_forward(polling_index=1)), "ffn.polling_index is 1; expected 0 to 0"),
    "group size": (
        lambda: torch_npu.ffn_worker_scheduler_(feed_forward(sessions=3).context, sync_group_size=2),
        "sync_group_size is 2; expected a divisor of the 3 sessions",
    ),
    "execute mode": (
        lambda: torch_npu.ffn_worker_scheduler_(feed_forward().context, execute_mode=1),
        "execute_mode is 1; expected 0 to 0",
    ),
    "choices": (lambda: combine(attention(), k=1), "selected_expert_num is 3; expected 2 or 1"),
    "ended": (lambda: combine(attention(running=0), need_schedule=1), "run_flag is 0 before all results have arrived"),
    "token size": (lambda: batching(feed_forward(token_size=7)), "attn_to_ffn_token_size is 7; expected at least 8"),
    "scale's place": (
        lambda: batching(feed_forward(), (2, 3, 2, 8), token_dtype=2),
        "attn_to_ffn_token_size is 8; expected at least 12",
    ),
    "sessions": (lambda: batching(feed_forward(out_num=3)), "ffn.out_num is 3; expected 0 to 2"),
    "expert": (lambda: batching(feed_forward(**ready(4))), "ffn.expert_ids[0, 0] is 4; expected 0 to 3"),
    "places": (lambda: batching(feed_forward(**ready(1)), (1, 3, 2, 4)), "expected place for 12 rows"),
    "layers": (lambda: batching(feed_forward(), layer_num=5), "layer_num is 5; expected 0 to 4"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case):
    run, text = WRONG[case]
    with pytest.raises(RuntimeError) as error:
        run()
        torch.npu.synchronize()
    assert text in str(error.value), str(error.value)


def test_the_dtypes_are_those_of_token_dtype():
    context, scales = attention().context, torch.rand(3, 2).npu()
    layer = torch.zeros(1, dtype=torch.int32).npu()
    with pytest.raises(Rejected) as error:
        written_by(
            "aclnnAttentionWorkerCombine",
            context,
            scales,
            layer,
            4,
            1,
            0,
            Out((3, 4), torch.float16),
            Out((1,), torch.int32),
        )
    assert "y has dtype Half; expected BFloat16, as token_dtype says" in str(error.value)
