# SPDX-License-Identifier: Apache-2.0
"""For authors of operators: what writes their files, reads them and checks that they agree and work."""
