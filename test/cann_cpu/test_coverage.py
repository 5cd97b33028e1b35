# SPDX-License-Identifier: Apache-2.0
"""No aclnn function is without a test that runs it: every table of the suite, once and small, and what it calls."""

import os
import pathlib
import sys
import textwrap

import fresh
import torch_versions
from served import aclnn_functions, converted_types, node_types

HERE = pathlib.Path(__file__).parent

# Every table of the suite, one dtype and one shape each: that the results are right is the tables' own tests.
SWEEP = """
import contextlib
import test_aclnn_functions as functions
import test_fused_operators as fused
import test_more_operators as more
import test_nodes
import test_operators as operators
import test_random
import torch
from aclnn import written_by


def first(operator):
    dtype = torch.float32 if torch.float32 in operator.dtypes else operator.dtypes[0]
    shape = next((shape for shape in operator.shapes if shape and 0 not in shape), operator.shapes[0])
    return operators.to_npu(operator.arguments(shape, dtype))


for operator in operators.TABLE:
    result = operator.function(*first(operator))
    if operator.inplace:
        with contextlib.suppress(RuntimeError):
            self, *rest = first(operator)
            getattr(self, operator.inplace)(*rest)
    if operator.out:
        operator.function(*first(operator), out=torch.empty_like(result))
    if operator.gradient:
        result = operators.flatten(operator.function(*first(operator)))[0]
        operators.gradients(operator, first(operator), torch.ones_like(result))
for name, (function, inputs) in more.CASES.items():
    function(*(x.npu() for x in inputs))
for name in more.DIFFERENTIABLE:
    more.test_gradient_is_that_of_the_cpu(name)
for create in operators.CREATIONS.values():
    create(torch.float32, "npu")
for draw in test_random.DRAWS.values():
    draw()
for node_type, cases in test_nodes.CASES.items():
    for inputs, function, _, attributes in cases:
        expected = test_nodes.as_tuple(function(*(x for x in inputs if x is not None)))
        test_nodes.run_node(node_type, inputs, expected, **attributes)
test_nodes.test_dropout_keeps_what_its_mask_says()
for name, (arguments, _) in functions.CASES.items():
    written_by(name, *arguments)
for name, arguments, _ in fused.CASES.values():
    written_by(name, *arguments)
fused.test_products_with_a_collective_of_one_rank()
for options in fused.LSTMS.values():
    fused.lstm_and_gradients("npu", options, fused.lstm_by_aclnn)
for name in functions.DRAWS:
    functions.test_seeds_in_device_memory_draw_the_same_numbers(name)
for name in functions.NORMALS:
    functions.test_normal_numbers_have_their_mean_and_deviation(name)
functions.test_dropout_scales_what_its_mask_keeps()
functions.test_rrelu_draws_the_slopes_of_negative_numbers()
torch.npu.synchronize()
"""


def test_no_aclnn_function_is_without_a_test(tmp_path):
    calls = tmp_path / "calls"
    folders = [HERE / "operators", HERE / "graph_engine", HERE.parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"CANN_CPU_CALLS": str(calls), "PYTHONPATH": os.pathsep.join(map(str, folders))}
    result = fresh.run([sys.executable, "-c", textwrap.dedent(SWEEP)], env=environment, timeout=600)
    assert result.returncode == 0, result.stderr[-3000:]
    assert len(aclnn_functions()) > 500
    assert aclnn_functions() - set(calls.read_text().split()) == torch_versions.UNCALLED


def test_a_node_type_whose_aclnn_function_is_there_is_there():
    assert len(converted_types()) > 350
    missing = converted_types() - node_types()
    assert {node_type for node_type in missing if "aclnn" + node_type in aclnn_functions()} == set()
