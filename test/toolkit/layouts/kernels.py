# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels of a list of operators with opc, as msopgen's projects do: INI SOURCES LAYOUT OUT.

Up to 8.0 opc finds the kernel beside the Python file that it is given. In 8.2 that file stands alone, and
BUILD_KERNEL_SRC names the kernel.
"""

import configparser
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ini, sources, layout, out = sys.argv[1:]
operators = configparser.ConfigParser()
operators.optionxform = str
operators.read(ini)
for operator in operators.sections():
    said = operators[operator]
    file = said["opFile.value"]
    param = Path(out).parent / "gen" / f"{operator}_0_param.json"
    scripts = param.parent / "dynamic"
    for folder in (scripts, Path(out, file)):
        folder.mkdir(parents=True, exist_ok=True)

    def listed(kind, said=said):
        names = [key for key in said if key.startswith(kind) and key.endswith(".name")]
        return [
            {
                "name": said[name],
                "index": i,
                "dtype": said[f"{kind}{i}.dtype"].split(",")[0],
                "format": said[f"{kind}{i}.format"].split(",")[0],
                "paramType": said[f"{kind}{i}.paramType"],
                "shape": [-2],
                "format_match_mode": "FormatAgnostic",
            }
            for i, name in enumerate(names)
        ]

    node = {"bin_filename": f"{operator}_0", "inputs": listed("input"), "outputs": listed("output"), "attrs": []}
    param.write_text(json.dumps({"op_type": operator, "op_list": [node]}))
    script = scripts / f"{operator}.py"
    script.write_text("# what CANN's compiler would run\n")
    environment = dict(os.environ)
    if layout == "8.2":
        environment["BUILD_KERNEL_SRC"] = os.path.join(sources, f"{file}.cpp")
    else:
        shutil.copytree(sources, scripts, dirs_exist_ok=True)
    command = ["opc", script, f"--main_func={file}", f"--input_param={param}", "--soc_version=Ascend910B1"]
    command += [f"--output={Path(out, file)}", "--impl_mode=high_performance,optional", "--simplified_key_mode=0"]
    subprocess.run([*command, "--op_mode=dynamic"], check=True, env=environment)
    assert Path(out, file, f"{operator}_0.o").exists() and Path(out, file, f"{operator}_0.json").exists()
