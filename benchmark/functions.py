# SPDX-License-Identifier: Apache-2.0
"""Times the functions that models call beside the best that torch's CPU side offers for the same arithmetic.

Sizes are those of Qwen3, Mixtral and DeepSeek-V3.2. Ours and the peers run in turns, several rounds; the table gives
medians, the fastest peer on the same arguments, how much longer ours takes, and what memory a call takes beside its
arguments and results. The last columns are the fastest of the peers whose operands were converted to float32 before
the call, which a model does not do.

    python benchmark/functions.py [--rounds N] [--cases NAME ...]
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass, field

os.environ.setdefault("OMP_PROC_BIND", "true")  # read when torch is loaded

import torch
import torch.nn.functional as F
import torch_npu
from measure import fastest, medians, peak_memory, progress


@dataclass(frozen=True)
class Case:
    ours: Callable
    peers: dict[str, Callable]
    results: int  # bytes of what ours returns
    prepared: dict[str, Callable] = field(default_factory=dict)  # on operands that were converted before


def size_of(*tensors: torch.Tensor) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32).to(dtype)


def of_dtypes(name: str, function: Callable, *tensors: torch.Tensor) -> tuple[dict[str, Callable], dict[str, Callable]]:
    """The function on tensors as they are, where ATen is fast on them, and on float32: the conversion is part of the
    call in the first results, and was before in the second."""

    def converted():
        return [tensor.float() if tensor.is_floating_point() else tensor for tensor in tensors]

    before = converted()
    peers = {f"{name}, to float32": lambda: function(*converted())}
    if (dtype := fastest(tensors[0].dtype)) is not torch.float32:
        peers[f"{name}, {dtype}"] = lambda: function(*tensors)
    return peers, {f"{name}, float32": lambda: function(*before)}


def decode() -> Case:
    """A decode step of Qwen3: 32 sequences of 8K keys in pages, 32 heads to 8 of the keys."""
    batch, keys, heads, key_heads, size, block = 32, 8192, 32, 8, 128, 128
    query = normal(batch, heads, 1, size)
    key, value = (normal(batch * keys // block, key_heads, block, size) for _ in range(2))
    table = torch.arange(batch * keys // block, dtype=torch.int32).view(batch, -1)
    options = {
        "num_heads": heads, "num_key_value_heads": key_heads, "scale": size**-0.5, "input_layout": "BNSD",
        "block_table": table.npu(), "block_size": block, "actual_seq_lengths_kv": [keys] * batch,
    }  # fmt: skip
    given = [x.npu() for x in (query, key, value)]

    def peer(query, key, value):
        by_sequence = (x.view(batch, -1, key_heads, block, size).transpose(1, 2).flatten(2, 3) for x in (key, value))
        return F.scaled_dot_product_attention(query, *by_sequence, enable_gqa=True)

    def ours():
        return torch_npu.npu_fused_infer_attention_score(*given, **options)

    peers, prepared = of_dtypes("SDPA of gathered pages", peer, query, key, value)
    contiguous = [x.view(batch, -1, key_heads, block, size).transpose(1, 2).flatten(2, 3) for x in (key, value)]

    def of_rows(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)

    more, prepared_rows = of_dtypes("SDPA", of_rows, query, *contiguous)
    return Case(ours, peers | more, size_of(query), prepared | prepared_rows)


def prefill() -> Case:
    """4K tokens of a prompt of Qwen3."""
    tokens, heads, key_heads, size = 4096, 32, 8, 128
    query, key, value = (normal(1, n, tokens, size) for n in (heads, key_heads, key_heads))
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1).npu()
    options = {
        "num_heads": heads, "num_key_value_heads": key_heads, "scale": size**-0.5, "input_layout": "BNSD",
        "atten_mask": mask, "sparse_mode": 3,
    }  # fmt: skip
    given = [x.npu() for x in (query, key, value)]

    def peer(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)

    def ours():
        return torch_npu.npu_fused_infer_attention_score(*given, **options)

    peers, prepared = of_dtypes("SDPA", peer, query, key, value)
    return Case(ours, peers, size_of(query), prepared)


def quantised_product(rows: int) -> Case:
    """Dynamic quantisation and the product of int8 with its scales, 4096 x 4096."""
    x, weight = normal(rows, 4096), torch.randint(-128, 128, (4096, 4096), dtype=torch.int8)
    scale = torch.rand(4096) / 1024
    wide, given, on_npu, scale_npu = weight.float(), x.npu(), weight.npu(), scale.npu()

    def ours():
        values, row_scale = torch_npu.npu_dynamic_quant(given)
        return torch_npu.npu_quant_matmul(
            values, on_npu, scale_npu, pertoken_scale=row_scale, output_dtype=torch.bfloat16
        )

    def quantised(multiply):
        row_scale = x.float().abs().amax(1, keepdim=True) / 127
        values = (x.float() / row_scale).round()
        return (multiply(values) * scale * row_scale).bfloat16()

    peers = {"to float32": lambda: quantised(lambda values: values @ weight.float())}
    if fastest(torch.int8) is torch.int8:
        peers["_int_mm"] = lambda: quantised(lambda values: torch._int_mm(values.to(torch.int8), weight).float())
    return Case(ours, peers, rows * 4096 * 2, {"float32": lambda: quantised(lambda values: values @ wide)})


def grouped_product() -> Case:
    """64 experts, 16 rows each on average."""
    experts, rows, depth, columns = 64, 1024, 2048, 1024
    x, weight = normal(rows, depth), normal(experts, depth, columns)
    ends = torch.sort(torch.randint(0, rows + 1, (experts - 1,), generator=torch.Generator().manual_seed(1))).values
    ends = torch.cat([ends, torch.tensor([rows])])
    given = [[x.npu()], [weight.npu()]]
    options = {"group_list": ends.npu(), "split_item": 3, "group_type": 0, "group_list_type": 0}

    def peer(x, weight):
        parts = x.tensor_split(ends[:-1])
        return torch.cat([torch.mm(part, weight[i]) for i, part in enumerate(parts)])

    def ours():
        return torch_npu.npu_grouped_matmul(*given, **options)

    peers, prepared = of_dtypes("a loop of mm", peer, x, weight)
    return Case(ours, peers, rows * columns * 2, prepared)


def routing() -> Case:
    """Gating of 4K tokens among 256 experts in groups, as DeepSeek-V3.2's, and their rows in the order of experts."""
    tokens, experts, groups, kept, k, size = 4096, 256, 8, 4, 8, 1024
    logits, bias, x = normal(tokens, experts, dtype=torch.float32), torch.rand(experts), normal(tokens, size)
    given, bias_npu, x_npu = logits.npu(), bias.npu(), x.npu()

    def ours():
        weights, chosen, _ = torch_npu.npu_moe_gating_top_k(
            given, k, bias=bias_npu, k_group=kept, group_count=groups, group_select_mode=1, renorm=0, norm_type=1,
            routed_scaling_factor=2.5,
        )  # fmt: skip
        rows = torch_npu.npu_moe_init_routing_v2(
            x_npu, chosen, active_num=tokens * k, expert_num=experts, expert_tokens_num_type=1,
            expert_tokens_num_flag=True, active_expert_range=[0, experts], quant_mode=-1,
        )  # fmt: skip
        return weights, rows

    def peer(logits, bias, x):
        share = logits.sigmoid()
        grouped = (share + bias).view(tokens, groups, -1)
        best = grouped.topk(2, -1).values.sum(-1).topk(kept, -1).indices
        hidden = torch.ones(tokens, groups, dtype=torch.bool).scatter_(1, best, False)
        chosen = grouped.masked_fill(hidden.unsqueeze(-1), 0).flatten(1).topk(k, -1).indices
        weights = share.gather(1, chosen)
        weights = weights / weights.sum(1, keepdim=True) * 2.5
        order = chosen.flatten().argsort(stable=True)
        return weights, x[order // k], order.argsort(), chosen.flatten().bincount(minlength=experts)

    compiled = torch.compile(peer)
    peers = {"ATen eager": lambda: peer(logits, bias, x), "inductor": lambda: compiled(logits, bias, x)}
    return Case(ours, peers, tokens * k * (size * 2 + 4 + 4 + 4))


def mla_decode() -> Case:
    """A decode step of DeepSeek-V3.2: 4 sequences of 8K keys, 128 heads to one latent key, which is the value."""
    batch, keys, heads, size, rope, block = 4, 8192, 128, 512, 64, 128
    query, query_rope = normal(batch, heads, 1, size), normal(batch, heads, 1, rope)
    key, key_rope = normal(batch * keys // block, 1, block, size), normal(batch * keys // block, 1, block, rope)
    table = torch.arange(batch * keys // block, dtype=torch.int32).view(batch, -1)
    given, ropes = [query.npu(), key.npu(), key.npu()], [query_rope.npu(), key_rope.npu()]
    options = {
        "num_heads": heads, "num_key_value_heads": 1, "scale": 192**-0.5, "input_layout": "BNSD",
        "block_table": table.npu(), "block_size": block, "actual_seq_lengths_kv": [keys] * batch,
    }  # fmt: skip

    def ours():
        return torch_npu.npu_fused_infer_attention_score(*given, query_rope=ropes[0], key_rope=ropes[1], **options)

    def peer(query, key):
        return ((query @ key.mT) * 192**-0.5).softmax(-1) @ key[..., :size]

    latent = torch.cat([key.view(batch, keys, size), key_rope.view(batch, keys, rope)], -1)
    both = torch.cat([query, query_rope], -1).squeeze(2)
    peers, prepared = of_dtypes("two products", peer, both, latent)
    return Case(ours, peers, size_of(query), prepared)


CASES = {
    "attention, decode, B 32, 8K keys": decode,
    "attention, prefill of 4K tokens": prefill,
    "dynamic quant and product, 1 row": lambda: quantised_product(1),
    "dynamic quant and product, 512 rows": lambda: quantised_product(512),
    "grouped product, 64 experts": grouped_product,
    "gating and routing of 4K tokens": routing,
    "MLA, decode, B 4, 8K keys": mla_decode,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES)
    arguments = parser.parse_args()
    print(f"{'':38}{'ms':>10}{'best peer, ms':>16}{'ratio':>8}{'MiB':>8}{'prepared, ms':>15}{'ratio':>8}  peer")
    for name in arguments.cases:
        progress(name)
        torch.manual_seed(0)
        case = CASES[name]()
        candidates = {"ours": [case.ours]}
        candidates |= {peer: [call] for peer, call in (case.peers | case.prepared).items()}
        for calls in candidates.values():
            calls[0]()  # the first call compiles, and fills caches
        memory = max(peak_memory(case.ours) - case.results, 0) / 2**20
        found = medians(candidates, arguments.rounds)
        best = min(case.peers, key=found.get)
        ours, prepared = found["ours"], min((found[peer] for peer in case.prepared), default=None)
        row = f"{name:38}{ours * 1e3:10.2f}{found[best] * 1e3:16.2f}{ours / found[best]:8.2f}{memory:8.1f}"
        row += f"{prepared * 1e3:15.2f}{ours / prepared:8.2f}" if prepared else " " * 23
        print(f"{row}  {best}", flush=True)


if __name__ == "__main__":
    main()
