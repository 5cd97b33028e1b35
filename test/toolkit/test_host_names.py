# SPDX-License-Identifier: Apache-2.0
"""Names of CANN's host headers that projects of ops-transformer's kind use, as vllm-ascend's operators do."""

import os
import re
import subprocess
from pathlib import Path

import cann_cpu

HERE = Path(__file__).parent
CANN = Path(cann_cpu.__file__).parent


def test_the_names_are_there_and_do_what_cann_does(tmp_path):
    program = tmp_path / "host_names"
    include = [f"-I{CANN / folder}" for folder in ("include", "include/op_common")]
    libraries = ["register", "exe_graph", "platform", "ge_runner", "ascendcl"]
    linked = [f"-L{CANN / 'lib64'}", "-Wl,--no-as-needed", *(f"-l{each}" for each in libraries)]
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", *include, HERE / "host_names.cpp", "-o", program]
    subprocess.run([*command, *linked, f"-Wl,-rpath,{CANN / 'lib64'}"], check=True, timeout=120)
    environment = os.environ | {"ASCEND_SLOG_PRINT_TO_STDOUT": "1", "ASCEND_GLOBAL_LOG_LEVEL": "3"}
    run = subprocess.run([program], check=True, capture_output=True, text=True, env=environment, timeout=60)
    lines = run.stdout.splitlines()
    assert lines[:6] == ["bytes 8", "saved 5 7 9", "kept 1", "format 1", "dimensions -1 -2", "levels 1 0 0"]
    assert lines[6:9] == ["buffer 1", "fractal 16", "architectures 5102 65535"]
    logged = lines[9:]
    assert [re.search(r"rows: (\d)$", line)[1] for line in logged] == ["1", "3", "4", "5"]
    assert all(line.startswith("[ERROR] ") for line in logged)
    assert "E89999: rows: 4" in logged[-2]
    assert "Rows: rows: 5" in logged[-1]
