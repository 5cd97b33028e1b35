"""reshape_and_cache as a node of a Graph Engine graph."""

import torch
from torchair import register_fx_node_ge_converter
from torchair.ge import Tensor

from .auto_generated_ge_raw_custom_ops import ReshapeAndCache

# torchair itself finds the caches among the nodes' outputs, by the names of their inputs. The operator with an optional
# value, the default overload, comes apart into these two before a graph is made.


@register_fx_node_ge_converter(torch.ops.custom_pypto.reshape_and_cache.key_value)
def convert_reshape_and_cache_key_value(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *,
    cache_layout: str = "ND",
    meta_outputs: None = None,
) -> None:
    """reshape_and_cache.key_value(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, ...) -> ()"""
    ReshapeAndCache(key, value, key_cache, value_cache, slot_mapping, cache_layout=cache_layout)


@register_fx_node_ge_converter(torch.ops.custom_pypto.reshape_and_cache.key)
def convert_reshape_and_cache_key(
    key: Tensor, key_cache: Tensor, slot_mapping: Tensor, *, cache_layout: str = "ND", meta_outputs: None = None
) -> None:
    """reshape_and_cache.key(Tensor key, Tensor(a!) key_cache, Tensor slot_mapping, *, str cache_layout='ND') -> ()"""
    ReshapeAndCache(key, None, key_cache, None, slot_mapping, cache_layout=cache_layout)
