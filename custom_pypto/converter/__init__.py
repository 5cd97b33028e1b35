# SPDX-License-Identifier: Apache-2.0
"""Converters of operators whose schema and prototype do not agree, a module each; beside them the Graph Engine API."""
