# SPDX-License-Identifier: Apache-2.0
"""Every operator compiled ahead, in three ways: a second process runs what the first one saved. And training steps."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cache_calls
import prolog_calls
import pytest
import references
import torch
import torch_npu  # noqa: F401
import torch_versions
import torchair
from calls import assert_same, caches_of, copied, on, overload, results
from kernels import in_a_process
from torchair._ge_concrete_graph.ge_ir_pb2 import ModelDef

import custom_pypto


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Call(torch.nn.Module):
    """Calls an operator. torchair finds a cache by the module's class and representation, and by the options."""

    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def extra_repr(self):
        return self.operator

    def forward(self, arguments):
        return overload(self.operator)(**arguments)


def added(rows):
    return {"self": torch.randn(rows, 1), "other": torch.randn(rows + 4).half()}


SMALL = {"heads": 6, "key_heads": 2, "depth": 16, "block_size": 8}


def indexed(lengths, queries):
    return references.lightning_indexer_inputs(lengths, queries=queries, **SMALL) | {"sparse_count": 7}


def indexed_in_int8(lengths, queries):
    return references.lightning_indexer_quant_inputs(lengths, queries=queries, **SMALL) | {"sparse_count": 7}


def attended(lengths, queries):
    return references.sparse_flash_attention_inputs(
        lengths, queries=queries, count=7, value_depth=12, rope_depth=9, **SMALL
    )


# Two calls of each operator. Everything is compiled for the first one. What takes dynamic shapes is called with both,
# with the same numbers, as these become constants of the compiled graph.
CALLS = {
    "add_custom": (lambda: added(3), lambda: added(6)),
    "npu_lightning_indexer_pto": (lambda: indexed([20, 9, 30], 4), lambda: indexed([7, 25, 3, 11, 40], 3)),
    "npu_lightning_indexer_quant_pto": (
        lambda: indexed_in_int8([20, 9, 30], 4),
        lambda: indexed_in_int8([7, 25, 3, 11, 40], 3),
    ),
    "npu_lightning_indexer_prolog_pto": (
        lambda: prolog_calls.prolog((2, 3)),
        lambda: prolog_calls.prolog((9, 4), cache=(6, 8)),
    ),
    "npu_sparse_attention_pto": (
        lambda: prolog_calls.layer([20, 3], queries=3),
        lambda: prolog_calls.layer([9, 33, 70, 6, 8], queries=4),
    ),
    "npu_sparse_flash_attention_pto": (lambda: attended([20, 9, 30], 4), lambda: attended([7, 25, 3, 11, 40], 3)),
    "reshape_and_cache": (
        lambda: cache_calls.write(5, value_depth=20),
        lambda: cache_calls.write(9, value_depth=28, cache=(4, 12)),
    ),
    "advance_step_flashattn": (
        lambda: cache_calls.step([5, 20, 31], padding=2),
        lambda: cache_calls.step([7, 60, 31], padding=2, table_width=9),
    ),
}


# ---- the ways: what a process saves, and what a later one makes a function of


@dataclass
class Way:
    save: Callable  # (operator, arguments, folder)
    load: Callable  # (operator, folder): a function of the arguments
    dynamic: bool = False


def cached(mode):
    def compiled(operator, folder):
        config = torchair.CompilerConfig()
        if mode == "npugraph_ex":
            config.mode = mode
        return torchair.inference.cache_compile(
            Call(operator).forward, config=config, dynamic=mode == "GE dynamic", cache_dir=str(folder / "cache")
        )

    def save(operator, arguments, folder):
        compiled(operator, folder)(copied(arguments))

    return Way(save, compiled, mode == "GE dynamic")


def save_air(operator, arguments, folder):
    torchair.dynamo_export(
        arguments, model=Call(operator), export_path=str(folder / operator), config=torchair.CompilerConfig()
    )


def load_air(operator, folder):
    """Runs the exported graph, whose last outputs are the caches: they are assigned the caller's memory."""
    from torchair.core._backend import initialize_graph_engine
    from torchair.ge._ge_graph import GeGraph

    options = {"global": {}, "graph": {}}
    if torch_versions.EXPORT_WRITES_OPTIONS:
        options = json.loads((folder / operator / "options.json").read_text())["compile options"]
    initialize_graph_engine(options["global"])
    graph = GeGraph(serialized_model_def=(folder / operator / "export.air").read_bytes(), name=operator)
    graph.load(options["graph"])
    graph.compile()

    def run(arguments):
        returned = len(overload(operator)._schema.returns)
        caches = [arguments[name] for name in caches_of(operator)]
        tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
        return tuple(graph.run(tensors, [*[None] * returned, *caches])[:returned])

    return run


def save_program(operator, arguments, folder):
    shapes = {
        name: dict.fromkeys(range(value.dim()), torch.export.Dim.AUTO) if isinstance(value, torch.Tensor) else None
        for name, value in arguments.items()
    }
    program = torch.export.export(Call(operator), (arguments,), dynamic_shapes=(shapes,))
    torch.export.save(program, folder / f"{operator}.pt2")


def load_program(operator, folder):
    return torch.export.load(folder / f"{operator}.pt2").module()


WAYS = {
    "cache_compile, GE static": cached("GE static"),
    "cache_compile, GE dynamic": cached("GE dynamic"),
    "cache_compile, npugraph_ex": cached("npugraph_ex"),
    "dynamo_export": Way(save_air, load_air),
    "torch.export": Way(save_program, load_program, dynamic=True),
}


def calls_of(operator, way, folder):
    calls = torch.load(folder / f"{operator}.calls")
    return [on("npu", call) for call in (calls if way.dynamic else calls[:1])]


def called(function, operator, arguments):
    """What the function gives and writes, on the host."""
    given = results(function(arguments))
    return [tensor.cpu() for tensor in (*given, *(arguments[name] for name in caches_of(operator)))]


def run_what_was_saved():
    """In a separate process: saves {(operator, way): what each call gave, or the error}, and what Dynamo traced."""
    folder = Path(os.environ["AHEAD"])
    for operator in CALLS:
        packet = overload(operator).overloadpacket
        for name in packet.overloads():
            getattr(packet, name)._ge_converter = object()  # to use it is an error
    gave = {}
    for operator in CALLS:
        for name, way in WAYS.items():
            try:
                function = way.load(operator, folder)
                gave[operator, name] = [called(function, operator, a) for a in calls_of(operator, way, folder)]
            except Exception as error:
                gave[operator, name] = f"{type(error).__name__}: {error}"
    torch.save((gave, dict(torch._dynamo.utils.counters["stats"])), folder / "gave")
    print("done")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder in which this process has saved every operator in every way."""
    folder = tmp_path_factory.mktemp("ahead")
    for operator, makes in CALLS.items():
        torch.save([make() for make in makes], folder / f"{operator}.calls")
        for way in WAYS.values():
            torch._dynamo.reset()
            way.save(operator, calls_of(operator, way, folder)[0], folder)
    return folder


def cache_files(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "cache").rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def second_process(saved):
    """What a second process gives with what was saved, what it traced, and whether it left the caches alone."""
    before = cache_files(saved)
    in_a_process(run_what_was_saved, AHEAD=str(saved))
    return *torch.load(saved / "gave"), before == cache_files(saved)


# ---- the tests


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("operator", CALLS)
def test_a_second_process_gives_the_bits_of_eager_in_every_way(operator, way, saved, second_process):
    given = second_process[0][operator, way]
    assert not isinstance(given, str), given
    for got, arguments in zip(given, calls_of(operator, WAYS[way], saved), strict=True):
        assert_same(tuple(got), tuple(called(lambda arguments: overload(operator)(**arguments), operator, arguments)))


def test_the_second_process_compiles_nothing(saved, second_process):
    _, traced, caches_are_as_before = second_process
    assert traced == {}
    assert caches_are_as_before
    assert len(cache_files(saved)) == len(CALLS) * len([way for way in WAYS if way.startswith("cache_compile")])


@pytest.mark.parametrize("operator", CALLS)
def test_an_exported_graph_holds_the_operator_and_gives_the_caches_after_its_results(operator, saved):
    (graph,) = ModelDef.FromString((saved / operator / "export.air").read_bytes()).graph
    nodes = {node.type: node for node in graph.op}
    node_type = operator.removeprefix("npu_").title().replace("_", "")
    caches = caches_of(operator)
    assert node_type in nodes
    assert sum(node.type == "RefData" for node in graph.op) == len(caches)
    assert len(nodes["NetOutput"].input) == len(overload(operator)._schema.returns) + len(caches)
    assert {output.name for output in nodes[node_type].output_desc} >= set(caches)
    assert node_type in (saved / operator / "dynamo.pbtxt").read_text()


@pytest.mark.parametrize("operator", CALLS)
def test_an_exported_program_says_what_it_writes_and_can_be_made_functional(operator, saved):
    program = torch.export.load(saved / f"{operator}.pt2").run_decompositions()
    mutated = program.graph_signature.user_inputs_to_mutate.values()
    assert [name.removeprefix("arguments_") for name in mutated] == caches_of(operator)


class AddBias(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(5))

    def forward(self, x):
        return custom_pypto.add_custom(x, self.bias)


def test_parameters_are_constants_of_an_exported_graph(tmp_path):
    module = AddBias().npu()
    torchair.dynamo_export(
        torch.randn(3, 5).npu(), model=module, export_path=str(tmp_path), config=torchair.CompilerConfig()
    )
    (graph,) = ModelDef.FromString((tmp_path / "export.air").read_bytes()).graph
    assert [node.type for node in graph.op] == ["Const", "Data", "AddCustom", "NetOutput"]
    constant = graph.op[0].attr["value"].t
    assert constant.data == module.bias.detach().cpu().numpy().tobytes()


# ---- torchair's own limits, with what a user sees


def test_only_methods_of_modules_can_be_cached():
    with pytest.raises(ValueError, match="Only method can be cached now"):
        torchair.inference.cache_compile(custom_pypto.add_custom)


def test_a_call_of_other_sizes_ends_a_static_cache_with_a_warning(tmp_path):
    module = AddBias().npu()
    function = torchair.inference.cache_compile(module.forward, dynamic=False, cache_dir=str(tmp_path))
    function(torch.randn(3, 5).npu())
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
    x = torch.randn(4, 5).npu()
    with pytest.warns(UserWarning, match="Skip cache as .* recompiled"):
        assert torch.equal(function(x).cpu(), module(x).detach().cpu())
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_cached_function_has_no_gradient(tmp_path):
    module = AddBias().npu()
    function = torchair.inference.cache_compile(module.forward, cache_dir=str(tmp_path))
    assert not function(torch.randn(3, 5).npu()).requires_grad


# ---- a training step


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(7, 5)
        self.bias = torch.nn.Parameter(torch.randn(5))
        self.down = torch.nn.Linear(5, 11)

    def forward(self, x):
        return self.down(custom_pypto.add_custom(self.up(x), self.bias).relu())


def train(compiled, make_optimizer, batches):
    """The losses and the parameters after a step for each batch; `compiled` is for the network, the step, or None."""
    torch.manual_seed(0)
    network = Network().npu()
    optimizer = make_optimizer(network.parameters())
    forward = compiled["network"](network) if "network" in compiled else network

    def step(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = compiled["step"](step) if "step" in compiled else step
    losses = [step(torch.randn(rows, 7).npu(), torch.randn(rows, 11).npu()).item() for rows in batches]
    return losses, [parameter.detach().cpu() for parameter in network.parameters()]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.1)


def adam_to_compile(parameters):
    return torch.optim.Adam(parameters, lr=0.1, foreach=False, capturable=True)


CAN_BE_OFF = torch_versions.DECOMPOSITIONS_CAN_BE_TURNED_OFF
WITHOUT_DECOMPOSITIONS = {"enable_dynamo_decompositions": False} if CAN_BE_OFF else {}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("part", "make_optimizer"),
    [("network", sgd), ("network", adam), ("step", sgd), ("step", adam_to_compile)],
    ids=["SGD, eager", "Adam, eager", "SGD, compiled", "Adam, compiled"],
)
def test_training_in_ge_graphs_gives_the_bits_of_eager(part, make_optimizer, dynamic):
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return torchair.get_npu_backend()(module, inputs)

    def in_graphs(function):
        return torch.compile(function, backend=backend, dynamic=dynamic)

    batches = (4, 6, 9) if dynamic else (4, 4, 4)
    with torch._dynamo.config.patch(WITHOUT_DECOMPOSITIONS):
        losses, parameters = train({part: in_graphs}, make_optimizer, batches)
    eager_losses, eager_parameters = train({}, make_optimizer, batches)
    assert graphs
    exact = {"rtol": 0, "atol": 0} if CAN_BE_OFF or make_optimizer is not adam_to_compile else {}
    torch.testing.assert_close((losses, parameters), (eager_losses, eager_parameters), **exact)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param({}, "Expected scalars to be on CPU", id="as it is"),
        pytest.param(
            {"foreach": False, "capturable": True},
            "converter for prims.fma.default",
            id="as Dynamo decomposes it",
            marks=pytest.mark.skipif(not CAN_BE_OFF, reason="this Dynamo decomposes it into what is converted"),
        ),
    ],
)
def test_adam_is_compiled_only_for_each_parameter_and_without_dynamo_s_decompositions(options, error):
    def in_graphs(function):
        return torch.compile(function, backend=torchair.get_npu_backend(), dynamic=False)

    with pytest.raises(RuntimeError, match=error):
        train({"step": in_graphs}, lambda parameters: torch.optim.Adam(parameters, **options), [4])
