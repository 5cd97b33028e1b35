# SPDX-License-Identifier: Apache-2.0
"""Operations of triton-ascend beyond triton's language."""


def handlers(engine) -> dict:
    """Functions by (module, name)."""
    return {}
