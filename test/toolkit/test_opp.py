# SPDX-License-Identifier: Apache-2.0
"""custom_pypto's operator package is built by CANN's names alone, and as it is built for NPUs its functions compute."""

import re
import subprocess

import aclnn
import pytest
import references
import torch
from kernels import in_a_process, in_blocks, to_npu
from operator_project import OPP

from custom_pypto.graph.prototypes import snake_case

# The functions of CANN's package ASC, as its documentation has them.
PUBLISHED = {
    "npu_op_package",
    "npu_op_code_gen",
    "npu_op_library",
    "npu_op_kernel_options",
    "npu_op_kernel_sources",
    "npu_op_kernel_library",
    "npu_op_device_tiling_library",
    "npu_op_package_add",
}
WRITTEN = ("input_tokens", "input_positions", "seq_lens", "slot_mapping")


def test_the_build_calls_published_functions_alone():
    text = re.sub(r"#.*", "", (OPP / "CMakeLists.txt").read_text())
    commands = set(re.findall(r"^\s*(\w+)\(", text, flags=re.MULTILINE))
    cmake = subprocess.run(["cmake", "--help-command-list"], capture_output=True, text=True, check=True).stdout.split()
    assert commands - set(cmake) - PUBLISHED == {"cann_cpu_kernels"}
    for_cpu = text[text.rindex("if(cann_cpu_FOUND AND cpu_sources)") :]
    assert text.count("cann_cpu_kernels(") == for_cpu.count("cann_cpu_kernels(") == 1


def test_every_operator_has_a_kernel_in_ascend_c():
    text = "".join(file.read_text() for file in (OPP / "op_host").glob("*.cpp"))
    defined = {snake_case(each) for each in re.findall(r"OP_ADD\((\w+)\)", text)}
    assert defined == {file.stem for file in (OPP / "op_kernel").glob("*.cpp")}


def small_prolog():
    sizes = dict(hidden=20, q_lora=35, heads=3, depth=18, rope_depth=8, cache=(2, 8))
    return to_npu(references.lightning_indexer_prolog_inputs(2, **sizes))


def call_with_each_format():
    torch.npu.config.allow_internal_format = True
    npu = small_prolog()
    blocks = in_blocks(npu, ["wq_b", "weights_proj"])
    rows, in_fractals = (torch.ops.custom_pypto.npu_lightning_indexer_prolog_pto(**given) for given in (npu, blocks))
    print(all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(rows, in_fractals, strict=True)))


def test_one_kernel_in_ascend_c_takes_matrices_in_any_combination_of_formats():
    assert in_a_process(call_with_each_format) == "True"


# ---- as it is built for NPUs: the same kernels run in test/opp; here they are compiled once more


@pytest.fixture(scope="module")
def package(device_package):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "ASCEND_CUSTOM_OPP_PATH", str(device_package)
        )  # without the installed one, which has the operators as well
        yield device_package


@pytest.fixture(scope="module")
def library(package):
    return str(package / "op_api/lib/libcust_opapi.so")


@pytest.mark.nightly
def test_it_has_the_operators_with_kernels_in_ascend_c(package):
    types = re.findall(r"REG_OP\((\w+)\)", (package / "op_proto/inc/op_proto.h").read_text())
    assert types == [
        "AddCustom",
        "AddCustomGrad",
        "AdvanceStepFlashattn",
        "LightningIndexerPrologPto",
        "LightningIndexerPto",
        "LightningIndexerQuantPto",
        "ReshapeAndCache",
        "SparseAttentionPto",
        "SparseFlashAttentionPto",
    ]
    assert not (package / "op_impl/cann_cpu").exists()
    kernels = [*package.glob("op_impl/ai_core/tbe/kernel/ascend910b/*/*.o")]
    assert len(kernels) >= len(types) and all(b".debug_info" in kernel.read_bytes() for kernel in kernels)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.int16], ids=str)
def test_add_custom(library, dtype):
    x, y = (torch.randint(-9, 9, (100, 333)).to(dtype) for _ in range(2))
    out = torch.empty_like(x).npu()
    aclnn.call(library, "aclnnAddCustom", x.npu(), y.npu(), out)
    assert torch.equal(out.cpu(), x + y)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_advance_step(library, dtype):
    inputs = references.advance_step_flashattn_inputs([5, 15, 31], padding=2, dtype=dtype)
    names = ["input_tokens", "sampled_token_ids", "input_positions", "seq_lens", "slot_mapping", "block_tables"]
    npu = {name: inputs[name].npu() for name in names}
    numbers = [inputs[name] for name in ("num_seqs", "num_queries", "block_size")]
    aclnn.call(library, "aclnnAdvanceStepFlashattn", *npu.values(), *numbers)
    for name, expected in zip(WRITTEN, references.advance_step_flashattn(**inputs), strict=True):
        assert torch.equal(npu[name].cpu(), expected), name


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("with_values", [False, True])
def test_reshape_and_cache(library, dtype, with_values):
    key, value = (torch.randint(-99, 99, (6, 2, width)).to(dtype) for width in (64, 32))
    caches = [torch.zeros(3, 4, 2, width, dtype=dtype) for width in (64, 32)]
    slots = torch.tensor([0, 11, 5, -1, 7, 3], dtype=torch.int32)
    npu = [cache.npu() for cache in caches]
    given = (value.npu(), npu[1]) if with_values else (None, None)
    aclnn.call(library, "aclnnReshapeAndCache", key.npu(), given[0], npu[0], given[1], slots.npu(), "ND")
    for cache, rows in zip(caches, (key, value), strict=True):
        cache.view(12, *cache.shape[2:])[slots[slots >= 0].long()] = rows[slots >= 0]
    assert torch.equal(npu[0].cpu(), caches[0])
    assert torch.equal(npu[1].cpu(), caches[1] if with_values else torch.zeros_like(caches[1]))
