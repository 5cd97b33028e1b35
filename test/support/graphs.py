# SPDX-License-Identifier: Apache-2.0
"""The modes in which a function is compared with its eager call: GE's static and dynamic graphs, and captured ones."""

import torch
import torch_npu  # noqa: F401
import torchair


def compiled(function, *, dynamic):
    """The function as one graph of the Graph Engine."""
    torch._dynamo.reset()
    return torch.compile(function, backend=torchair.get_npu_backend(), dynamic=dynamic, fullgraph=True)


def captured(function):
    """The function captured with the arguments of its call, then replayed once."""

    def replayed(*arguments, **options):
        graph = torch.npu.NPUGraph()
        torch.npu.synchronize()
        with torch.npu.graph(graph):
            results = function(*arguments, **options)
        graph.replay()
        return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, results)  # the graph's memory ends with it

    return replayed


MODES = {
    "static": lambda function: compiled(function, dynamic=False),
    "dynamic": lambda function: compiled(function, dynamic=True),
    "captured": captured,
}


def flat(outputs):
    return [outputs] if isinstance(outputs, torch.Tensor) else [leaf for output in outputs for leaf in flat(output)]


def assert_same_bits(actual, expected):
    for got, want in zip(flat(actual), flat(expected), strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        got, want = got.detach().cpu().contiguous(), want.detach().cpu().contiguous()
        if got.dtype.is_floating_point:
            same = (got == want) | (got.isnan() & want.isnan())
            assert same.all(), f"{int((~same).sum())} of {same.numel()} differ: {got[~same][:4]} {want[~same][:4]}"
        else:
            assert torch.equal(got, want)
