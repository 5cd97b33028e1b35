# SPDX-License-Identifier: Apache-2.0
"""What is served of what torch_npu names, and that no served function is without a test that runs it."""

import os
import pathlib
import subprocess
import sys
import textwrap
from importlib.metadata import version

import fresh
import pytest
import torch_versions
from cann_cpu import coverage

HERE = pathlib.Path(__file__).parent
NPU = version("torch_npu")

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
    assert len(coverage.served_functions()) > 500
    assert coverage.served_functions() - set(calls.read_text().split()) == torch_versions.UNCALLED


def test_a_node_type_whose_aclnn_function_is_there_is_there():
    assert len(coverage.named_node_types()) > 350
    missing = coverage.named_node_types() - coverage.served_node_types()
    assert {node_type for node_type in missing if "aclnn" + node_type in coverage.served_functions()} == set()


def exported_functions() -> set[str]:
    library = f"{coverage.activation.LIBRARIES}/libopapi.so"
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in symbols.splitlines()}
    return {name for name in names if name.startswith("aclnn") and f"{name}GetWorkspaceSize" in names}


def test_the_table_counts_what_torch_npu_names_and_libopapi_exports(capsys):
    assert coverage.main(None, missing=True) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    named, served = coverage.named_functions(), exported_functions()
    assert len(named) > 800 and {"aclnnAdd", "aclnnForeachMulScalarV2"} <= named & served
    assert first == f"{len(named & served)} of the {len(named)} aclnn functions that torch_npu {NPU} names are served"
    readme = (HERE.parents[1] / "README.md").read_text()
    assert f"{len(named & served)} of the {len(named)} aclnn functions that torch_npu names are served" in readme
    rows = [line.rsplit(maxsplit=2) for line in lines if line[:1].isalpha() and line[-1].isdigit()]
    assert [sum(int(row[i]) for row in rows) for i in (1, 2)] == [len(named & served), len(named)]
    listed = {line.strip() for line in lines if line.startswith("    ")}
    assert listed == (named - served) | (coverage.named_node_types() - coverage.served_node_types())


@pytest.mark.parametrize(
    ("name", "family"),
    {
        "aclnnFusedInferAttentionScoreV4": "attention, inference",
        "aclnnFlashAttentionScore": "attention, training",
        "aclnnMoeDistributeDispatchV2": "experts across ranks",
        "aclnnMoeGatingTopK": "mixture of experts",
        "aclnnQuantGroupedMatmulDequant": "grouped products",
        "aclnnQuantMatmulV5": "quantised products",
        "aclnnDynamicQuant": "quantisation",
        "aclnnKvRmsNormRopeCache": "rotary embeddings",
        "aclnnInplaceAddcmul": "tensors, others",
        "aclnnOfATorchNpuOfTomorrow": "tensors, others",
    }.items(),
)
def test_a_name_tells_the_family(name, family):
    assert coverage.family(name) == family


def test_a_file_that_names_a_function_which_is_not_served_fails_with_its_name(tmp_path, capsys):
    log, script = tmp_path / "run.log", tmp_path / "serve.py"
    log.write_text("[op] aclnnAddGetWorkspaceSize\n[op] aclnnAdd, aclnnBlendKvCache failed\n")
    assert coverage.main(str(log), missing=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"1 of the 2 aclnn functions that {log} names are served"
    assert lines[lines.index(f"{'paged caches':<26}{0:>8}{1:>8}") + 1] == "    aclnnBlendKvCache"
    script.write_text("x = torch_npu.npu_rms_norm(x, gamma)[0]\ny = torch.ops.npu.npu_nothing_of_torch_npu(x)\n")
    named = coverage.named_functions()
    assert coverage.functions_of(script.read_text(), named) == ({"aclnnRmsNorm"}, {"npu_nothing_of_torch_npu"})
    assert coverage.main(str(script), missing=False) == 0
    assert capsys.readouterr().out.endswith("    npu_nothing_of_torch_npu\n")


def test_what_cannot_be_read_is_named(tmp_path, capsys, monkeypatch):
    assert coverage.main(str(tmp_path / "nothing.log"), missing=False) == 2
    assert "nothing.log" in capsys.readouterr().err
    monkeypatch.setattr(coverage.importlib.util, "find_spec", lambda name: None)
    assert coverage.main(None, missing=False) == 2
    assert capsys.readouterr().err.startswith("cann_cpu: torch_npu is not installed: pip install 'torch_npu==")
