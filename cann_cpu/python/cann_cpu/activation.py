# SPDX-License-Identifier: Apache-2.0
"""Decides which CANN a process uses and, where it is the one on the CPU, loads it before a program looks for it.

The wheel's cann_cpu.pth calls install_hook() when Python starts; nothing else happens until torch_npu or MindSpore is
imported.
"""

import os
import sys
from typing import NamedTuple

from ._version import __version__

BUILT_FOR = __version__.partition("+torch")[2]
"""The torch in this wheel's version, 0.2.0+torch2.13.0."""
HOME = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = os.path.join(HOME, "lib64")
TENSOR_MEMORY = "libtensor_memory.so"
PROFILER = os.path.join(HOME, "tools", "profiler", "bin")
FOR_MINDSPORE = os.path.join(HOME, "latest", "lib64")
"""LIBRARIES by a path that MindSpore reads: its home of CANN is what is before /latest/ or /cann/."""
PYTHON = os.path.join(HOME, "python", "site-packages")  # acl, pyACL
OPERATOR_PACKAGES = "ascend.operator_packages"


class Choice(NamedTuple):
    """Which CANN a process uses, and why."""

    cann: str  # "cpu": this one; "real": one of the machine's; "none"
    reason: str


def choose() -> Choice:
    """A real CANN always wins; CANN_CPU=0 turns this one off."""
    home = os.environ.get("ASCEND_HOME_PATH")
    if os.environ.get("CANN_CPU") == "0":
        return Choice("real" if _is_real_cann(home) or _linker_finds_cann() else "none", "CANN_CPU=0")
    if home and os.path.realpath(home) == os.path.realpath(HOME):
        return Choice("cpu", f"ASCEND_HOME_PATH={home}")
    if _is_real_cann(home):
        return Choice("real", f"ASCEND_HOME_PATH={home}")
    if _linker_finds_cann():
        return Choice("real", "the linker finds libascendcl.so")
    return Choice("cpu", "no other CANN was found")


def _is_real_cann(home: str | None) -> bool:
    if not home or os.path.realpath(home) == os.path.realpath(HOME):
        return False
    return os.path.exists(os.path.join(home, "lib64", "libascendcl.so"))


def _linker_finds_cann() -> bool:
    import ctypes

    with open("/proc/self/maps") as maps:
        if os.path.join(LIBRARIES, "libascendcl.so") in maps.read():
            return False  # the linker would answer with this one
    try:
        ctypes.CDLL("libascendcl.so")
    except OSError:
        return False
    return True


def operator_packages() -> dict[str, str]:
    """The installed wheels' operator packages (vendors folders), by name.

    A wheel names the Python package whose folder `vendors/<name>` holds its libraries in an entry point of the group
    `ascend.operator_packages`.
    """
    from importlib.metadata import distributions

    packages = {}
    for wheel in distributions():
        for entry in wheel.entry_points.select(group=OPERATOR_PACKAGES):
            # Where the wheel is installed, not where `import` would find its name: that may be a source folder.
            package = wheel.locate_file(os.path.join(*entry.value.split(".")))
            vendor = os.path.join(package, "vendors", entry.name)
            if os.path.isdir(vendor):
                packages.setdefault(entry.name, vendor)
    return packages


def environment() -> dict[str, str]:
    """The variables that CANN's set_env.sh would set; torch_npu reads them while it loads."""
    custom = list(operator_packages().values())
    if os.environ.get("ASCEND_CUSTOM_OPP_PATH"):
        given = os.environ["ASCEND_CUSTOM_OPP_PATH"].split(":")
        custom = given + [path for path in custom if path not in given]
    variables = {"ASCEND_HOME_PATH": HOME, "ASCEND_OPP_PATH": os.path.join(HOME, "opp")}
    paths = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if PROFILER not in paths:
        variables["PATH"] = os.pathsep.join([PROFILER, *paths])  # msprof, which torch_npu.profiler calls
    if custom:
        variables["ASCEND_CUSTOM_OPP_PATH"] = ":".join(custom)
    return variables


def check_torch() -> None:
    """Raises ImportError where these libraries, which are linked against ATen's, were built for another torch."""
    from importlib.metadata import version

    found = version("torch")
    if found.partition("+")[0] != BUILT_FOR:
        raise ImportError(
            f"cann_cpu {__version__} was built for torch {BUILT_FOR}, and torch {found} is installed: "
            f"pip install torch=={BUILT_FOR}, or build cann_cpu again for this one"
        )


def link_folders() -> None:
    """Makes the further names of the toolkit's folders; it says what it cannot make."""
    import subprocess

    subprocess.run([os.path.join(HOME, "bin", "link_folders")])


def activate(folder: str = LIBRARIES) -> Choice:
    """Loads this CANN into the process if it is the one to use. Has no effect the second time.

    Args:
        folder: LIBRARIES, or FOR_MINDSPORE
    """
    choice = choose()
    if choice.cann == "cpu":
        import ctypes

        check_torch()
        os.environ.update(environment())
        if not os.path.exists(folder):
            link_folders()
        if PYTHON not in sys.path:
            sys.path.append(PYTHON)
        if os.environ.get("CANN_CPU_CHECK"):
            os.environ["TASK_QUEUE_ENABLE"] = "0"  # torch_npu calls from where the program does, which reports name
        # The dynamic linker takes a loaded library for one of the same SONAME, so torch_npu gets these.
        libraries = {name for name in os.listdir(LIBRARIES) if name.endswith(".so")}
        # libascendcl.so first: others would load it from LD_LIBRARY_PATH, by a path that MindSpore cannot read.
        for library in sorted(libraries - {TENSOR_MEMORY}, key=lambda name: (name != "libascendcl.so", name)):
            ctypes.CDLL(os.path.join(folder, library))
    return choice


def _with_own_tensors(name: str):
    """Returns torch_npu's spec. On import, it installs an allocator that gives each tensor separate memory."""
    from importlib.util import find_spec

    spec = find_spec(name)  # from the finders after this one, which answers only once
    execute = spec.loader.exec_module

    def exec_module(module):
        import ctypes

        path = os.path.join(LIBRARIES, TENSOR_MEMORY)
        functions = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)  # before those of torch_npu whose place they take
        execute(module)
        allocator = module.npu.memory.NPUPluggableAllocator(path, "cann_cpu_allocate_tensor", "cann_cpu_free_tensor")
        for setter, function in [
            ("set_record_stream_fn", functions.cann_cpu_record_tensor),
            ("set_get_device_stats_fn", functions.cann_cpu_tensor_statistics),
        ]:
            getattr(allocator.allocator(), setter)(ctypes.cast(function, ctypes.c_void_p).value)
        module.npu.memory.change_current_allocator(allocator)
        functions.cann_cpu_set_allocator()
        # Checkpoints of memory pools are for an allocator that uses memory twice; tensors of graphs keep theirs.
        module._C._npu_getCheckpointState = lambda device, pool: None
        module._C._npu_setCheckpointPoolState = lambda device, state, stale, kept: None
        module._C._npu_checkPoolLiveAllocations = lambda device, pool, storages: True

    spec.loader.exec_module = exec_module
    return spec


def _with_own_backend(name: str):
    """Returns the spec of triton.backends. On import, this CANN's backend is added where triton has not found it."""
    from importlib.util import find_spec

    spec = find_spec(name)
    execute = spec.loader.exec_module

    def exec_module(module):
        execute(module)
        from .triton import register

        register(module)

    spec.loader.exec_module = exec_module
    return spec


def _without_compilers(record) -> bool:
    """MindSpore looks for te and tbe, with which CANN compiles operators for an NPU. Nothing here needs them."""
    message = record.getMessage()
    return not any(text in message for text in ("No module named 'te'", 'whl package "te"', "the tbe operator"))


def activate_for_mindspore() -> None:
    """The same for MindSpore, without its lines of log about compilers that this CANN does not have."""
    if activate(FOR_MINDSPORE).cann == "cpu":
        import logging

        logging.getLogger(f"ME.mindspore.log.{os.getpid()}").addFilter(_without_compilers)


class _BeforePrograms:
    """A finder that finds nothing: it is asked for torch_npu and MindSpore before anybody else, and activates then."""

    asked = False
    asked_for_triton = False

    def find_spec(self, name, path=None, target=None):
        if name == "triton.backends" and not self.asked_for_triton:
            _BeforePrograms.asked_for_triton = True
            return _with_own_backend(name)
        if name == "mindspore" and not self.asked:
            _BeforePrograms.asked = True
            activate_for_mindspore()
        if name == "torch_npu" and not self.asked:
            # And it stays: a list that grows shorter while it is gone through skips the next finder.
            _BeforePrograms.asked = True
            if activate().cann == "cpu" and "memory" in os.environ.get("CANN_CPU_CHECK", "").split(","):
                return _with_own_tensors(name)
        return None


def install_hook() -> None:
    """Activates as soon as MindSpore is imported, or torch_npu, directly or by `import torch`."""
    sys.meta_path.insert(0, _BeforePrograms())
