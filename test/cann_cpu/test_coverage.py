# SPDX-License-Identifier: Apache-2.0
"""Which of the functions and node types that torch_npu names are served."""

import pathlib
import subprocess
import sys
from importlib.metadata import version

import pytest
from cann_cpu import coverage

HERE = pathlib.Path(__file__).parent
NPU = version("torch_npu")


def test_a_node_type_whose_aclnn_function_is_there_is_there():
    assert len(coverage.named_node_types()) > 350
    missing = coverage.named_node_types() - coverage.served_node_types()
    assert not {node_type for node_type in missing if "aclnn" + node_type in coverage.served_functions()}


FORMAT_CAST_QUERY = "aclnnNpuFormatCastCalculateSizeAndFormat"


def exported_functions() -> set[str]:
    library = f"{coverage.activation.LIBRARIES}/libopapi.so"
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in symbols.splitlines()}
    functions = {name for name in names if name.startswith("aclnn") and f"{name}GetWorkspaceSize" in names}
    return functions | {f"{name}GetMaxWorkspaceSize" for name in functions} & names | names & {FORMAT_CAST_QUERY}


def test_the_table_counts_what_torch_npu_names_and_libopapi_exports(capsys):
    assert coverage.main(None, missing=True) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    named, served = coverage.named_functions(), exported_functions()
    assert len(named) > 800 and {"aclnnAdd", "aclnnForeachMulScalarV2", FORMAT_CAST_QUERY} <= named & served
    assert "aclnnFusedInferAttentionScoreV4GetMaxWorkspaceSize" in named & served
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


def test_a_reader_that_takes_only_the_first_lines_sees_no_error():
    command = [sys.executable, "-m", "cann_cpu", "coverage", "--missing"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as printing:
        printing.stdout.close()
        assert printing.stderr.read() == ""
    assert printing.returncode == 1
