# SPDX-License-Identifier: Apache-2.0
"""The prototypes of cann-recipes-infer's operator package, whose operators of our types take and give lists.

They have DYNAMIC_INPUT(x) and DYNAMIC_OUTPUT(y), where ours name every input, output and attribute. What they have no
place for is compiled into its kernels, as are most sizes: a call that wants something else is rejected.
"""

import math
import warnings
from dataclasses import dataclass

import torch
from torchair._ge_concrete_graph import ge_apis as ge
from torchair.core import _torchair
from torchair.ge import Tensor, custom_op

from ..definition import Prototype, same

BF16, FP16, FP32, INT8 = torch.bfloat16, torch.float16, torch.float32, torch.int8
INT32, INT64 = torch.int32, torch.int64
ANY, SOME = range(2**63), range(1, 2**63)


@dataclass(frozen=True)
class Lists:
    """A prototype of two lists."""

    inputs: dict[str, tuple]
    """The arguments that are x0, x1, ..., each with its dtype and its sizes; a range holds those that are possible."""
    fixed: dict[str, tuple]
    """The values that its kernel can have for the other arguments."""
    blocks: tuple[str, ...] = ()
    """The matrices whose elements it reads in the order of FRACTAL_NZ, though they are marked ND."""


UPSTREAM = {
    "LightningIndexerPto": Lists(
        inputs={
            "query": (BF16, range(1, 129), range(1, 5), 64, 128),
            "key": (BF16, ANY, 128, 1, 128),
            "weights": (BF16, range(1, 129), range(1, 5), 64),
            "actual_seq_lengths_key": (INT32, range(1, 129)),
            "block_table": (INT32, range(1, 129), ANY),
        },
        fixed={
            "layout_query": ("BSND",),
            "layout_key": ("PA_BSND",),
            "actual_seq_lengths_query": (None,),
            "sparse_count": (2048,),
            "sparse_mode": (3,),
        },
    ),
    "LightningIndexerPrologPto": Lists(
        inputs={
            "token_x": (BF16, SOME, 7168),
            "q_norm": (INT8, SOME, 1536),
            "q_norm_scale": (FP32, SOME, 1),
            "wq_b": (INT8, 1536, 8192),
            "wq_b_scale": (FP32, 8192, 1),
            "wk": (BF16, 7168, 128),
            "weights_proj": (BF16, 7168, 64),
            "ln_gamma_k": (BF16, 128),
            "ln_beta_k": (BF16, 128),
            "cos_idx_rope": (BF16, SOME, 64),
            "sin_idx_rope": (BF16, SOME, 64),
            "hadamard_q": (BF16, 128, 128),
            "hadamard_k": (BF16, 128, 128),
            "idx_k_cache": (INT8, ANY, 128, 1, 128),
            "idx_k_scale_cache": (FP16, ANY, 128, 1),
            "idx_k_cache_index": (INT64, SOME),
        },
        fixed={
            "layernorm_epsilon_k": (1e-6,),
            "layout_query": ("TND", None),
            "layout_key": ("PA_BSND", None),
            "rope_mode": ("interleave",),
        },
    ),
    "SparseAttentionPto": Lists(
        inputs={
            "x": (BF16, 4, range(1, 3), 7168),
            "w_dq": (BF16, 7168, 1536),
            "w_uq_qr": (BF16, 1536, 24576),
            "w_uk": (BF16, 128, 128, 512),
            "w_dkv_kr": (BF16, 7168, 576),
            "gamma_cq": (BF16, 1536),
            "gamma_ckv": (BF16, 512),
            "sin": (BF16, 4, range(1, 3), 64),
            "cos": (BF16, 4, range(1, 3), 64),
            "cache_index": (INT32, 4, range(1, 3)),
            "kv_cache": (BF16, range(4097), 128, 1, 512),
            "kr_cache": (BF16, range(4097), 128, 1, 64),
            "block_table": (INT32, 4, range(1025)),
            "act_seqs": (INT32, 4),
            "w_idx_qb": (BF16, 1536, 8192),
            "w_idx_k": (BF16, 7168, 128),
            "w_idx_proj": (BF16, 7168, 64),
            "in_gamma_k": (BF16, 128),
            "in_beta_k": (BF16, 128),
            "index_k_cache": (BF16, ANY, 128, 1, 128),
        },
        fixed={
            "sparse_count": (2048,),
            "softmax_scale": (None, 1 / math.sqrt(512 + 64)),
            "rms_norm_eps": (1e-5,),
            "layer_norm_eps": (1e-6,),
            "rope_mode": ("interleave",),
            "indexer_rope_mode": ("interleave",),
        },
        blocks=("w_dq", "w_uq_qr", "w_dkv_kr", "w_idx_qb", "w_idx_k", "w_idx_proj"),
    ),
}
"""By the operators' types, as of cann-recipes-infer fbc225d."""


def registered_instead(prototype: Prototype) -> Lists | None:
    """What the engine has of an operator type in place of our prototype; None: it has ours, or none that it tells."""
    status, inputs, outputs, attributes = _torchair.get_registered_ir_def(prototype.type)
    ours = [*prototype.inputs.items()], [*prototype.outputs.items()], [*prototype.attributes]
    if status != "SUCCESS" or (inputs, outputs, [name for name, _ in attributes]) == ours:
        return None
    if (inputs, outputs) == ([("x", "dynamic")], [("y", "dynamic")]) and prototype.type in UPSTREAM:
        return UPSTREAM[prototype.type]
    raise RuntimeError(
        f"the prototype of {prototype.type} that is registered takes {inputs} and gives {outputs} with attributes "
        f"{attributes}, ours takes {ours[0]} and gives {ours[1]} with {ours[2]}: name our operator package before the "
        "others, in ASCEND_CUSTOM_OPP_PATH or in load_priority of vendors/config.ini, or bring it up to date"
    )


def convert(op: torch._ops.OpOverload, given: dict, lists: Lists, ge_type: str) -> Tensor | tuple[Tensor, ...]:
    """Adds the node to the graph.

    That it writes to inputs is not declared, so torchair copies them before it and takes from the copies what comes
    after it; the node must be the last that is added.
    """
    given = {argument.name: argument.default_value for argument in op._schema.arguments} | given

    def reject(name: str, expected: str, found: str):
        raise RuntimeError(
            f"{op._schema.name}: argument '{name}' must be {expected}, but is {found}; the operator package that "
            f"registers {ge_type} with inputs x and outputs y can do nothing else: name that of custom_pypto before it "
            "in ASCEND_CUSTOM_OPP_PATH"
        )

    for name, values in lists.fixed.items():
        if not any(same(given[name], value) for value in values):
            reject(name, " or ".join(map(repr, values)), repr(given[name]))
    for name, (dtype, *sizes) in lists.inputs.items():
        if given[name] is None:
            reject(name, "given", "None")
        meta = given[name].meta
        if meta.dtype != dtype or len(meta.shape) != len(sizes) or not all(map(_fits, meta.shape, sizes)):
            reject(name, f"{dtype} of shape [{', '.join(map(_text, sizes))}]", f"{meta.dtype} of {[*meta.shape]}")
    tensors = [
        _in_blocks(given[name], *sizes) if name in lists.blocks else given[name]
        for name, (_, *sizes) in lists.inputs.items()
    ]
    warnings.warn(
        f"{op._schema.name}: the graph has the node that another operator package registers as {ge_type}, with inputs "
        "x and outputs y",
        stacklevel=2,
    )
    results = len(op._schema.returns)
    outputs = custom_op(ge_type, inputs={"x": tensors}, outputs=[("y", results)])
    return outputs[0] if results == 1 else tuple(outputs)


def _fits(size: int | torch.SymInt, allowed: int | range) -> bool:
    return allowed.start <= size < allowed.stop if isinstance(allowed, range) else size == allowed


def _text(allowed: int | range) -> str:
    if isinstance(allowed, int):
        return str(allowed)
    return f"{allowed.start} or more" if allowed.stop == 2**63 else f"{allowed.start} to {allowed.stop - 1}"


def _in_blocks(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """The elements of a matrix of two bytes each in the order of FRACTAL_NZ, as a matrix."""
    strips = ge.Transpose(ge.Reshape(matrix, [rows, columns // 16, 16]), [1, 0, 2])
    return ge.Reshape(strips, [rows, columns])
