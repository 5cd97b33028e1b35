# SPDX-License-Identifier: Apache-2.0
# Puts CANN on the CPU in the environment of a shell, as CANN's own set_env.sh does: source it.
_cann_cpu_home=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")" && pwd)
export ASCEND_HOME_PATH=$_cann_cpu_home
export ASCEND_OPP_PATH=$_cann_cpu_home/opp
export LD_LIBRARY_PATH=$_cann_cpu_home/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
unset _cann_cpu_home
