# SPDX-License-Identifier: Apache-2.0
# find_package(tikreplaylib): projects of CANN 7 look for it, whether or not they replay an operator. None is replayed
# here, so there is no target tikreplaylib::ascend910b.
