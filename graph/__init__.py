# SPDX-License-Identifier: Apache-2.0
"""The graph contract of operators: prototypes, the Graph Engine API and the converters; ``custom_pypto.graph`` of the
wheel."""
