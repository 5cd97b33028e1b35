# SPDX-License-Identifier: Apache-2.0
"""`python -m cann_cpu`: says which CANN is in use, prints the path of set_env.sh, runs commands, kernels, projects."""

import argparse
import ctypes
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys

from . import activation

PACKAGES = ("torch", "torch_npu", "custom_pypto", "cann_cpu")


def info() -> int:
    """Prints which CANN is in use and why, versions, devices and what is missing; fails if something is."""
    choice = activation.choose()
    names = {"cpu": f"cann_cpu, {activation.HOME}", "real": "the machine's own CANN", "none": "none"}
    print(f"CANN               {names[choice.cann]}")
    print(f"  because          {choice.reason}")
    missing = []
    for package in PACKAGES:
        print(f"{package:<18} {_version(package) or 'not installed'}")
        if package in ("torch", "torch_npu") and not _version(package):
            missing.append(f"{package}: pip install '{package}=={activation.BUILT_FOR}.*'")
    missing += _missing_requirements()
    if not missing and choice.cann != "none":
        missing += _print_devices()
    if choice.cann == "cpu":
        _print_chip()
        packages = activation.operator_packages()
        print(f"operator packages  {', '.join(f'{k} ({v})' for k, v in packages.items()) or 'none'}")
    if not missing and choice.cann != "none":
        missing += _print_routes()
    for line in missing:
        print(f"missing            {line}")
    return 1 if missing or choice.cann == "none" else 0


def _print_chip() -> None:
    describe = ctypes.CDLL(os.path.join(activation.LIBRARIES, "libascendcl.so")).cann_cpu_describe_chip
    describe.restype = ctypes.c_char_p
    chip, reason = describe().decode().split("\n")
    print(f"chip               {chip}")
    print(f"  because          {reason}")


def _missing_requirements() -> list[str]:
    """What the wheels require and is not there, as torchair's imports, which torch_npu does not require."""
    requirements = (*_requirements("cann_cpu"), *_requirements("custom_pypto"))
    asked = dict.fromkeys(re.match(r"[\w.-]+", each)[0] for each in requirements if "extra ==" not in each)
    return [f"{name}: pip install {name}" for name in asked if name not in PACKAGES and not _version(name)]


def _requirements(package: str) -> list[str]:
    return (importlib.metadata.requires(package) or []) if _version(package) else []


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _print_devices() -> list[str]:
    """In this process, the way a user's program would: import torch and look."""
    try:
        import torch
        import torch_npu  # noqa: F401
        import torchair

        torchair.CompilerConfig  # noqa: B018  (torch_npu imports it no earlier)
    except Exception as error:
        reason = error.__cause__ or error  # torch says only that torch_npu does not load
        return [f"{type(reason).__name__}: {reason}"]
    print(f"torchair           {getattr(torchair, '__version__', 'of this torch_npu')}")
    for index in range(torch.npu.device_count()):
        free, total = torch.npu.mem_get_info(index)
        name = torch.npu.get_device_name(index)
        print(f"npu:{index}              {name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    return [] if torch.npu.device_count() else ["no device"]


def _print_routes() -> list[str]:
    """What the installed operator packages say themselves: the function `routes` of the Python package of each."""
    errors = []
    for entry in importlib.metadata.entry_points(group=activation.OPERATOR_PACKAGES):
        try:
            module = importlib.import_module(entry.value.partition(".")[0])
            routes = module.routes() if hasattr(module, "routes") else {}
        except Exception as error:
            errors.append(f"{entry.name}: {type(error).__name__}: {error}")
            continue
        for operator, route in routes.items():
            print(f"{operator:<50} {route}")
    return errors


def home() -> int:
    """Prints the folder in CANN's layout that projects are built against."""
    activation.link_folders()
    print(activation.HOME)
    return 0


def run(command: list[str], options: argparse.Namespace) -> int:
    """Runs a command with this CANN in its environment, whatever other CANN there is."""
    folders = dict.fromkeys([activation.LIBRARIES, *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))])
    variables = {**os.environ, **activation.environment(), "LD_LIBRARY_PATH": ":".join(folders)}
    variables.pop("CANN_CPU", None)
    try:
        if not options.check:
            return subprocess.run(command, env=variables).returncode
        from .checks import Options, run_checked

        return run_checked(command, variables, Options(options.check, options.report, options.seeds, options.ignore))
    except ValueError as error:
        print(f"cann_cpu: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename != command[0]:
            raise
        is_file = isinstance(error, PermissionError)
        remedy = f"; to run a Python program: python {command[0]}" if is_file and command[0].endswith(".py") else ""
        print(f"cann_cpu: {command[0]} does not start: {error.strerror}{remedy}", file=sys.stderr)
        return 126 if is_file else 127  # as a shell


def kernel(source: str, debug: bool, **options) -> int:
    """Compiles a file of kernels and runs the one that its description gives arguments for."""
    from .kernel import KernelError
    from .kernel_command import debug_described, run_described

    try:
        return debug_described(source, **options) if debug else run_described(source, **options)
    except KernelError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{source}: interrupted", file=sys.stderr, flush=True)
        os._exit(130)  # the kernel may still be running


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cann_cpu", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="which CANN is in use and why, versions, devices, what is missing")
    commands.add_parser("home", help="print the toolkit's folder: export ASCEND_HOME_PATH=$(python -m cann_cpu home)")
    commands.add_parser("set_env", help="print the path of set_env.sh: source $(python -m cann_cpu set_env)")
    coverage_parser = commands.add_parser(
        "coverage", help="which of the aclnn functions and node types that torch_npu names are served"
    )
    coverage_parser.add_argument("file", metavar="FILE", nargs="?", help="a log or a source: which it names instead")
    coverage_parser.add_argument("--missing", action="store_true", help="print the names that are not served")
    profile_parser = commands.add_parser("profile", help="print what launches cost under ASCENDC_CPU_PROFILE=FOLDER")
    profile_parser.add_argument("folder", metavar="FOLDER")
    project_parser = commands.add_parser(
        "project", help="build a project as it is, call its operators, run its test: a table"
    )
    project_parser.add_argument("folder", metavar="FOLDER")
    project_parser.add_argument("--keep", metavar="FOLDER", help="work in this folder, and leave it")
    run_parser = commands.add_parser("run", help="run a command on this CANN: run -- COMMAND")
    run_parser.add_argument(
        "--check", metavar="NAME[,NAME]", help="check the program: cost, fault:..., memory, race, schedule"
    )
    run_parser.add_argument("--report", metavar="FILE", help="write what the checks report, as JSON")
    run_parser.add_argument("--seeds", metavar="A..B", help="of schedule: run once for each, and compare the results")
    run_parser.add_argument("--ignore", metavar="REGEX", help="parts of the output that are no part of the result")
    run_parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    kernel_parser = commands.add_parser(
        "kernel", help="compile an Ascend C kernel, run it on arrays, check what it does"
    )
    kernel_parser.add_argument("source", metavar="FILE.cpp")
    kernel_parser.add_argument("description", metavar="FILE.py", nargs="?", help="its arguments (default: beside it)")
    kernel_parser.add_argument("--no-checks", action="store_true", help="run as fast as it goes, unchecked")
    kernel_parser.add_argument("--profile", action="store_true", help="what it costs by the model of the device")
    kernel_parser.add_argument(
        "--timeline", metavar="FILE", help="write its timeline by the model: a Chrome trace, or a picture (.png)"
    )
    kernel_parser.add_argument("--debug", action="store_true", help="stop in gdb where it begins; FILE.so stays")
    kernel_parser.add_argument("--library", metavar="FILE.so", help="run what --debug has compiled")
    given = {"action": "append", "dest": "options", "default": []}
    kernel_parser.add_argument("-I", **given, type="-I{}".format, metavar="FOLDER", help="where to look for headers")
    kernel_parser.add_argument("-D", **given, type="-D{}".format, metavar="NAME[=TEXT]", help="define a macro")
    auto_sync = "--cce-auto-sync"
    constant = {**given, "action": "append_const"}
    on = {**constant, "const": auto_sync, "help": "the device's compiler inserts flags and barriers"}
    kernel_parser.add_argument(auto_sync, f"{auto_sync}=on", **on)
    kernel_parser.add_argument(f"{auto_sync}=off", **constant, const=f"{auto_sync}=off", help="it inserts none")
    arguments = parser.parse_args()
    if arguments.command == "info":
        return info()
    if arguments.command == "home":
        return home()
    if arguments.command == "set_env":
        print(os.path.join(activation.HOME, "set_env.sh"))
        return 0
    if arguments.command == "coverage":
        from .coverage import main as print_coverage

        return print_coverage(arguments.file, arguments.missing)
    if arguments.command == "project":
        from .toolkit.project import main as check_project

        return check_project(arguments.folder, arguments.keep)
    if arguments.command == "profile":
        from .profiler.kernel_costs import print_folder

        return print_folder(arguments.folder)
    if arguments.command == "kernel":
        given = vars(arguments)
        del given["command"]
        given["checks"] = not given.pop("no_checks")
        given["profile"] |= given["timeline"] is not None
        if given["profile"] and (given["debug"] or not given["checks"]):
            parser.error("a profile is generated from the checks' records: leave out --no-checks and --debug")
        return kernel(**given)
    command = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not command:
        run_parser.error("no command; python -m cann_cpu run -- COMMAND")
    return run(command, arguments)


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # as under `| head`, which reads a part
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)
