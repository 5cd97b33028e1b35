# SPDX-License-Identifier: Apache-2.0
# Puts CANN on the CPU in the environment of a shell, as CANN's own set_env.sh does: source it, as often as you like.
_cann_cpu_home=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")" && pwd)

# Puts a folder in front of the list in a variable, unless it is there.
_cann_cpu_prepend() {
  eval "_cann_cpu_list=\${$1:-}"
  case ":$_cann_cpu_list:" in
    *":$2:"*) ;;
    *) export "$1=$2${_cann_cpu_list:+:$_cann_cpu_list}" ;;
  esac
}

export ASCEND_HOME_PATH=$_cann_cpu_home
export ASCEND_TOOLKIT_HOME=$_cann_cpu_home
export ASCEND_OPP_PATH=$_cann_cpu_home/opp
_cann_cpu_prepend PATH "$_cann_cpu_home/bin"
_cann_cpu_prepend PATH "$_cann_cpu_home/tools/profiler/bin"  # msprof, of torch_npu.profiler
_cann_cpu_prepend LD_LIBRARY_PATH "$_cann_cpu_home/lib64"
_cann_cpu_prepend PYTHONPATH "$_cann_cpu_home/python/site-packages"  # acl, pyACL
# Where find_package looks for tikicpulib and ASC.
_cann_cpu_prepend CMAKE_PREFIX_PATH "$_cann_cpu_home/tools/tikicpulib/lib/cmake"
_cann_cpu_prepend CMAKE_PREFIX_PATH "$_cann_cpu_home/compiler/tikcpp/ascendc_kernel_cmake"
"$_cann_cpu_home/bin/link_folders" || true
unset _cann_cpu_home _cann_cpu_list
unset -f _cann_cpu_prepend
