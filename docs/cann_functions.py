# SPDX-License-Identifier: Apache-2.0
"""Writes docs/cann_functions.md: which functions of CANN's libraries cann_cpu serves, in whole, in part, or not.

python docs/cann_functions.py

CANN's functions are those that the headers in torch_npu's wheel declare, and what cann_cpu's libraries export beside
them. cann_cpu/runtime/unsupported.txt lists the functions that are rejected by name.
"""

import re
import subprocess
from pathlib import Path

import cann_cpu
import torch_npu

DOCS = Path(__file__).parent
PAGE = DOCS / "cann_functions.md"
LIBRARIES = Path(cann_cpu.__file__).parent / "lib64"
HEADERS = Path(torch_npu.__file__).parent / "include" / "third_party"
UNSUPPORTED = DOCS.parent / "cann_cpu" / "runtime" / "unsupported.txt"

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
DECLARATION = re.compile(r"[\w*]\s+\**((?:acl|Hccl|Msprof)\w+)\s*\([^;{}]*\)\s*;")

PARTS = {
    "aclInit": "dumps, profiling, op_debug_config.enable_debug_kernel of on, and members of the file that are unknown",
    "aclGetRecentErrMsg": "nothing; it gives the latest message alone, and CANN several",
    "aclmdlRIExecute": "nothing; it runs captured graphs, which CANN leaves to aclmdlRIExecuteAsync",
    "aclnnInit": "what aclInit rejects",
    "aclopStartDumpArgs": "every call: arguments of operators are not dumped, and no static kernels are compiled",
    "aclprofCreateConfig": "L2CACHE, TRAINING_TRACE, MSPROFTX, OP_ATTR, TASK_TIME_L2 and L3, GE_API, "
    "API_STATS; events; metrics but PIPE_UTILIZATION",
    "aclprofRegisterDeviceCallback": "every call: only the devices of the configuration are recorded",
    "aclprofSetConfig": "every option: nothing is sampled of host, network or links",
    "aclrtBinaryLoad": "binaries of other compilers than cann_cpu's tools and CANN; a launch of one of CANN's kernels "
    "fails",
    "aclrtBinaryLoadFromData": "what aclrtBinaryLoad rejects, ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE",
    "aclrtBinaryLoadFromFile": "what aclrtBinaryLoad rejects, json files of AI CPU kernels, "
    "ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE",
    "aclrtCreateEventExWithFlag": "ACL_EVENT_IPC, ACL_EVENT_DEVICE_USE_ONLY; ACL_EVENT_EXTERNAL, as CANN does",
    "aclrtCreateEventWithFlag": "ACL_EVENT_IPC, ACL_EVENT_DEVICE_USE_ONLY",
    "aclrtDestroyStreamForce": "nothing; it waits up to 5 s for the task that runs, which nothing can end",
    "aclrtCreateStreamWithConfig": "flags but ACL_STREAM_FAST_LAUNCH, FAST_SYNC and HUGE",
    "aclrtGetDeviceInfo": "attributes that a CPU has no answer for",
    "aclrtHostRegister": "ACL_HOST_REGISTER_IOMEMORY, ACL_HOST_REGISTER_READONLY",
    "aclrtHostRegisterV2": "ACL_HOST_REG_IOMEMORY, ACL_HOST_REG_READONLY",
    "aclrtIpcMemGetExportKey": "memory of less than 2 MiB, memory under the check `memory`",
    "aclrtLaunchKernel": "nothing; it takes arguments in host memory as well, which an NPU cannot read",
    "aclrtLaunchKernelV2": "ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE, BLOCKDIM_OFFSET and DATA_DUMP; it takes arguments "
    "in host memory as well",
    "aclrtLaunchKernelWithConfig": "ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE, BLOCKDIM_OFFSET and DATA_DUMP",
    "aclrtMemcpy": "nothing; freed device memory is host memory to it (the check `memory` names it)",
    "aclrtMemset": "nothing; freed device memory is host memory to it (the check `memory` names it)",
    "aclrtMallocPhysical": "memory of the host, handles to share",
    "aclrtReserveMemAddress": "an address that is asked for (expectPtr)",
    "aclrtUseStreamResInCurrentThread": "nothing; limits that the stream gets later do not reach the thread",
    "aclrtUnuseStreamResInCurrentThread": "nothing; it ends the use of any stream's limits",
    "aclrtSetDeviceSatMode": "ACL_RT_OVERFLOW_MODE_SATURATION",
    "aclSetCompileopt": "ACL_OPT_ENABLE_DEBUG_KERNEL",
    "ge::GEInitialize": "options of dumps, of other precision modes, and unknown ones",
    "ge::Session::AddGraph": "the same options",
    "ge::Session::RunGraph": "graphs that are captured, where the sizes of outputs are known only after the run",
    "HcclGetConfig": "every config but HCCL_DETERMINISTIC",
    "MsprofRegisterCallback": "nothing; callbacks are never called",
    "HcclSetConfig": "every config but HCCL_DETERMINISTIC",
}
"""What a function that is served in part rejects, with an error that names it, or does otherwise than CANN."""


def exported(library: str, *options: str) -> set[str]:
    """The functions that a library exports, without those in namespace cann_cpu."""
    command = ["nm", "--dynamic", "--defined-only", *options, str(LIBRARIES / library)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = (line.split(" ", 2) for line in lines)
    return {name for _, kind, name in symbols if kind == "T" and "cann_cpu" not in name}


def declared() -> dict[str, set[str]]:
    """The C functions of each header of CANN."""
    functions = {}
    for header in sorted(HEADERS.rglob("*.h")):
        found = set(DECLARATION.findall(COMMENT.sub("", header.read_text(errors="replace"))))
        if found:
            functions["/".join(header.parts[-2:])] = found
    return functions


def listed(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def graph_engine() -> dict[str, set[str]]:
    """The functions of namespace ge that libge_runner.so exports, or libregister.so, its dependency, by class."""
    classes: dict[str, set[str]] = {}
    for name in exported("libge_runner.so", "--demangle") | exported("libregister.so", "--demangle"):
        if found := re.match(r"ge::(?:(\w+)::)?(operator[^(]+|~?\w+)\(", name):
            classes.setdefault(found[1] or "functions", set()).add(found[2])
    return classes


def page() -> str:
    there = set.union(*(exported(library.name) for library in LIBRARIES.glob("*.so")))
    interface = "acl(?!nn)|Acl|aclnn(Init|Finalize)$|Hccl|Hcom|Msprof|PTA|.*PTA|.*HugeMem|GeSession|rt"
    there = {name for name in there if re.match(interface, name)}
    unsupported = set(re.findall(r"^(?:status|pointer) (\w+)", UNSUPPORTED.read_text(), re.MULTILINE))
    unsupported |= {name for name, rejected in PARTS.items() if rejected.startswith("every call")}
    headers = declared()
    headers["declared in no header of torch_npu's"] = there - set.union(*headers.values())
    rows = []
    for header, functions in headers.items():
        served = (functions & there) - unsupported
        rows.append(
            f"| {header} | {listed(served - PARTS.keys())} | {listed(served & PARTS.keys())} "
            f"| {listed(functions & unsupported)} | {listed(functions - there)} |"
        )
    parts = [f"| `{name}` | {rejected} |" for name, rejected in sorted(PARTS.items())]
    classes = [f"| {name} | {listed(members)} |" for name, members in sorted(graph_engine().items())]
    return (
        "# The functions of CANN's libraries\n\n"
        "Which of them `cann_cpu` serves: generated by `python docs/cann_functions.py` from what its libraries export "
        "and what the headers in torch_npu's wheel declare.\n\n"
        "- **Served**: the function does what CANN documents.\n"
        "- **In part**: the function rejects some values with an error that names them, or differs from CANN; a table "
        "below says how.\n"
        "- **Rejected**: torch_npu or torchair look the function up; it returns an error with its name.\n"
        "- **Not there**: a program that calls the function does not link.\n\n"
        "Every `aclnn*` function that is there is called by a test: a run of all tests fails if one is not.\n\n"
        "## C functions\n\n| header | served | in part | rejected | not there |\n|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n\n## Functions served in part\n\n| function | what is rejected, or differs |\n|---|---|\n"
        + "\n".join(parts)
        + "\n\n## Graph Engine, namespace `ge`\n\n| class | functions |\n|---|---|\n"
        + "\n".join(classes)
        + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page())
