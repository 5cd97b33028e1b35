# SPDX-License-Identifier: Apache-2.0
# The environment of the toolkit: source it.
source "$(dirname "${BASH_SOURCE[0]}")/../set_env.sh"
