# SPDX-License-Identifier: Apache-2.0
"""`python -m cann_cpu coverage`: which of the aclnn functions and node types that torch_npu names are served."""

import ast
import collections
import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import sys
from collections.abc import Iterable

from . import activation

FAMILIES = {
    "experts across ranks": r"MoeDistribute|AlltoAll|AllReduce|AllGather|ReduceScatter|FFN.*Attention|Attention.*FFN"
    r"|Worker|DistributeBarrier",
    "microscaling formats": r"MxQuant|BlockQuant|DualLevel",
    "native sparse attention": r"^Nsa",
    "sparse attention, MLA": r"Indexer|MlaProlog|SparseFlash|BlockSparse",
    "linear attention": r"DeltaRule|CausalConv1d|^Mhc",
    "attention, inference": r"FusedInfer|IncreFlash|PromptFlash|AttentionUpdate",
    "attention, training": r"FlashAttention|FloydAttention|FusedLinear|CrossEntropyLossWithMaxSum",
    "paged caches": r"KvCache|Kvcache|ScatterPa|ScatterList|QuantScatter",
    "rotary embeddings": r"Rope|Rotary",
    "mixture of experts": r"^Moe",
    "grouped products": r"Grouped(Mat|Bias)",
    "quantised products": r"Quant.*(Mat[Mm]ul|Convolution)|Mat[Mm]ul.*[Qq]uant",
    "quantisation": r"[Qq]uant",
    "foreach": r"^Foreach",
    "products": r"Mat[Mm]ul|[Mm]m$|mm[A-Z]|[Mm]v$|^Addr$|^Dot$|^(Inplace)?Bad|^FFN|Lora|Einsum|^Ger|FormatCast",
    "convolution, pooling": r"Conv|Pool|Im2col|Upsample|Unfold|GridSample|ROI|Pad[123]d|AffineGrid",
    "normalisation": r"Norm|Softmax|SoftMax",
    "sampling, random": r"Random|Normal|Uniform|Bernoulli|Multinomial|Drop[Oo]ut|Exponential|TopKTopP|TopkV|AdvanceStep"
    r"|Randperm",
    "activation, loss": r"Gelu|GeGlu|Glu|[Rr]elu|Silu|Sigmoid|Tanh|Elu|Mish|Swish|Softplus|Hard|Threshold|Shrink|Loss"
    r"|BinaryCross|KlDiv|Celu",
    "tensors, others": r"",
}
"""The first pattern that is found in a function's name, without aclnn, is that of its family."""

NO_FUNCTIONS = ("aclnnNotFound", "aclnnNotFoundV2")  # parts of messages
INPUTS_AND_OUTPUTS = {"Const", "Data", "NetOutput", "Tensor"}  # of torchair's graphs, and no operators


def family(function: str) -> str:
    name = function.removeprefix("aclnn")
    return next(each for each, pattern in FAMILIES.items() if re.search(pattern, name))


def _torch_npu() -> pathlib.Path:
    spec = importlib.util.find_spec("torch_npu")
    if spec is None:
        raise FileNotFoundError(f"torch_npu is not installed: pip install 'torch_npu=={activation.BUILT_FOR}.*'")
    return pathlib.Path(spec.submodule_search_locations[0])


def _names_in(*libraries: str | pathlib.Path) -> set[str]:
    """The names of functions that stand in libraries, called or defined."""
    content = b"".join(pathlib.Path(library).read_bytes() for library in libraries)
    return {name.decode() for name in re.findall(rb"(?<![ -~])aclnn[A-Z][A-Za-z0-9]+(?=\0)", content)}


def named_functions() -> set[str]:
    """The aclnn functions that torch_npu's libraries name."""
    names = _names_in(*(_torch_npu() / "lib").glob("*.so"))
    return {name.removesuffix("GetWorkspaceSize") for name in names}.difference(NO_FUNCTIONS)


def served_functions() -> set[str]:
    """The aclnn functions of libopapi."""
    names = _names_in(os.path.join(activation.LIBRARIES, "libopapi.so"))
    return {name.removesuffix("GetWorkspaceSize") for name in names if name.endswith("GetWorkspaceSize")} & names


def served_queries() -> set[str]:
    """The functions of libopapi that answer a question and start no task, so that they have one phase."""
    names = _names_in(os.path.join(activation.LIBRARIES, "libopapi.so"))
    return {name for name in names if name.endswith(("GetMaxWorkspaceSize", "CalculateSizeAndFormat"))}


@functools.cache
def named_node_types() -> set[str]:
    """The types of the nodes that torchair's converters emit: ge.Add(...), ge_op(op_type="Add", ...)."""
    types = set()
    for file in (_torch_npu() / "dynamo/torchair/_ge_concrete_graph/ge_converter").rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)):
            function = call.func
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                types |= {function.attr} if function.value.id == "ge" and function.attr[0].isupper() else set()
            types |= {k.value.value for k in call.keywords if k.arg == "op_type" and isinstance(k.value, ast.Constant)}
    return types - INPUTS_AND_OUTPUTS


def served_node_types() -> set[str]:
    """The built-in node types of libge_runner."""
    list_types = ctypes.CDLL(os.path.join(activation.LIBRARIES, "libge_runner.so")).cann_cpu_node_types
    list_types.restype = ctypes.c_char_p
    return set(list_types().decode().split())


def functions_of(text: str, named: set[str]) -> tuple[set[str], set[str]]:
    """The aclnn functions that a log or a source names, and torch_npu's operators whose functions are not known.

    ``torch_npu.npu_dynamic_quant`` stands for every version of aclnnDynamicQuant that torch_npu has `named`.
    """
    functions = {name.removesuffix("GetWorkspaceSize") for name in re.findall(r"\baclnn[A-Z][A-Za-z0-9]+", text)}
    versions = collections.defaultdict(set)
    for name in named:
        versions[re.sub(r"V\d+$", "", name.removeprefix("aclnn")).lower()].add(name)
    operators = set(re.findall(r"\b(?:torch_npu|torch\.ops\.npu)\.(_?npu_[a-z0-9_]+)", text))
    found = {each: versions.get(each.partition("npu_")[2].replace("_", "")) for each in operators}
    functions = functions.union(*filter(None, found.values()))
    return functions, {operator for operator, names in found.items() if not names}


def _print_names(names: Iterable[str]) -> None:
    for name in sorted(names):
        print(f"    {name}")


def main(file: str | None, missing: bool) -> int:
    """Prints the table; fails if a file is given that names a function which is not served."""
    try:
        named, served = named_functions(), served_functions() | served_queries()
        if file is not None:
            named, unknown = functions_of(pathlib.Path(file).read_text(errors="replace"), named)
    except OSError as error:
        print(f"cann_cpu: {error}", file=sys.stderr)
        return 2
    who = file or f"torch_npu {importlib.metadata.version('torch_npu')}"
    print(f"{len(named & served)} of the {len(named)} aclnn functions that {who} names are served\n")
    families = {name: {each for each in named if family(each) == name} for name in FAMILIES}
    print(f"{'family':<26}{'served':>8}{'named':>8}")
    for name, functions in families.items():
        if functions:
            print(f"{name:<26}{len(functions & served):>8}{len(functions):>8}")
            if missing or file is not None:
                _print_names(functions - served)
    if file is not None:
        if unknown:
            print("\noperators of torch_npu whose functions are not known by their names")
            _print_names(unknown)
        return 1 if named - served else 0
    types, served_types = named_node_types(), served_node_types()
    print(f"\n{len(types & served_types)} of the {len(types)} node types that torchair's converters emit are served")
    if missing:
        _print_names(types - served_types)
    return 0
