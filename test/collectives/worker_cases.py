# SPDX-License-Identifier: Apache-2.0
"""What the ranks run in the tests of attention and feed-forward workers: the first ranks are feed-forward workers, the
others send tokens to them. Every rank knows the tokens of all."""

import ctypes
import time

import torch
import torch.distributed as dist
import torch_npu
from cases import LIBRARY, Communicator, equal, error_of, root_info
from matmul_cases import name_of_group

from custom_pypto.modes import MODES

UNWRITTEN = 0x5A
MEBIBYTE = 1 << 20


def aligned(size):
    return -(-size // 512) * 512


class Layout:
    """A group of `workers` feed-forward ranks and, behind them, attention ranks, and the shapes of their tables."""

    def __init__(
        self, size, workers, tokens, hidden, chosen, experts, shared=1, micro_batches=1, layers=1, quant=False
    ):
        self.size, self.workers, self.sessions = size, workers, size - workers
        self.tokens, self.hidden, self.chosen, self.experts = tokens, hidden, chosen, experts
        self.shared, self.micro_batches, self.layers, self.quant = shared, micro_batches, layers, quant
        self.choices = chosen + shared
        self.info = [self.sessions, micro_batches, 2 + tokens * self.choices]
        self.data = [self.sessions, micro_batches, tokens, self.choices, hidden + 128 if quant else hidden + 3]
        self.returned_info = [micro_batches, tokens, self.choices]
        self.returned_data = [*self.returned_info, hidden + 5]
        generator = torch.Generator().manual_seed(17)
        self.table = torch.zeros(layers, experts + shared, 1 + 2 * workers, dtype=torch.int32)
        for layer in range(layers):
            for expert in range(experts + shared):
                copies = int(torch.randint(1, workers + 1, (), generator=generator))
                ranks = torch.randperm(workers, generator=generator)[:copies]
                numbers = torch.randint(0, 50, (copies,), generator=generator)
                self.table[layer, expert, 0] = copies
                self.table[layer, expert, 1 : 1 + 2 * copies] = torch.stack([ranks, numbers], 1).flatten()
        self.scales = torch.rand(layers, experts + shared, hidden, generator=generator) + 0.5

    def batch(self, session, dtype):
        """A session's tokens and their experts."""
        generator = torch.Generator().manual_seed(100 + session)
        x = torch.randn(1, self.tokens, self.hidden, generator=generator).to(dtype)
        ids = [torch.randperm(self.experts, generator=generator)[: self.chosen] for _ in range(self.tokens)]
        return x, torch.stack(ids).int().unsqueeze(0)

    def window(self, rank, window=None):
        """This rank's window, which torch_npu registers once for a group. Its bytes are UNWRITTEN, its flags 0."""
        is_worker = rank < self.workers
        peers = list(range(self.workers, self.size)) if is_worker else list(range(self.workers))
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("npu"))
        if window is None:
            backend._window_register_and_exchange(2 * MEBIBYTE, peers)
            window = backend._get_window_mem().view(torch.uint8)
        window.fill_(UNWRITTEN)
        info, _ = self.tables(rank, window, torch.float16)
        info.zero_() if not is_worker else info[:, :, 0].zero_()
        torch.npu.synchronize()
        dist.barrier()
        return window

    def tables(self, rank, window, dtype):
        """The two tables in a window of a rank, as views."""
        of_worker = rank < self.workers
        info, data = (self.info, self.data) if of_worker else (self.returned_info, self.returned_data)
        dtype = torch.int8 if of_worker and self.quant else dtype
        count, rows = torch.Size(info).numel(), torch.Size(data).numel() * dtype.itemsize
        begin = aligned(4 * count)
        flat = window.reshape(-1)
        return flat[: 4 * count].view(torch.int32).reshape(info), flat[begin : begin + rows].view(dtype).reshape(data)

    def arguments(self, session, dtype, micro_batch=0, layer=0):
        """What sends a session's tokens."""
        x, ids = self.batch(session, dtype)
        numbers = zip(("session_id", "micro_batch_id", "layer_id"), (session, micro_batch, layer), strict=True)
        tensors = {name: torch.tensor([number], dtype=torch.int32) for name, number in numbers}
        tensors |= {"x": x, "expert_ids": ids, "expert_rank_table": self.table}
        return {name: tensor.npu() for name, tensor in tensors.items()} | {
            "group": name_of_group(),
            "world_size": self.size,
            "ffn_token_info_table_shape": self.info,
            "ffn_token_data_shape": self.data,
            "attn_token_info_table_shape": self.returned_info,
            "moe_expert_num": self.experts,
            "quant_mode": 2 if self.quant else 0,
        }

    def send(self, session, dtype, micro_batch=0, layer=0, **options):
        torch_npu.npu_attention_to_ffn(**self.arguments(session, dtype, micro_batch, layer) | options)

    def sent(self, worker, dtype, micro_batch=0, layer=0, active=None, scaled=False, all_flags=True):
        """The tables that a feed-forward worker has after every session has sent one micro batch."""
        info = torch.full(self.info, int.from_bytes([UNWRITTEN] * 4, "little"), dtype=torch.int32)
        info[:, :, 0] = 0
        kind = torch.int8 if self.quant else dtype
        data = torch.full((torch.Size(self.data).numel() * kind.itemsize,), UNWRITTEN, dtype=torch.uint8)
        data = data.view(kind).reshape(self.data)
        for session in range(self.sessions):
            x, ids = self.batch(session, dtype)
            has_tokens = False
            for token in range(self.tokens if active is None else active):
                choices = ids[0, token].tolist() + list(range(self.experts, self.experts + self.shared))
                for choice, expert in enumerate(choices):
                    copies, *pairs = self.table[layer, expert].tolist()
                    place = session % copies
                    if pairs[2 * place] != worker:
                        continue
                    has_tokens = True
                    row = x[0, token]
                    if self.quant:
                        row = row.float() * (self.scales[layer, expert] if scaled else 1)
                        step = row.abs().max() / 127
                        row = torch.cat([(row / step).round().to(torch.int8), step.reshape(1).view(torch.int8)])
                    data[session, micro_batch, token, choice, : len(row)] = row
                    info[session, micro_batch, 2 + token * self.choices + choice] = pairs[2 * place + 1]
            if has_tokens or all_flags:
                info[session, micro_batch, :2] = torch.tensor([1, layer])
        return info, data


def check_sent(layout, rank, window, dtype, **options):
    """After a barrier, a feed-forward worker's tables are bitwise as expected."""
    torch.npu.synchronize()
    dist.barrier()
    if rank < layout.workers:
        for found, expected in zip(
            layout.tables(rank, window, dtype), layout.sent(rank, dtype, **options), strict=True
        ):
            assert torch.equal(found.cpu().view(torch.uint8), expected.view(torch.uint8))
    dist.barrier()


def tokens_to_workers(rank, size):
    """Tables of odd sizes: two micro batches, the second of two layers, padded rows, copies of experts."""
    window = None
    for dtype, tokens, hidden in ((torch.float16, 5, 7), (torch.bfloat16, 1, 64)):
        layout = Layout(size, 2, tokens, hidden, 2, 5, shared=2, micro_batches=2, layers=2)
        window = layout.window(rank, window)
        if rank >= layout.workers:
            layout.send(rank - layout.workers, dtype, micro_batch=1, layer=1)
        check_sent(layout, rank, window, dtype, micro_batch=1, layer=1)


def tokens_of_a_model(rank, size):
    """DeepSeek V3.2: 7168 wide, 8 of 256 experts and a shared one, quantised; a padded batch."""
    layout = Layout(size, 1, 4, 7168, 8, 256, quant=True)
    window = layout.window(rank)
    mask = torch.tensor([[True, True, True, False]]).npu()
    if rank >= layout.workers:
        layout.send(rank - layout.workers, torch.bfloat16, active_mask=mask, scales=layout.scales.npu())
        torch.npu.synchronize()
        flags, _ = layout.tables(rank, window, torch.bfloat16)
        equal(flags, torch.tensor([0, 0, 0, 1]).int().reshape(1, 4, 1).expand(1, 4, 9))
    check_sent(layout, rank, window, torch.bfloat16, active=3, scaled=True)


def only_workers_with_tokens(rank, size):
    """sync_flag 1 raises the flag of the workers that have received a token; 0 raises those of all."""
    window = None
    for sync in 1, 0:
        layout = Layout(size, 2, 1, 32, 1, 1, shared=0, quant=True)
        layout.table[0, 0] = torch.tensor([1, 1, 6, 0, 0])
        window = layout.window(rank, window)
        if rank >= layout.workers:
            layout.send(rank - layout.workers, torch.float16, sync_flag=sync)
        check_sent(layout, rank, window, torch.float16, all_flags=sync == 0)


def results_to_attention(rank, size):
    """A feed-forward worker returns rows to the attention workers that a table names, or to those from rank 0 on."""
    window = None
    for named in True, False:
        layout = Layout(size, 1, 3, 7, 2, 4, micro_batches=2)
        window = layout.window(rank, window)
        places = torch.cartesian_prod(*(torch.arange(n) for n in (2, *layout.returned_info)))
        count = len(places)
        x = torch.randn(count + 2, 7, generator=torch.Generator().manual_seed(3)).bfloat16()
        if rank == 0:
            padded = torch.cat([places, torch.full((2, 4), -1)]).int()
            session, micro_batch, token, choice = (column.npu() for column in padded.unbind(1))
            ranks = torch.tensor([2, 1], dtype=torch.int32).npu() if named else None
            torch_npu.npu_ffn_to_attention(
                x.npu(), session + (0 if named else 1), micro_batch, token, choice, torch.tensor([count]).npu(),
                name_of_group(), size, layout.returned_info, layout.returned_data, attn_rank_table=ranks,
            )  # fmt: skip
        torch.npu.synchronize()
        dist.barrier()
        if rank > 0:
            flags, rows = (table.cpu() for table in layout.tables(rank, window, torch.bfloat16))
            mine = 2 - rank if named else rank - 1
            expected = x[:count].reshape(2, *layout.returned_info, 7)[mine]
            equal(flags, torch.ones(layout.returned_info, dtype=torch.int32))
            equal(rows[..., :7], expected)
            assert (rows[..., 7:].contiguous().view(torch.uint8) == UNWRITTEN).all()
        dist.barrier()


def rounds(rank, size):
    """Some steps of one attention and one feed-forward worker, each with the schedule that waits for the other."""
    layout = Layout(size, 1, 6, 256, 2, 4, quant=True)
    layout.table[0] = torch.tensor([[1, 0, expert] for expert in range(5)])
    layout.data[-1], layout.returned_data[-1] = (
        aligned(256 + 128),
        256,
    )  # a schedule context wants multiples of 512 bytes
    window = layout.window(rank)
    options = {"session_num": 1, "micro_batch_num": 1, "micro_batch_size": 6, "selected_expert_num": 3, "expert_num": 5,
               "attn_to_ffn_token_size": layout.data[-1], "ffn_to_attn_token_size": 2 * layout.hidden}  # fmt: skip
    name = "ffn" if rank == 0 else "attention"
    options |= {f"{name}_window": window.data_ptr(), f"{name}_window_size": window.nbytes}
    holder = torch_npu._afd.create_schedule_context_holder(schedule_mode=rank, **options)
    context = holder.get_schedule_context_tensor()
    dist.barrier()
    weights = torch.rand(6, 2, generator=torch.Generator().manual_seed(9))
    x = layout.batch(0, torch.bfloat16)[0]
    for step in range(3):
        if rank == 0:
            rows, _, sessions, batches, tokens, choices, scales, count = torch_npu.npu_ffn_worker_batching(
                context, 5, [1, 6, 3, layout.hidden], token_dtype=2, need_schedule=1, layer_num=0
            )
            assert count.item() == 18 and rows.dtype == torch.int8
            result = (rows.float() * scales.unsqueeze(1) * (step + 1)).bfloat16()
            torch_npu.npu_ffn_to_attention(
                result, sessions, batches, tokens, choices, count.reshape(-1), name_of_group(), size,
                layout.returned_info, layout.returned_data, attn_rank_table=torch.tensor([1]).int().npu(),
            )  # fmt: skip
        else:
            layout.send(0, torch.bfloat16)
            one = torch.zeros(1, dtype=torch.int32).npu()
            y, _ = torch_npu.npu_attention_worker_combine(
                context, weights.npu(), one, layout.hidden, token_dtype=1, need_schedule=1
            )
            expected = x[0].float() * (step + 1) * (weights.sum(1, keepdim=True) + 1)
            torch.testing.assert_close(y.float().cpu(), expected, rtol=3e-2, atol=3e-2 * (step + 1))
        torch.npu.synchronize()
    holder.stop_schedule()
    dist.barrier()


def in_graphs(rank, size):
    """Each mode writes the tables that eager writes."""
    layout = Layout(size, 1, 5, 32, 2, 4)
    window = layout.window(rank)
    arguments = layout.arguments(0, torch.float16)
    x = arguments.pop("x")
    places = [torch.zeros(5, dtype=torch.int32).npu() for _ in range(4)]
    places[2] = torch.arange(5, dtype=torch.int32).npu()
    placing = (*places, torch.tensor([5]).npu(), name_of_group(), size, layout.returned_info, layout.returned_data)
    ranks = torch.tensor([1], dtype=torch.int32).npu()

    def attend(x):
        torch_npu.npu_attention_to_ffn(x, **arguments)
        return x + 1

    def back(x):
        torch_npu.npu_ffn_to_attention(x[0], *placing, attn_rank_table=ranks)
        return x + 1

    for mode in MODES:
        torch._dynamo.reset()
        info, data = layout.tables(rank, window, torch.float16)
        (info[:, :, 0] if rank == 0 else info).zero_()
        data.view(torch.uint8).fill_(UNWRITTEN)
        torch.npu.synchronize()
        dist.barrier()
        equal(MODES[mode](back if rank == 0 else attend)(x), x.cpu() + 1)
        check_sent(layout, rank, window, torch.float16)
        if rank == 1:
            equal(info[0, :, 0], torch.ones(5, dtype=torch.int32))
            equal(data[0, :, 0, :32], layout.batch(0, torch.float16)[0][0])
        dist.barrier()


def rejected(rank, size):
    layout = Layout(size, 1, 4, 32, 2, 4)
    without = error_of(lambda: layout.send(0, torch.float16)) if rank == 1 else ""
    window = layout.window(rank)
    if rank == 0:
        time.sleep(4)  # longer than the other rank waits for what this one does not take
        return []
    ids = layout.batch(0, torch.float16)[1]
    table = layout.table.clone()
    table[0, :, 1] = 1

    def error(**options):
        return error_of(lambda: layout.send(0, torch.float16, **options))

    found = [
        without,
        error(world_size=size + 1),
        error(session_id=torch.tensor([1], dtype=torch.int32).npu()),
        error(layer=1),
        error(expert_ids=ids.fill_(4).npu()),
        error(expert_rank_table=table.npu()),
        error(quant_mode=1),
        error(quant_mode=2),
        error(scales=layout.scales.npu()),
        error(sync_flag=2),
        error(ffn_token_info_table_shape=[1, 1, 3]),
        error(ffn_token_data_shape=[1, 1 << 20, 4, 3, 35], ffn_token_info_table_shape=[1, 1 << 20, 14],
              attn_token_info_table_shape=[1 << 20, 4, 3]),
        error(active_mask=torch.tensor([[True, False, True, False]]).npu()),
    ]  # fmt: skip
    layout.send(0, torch.float16)
    assert window is not None
    return [*found, error()]


def removed_in_use(rank, size):
    """A window is removed while a task that will look for it waits: the removal waits for the task."""
    layout = Layout(size, 1, 4, 32, 2, 4)
    window = layout.window(rank)
    if rank == 0:
        time.sleep(1.5)
        layout.tables(0, window, torch.float16)[0][:, :, 0].zero_()  # takes the tokens that were sent first
        torch.npu.synchronize()
        return ""
    mask = torch.tensor([[True, True, False, False]]).npu()
    library, comm = ctypes.CDLL(str(LIBRARY)), ctypes.c_void_p()
    assert library.HcomGetCommHandleByGroup(name_of_group().encode(), ctypes.byref(comm)) == 0

    def send_and_remove():
        layout.send(0, torch.float16, active_mask=mask)
        torch.npu.synchronize()
        layout.send(0, torch.float16, active_mask=mask)
        time.sleep(0.5)  # it waits on the stream
        assert library.HcclCommDeregister(comm, ctypes.c_void_p(window.data_ptr())) == 0

    return error_of(send_and_remove)


def registered(rank, size):
    """HcclCommRegister and its like: what they reject, and a window that begins inside an allocation."""
    roots = [root_info(rank, size) if rank == 0 else None]
    dist.broadcast_object_list(roots)
    comm = Communicator(rank, size, roots[0])
    memory = torch.zeros(4 * MEBIBYTE, dtype=torch.uint8).npu()
    handle, none = ctypes.c_void_p(), ctypes.c_void_p()
    peers = (ctypes.c_uint32 * 1)(1 - rank)

    def called(name, *arguments):
        comm.check(getattr(comm.library, name)(comm.handle, *arguments))

    def register(address, length, flag=0, into=handle):
        return called("HcclCommRegister", ctypes.c_void_p(address), ctypes.c_uint64(length), ctypes.byref(into), flag)

    def exchange(of=handle, to=peers):
        return called("HcclCommExchangeMem", of, to, len(to))

    rejected = [
        error_of(lambda: register(memory.data_ptr(), memory.nbytes, flag=1)),
        error_of(lambda: register(memory.data_ptr(), 0)),
        error_of(lambda: register(torch.zeros(4).data_ptr(), 16)),
        error_of(lambda: exchange(of=none)),
    ]
    register(memory.data_ptr() + 512, MEBIBYTE)
    rejected += [
        error_of(lambda: register(memory.data_ptr() + 512, MEBIBYTE, into=none)),
        error_of(lambda: exchange(to=(ctypes.c_uint32 * 1)(rank))),
        error_of(lambda: exchange(to=(ctypes.c_uint32 * 1)(size))),
    ]
    exchange()
    exchange()  # again, which maps what is mapped
    called("HcclCommDeregister", handle)
    rejected.append(error_of(lambda: called("HcclCommDeregister", handle)))
    comm.destroy()
    return rejected
