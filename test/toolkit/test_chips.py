# SPDX-License-Identifier: Apache-2.0
"""The chip that CANN_CPU_SOC names: what tiling functions and torch_npu get for it."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import aclnn
import fresh
import pytest
from cann_cpu.activation import HOME, LIBRARIES
from operator_project import run

MIB = 1024
# platform_ascendc::SocVersion and NpuArch; KiB of the unified buffer, L1, L0A, L0B, L0C, the bias table, the fixpipe
# buffer; bytes in a cycle of L2 and device memory; MiB of the libraries' workspace: CANN's platform_config (ub_size and
# others of AICoreSpec, l2_rate and ddr_rate of AICoreMemoryRates).
A2 = (192, 512, 64, 64, 128, 1, 2), (110, 32), 16
SERIES = {
    "Ascend910B": (1, 2201, *A2),
    "Ascend910_93": (4, 2201, *A2),
    "Ascend310B4": (3, 3002, (248, 1024, 64, 64, 128, 1, 2), (256, 8), 2),
    "Ascend310B": (3, 3002, (248, 1024, 64, 64, 128, 1, 2), (256, 17), 2),
    "Ascend310P": (2, 2002, (256, 1024, 64, 64, 256, 0, 0), (114, 17), 2),
    "Ascend910": (0, 1001, (256, 1024, 64, 64, 256, 0, 0), (110, 32), 2),
    "Ascend950PR_957b": (5, 3510, (248, 512, 64, 64, 256, 4, 4), (100, 27), 16),
    "Ascend950PR": (5, 3510, (248, 512, 64, 64, 256, 4, 4), (100, 31), 16),
    "Ascend950DT": (5, 3510, (248, 512, 64, 64, 256, 4, 4), (100, 80), 16),
}
# AI cores, vector cores in them and beside them, L2 in MiB.
CHIPS = {
    "Ascend910B1": (24, 48, 0, 192),
    "Ascend910B2": (24, 48, 0, 192),
    "Ascend910B2C": (24, 48, 0, 192),
    "Ascend910B3": (20, 40, 0, 192),
    "Ascend910B4": (20, 40, 0, 96),
    "Ascend910B4-1": (20, 40, 0, 168),
    "Ascend910_9362": (20, 40, 0, 168),
    "Ascend910_9372": (20, 40, 0, 192),
    "Ascend910_9381": (24, 48, 0, 192),
    "Ascend910_9382": (24, 48, 0, 192),
    "Ascend910_9391": (24, 48, 0, 192),
    "Ascend910_9392": (24, 48, 0, 192),
    "Ascend310B1": (1, 1, 0, 4),
    "Ascend310B4": (1, 1, 0, 4),
    "Ascend310P1": (10, 10, 8, 16),
    "Ascend310P3": (8, 8, 7, 16),
    "Ascend910A": (32, 32, 0, 32),
    "Ascend910ProB": (30, 30, 0, 32),
    "Ascend950PR_9589": (32, 64, 0, 128),
    "Ascend950PR_9599": (36, 72, 0, 128),
    "Ascend950PR_957b": (28, 56, 0, 112),
    "Ascend950DT_9591": (36, 72, 0, 128),
}


def numbers_of(chip):
    version, architecture, memories, rates, workspace = next(v for k, v in SERIES.items() if chip.startswith(k))
    *cores, l2 = CHIPS[chip]
    groups = 1 if architecture == 2201 else 4095  # MiB: of cube cores in groups, and of barriers of groups
    return (version, architecture, *cores, l2 * MIB, *memories, *rates, workspace, groups, groups, memories[0] - 16)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    program = tmp_path_factory.mktemp("chips") / "chip"
    linked = [f"-I{HOME}/include", f"-L{LIBRARIES}", "-lplatform", "-lascendcl", f"-Wl,-rpath,{LIBRARIES}"]
    source = Path(__file__).with_name("chip.cpp")
    subprocess.run(["g++", "-std=c++17", "-O0", source, "-o", program, *linked], check=True)

    def run(*named, **variables):
        done = subprocess.run([program, *named], env=variables, capture_output=True, text=True, check=True)
        return tuple(map(int, done.stdout.split())), done.stderr

    return run


@pytest.mark.parametrize("chip", CHIPS)
def test_tiling_functions_get_its_numbers(said, chip):
    assert said(CANN_CPU_SOC=chip) == (numbers_of(chip), "")


def test_a_program_may_name_another_one(said):
    assert said("Ascend910_9362", CANN_CPU_SOC="Ascend310B1") == (numbers_of("Ascend910_9362"), "")


def test_a_program_may_name_one_after_the_other(said):
    both = ("Ascend910B1", "Ascend310P3")
    assert said(*both) == (sum(map(numbers_of, both), ()), "")


@pytest.mark.parametrize(
    ("named", "variables", "who"),
    [((), {"CANN_CPU_SOC": "Ascend610"}, "CANN_CPU_SOC"), (("Ascend610",), {}, "PlatformAscendCManager::GetInst")],
)
def test_an_unknown_one_is_said(said, named, variables, who):
    numbers, message = said(*named, **variables)
    assert numbers == numbers_of("Ascend910B3")
    assert message.startswith(f"cann_cpu: {who}")
    assert "names Ascend610, which is unknown; it is Ascend910B3" in message
    assert all(chip in message for chip in CHIPS)


@pytest.fixture(scope="module", params=[0, 1], ids=["old strings", "new strings"])
def infos(tmp_path_factory, request):
    """What platform_infos.cpp prints, compiled for an ABI of std::string: a list of numbers, and values of keys."""
    program = tmp_path_factory.mktemp("infos") / "infos"
    linked = [f"-I{HOME}/include", f"-L{LIBRARIES}", "-lplatform", f"-Wl,-rpath,{LIBRARIES}"]
    source = Path(__file__).with_name("platform_infos.cpp")
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={request.param}"
    subprocess.run(["g++", "-std=c++17", "-O0", abi, source, "-o", program, *linked], check=True)

    def run(chip, *keys):
        names = [name for key in keys for name in key.split(".")]
        done = subprocess.run([program, chip, *names], capture_output=True, text=True, check=True)
        numbers, *values = done.stdout.splitlines()
        return numbers.split(), dict(zip(keys, values, strict=True))

    return run


@pytest.mark.parametrize(
    ("chip", "short"),
    [
        ("Ascend910B3", "Ascend910B"),
        ("Ascend910_9391", "Ascend910_93"),
        ("Ascend310P3", "Ascend310P"),
        ("Ascend910A", "Ascend910"),
        ("Ascend310B4", "Ascend310B"),
        ("Ascend950DT_9591", "Ascend950"),
    ],
)
def test_programs_with_a_platform_of_their_own_get_them_with_either_abi_of_strings(infos, chip, short):
    _, architecture, aic, aiv, beside, l2, *memories = numbers_of(chip)
    unified, l1, l0a, l0b, l0c, bias, fixpipe, l2_rate, memory_rate = memories[:9]
    types = {1001: "AICore", 2002: "AICore,VectorCore", 3002: "AICore,VectorCore,CubeCore"}
    fused = architecture in (1001, 2002)
    vectors = beside if fused else aiv
    values = {
        "version.SoC_version": chip,
        "version.Short_SoC_version": short,
        "version.NpuArch": architecture,
        "SoCInfo.core_type_list": types.get(architecture, "CubeCore,VectorCore"),
        "SoCInfo.ai_core_cnt": aic,
        "SoCInfo.cube_core_cnt": None if fused else aic,
        "SoCInfo.vector_core_cnt": vectors,
        "SoCInfo.mix_vector_core_cnt": aic + beside if beside else None,
        "SoCInfo.l2_size": l2 * 1024,
        "AICoreSpec.ub_size": unified * 1024,
        "AICoreSpec.bt_size": bias * 1024,
        "AICoreSpec.fb0_size": fixpipe * 1024,
        "AICoreMemoryRates.ddr_rate": memory_rate,
        "AICoreSpec.other": None,
        "other.ub_size": None,
    }
    numbers, found = infos(chip, *values)
    mixed = aic + beside if beside else vectors
    sizes = [l0a, 0, l0b, 0, l0c, 0, l1, 0, l2, l2_rate, unified, 0, 0, memory_rate, 0, 0]
    assert numbers == [*map(str, ("0011110", aic, vectors, mixed, *sizes))]
    assert found == {key: "0 untouched" if value is None else f"1 {value}" for key, value in values.items()}


PACKAGES = [
    # the families that each package has kernels for, and the chip
    ([["ascend310b"]], "Ascend310B4"),
    ([["ascend310p"]], "Ascend310P3"),
    ([["ascend910"]], "Ascend910A"),
    ([["ascend950"]], "Ascend950PR_9589"),
    ([["ascend910_93"]], "Ascend910_9391"),
    ([["ascend910b", "ascend310b"]], "Ascend910B3"),
    ([["ascend310p", "ascend310b"], ["ascend310p"]], "Ascend310P3"),
    ([["ascend310b"], ["ascend910b"]], "Ascend310B4"),
    ([["ascend610"]], "Ascend910B3"),
    ([["ascend310b"], []], "Ascend310B4"),
]


@pytest.mark.parametrize(("packages", "chip"), PACKAGES)
@pytest.mark.parametrize("variable", ["ASCEND_CUSTOM_OPP_PATH", "ASCEND_OPP_PATH"])
def test_the_installed_packages_choose_it(said, tmp_path, packages, chip, variable):
    vendors = {f"v{i}": chips for i, chips in enumerate(packages)}
    for name, chips in vendors.items():
        for family in ["config", *chips]:
            (tmp_path / f"vendors/{name}/op_impl/ai_core/tbe/kernel/{family}/add").mkdir(parents=True)
    (tmp_path / "vendors/config.ini").write_text(f"load_priority={','.join(vendors)}\n")
    custom = ":".join(str(tmp_path / "vendors" / name) for name in vendors)
    variables = {variable: custom if variable == "ASCEND_CUSTOM_OPP_PATH" else str(tmp_path)}
    assert said(**variables) == (numbers_of(chip), "")
    assert said(CANN_CPU_SOC="Ascend910B4", **variables) == (numbers_of("Ascend910B4"), "")


def test_a_package_with_kernels_for_the_cpu_chooses_none(said, tmp_path):
    for folder in ("op_impl/ai_core/tbe/kernel/ascend310b/add", "op_impl/cann_cpu"):
        (tmp_path / folder).mkdir(parents=True)
    assert said(ASCEND_CUSTOM_OPP_PATH=str(tmp_path)) == (numbers_of("Ascend910B3"), "")


PROGRAM = """
import os
os.environ["CANN_CPU_SOC"] = "Ascend910_9362"
import torch, torch_npu
chip = torch.npu.get_device_properties(0)
print(chip.name, chip.cube_core_num, chip.vector_core_num, chip.L2_cache_size)
"""


def test_torch_npu_reports_it():
    done = fresh.run([sys.executable, "-c", PROGRAM])
    cube, vector, _, l2 = CHIPS["Ascend910_9362"]
    assert done.stdout.split() == ["Ascend910_9362", str(cube), str(vector), str(l2 << 20)], done.stderr


# ---- an operator project for chips


IN_A_PROCESS = """
import sys, torch, torch_npu, aclnn
for elements in (8, 16):
    x, y = torch.ones(elements, device="npu"), torch.zeros(8, device="npu")
    try:
        aclnn.call(sys.argv[1], "aclnnChipOf", x, y)
        torch.npu.synchronize()
        print(*y.cpu().int().tolist()[:4])
    except Exception as error:
        print(" ".join(str(error.args[-1]).split()))
"""


SAID = {
    "ascend310b": "1 253952 3002 3003",
    "ascend310p": "8 262144 2002 2003",
    "ascend910": "32 262144 1001 1002",
    "ascend910b": "40 196608 2201 2202",
    "ascend950": "64 253952 3510 3511",
}


@pytest.fixture(scope="module")
def package_for(tmp_path_factory):
    """The package of the project, as it is for some of the units for which it was built."""
    folder = tmp_path_factory.mktemp("chips")
    source = Path(__file__).with_name("chips")
    run("cmake", "-S", source, "-B", folder / "build", "-G", "Ninja", f"-DASCEND_COMPUTE_UNIT={';'.join(SAID)}")
    assert "warning:" not in run("cmake", "--build", folder / "build", "--target", "binary", "package")
    (installer,) = folder.glob("build/custom_opp_*.run")
    run(installer, f"--install-path={folder}", "--quiet")

    @functools.cache
    def package_for(*units):
        package = tmp_path_factory.mktemp("package") / "chips"
        shutil.copytree(folder / "vendors/chips", package)
        for kernels in package.glob("op_impl/ai_core/tbe/kernel/ascend*"):
            if kernels.name not in units:
                shutil.rmtree(kernels)
        return package

    return package_for


def called(package, **variables):
    paths = {"PYTHONPATH": str(Path(aclnn.__file__).parent), "ASCEND_CUSTOM_OPP_PATH": str(package)}
    environment = {**os.environ, **paths, **variables}
    command = [sys.executable, "-c", IN_A_PROCESS, package / "op_api/lib/libcust_opapi.so"]
    done = fresh.run(command, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("checks", ["", "1"])
@pytest.mark.parametrize("unit", SAID)
def test_a_project_for_one_chip_runs_as_it_is(package_for, unit, checks):
    without_pad, with_pad = called(package_for(unit), ASCENDC_CPU_CHECKS=checks)
    assert without_pad == SAID[unit]
    if unit in ("ascend910", "ascend310p"):
        assert "DataCopyPad: Ascend" in with_pad and "does not have it; choose the code by __NPU_ARCH__" in with_pad
    else:
        assert with_pad == SAID[unit]


def test_a_project_for_several_chips_is_compiled_for_each(package_for):
    package = package_for("ascend910b", "ascend310b")
    assert called(package)[0] == SAID["ascend910b"]
    assert called(package, CANN_CPU_SOC="Ascend310B1")[0] == SAID["ascend310b"]
    rejected = called(package, CANN_CPU_SOC="Ascend310P3")[0]
    assert "the family of Ascend310P3; it is for ascend310b, ascend910b: build it with this one in" in rejected
    assert rejected.endswith("or set CANN_CPU_SOC=Ascend310B4")


def test_info_says_the_chip_and_why(package_for):
    command = [sys.executable, "-m", "cann_cpu", "info"]
    environment = {**os.environ, "ASCEND_CUSTOM_OPP_PATH": str(package_for("ascend310b"))}
    said = fresh.run(command, env=environment).stdout
    assert "chip               Ascend310B4: 1 AI core, dav-3002, 248 KiB of unified buffer, 1024 KiB of L1" in said
    reason = "the first operator package is for it; the installed ones have no chip in common: ascend310b, ascend910"
    assert f"  because          {reason}" in said
