# SPDX-License-Identifier: Apache-2.0
"""What users reported of other packages' operators, tried with ours."""

import gc
import os

import add_custom_calls
import pytest
import torch
from calls import EVERY_CALL, arguments_of, assert_caches_same, assert_same, copied, on, overload

import custom_pypto  # noqa: F401
from custom_pypto.authoring import check


@pytest.fixture
def aliases_are_errors():
    """What CI=1 in the environment does where torch has the check, from 2.12 on."""
    config = torch._functorch.config
    names = [name for name in ("check_custom_op_aliasing", "error_on_custom_op_aliasing") if hasattr(config, name)]
    with config.patch({name: True for name in names}):
        yield


def by_aot_eager(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize(("operator", "call"), EVERY_CALL)
def test_no_result_aliases_an_input_in_a_graph_of_aot_eager(operator, call, aliases_are_errors):
    """pytorch #182006: with CI=1 a graph with vLLM's indexer, which returns an argument, is an error."""
    arguments = arguments_of(operator, call)
    expected, op = copied(arguments), overload(operator, arguments)
    assert_same(by_aot_eager(lambda given: op(**given))(arguments), op(**expected))
    assert_caches_same(operator, arguments, expected)


@pytest.mark.parametrize("operator", add_custom_calls.SAMPLES)
def test_nor_does_one_of_add_custom_and_its_gradient(operator, aliases_are_errors):
    for make in add_custom_calls.SAMPLES[operator].calls.values():
        arguments = on("npu", make())
        op = getattr(torch.ops.custom_pypto, operator)
        expected = op(**arguments)
        found = by_aot_eager(lambda given: op(**given))(arguments)  # noqa: B023
        assert check.same(found, expected)


@pytest.mark.skipif(
    not hasattr(torch._functorch.config, "error_on_custom_op_aliasing"), reason="this torch does not look for aliases"
)
def test_a_result_that_does_is_found(aliases_are_errors):
    with torch.library._scoped_library("custom_pypto_aliases", "DEF") as library:
        library.define("f(Tensor x) -> Tensor", tags=[torch.Tag.pt2_compliant_tag])
        library.impl("f", lambda x: x.view(-1), "PrivateUse1")
        library.impl("f", lambda x: x.new_empty(x.numel()), "Meta")
        with pytest.raises(RuntimeError, match="may not alias any inputs"):
            by_aot_eager(torch.ops.custom_pypto_aliases.f)(torch.ones(2, 3).npu())


def resident() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.unchecked(reason="a check remembers every call")
def test_calls_with_a_str_argument_keep_no_memory():
    """pytorch #191340: an operator of torch's stable interface kept each of its strings, 48 bytes a call."""
    write = torch.ops.custom_pypto.reshape_and_cache.key
    key, cache, slots = torch.ones(1, 1, 8).npu(), torch.zeros(1, 1, 1, 8).npu(), torch.tensor([0]).npu()

    def calls(count):
        for i in range(count):
            write(key, cache, slots, cache_layout="ND")
            if i % 100 == 0:
                torch.npu.synchronize()
        torch.npu.synchronize()

    calls(10_000)
    growth = []
    for _ in range(3):  # the allocator of the host grows once
        before = resident()
        calls(33_000)
        growth.append(resident() - before)
    assert min(growth) < 2**19  # 16 bytes a call
