# SPDX-License-Identifier: Apache-2.0
"""A schema as the templates of a new operator use it: what each argument and result is in each of the files.

Also explains why a schema is rejected.
"""

import json
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ..graph import prototypes


class Rejected(Exception):
    """Why no operator can be made, in a line that says what to do."""


@dataclass(frozen=True)
class TensorKind:
    """An argument that is a tensor, an optional one, or a list of them."""

    presence: str
    """The presence of an input in a definition."""
    shape: str
    """What gives its shape, and with another last word its dtype, in inference and tiling."""
    parameter: str
    """The type of a C++ parameter."""
    kernel: str
    written_kernel: str
    """The type of a kernel's parameter, as cann_cpu/op.h has it."""
    python: str
    sample: str
    """A value in a call, in Python."""


TENSORS = {
    "Tensor": TensorKind(
        "REQUIRED", "GetRequiredInput", "const Tensor&", "const Tensor&", "InOut", "Tensor", "torch.randn(3, 5)"
    ),
    "Optional[Tensor]": TensorKind(
        "OPTIONAL",
        "GetOptionalInput",
        "const std::optional<Tensor>&",
        "const std::optional<Tensor>&",
        "",
        "Tensor | None",
        "torch.randn(3, 5)",
    ),
    "List[Tensor]": TensorKind(
        "DYNAMIC",
        "GetDynamicInput",
        "at::TensorList",
        "const std::vector<Tensor>&",
        "",
        "list[Tensor]",
        "[torch.randn(3, 5), torch.randn(2, 7)]",
    ),
}


@dataclass(frozen=True)
class AttributeKind:
    """An argument that is no tensor."""

    definition: str
    """Its type in a definition."""
    value: str
    """The C++ type of a value."""
    parameter: str
    """The type of a C++ parameter; in kernels too, if `kernel` is empty."""
    python: str
    sample: str
    """A value in a call, in Python."""
    kernel: str = ""
    tiling: str = ""
    """The C++ type in which a kernel in Ascend C gets it, with the tiling; it gets no text and no list."""
    saved: str = ""
    """The C++ type in which autograd keeps it, if that is not `value`."""


ATTRIBUTES = {
    "int": AttributeKind("Int", "int64_t", "int64_t", "int", "2", tiling="int64_t"),
    "float": AttributeKind("Float", "double", "double", "float", "0.5", tiling="float"),
    "bool": AttributeKind("Bool", "bool", "bool", "bool", "True", tiling="bool"),
    "str": AttributeKind("String", "std::string", "const std::string&", "str", '"text"'),
    "List[int]": AttributeKind(
        "ListInt",
        "at::IntArrayRef",
        "at::IntArrayRef",
        "list[int] | tuple[int, ...]",
        "[1, 2]",
        saved="std::vector<int64_t>",
    ),
    "List[float]": AttributeKind(
        "ListFloat",
        "at::ArrayRef<double>",
        "at::ArrayRef<double>",
        "list[float] | tuple[float, ...]",
        "[0.5, 2.0]",
        kernel="at::ArrayRef<float>",
        saved="std::vector<double>",
    ),
    "List[bool]": AttributeKind(
        "ListBool",
        "c10::List<bool>",
        "const c10::List<bool>&",
        "list[bool] | tuple[bool, ...]",
        "[True, False]",
        kernel="at::ArrayRef<bool>",
    ),
}


def literal(value) -> str:
    """A default in C++."""
    return "{" + ", ".join(map(json.dumps, value)) + "}" if isinstance(value, list) else json.dumps(value)


@dataclass(frozen=True)
class Argument:
    """An argument of a schema, as the templates ask for it."""

    name: str
    type: str
    """As prototypes.type_of says it, but an attribute's without Optional."""
    optional: bool
    required: bool
    """It has no default."""
    default: object
    written: bool
    keyword_only: bool

    @staticmethod
    def of(argument) -> "Argument":
        full = prototypes.type_of(argument)
        return Argument(
            argument.name,
            full if full in TENSORS else re.sub(r"^Optional\[(.*)\]$", r"\1", full),
            full.startswith("Optional"),
            not argument.has_default_value(),
            argument.default_value,
            prototypes.is_written(argument),
            argument.kwarg_only,
        )

    @property
    def is_tensor(self) -> bool:
        return self.type in TENSORS

    @property
    def is_list(self) -> bool:
        return self.type == "List[Tensor]"

    @property
    def kind(self):
        return TENSORS[self.type] if self.is_tensor else ATTRIBUTES[self.type]

    @property
    def parameter(self) -> str:
        optional = self.optional and not self.is_tensor
        return f"{f'const std::optional<{self.kind.value}>&' if optional else self.kind.parameter} {self.name}"

    @property
    def checked_parameter(self) -> str:
        """The parameter of the function on Meta, which does not use attributes yet."""
        return self.parameter if self.is_tensor else f"{self.parameter.removesuffix(self.name)}/*{self.name}*/"

    @property
    def kernel_parameter(self) -> str:
        kind = self.kind.written_kernel if self.written else self.kind.kernel or self.kind.parameter
        return f"{kind} {self.name}"

    @property
    def absent(self):
        """The default in a definition, which stands for None."""
        kind = prototypes.ATTRIBUTES[self.type]
        return prototypes.ABSENT.get(kind, []) if self.default is None else self.default

    @property
    def in_definition(self) -> str:
        presence, value = ("REQUIRED", "") if self.required else ("OPTIONAL", literal(self.absent))
        return f'Attr("{self.name}").AttrType({presence}).{self.kind.definition}({value})'

    @property
    def python_type(self) -> str:
        return self.kind.python + " | None" * (self.optional and not self.is_tensor)

    @property
    def gradient_in_python(self) -> str:
        """What a backward returns for it."""
        if not self.is_tensor:
            return "None"
        return f"None if {self.name} is None else grad_{self.name}" if self.optional else f"grad_{self.name}"

    @property
    def python_default(self) -> str:
        if isinstance(self.default, str):
            return json.dumps(self.default)
        return repr(tuple(self.default) if isinstance(self.default, list) else self.default)


@dataclass(frozen=True)
class Result:
    """A result of a schema: a new tensor, or a list of them."""

    name: str
    is_list: bool

    @property
    def presence(self) -> str:
        return "DYNAMIC" if self.is_list else "REQUIRED"

    @property
    def cpp_type(self) -> str:
        return "std::vector<Tensor>" if self.is_list else "Tensor"


class Operator:
    """An operator of a schema, as the templates ask for it."""

    def __init__(self, text: str, aten: bool = False, of: "Operator | None" = None):
        """Raises Rejected unless the schema can be generated. `of` is the operator whose gradient this one is.

        With `aten` its kernel is for the CPU, otherwise in Ascend C.
        """
        schema = parsed(text)
        self.aten, self.of = aten, of
        self.text = " ".join(text.split())
        self.name = schema.name
        for objection in (*objections(schema, self.text), *([] if aten else objections_in_ascendc(schema))):
            raise Rejected(objection)
        self.type = prototypes.ge_type(self.name)
        self.aclnn = f"aclnn{self.type}"
        self.file = prototypes.snake_case(self.type)
        self.arguments = [*map(Argument.of, schema.arguments)]
        self.tensors = [argument for argument in self.arguments if argument.is_tensor]
        self.attributes = [argument for argument in self.arguments if not argument.is_tensor]
        self.written = [argument for argument in self.arguments if argument.written]
        names = result_names(schema)
        self.results = [Result(n, "List" in str(r.type)) for n, r in zip(names, schema.returns, strict=True)]
        self.list = next((argument.name for argument in self.tensors if argument.is_list), None)

    # ---- in C++

    @property
    def names(self) -> list[str]:
        return [argument.name for argument in self.arguments]

    @property
    def parameters(self) -> list[str]:
        return [argument.parameter for argument in self.arguments]

    @property
    def checked_parameters(self) -> list[str]:
        return [argument.checked_parameter for argument in self.arguments]

    @property
    def rows(self) -> list[str]:
        """The rows of the table of arguments. The first tensor determines the dtype of the others."""
        model = self.model.removesuffix("[0]")
        found = [f'{{"{model}", {model}, kDtypes{", {}, Use::kWritten" * self._is_written(model)}}}']
        for name in (argument.name for argument in self.tensors if argument.name != model):
            found.append(f'{{"{name}", {name}{", {}, {}, Use::kWritten" * self._is_written(name)}}}')
        return found

    def _is_written(self, name: str) -> bool:
        return any(argument.name == name for argument in self.written)

    @property
    def returned(self) -> str:
        types = [result.cpp_type for result in self.results]
        return "void" if not types else types[0] if len(types) == 1 else f"std::tuple<{', '.join(types)}>"

    @property
    def bound(self) -> str:
        """What the results are bound to."""
        if len(self.results) == 1:
            return f"{self.returned} {self.results[0].name}"
        return f"auto [{', '.join(result.name for result in self.results)}]"

    @property
    def unbound(self) -> str:
        names = [result.name for result in self.results]
        return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"

    @property
    def allocated(self) -> list[str]:
        return [self._allocation(result) for result in self.results]

    @property
    def model(self) -> str:
        """The tensor that results are like: the first that is always there."""
        name = next((argument.name for argument in self.tensors if argument.type == "Tensor"), None)
        return name or f"{self.list}[0]"

    @property
    def may_lack_model(self) -> bool:
        return any(self.model in allocation for allocation in self.allocated) and self.model.endswith("[0]")

    def _allocation(self, result: Result) -> str:
        """A gradient is like the tensor it belongs to, any other result like the first tensor."""
        of = next((argument for argument in self.tensors if f"grad_{argument.name}" == result.name), None)
        if result.is_list:
            one = f"std::vector<Tensor>{{new_like({self.model})}}"
            return f"c10::fmap({self.list}, new_like)" if self.list else one
        if of is None:
            return f"new_like({self.model})"
        if of.optional:
            return f"{of.name}.has_value() ? new_like(*{of.name}) : at::empty({{0}}, {self.model}.options())"
        return f"new_like({of.name})"

    @property
    def kernel_parameters(self) -> list[str]:
        """The parameters of the kernel with ATen. Names that it does not use yet are comments."""
        inputs = [
            (each.kernel_parameter.removesuffix(each.name), each.name) for each in (*self.tensors, *self.attributes)
        ]
        results = [(f"{result.cpp_type}& ", result.name) for result in self.results]
        used = set(re.findall(r"\w+", " ".join(self.statements)))
        return [kind + (name if name in used else f"/*{name}*/") for kind, name in inputs + results]

    # ---- what it computes until it is filled in: results are copies, and of a gradient the sum of those it is given

    @property
    def read(self) -> list[str]:
        """The tensors that the kernel reads. All have the same sizes."""
        if self.of is not None:
            return [*self.summed, self.of.model]
        return [self.model] if self.results else [self.written[0].name]

    @property
    def summed(self) -> list[str]:
        return [argument.name for argument in self.tensors[: len(self.of.results)]] if self.of else self.read

    @property
    def grads(self) -> list[str]:
        """The gradients that it is given, but for a list: they have the shape of the first tensor."""
        return [name for name in self.summed if not self.of.results[0].is_list] if self.of else []

    @property
    def made(self) -> list[str]:
        """The tensors that the kernel computes, of those sizes."""
        if self.of is not None:
            return [f"grad_{self.of.model}"]
        return [result.name for result in self.results] or [f"{self.written[0].name}_out"]

    @property
    def zeros(self) -> list[str]:
        """The gradients of the other tensors."""
        return [result.name for result in self.results if result.name not in self.made] if self.of else []

    @property
    def outputs(self) -> list[tuple[str, str, str]]:
        """Name, presence in the definition, and the kernel's name for it, as two parameters of it cannot have one."""
        results = [(result.name, result.presence, result.name) for result in self.results]
        return results + [(each.name, "REQUIRED", f"{each.name}_out") for each in self.written]

    @property
    def kernel_arguments(self) -> list[str]:
        """The parameters of the kernel in Ascend C; what it does not use yet is a comment."""
        used = [*self.read, *self.made, *self.zeros]
        names = [*(each.name for each in self.tensors), *(name for _, _, name in self.outputs)]
        return [f"GM_ADDR {name}" if name in used else f"GM_ADDR /*{name}*/" for name in names]

    @property
    def tile(self) -> int:
        """The elements of a tile: two buffers of each tensor, or one and one in float, take 160 KiB at most."""
        return 1 << (160 * 1024 // (8 * (len(self.read) + len(self.made)))).bit_length() - 1

    @property
    def with_tiling(self) -> list[Argument]:
        return [argument for argument in self.attributes if argument.kind.tiling]

    def index(self, name: str) -> int:
        """The index of a tensor among the inputs, or of an attribute among the attributes."""
        of = self.tensors if name in [each.name for each in self.tensors] else self.attributes
        return [each.name for each in of].index(name)

    def result_index(self, name: str) -> int:
        return [result.name for result in self.results].index(name)

    @property
    def inference(self) -> list[str]:
        """The statements that infer shapes: of a gradient that of its tensor, of any other result that of the first."""
        lines, lists = [], any(result.is_list for result in self.results)
        for i, (name, presence, _) in enumerate(self.outputs):
            to = f"*context->GetOutputShape({'i++' if lists else i})"
            of = next((each for each in self.tensors if f"grad_{each.name}" == name or each.name == name), None)
            if presence == "DYNAMIC" and self.list:
                each = f"context->GetDynamicInputShape({self.index(self.list)}, k)"
                lines += [f"for (size_t k = 0; {each} != nullptr; ++k) {{", f"  {to} = *{each};", "}"]
            elif of is not None and of.optional:
                shape = f"context->GetOptionalInputShape({self.index(of.name)})"
                given, empty = f"  {to} = *shape;", f"  {to} = gert::Shape({{0}});"
                lines += [f"if (const auto* shape = {shape}) {{", given, "} else {", empty, "}"]
            else:
                lines += [f"{to} = *{self.input(self.model if of is None or of.is_list else of.name, 'Shape')};"]
        return ["size_t i = 0;"] * lists + lines

    def input(self, name: str, what: str) -> str:
        """Shape, DataType or Desc of an input, in inference and tiling."""
        name = name.removesuffix("[0]")
        argument = self.tensors[self.index(name)]
        return f"context->{argument.kind.shape}{what}({self.index(name)}{', 0' * argument.is_list})"

    @property
    def reference(self) -> str:
        """The value that the reference returns."""
        wide = f"{self.model}.double()"
        values = [
            (f"[each.double() for each in {self.list}]" if self.list else f"[{wide}]") if result.is_list else wide
            for result in self.results
        ]
        return ", ".join(values + [f"{each.name}.double()" for each in self.written])

    @property
    def statements(self) -> list[str]:
        """The statements of the kernel with ATen."""
        lines = []
        if self.of is not None:
            first, *others = self.summed
            if self.of.results[0].is_list:
                listed = self.of.list is not None
                made = f"grad_{self.of.model}" if not listed else f"grad_{self.of.list}"
                if not listed:
                    lines.append(f"{made}.copy_({first}.at(0));")
                else:
                    lines += self._each(made, first)
            else:
                total = first + "".join(f".add({other})" for other in others)
                lines.append(f"grad_{self.of.model.replace('[0]', '.at(0)')}.copy_({total});")
                if self.of.model.endswith("[0]"):
                    rest = f"size_t k = 1; k < grad_{self.of.list}.size(); ++k"
                    lines += [f"for ({rest}) grad_{self.of.list}[k].zero_();"]
            done = "".join(lines)
            for result in self.results:
                if f"{result.name}." not in done and f"{result.name}[" not in done:
                    each = f"for (Tensor& each : {result.name}) each.zero_();"
                    lines.append(each if result.is_list else f"{result.name}.zero_();")
            return lines
        model = self.model.replace("[0]", ".at(0)")
        for result in self.results:
            if result.is_list and self.list:
                lines += self._each(result.name, self.list)
            else:
                lines.append(f"{result.name}{'.at(0)' * result.is_list}.copy_({model});")
        return lines

    @staticmethod
    def _each(to: str, of: str) -> list[str]:
        return [f"for (size_t k = 0; k < {of}.size(); ++k) {to}[k].copy_({of}[k]);"]

    @property
    def nouns(self) -> str:
        return "the result" if len(self.results) == 1 else "the results"

    # ---- its autograd::Function

    @property
    def variables(self) -> str:
        """What forward returns: several results are a list."""
        return "Tensor" if self.returned == "Tensor" else "variable_list"

    @property
    def has_optional_tensors(self) -> bool:
        return any(argument.optional for argument in self.tensors)

    @property
    def _saved_tensors(self) -> list[Argument]:
        return [argument for argument in self.tensors if not argument.is_list]

    @property
    def saved(self) -> list[str]:
        """The tensors that are saved in front of those of the list."""
        return [f"{each.name}.value_or(Tensor())" if each.optional else each.name for each in self._saved_tensors]

    @property
    def restored(self) -> list[str]:
        """The arguments of the backward: gradients of the results, and what was saved."""
        if len(self.results) > 1:
            grads = [f"grads[{i}]" for i in range(len(self.results))]
        else:
            grads = ["grads" if self.results[0].is_list else "grads[0]"]
        return [*grads, *map(self._restored, self.arguments)]

    def _restored(self, argument: Argument) -> str:
        if not argument.is_tensor:
            value = argument.kind.saved or argument.kind.value
            value = f"std::optional<{value}>" if argument.optional else value
            return f'ctx->saved_data.at("{argument.name}").to<{value}>()'
        if argument.is_list:
            return f"at::TensorList(saved).slice({len(self._saved_tensors)})"
        saved = f"saved[{self._saved_tensors.index(argument)}]"
        return f"optional({saved})" if argument.optional else saved

    def gradient(self, argument: Argument) -> str:
        if not argument.is_tensor:
            return "Tensor()"
        given = f"saved[{self._saved_tensors.index(argument)}].defined() ? " if argument.optional else ""
        return f"{given}grad_{argument.name}" + " : Tensor()" * argument.optional

    @property
    def gradients(self) -> list[str]:
        return [*map(self.gradient, self.arguments)]

    # ---- in Python

    @property
    def python_result(self) -> str:
        types = ["list[Tensor]" if result.is_list else "Tensor" for result in self.results]
        return "None" if not types else types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]"

    def python_parameters(self, annotated: bool = True) -> list[str]:
        parameters = []
        for argument in self.arguments:
            if argument.keyword_only and "*" not in parameters:
                parameters.append("*")
            parameter = f"{argument.name}: {argument.python_type}" if annotated else argument.name
            equals = " = " if annotated else "="
            parameters.append(parameter if argument.required else f"{parameter}{equals}{argument.python_default}")
        return parameters

    @property
    def python_arguments(self) -> list[str]:
        return [f"{each.name}={each.name}" if each.keyword_only else each.name for each in self.arguments]

    @property
    def named_tensors(self) -> list[str]:
        return [f'"{each.name}": {each.name}' for each in self.tensors]

    @property
    def kernel_tensors(self) -> list[str]:
        """The tensors that the Triton kernel reads: of a gradient those of the results, and the first tensor."""
        return [*self.grads, self.of.model] if self.of else self.read

    @property
    def _kernel_attributes(self) -> list[str]:
        return [each.name for each in self.attributes if each.kind.tiling and not each.optional]

    @property
    def kernel_parameters_in_python(self) -> list[str]:
        return [*self.kernel_tensors, "out", "elements", *self._kernel_attributes, "BLOCK: tl.constexpr"]

    def launched(self, out: str, first: str = "") -> list[str]:
        """The arguments of a launch."""
        tensors = [first] if first else [f"{name}.contiguous()" for name in self.kernel_tensors]
        return [*tensors, out, "elements", *self._kernel_attributes, "BLOCK=BLOCK"]

    @property
    def keyword_only(self) -> list[Argument]:
        return [argument for argument in self.arguments if argument.keyword_only]

    def given(self, context: str) -> list[str]:
        """The arguments of a backward's call, whose attributes a context of autograd holds."""
        values = {each.name: each.name if each.is_tensor else f"{context}.{each.name}" for each in self.arguments}
        return [f"{k.name}={values[k.name]}" if k.keyword_only else values[k.name] for k in self.arguments]

    def allocated_in_python(self, result: Result) -> str:
        """A gradient is like the tensor it belongs to, any other result like the first tensor."""
        of = next((argument for argument in self.tensors if f"grad_{argument.name}" == result.name), None)
        made = f"new_like({of.name if of else self.model})"
        return f"{self.model}.new_empty(0) if {of.name} is None else {made}" if of and of.optional else made

    def described(self, argument: Argument) -> str:
        """An argument in the docstring."""
        if not argument.is_tensor:
            return f"{argument.kind.python}; say what it does"
        if argument.name == self.model.removesuffix("[0]"):
            shapes = "tensors of any shape and one dtype" if argument.is_list else "of any shape"
            dtypes = "float16, bfloat16, float32 or float64" if self.aten else "float16, bfloat16 or float32"
            return f"{shapes}; {dtypes}"
        return f"of any shape{'s' * argument.is_list}, of the dtype of ``{self.model.removesuffix('[0]')}``"

    @property
    def calls(self) -> dict[str, list[str]]:
        """Calls by name, with the arguments of each as entries of a dictionary: those it needs, and all."""
        needed = [argument for argument in self.arguments if argument.required]
        found = {"needed arguments": needed, "every argument": self.arguments}
        if needed == self.arguments:
            found.pop("needed arguments")
        return {name: [f'"{each.name}": {each.kind.sample}' for each in given] for name, given in found.items()}

    @property
    def gradient_samples(self) -> list[str]:
        """The arguments of the backward's samples: names of the results' gradients, and of the tensors."""
        grads = [f"grad_{result.name}" for result in self.results]
        return [json.dumps(names) for names in (grads, [argument.name for argument in self.tensors])]

    @property
    def reference_gives(self) -> str:
        written = f"{_and([argument.name for argument in self.written])} after the call"
        parts = [f"the results of {self.name}"] * bool(self.results) + [written] * bool(self.written)
        return _and(parts)

    @property
    def result_described(self) -> str:
        if not self.results:
            return "None"
        what = "A new tensor" if self.returned == "Tensor" else "New tensors"
        return f"{what} of the shape and dtype of ``{self.list if 'fmap' in self.allocated[0] else self.model}``"


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


# ---- a schema


def parsed(text: str) -> torch.FunctionSchema:
    try:
        return torch._C.parse_schema(text)
    except RuntimeError as error:
        reason = next(line for line in str(error).splitlines() if line.strip()).split(". ")[0].rstrip(":")
        if "seen_default_arg" in reason:
            reason = "an argument without a default follows one with a default"
        raise Rejected(f'"{text}" is not a valid schema: {reason}. Write it like "{EXAMPLE}"') from error


EXAMPLE = "my_op(Tensor x, Tensor? bias=None, *, float alpha=1.0) -> Tensor"
SNAKE_CASE = r"[a-z][a-z0-9]*(_[a-z0-9]+)*"
TAKEN = set(
    [
        "at",
        "c10",
        "checks",
        "count",
        "ctx",
        "elements",
        "grads",
        "gradients",
        "op",
        "per_block",
        "saved",
        "std",
        "tensors",
        "tiling",
        "tiling_data",
        "torch",
        "workspace",
    ]
)
"""Names that the templates use."""
CPP_KEYWORDS = """
alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const consteval constexpr
constinit continue decltype default delete do double else enum explicit export extern false float for friend goto if
inline int long mutable namespace new noexcept not nullptr operator or private protected public register requires return
short signed sizeof static struct switch template this throw true try typedef typeid typename union unsigned using
virtual void volatile while xor
"""


def result_names(schema: torch.FunctionSchema) -> list[str]:
    """The names of outputs that are results: the schema's, or out, or out0, out1, ..."""
    count = len(schema.returns)
    taken = {argument.name for argument in schema.arguments}
    word = "result" if any(re.fullmatch(r"out\d*", name) for name in taken) else "out"
    return [result.name or (word if count == 1 else f"{word}{i}") for i, result in enumerate(schema.returns)]


def objections(schema: torch.FunctionSchema, text: str) -> Iterator[str]:
    """Why a schema is rejected."""
    name = schema.name
    if schema.overload_name:
        overload = schema.overload_name
        yield f"{name}.{overload} is an overload: give it a separate name, such as {name}_{overload}"
    if not re.fullmatch(SNAKE_CASE, name):
        yield f"'{name}' is not a valid operator name: write it in small letters, with _ between words"
    if re.search(r"\(\s*\.\.\.|,\s*\.\.\.|->\s*\.\.\.", text):
        yield "an operator has a fixed number of arguments and results: write them instead of '...'"
    defaults = False
    for argument in schema.arguments:
        yield from _argument_objections(argument)
        if not argument.kwarg_only and defaults and not argument.has_default_value():
            yield f"argument '{argument.name}' has no default, but one before it has: put it in front"
        defaults = defaults or argument.has_default_value()
    names = [*(argument.name for argument in schema.arguments), *result_names(schema)]
    for twice in {name for name in names if names.count(name) > 1}:
        yield f"two arguments or results have the name '{twice}': name them differently"
    if not any(prototypes.type_of(argument) in ("Tensor", "List[Tensor]") for argument in schema.arguments):
        yield "an operator is found by the device of its tensors: give it a Tensor that is not optional"
    for name, result in zip(result_names(schema), schema.returns, strict=True):
        yield from _name_objections("result", name)
        if result.alias_info is not None:
            yield "a result is an argument: return nothing for what is written, or a new tensor"
        if prototypes.type_of(result) not in prototypes.OUTPUTS:
            yield f"result '{name}' is a {prototypes.type_of(result)}: an operator gives Tensor and Tensor[]"
    if not schema.returns and not any(map(prototypes.is_written, schema.arguments)):
        yield "it gives nothing and writes to nothing: add a result, or mark what it writes to, Tensor(a!)"


def objections_in_ascendc(schema: torch.FunctionSchema) -> Iterator[str]:
    """Why the kernel in Ascend C cannot be written."""
    results = zip(result_names(schema), schema.returns, strict=True)
    named = [*(("argument", each.name, each) for each in schema.arguments), *(("result", *each) for each in results)]
    for what, name, each in named:
        if prototypes.type_of(each) == "List[Tensor]":
            yield f"{what} '{name}' is a Tensor[], for which the kernel in Ascend C is by hand: add --aten"


def objections_in_python(schema: torch.FunctionSchema) -> Iterator[str]:
    """Why the operator in Python cannot be written."""
    for argument in schema.arguments:
        if "List" in prototypes.type_of(argument) and prototypes.is_tensor(argument):
            yield f"argument '{argument.name}' is a Tensor[], for which the operator in Python is by hand"
        if argument.kwarg_only and prototypes.is_tensor(argument):
            yield f"argument '{argument.name}' is a keyword-only tensor, which torch.library.custom_op does not take"
    if any("List" in prototypes.type_of(result) for result in schema.returns):
        yield "a result is a Tensor[], for which the operator in Python is by hand"


def _name_objections(what: str, name: str) -> Iterator[str]:
    if keyword.iskeyword(name) or name in TAKEN or name in CPP_KEYWORDS.split():
        yield f"{what} '{name}' has a name that is taken in Python, in C++ or in the generated code: choose another"
    if not re.fullmatch(SNAKE_CASE, name):
        yield f"'{name}' is not a valid {what} name: write it in small letters, with _ between words"


def _argument_objections(argument) -> Iterator[str]:
    name, full = argument.name, prototypes.type_of(argument)
    yield from _name_objections("argument", name)
    if full in TENSORS:
        if prototypes.is_written(argument) and full != "Tensor":
            yield f"argument '{name}' is written and no Tensor(a!), but {full}, which torchair's graphs cannot write to"
        elif argument.alias_info is not None and not prototypes.is_written(argument):
            yield f"argument '{name}' is marked as aliased and not as written: write Tensor, or Tensor(a!)"
        elif argument.has_default_value() and full != "Optional[Tensor]":
            yield f"argument '{name}' has a default, which no Tensor has: write Tensor? {name}=None"
        return
    inner = re.sub(r"^Optional\[(.*)\]$", r"\1", full)
    if inner not in ATTRIBUTES:
        kinds = "Tensor, Tensor?, Tensor[], int, float, bool, str, int[], float[], bool[]"
        yield f"argument '{name}' is a {full}, for which a definition (OpDef) has no attribute: take {kinds}"
    elif inner != full and not argument.has_default_value():
        yield f"argument '{name}' may be None but has no default: write {name}=None"


def gradient_of(op: Operator) -> Operator:
    """The backward of an operator: of the results' gradients and of its arguments, the gradients of its tensors."""
    if op.written:
        written = op.written[0].name
        raise Rejected(f"{op.name} writes to '{written}', and what is written has no gradient: leave out --autograd")
    if sum(argument.is_list for argument in op.tensors) > 1:
        raise Rejected(f"{op.name} has several lists of tensors: --autograd is for one; write this gradient by hand")
    if any(result.is_list for result in op.results) and len(op.results) > 1:
        raise Rejected(f"{op.name} gives tensors and lists: --autograd is for one kind; write this gradient by hand")
    types = {"Tensor": "Tensor", "Optional[Tensor]": "Tensor", "List[Tensor]": "Tensor[]"}
    grads = [f"{'Tensor[]' if result.is_list else 'Tensor'} grad_{result.name}" for result in op.results]
    gradients = [f"{types[argument.type]} grad_{argument.name}" for argument in op.tensors]
    listed = re.fullmatch(r"\w+\((.*)\) ->.*", op.text)[1]
    return Operator(f"{op.name}_backward({', '.join(grads)}, {listed}) -> ({', '.join(gradients)})", op.aten, op)
