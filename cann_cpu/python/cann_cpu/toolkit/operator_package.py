# SPDX-License-Identifier: Apache-2.0
"""Packs the parts of an operator package: into custom_opp_OS_ARCH.run, which installs it, or as they stand, with the
library of its functions, shared and static, which carries the rest and is linked by `find_package(VENDOR)`."""

import argparse
import gzip
import io
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from ..activation import HOME, LIBRARIES
from ..names import snake_case

# A shell script. The archive follows its last line.
INSTALLER = r"""#!/bin/sh
# Installs the operator package @vendor@. It needs only a POSIX shell.
set -e
vendor=@quoted@
usage() {
  cat <<TEXT
$0 [--install-path=FOLDER] [--quiet]
  installs the operators of vendor $vendor in FOLDER/vendors/$vendor; without FOLDER in \$ASCEND_OPP_PATH, where they
  are found with no further settings.
$0 --list | --extract=FOLDER | --help
TEXT
}
payload() { tail -n +@lines@ "$0"; }
path='' quiet='' extract=''
while [ $# -gt 0 ]; do
  case $1 in
    --install-path=*) path=${1#*=} ;;
    --install-path) path=$2; shift ;;
    --extract=*) extract=${1#*=} ;;
    --quiet) quiet=yes ;;
    --list) payload | tar tzf -; exit ;;
    --help|-h) usage; exit ;;
    *) echo "$0: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
if [ -n "$extract" ]; then mkdir -p "$extract"; payload | tar xzf - -C "$extract"; exit; fi
case $path in
  ''|/*) ;;
  *) echo "$0: --install-path=$path is not an absolute path" >&2; exit 1 ;;
esac
target=${path:-$ASCEND_OPP_PATH}
if [ -z "$target" ]; then
  echo "$0: no folder to install to: --install-path=FOLDER, or ASCEND_OPP_PATH, which CANN's set_env.sh sets" >&2
  exit 1
fi
place=$target/vendors/$vendor
mkdir -p "$place"
for part in framework op_proto op_impl op_api; do rm -rf "${place:?}/$part"; done
payload | tar xzf - -C "$target/vendors"
if [ -n "$path" ]; then
  mkdir -p "$place/bin"
  quoted=$(printf %s "$place" | sed "s/'/'\\\\''/g")
  printf "#!/bin/bash\\nexport ASCEND_CUSTOM_OPP_PATH='%s':\${ASCEND_CUSTOM_OPP_PATH}\\n" "$quoted" \
    > "$place/bin/set_env.bash"
  [ -n "$quiet" ] || echo "source $place/bin/set_env.bash makes programs find it"
else
  config=$target/vendors/config.ini
  others=$(sed -n 's/^load_priority=//p' "$config" 2>/dev/null | tr ',' '\n' | grep -vxF -e "$vendor" | paste -sd, -)
  echo "load_priority=$vendor${others:+,$others}" > "$config"
fi
[ -n "$quiet" ] || echo "installed in $place"
echo SUCCESS
exit 0
"""


def os_id() -> str:
    text = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    found = re.search(r'^ID="?([^"\n]*)', text, flags=re.MULTILINE)
    return found[1] if found else "linux"


KERNELS = "op_impl/ai_core/tbe/kernel"


def stage(folder: Path, autogen: Path, parts: list[str], compiled: list[str]) -> None:
    """The package as it is when it is installed. A part is PLACE=FILE or PLACE=FOLDER. The folders `compiled` have
    kernels as CHIP/OPERATOR/; those of an operator that was removed may still be there."""
    shutil.rmtree(folder, ignore_errors=True)
    names = {snake_case(each["type"]) for each in operators(autogen)}
    for kernels in map(Path, compiled):
        for kernel in kernels.glob("*/*"):
            if kernel.name in names:
                shutil.copytree(kernel, folder / KERNELS / kernel.relative_to(kernels))
    for part in parts:
        place, _, source = part.partition("=")
        to, found = folder / place, Path(source)
        to.mkdir(parents=True, exist_ok=True)
        if found.is_dir():
            shutil.copytree(found, to, dirs_exist_ok=True)
        else:
            shutil.copy2(found, to)
    for header in autogen.glob("aclnn_*.h"):
        include = folder / "op_api/include"
        include.mkdir(parents=True, exist_ok=True)
        shutil.copy2(header, include)
    if (folder / "op_proto").exists():
        (folder / "op_proto/inc").mkdir(exist_ok=True)
        shutil.copy2(autogen / "op_proto.h", folder / "op_proto/inc")
    tiling = folder / "op_impl/ai_core/tbe/op_tiling"
    for library in tiling.glob("lib/linux/*/libcust_opmaster_rt2.0.so"):
        (tiling / "liboptiling.so").symlink_to(library.relative_to(tiling))
    (folder / "version.info").write_text("custom_opp_compiler_version=cann_cpu\n")


def operators(autogen: Path) -> list[dict]:
    return json.loads((autogen / "operators.json").read_text())["operators"]


def check(folder: Path, autogen: Path) -> None:
    """Each operator has what a call of it needs."""
    kernels = folder / KERNELS
    for operator in operators(autogen):
        if operator["ai_core"] and kernels.exists() and not list(kernels.glob(f"*/{snake_case(operator['type'])}/*.o")):
            raise FileNotFoundError(f"{operator['type']} has no kernel in the package")


def write_installer(folder: Path, vendor: str, output: Path) -> Path:
    """What is in it depends on the files alone, and on SOURCE_DATE_EPOCH; not on who builds, nor on his umask."""
    date = os.environ.get("SOURCE_DATE_EPOCH")

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, "", ""
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        entry.mtime = int(date) if date else entry.mtime
        return entry

    archive = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=archive, mode="wb", compresslevel=4, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        tar.add(folder, arcname=vendor, filter=anonymous)
    script = INSTALLER.replace("@vendor@", vendor).replace("@quoted@", shlex.quote(vendor))
    script = script.replace("@lines@", str(script.count("\n") + 1))
    output.mkdir(parents=True, exist_ok=True)
    run = output / f"custom_opp_{os_id()}_{platform.machine()}.run"
    run.write_bytes(script.encode() + archive.getvalue())
    run.chmod(0o755)
    return run


# op_api/lib/cmake/VENDOR/VENDOR-targets.cmake. Nothing refers to the object that carries the package: the whole archive
# is linked.
TARGETS = """\
get_filename_component(_op_api "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET @vendor@::static)
  add_library(@vendor@::static INTERFACE IMPORTED)
  set_target_properties(@vendor@::static PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_op_api}/include"
    INTERFACE_LINK_LIBRARIES "-Wl,--whole-archive,${_op_api}/lib/lib@vendor@.a,--no-whole-archive;nnopbase;ascendcl")
  add_library(@vendor@::shared SHARED IMPORTED)
  set_target_properties(@vendor@::shared PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_op_api}/include"
    IMPORTED_LOCATION "${_op_api}/lib/libcust_opapi.so")
endif()
"""
CONFIG = 'include("${CMAKE_CURRENT_LIST_DIR}/@vendor@-targets.cmake")\n'


def embedding_source(folder: Path, vendor: str) -> str:
    """What makes an object with the files that the package's functions look for."""
    files = [path for path in sorted((folder / "op_impl").rglob("*")) if path.is_file() and not path.is_symlink()]
    data = "".join(f'file_{i}_begin: .incbin \\"{path}\\"\\nfile_{i}_end:\\n' for i, path in enumerate(files))
    declared = "".join(
        f'extern const char file_{i}_begin[] asm("file_{i}_begin"), file_{i}_end[] asm("file_{i}_end");\n'
        for i in range(len(files))
    )
    listed = "".join(
        f'  {{"{path.relative_to(folder)}", file_{i}_begin, file_{i}_end}},\n' for i, path in enumerate(files)
    )
    return f"""#include "cann_cpu/operator_call.h"
asm(".pushsection .rodata\\n{data}.popsection");
{declared}
static const cann_cpu::EmbeddedFile kFiles[] = {{
{listed}}};
static const cann_cpu::EmbeddedPackage kPackage("{vendor}", kFiles, sizeof(kFiles) / sizeof(kFiles[0]));
"""


def write_libraries(folder: Path, vendor: str, compiler: str, objects: list[str]) -> None:
    library = folder / "op_api/lib"
    cmake = library / "cmake" / vendor
    cmake.mkdir(parents=True)
    for name, text in (("targets", TARGETS), ("config", CONFIG)):
        (cmake / f"{vendor}-{name}.cmake").write_text(text.replace("@vendor@", vendor))
    if (folder / "op_proto/inc/op_proto.h").exists():
        shutil.copy2(folder / "op_proto/inc/op_proto.h", folder / "op_api/include")
    embedded = folder.parent / f"{vendor}_embedded.o"
    source = embedding_source(folder, vendor)
    options = ["-std=c++17", "-fPIC", f"-I{HOME}/include", "-x", "c++", "-", "-c", "-o", str(embedded)]
    subprocess.run([compiler, *options], input=source, text=True, check=True)
    linked = [*objects, str(embedded)]
    subprocess.run(["ar", "rcs", str(library / f"lib{vendor}.a"), *linked], check=True)
    options = [f"-L{LIBRARIES}", "-lnnopbase", "-lascendcl", f"-Wl,-rpath,{LIBRARIES}", "-o"]
    subprocess.run([compiler, "-shared", *linked, *options, str(library / "libcust_opapi.so")], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cann_cpu.toolkit.operator_package", description=__doc__)
    for name in ("vendor", "type", "output", "stage", "autogen"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("parts", nargs="*", metavar="PLACE=FILE")
    parser.add_argument("--kernels", nargs="*", default=[], help="folders of compiled kernels")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--objects", nargs="*", default=[], help="those of the aclnn functions")
    given = parser.parse_args()
    if not re.fullmatch(r"\w[\w.-]*", given.vendor, re.ASCII):
        allowed = "letters, digits, _, - and ."
        print(f"{given.vendor!r} is not a valid name for a vendor: expected {allowed}", file=sys.stderr)
        return 1
    folder, autogen = Path(given.stage), Path(given.autogen)
    try:
        stage(folder, autogen, given.parts, given.kernels)
        check(folder, autogen)
        if given.type == "RUN":
            print(write_installer(folder, given.vendor, Path(given.output)))
        else:
            write_libraries(folder, given.vendor, given.compiler, given.objects)
            shutil.copytree(folder, given.output, dirs_exist_ok=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{given.vendor}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
