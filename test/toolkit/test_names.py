# SPDX-License-Identifier: Apache-2.0
"""Each language has its own function for the file name of an operator type: all give the same name."""

import subprocess
from pathlib import Path

import pytest
from cann_cpu import names
from cann_cpu.activation import LIBRARIES

from custom_pypto.graph import prototypes

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NAMES = {
    "AddCustom": "add_custom",
    "GRUCell": "gru_cell",
    "Conv2D": "conv2_d",
    "Conv2DCustom": "conv2_d_custom",
    "LSTM": "lstm",
    "ResNetV1D": "res_net_v1_d",
    "MoeV2": "moe_v2",
    "A": "a",
    "ABc": "a_bc",
    "aB": "a_b",
    "KVCacheInt8": "kv_cache_int8",
    "Top2K4": "top2_k4",
    "X1Y2Z": "x1_y2_z",
    "With_Underscore": "with__underscore",
    "lower": "lower",
}


@pytest.fixture(scope="module")
def of_library(tmp_path_factory):
    """{type: the name that the function in C++ gives}."""
    program = tmp_path_factory.mktemp("names") / "names"
    include = [f"-I{ROOT / folder}" for folder in ("cann_cpu", "cann_cpu/common", "cann_cpu/metadef/include")]
    linked = [f"-L{LIBRARIES}", "-lregister", f"-Wl,-rpath,{LIBRARIES}"]
    command = ["g++", "-std=c++20", "-O0", *include, HERE / "names.cpp", "-o", program, *linked]
    subprocess.run(command, check=True, timeout=120)
    lines = subprocess.run([program, *NAMES], check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(zip(NAMES, lines, strict=True))


@pytest.mark.parametrize("graph_type", NAMES)
def test_all_functions_give_one_name(of_library, graph_type):
    given = [names.snake_case(graph_type), prototypes.snake_case(graph_type), of_library[graph_type]]
    assert given == [NAMES[graph_type]] * 3
