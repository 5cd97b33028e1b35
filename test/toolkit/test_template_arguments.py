# SPDX-License-Identifier: Apache-2.0
"""Kernels that are templates: their tiling keys, what may be declared and selected, and a project that has one."""

import subprocess

import aclnn
import pytest
import torch
from cann_cpu.activation import HOME, LIBRARIES

TILING_FAILS = 561002

# Name, ASCENDC_TPL_ARGS_DECL, ASCENDC_TPL_SEL, and what comes of it: tiling keys of combinations, or what is wrong.
DTYPES = "".join(f"ASCENDC_TPL_DTYPE_DECL({name}, FP16, FP32), " for name in "XYZ")
TILES = "ASCENDC_TPL_UINT_DECL(TILES, ASCENDC_TPL_8_BW, ASCENDC_TPL_UI_MIX, 2, 0, 2, 3, 5, 10, 12, 13, 9, 8), "
FP16S = "".join(f"ASCENDC_TPL_DTYPE_SEL({name}, FP16), " for name in "XYZ")
SPLIT = "ASCENDC_TPL_BOOL_DECL(SPLIT, 0, 1), "
U = "ASCENDC_TPL_UINT_DECL(U, 2, ASCENDC_TPL_UI_LIST, 4, 7), "
LIST = "ASCENDC_TPL_UI_LIST"
MIXED = "ASCENDC_TPL_KERNEL_TYPE_SEL(ASCENDC_TPL_MIX_AIC_1_2)"
KIND = "ASCENDC_TPL_KERNEL_TYPE_DECL(KIND, ASCENDC_TPL_AIV_ONLY, ASCENDC_TPL_AIC_ONLY), "
SEL_KIND = "ASCENDC_TPL_SHARED_KERNEL_TYPE_SEL(KIND, ASCENDC_TPL_"


def selected(*arguments):
    return f"ASCENDC_TPL_ARGS_SEL({', '.join(arguments)})"


def sel_u(values, kind="UINT"):
    return f"ASCENDC_TPL_{kind}_SEL(U, {values})"


CASES = {
    # The two keys are those that CANN's own tests have for these declarations.
    "a UINT has the place of its value": (
        DTYPES + TILES + SPLIT,
        selected(FP16S + f"ASCENDC_TPL_UINT_SEL(TILES, {LIST}, 1, 8)", "ASCENDC_TPL_BOOL_SEL(SPLIT, 0, 1)"),
        "17435146 168430090 4312402442 4463397386",
    ),
    "a format has 8 bits": (
        "ASCENDC_TPL_DTYPE_DECL(X, 10, 30, 20), ASCENDC_TPL_FORMAT_DECL(Y, 15, 25), "
        "ASCENDC_TPL_UINT_DECL(Z, 8, ASCENDC_TPL_UI_MIX, 2, 0, 2, 3, 4, 5, 6), " + SPLIT,
        selected(
            "ASCENDC_TPL_DTYPE_SEL(X, 20)",
            "ASCENDC_TPL_FORMAT_SEL(Y, 25)",
            f"ASCENDC_TPL_UINT_SEL(Z, {LIST}, 6)",
            "ASCENDC_TPL_BOOL_SEL(SPLIT, 1)",
        ),
        "17176852",
    ),
    "ranges": (
        "ASCENDC_TPL_UINT_DECL(U, 3, ASCENDC_TPL_UI_RANGE, 2, 4, 6, 8, 8)",
        selected(sel_u("ASCENDC_TPL_UI_RANGE, 1, 5, 6")) + "," + selected(sel_u("ASCENDC_TPL_UI_MIX, 0, 8")),
        "1 2 3",
    ),
    "dtypes of a tensor, and commas at the end": (
        "ASCENDC_TPL_DATATYPE_DECL(T, C_DT_BF16, ASCENDC_TPL_INPUT(0)), " + SPLIT,
        selected(
            "ASCENDC_TPL_KERNEL_TYPE_SEL(ASCENDC_TPL_AIV_ONLY)",
            "ASCENDC_TPL_BOOL_SEL(SPLIT, true)",
            "ASCENDC_TPL_DATATYPE_SEL(T, C_DT_BF16)",
            "ASCENDC_TPL_TILING_STRUCT_SEL(Some<1, 2>), ",
        )
        + ", ",
        "283",
    ),
    "not declared": (
        U,
        selected(sel_u(f"{LIST}, 5")),
        "U is selected with a value that ASCENDC_TPL_ARGS_DECL does not",
    ),
    "another name": (U, selected("ASCENDC_TPL_BOOL_SEL(V, 0)"), "V is selected, and ASCENDC_TPL_ARGS_DECL does not"),
    "not selected": (U + SPLIT, selected(sel_u(f"{LIST}, 4")), "SPLIT is declared, and an ASCENDC_TPL_ARGS_SEL does"),
    "another kind": (U, selected(sel_u("1", "BOOL")), "U is selected as another kind"),
    "no value": (U, selected(sel_u(LIST)), "U is selected without a value"),
    "no mode": (U, selected(sel_u("4, 7")), "U does not say its values as ASCENDC_TPL_UI_RANGE"),
    "a short range": (
        "ASCENDC_TPL_UINT_DECL(U, 8, ASCENDC_TPL_UI_RANGE, 2, 0, 5)",
        selected(sel_u(f"{LIST}, 1")),
        "U does not say its values as ASCENDC_TPL_UI_RANGE",
    ),
    "twice": (
        "ASCENDC_TPL_UINT_DECL(U, 2, ASCENDC_TPL_UI_LIST, 4, 4)",
        selected(sel_u(f"{LIST}, 4")),
        "U declares a va",
    ),
    "too few bits": (
        "ASCENDC_TPL_UINT_DECL(U, 1, ASCENDC_TPL_UI_LIST, 4, 5, 6)",
        selected(sel_u(f"{LIST}, 4")),
        "U has fewer bits than its values take",
    ),
    "no truth": ("ASCENDC_TPL_BOOL_DECL(U, 2)", selected(sel_u("2", "BOOL")), "U has fewer bits than its values take"),
    "too many bits": (
        "".join(f"ASCENDC_TPL_DTYPE_DECL(D{i}, 1), " for i in range(9)),
        selected(*(f"ASCENDC_TPL_DTYPE_SEL(D{i}, 1)" for i in range(9))),
        ": the fields of the tiling key take more than 64 bits",
    ),
    "a type of kernel beside the parameters": (U, selected(MIXED, sel_u(f"{LIST}, 4")), "0"),
    "a type of kernel as a parameter": (U + KIND, selected(sel_u(f"{LIST}, 7"), f"{SEL_KIND}AIC_ONLY)"), "9"),
    "both": (
        U + KIND,
        selected(MIXED, sel_u(f"{LIST}, 4"), f"{SEL_KIND}AIC_ONLY)"),
        "ASCENDC_TPL_KERNEL_TYPE_SEL stands beside ASCENDC_TPL_SHARED_KERNEL_TYPE_SEL",
    ),
    "a type of kernel for some": (
        U,
        selected(sel_u(f"{LIST}, 4")) + "," + selected(MIXED, sel_u(f"{LIST}, 7")),
        "ASCENDC_TPL_KERNEL_TYPE_SEL is in some ASCENDC_TPL_ARGS_SEL and not in others",
    ),
    "no type of kernel": (
        U,
        selected("ASCENDC_TPL_KERNEL_TYPE_SEL(6)", sel_u(f"{LIST}, 4")),
        "ASCENDC_TPL_KERNEL_TYPE_SEL does not say one of",
    ),
    "deterministic": (
        U,
        selected("ASCENDC_TPL_DETERMINISTIC_SEL(true)", sel_u(f"{LIST}, 4")),
        "ASCENDC_TPL_DETERMINISTIC_SEL(true) is not supported on the CPU",
    ),
}

PROGRAM = """
#include <cstdio>
#include <string>
#include "ascendc/host_api/tiling/template_argument.h"
#include "ascendc/template_variants.h"
#define FP16 10
#define FP32 20
template <const AscendC::tpl::Templates& templates>
void print() {
  constexpr AscendC::tpl::Problem problem = AscendC::tpl::problem_of(templates);
  std::string text = problem.what == nullptr ? "" : std::string(problem.parameter) + problem.what;
  if (problem.what == nullptr) {
    AscendC::tpl::for_each_instance(templates, [&](const AscendC::tpl::Instance& each) {
      text += (text.empty() ? "" : " ") + std::to_string(each.key);
    });
  }
  std::puts(text.c_str());
}
"""


def compiled(standard, source, program, *more):
    options = [f"-std={standard}", "-Wall", "-Werror", *more, f"-I{HOME}/include"]
    linked = [f"-L{LIBRARIES}", "-lregister", f"-Wl,-rpath,{LIBRARIES}"]
    subprocess.run(["g++", *options, source, *linked, "-o", program], check=True)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What is said of each of the cases."""
    folder = tmp_path_factory.mktemp("templates")
    text, main = PROGRAM, ""
    for i, (declared, selection, _) in enumerate(CASES.values()):
        text += f"namespace n{i} {{ ASCENDC_TPL_ARGS_DECL(Op, {declared}); ASCENDC_TPL_SEL({selection}); }}\n"
        main += f"  print<n{i}::ascendc_templates>();\n"
    (folder / "program.cpp").write_text(f"{text}int main() {{\n{main}}}\n")
    compiled("c++20", folder / "program.cpp", folder / "program")
    lines = subprocess.run([folder / "program"], capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(zip(CASES, lines, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_what_is_selected_has_a_key_or_is_wrong(said, case):
    expected = CASES[case][2]
    if expected[0].isdigit():
        assert sorted(said[case].split(), key=int) == expected.split()
    else:
        assert expected in said[case]


def test_the_header_is_c_plus_plus_11_with_either_string(tmp_path):
    """As CANN's builds compile the host's side."""
    source = tmp_path / "host.cpp"
    source.write_text(
        '#include "tiling/template_argument.h"\n'
        f"ASCENDC_TPL_ARGS_DECL(Op, {U}); ASCENDC_TPL_SEL({selected(sel_u(f'{LIST}, 4'))});\n"
        "int main() { return GET_TPL_TILING_KEY(4u); }\n"
    )
    compiled("c++11", source, tmp_path / "host", "-Wextra", "-D_GLIBCXX_USE_CXX11_ABI=0")
    subprocess.run([tmp_path / "host"], check=True)


# ---- a project with such a kernel


def multiple(installed, x, factor):
    out = torch.empty_like(x).npu()
    aclnn.call(str(installed / "op_api/lib/libcust_opapi.so"), "aclnnMultiple", x.npu(), factor, out)
    return out.cpu()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("factor", [2, 3, -2, -3])
def test_each_instance_computes_its_own(installed, dtype, factor):
    x = torch.randn(37).to(dtype)
    assert torch.equal(multiple(installed, x, factor), x * factor)


@pytest.mark.parametrize("factor", [0, -1])
def test_an_instance_has_its_own_tiling_data(installed, factor):
    x = torch.randn(37)
    assert torch.equal(multiple(installed, x, factor), x * factor)


@pytest.mark.parametrize(
    ("dtype", "factor", "named"),
    [
        (torch.float32, 1, "Multiple<T = 0, FACTOR = 1, NEGATIVE = 0>"),
        (torch.float16, -1, "Multiple<T = 1, FACTOR = 1, NEGATIVE = 1>"),
        (torch.float32, 5, "Multiple<T = 0, FACTOR = 5, NEGATIVE = 0>"),
    ],
)
def test_a_combination_that_is_not_selected_is_named(installed, dtype, factor, named):
    message = rf"aclnnMultiple: tiling failed: it asks for {named}, which no .* selects \(.*multiple_key\.h:\d+\)"
    with pytest.raises(aclnn.Rejected, match=message) as raised:
        multiple(installed, torch.ones(4, dtype=dtype), factor)
    assert raised.value.args[0] == TILING_FAILS
