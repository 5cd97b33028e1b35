# SPDX-License-Identifier: Apache-2.0
"""The ge:: classes that we declare are those that torch_npu and torchair were compiled with."""

import pathlib
import re
import subprocess
import sysconfig

import pytest

SITE_PACKAGES = pathlib.Path(sysconfig.get_path("purelib"))
TORCH_NPU = SITE_PACKAGES / "torch_npu"
THEIRS = TORCH_NPU / "include" / "third_party" / "acl" / "inc"
LIBRARIES = SITE_PACKAGES / "cann_cpu" / "lib64"
HEADERS = SITE_PACKAGES / "cann_cpu" / "include"


def symbols(library, kind):
    listing = subprocess.run(["nm", "-D", f"--{kind}-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines() if line}


@pytest.mark.parametrize(
    "library",
    [
        "lib/libtorch_npu.so",
        "dynamo/torchair/core/_abi_compat_ge_apis.so",
        "dynamo/torchair/core/_npu_graph_executor.so",
        "dynamo/torchair/core/_npu_utils.so",
        "dynamo/torchair/core/_torchair.so",
    ],
)
def test_every_imported_name_of_ge_is_exported(library):
    imported = {name for name in symbols(TORCH_NPU / library, "undefined") if re.match(r"_ZNK?2ge", name)}
    # libge_runner links libregister, where operators' tiling functions also find ge::Shape.
    exported = symbols(LIBRARIES / "libge_runner.so", "defined") | symbols(LIBRARIES / "libregister.so", "defined")
    assert imported - exported == set()


def test_the_c_functions_that_torchair_looks_up_are_exported():
    wanted = {"GeSessionLoadGraph", "GeSessionExecuteGraphWithStreamAsync", "GetRegisteredIrDef"}
    assert wanted <= symbols(LIBRARIES / "libge_runner.so", "defined")


CLASSES = [
    "AscendString",
    "Shape",
    "TensorDesc",
    "Tensor",
    "Operator",
    "Graph",
    "GNode",
    "TensorType",
    "OperatorCreatorRegister",
    "Session",
]
INCLUDES = ["graph/types.h", "graph/tensor.h", "graph/operator_reg.h", "graph/graph.h", "ge/ge_api.h"]


def enumerators():
    text = (HEADERS / "graph" / "types.h").read_text()
    return re.findall(r"\b((?:DT|FORMAT)_\w+|kPlacement\w+)\b(?= ?[=,}])", text)


def values(include, tmp_path, *flags):
    """What sizeof and the enumerators are under the headers of a folder."""
    expressions = {f"sizeof {name}": f"sizeof(ge::{name})" for name in CLASSES}
    expressions |= {name: f"static_cast<long>(ge::{name})" for name in enumerators()}
    expressions |= {name: f"static_cast<long>(ge::{name})" for name in ("GRAPH_SUCCESS", "GRAPH_FAILED")}
    lines = [f'#include "{header}"' for header in INCLUDES] + ["#include <cstdio>", "int main() {"]
    lines += [f'std::printf("%s=%ld\\n", "{name}", static_cast<long>({value}));' for name, value in expressions.items()]
    source = tmp_path / "values.cpp"
    source.write_text("\n".join([*lines, "}"]))
    program = tmp_path / "values"
    command = ["g++", "-std=c++20", "-w", f"-I{include}", *flags, str(source), "-o", str(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    return dict(
        line.split("=") for line in subprocess.run([program], capture_output=True, text=True).stdout.splitlines()
    )


def test_sizes_and_numbers_are_those_of_canns_headers(tmp_path):
    ours = values(HEADERS, tmp_path)
    theirs = values(THEIRS, tmp_path, "-DNO_METADEF_ABI_COMPATIABLE")
    assert len(ours) > 60
    assert ours == theirs


def test_reg_op_of_canns_headers_calls_what_we_export(tmp_path):
    """A package compiled against CANN's own operator_reg.h finds all it needs in our libge_runner."""
    source = tmp_path / "proto.cpp"
    package = pathlib.Path(__file__).parent / "package" / "op_proto.cpp"
    source.write_text(package.read_text())
    library = tmp_path / "libproto.so"
    command = [
        "g++",
        "-std=c++17",
        "-w",
        "-O2",
        "-shared",
        "-fPIC",
        "-DNO_METADEF_ABI_COMPATIABLE",
        f"-I{THEIRS}",
        str(source),
        "-o",
        str(library),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    registering = {
        name
        for name in symbols(library, "undefined")
        if re.match(r"_ZNK?2ge", name) and re.search(r"Register|OperatorC", name)
    }
    assert registering
    assert registering - symbols(LIBRARIES / "libge_runner.so", "defined") == set()


OF_AN_OLDER_ABI = """
#include <cstdio>
#include <stdexcept>
#include <string>

#include "graph/operator_factory.h"

namespace ge {
class StatusFactory {  // CANN's, as far as programs use it
 public:
  static StatusFactory* Instance();
  std::map<uint32_t, std::string> texts;
};
}  // namespace ge

struct Blend : ge::Operator {
  explicit Blend(const std::string& name) : Operator(name, "OlderBlend") {
    InputRegister(std::string("x"));
    OptionalInputRegister(std::string("mask"));
    DynamicInputRegister("others", 0, true);
    OutputRegister(std::string("y"));
    RequiredAttrRegister(std::string("alpha"));
    InferFuncRegister([](ge::Operator&) { return ge::GRAPH_SUCCESS; });
  }
  using Operator::RequiredAttrRegister;
};

static ge::OperatorCreatorRegister registered(std::string("OlderBlend"),
                                              [](const std::string& name) -> ge::Operator { return Blend(name); });

extern "C" void not_there() __asm__("_ZN2ge11GraphBufferC1Ev");

int main() {
  const std::string long_name(100, 'n');
  ge::StatusFactory::Instance()->texts[7] = long_name;
  const auto made = ge::OperatorFactory::CreateOperator(long_name, std::string("OlderBlend"));
  const ge::TensorDesc desc;
  std::printf("%d %d %d %d %d\\n", made.GetName() == long_name, made.GetOpType() == "OlderBlend",
              ge::OperatorFactory::IsExistOp(std::string("Add")), ge::OperatorFactory::IsExistOp(std::string("Adds")),
              ge::StatusFactory::Instance()->texts.at(7) == long_name);
  std::printf("%d %d\\n", Blend("b").UpdateInputDesc(std::string("mask"), desc) == ge::GRAPH_SUCCESS,
              Blend("b").UpdateInputDesc(std::string("musk"), desc) == ge::GRAPH_SUCCESS);
  Blend op("c");
  op.SetAttr("flag", true).SetAttr("count", int32_t{-3}).SetAttr("sizes", std::vector<int64_t>{4, int64_t{1} << 40});
  bool flag = false;
  int64_t count = 0;
  int32_t narrow = 0;
  std::vector<int64_t> sizes;
  std::vector<int32_t> narrow_sizes;
  const bool read = op.GetAttr("flag", flag) == 0 && op.GetAttr("count", count) == 0 && op.GetAttr("sizes", sizes) == 0;
  std::printf("%d %d %d %d %d %d %d %d\\n", read, flag, count == -3, op.GetAttr("count", narrow) == 0 && narrow == -3,
              sizes.size() == 2, op.GetAttr("sizes", narrow_sizes) == 0, op.GetAttr("flag", count) == 0,
              op.GetAttr("alpha", flag) == 0);
  try {
    not_there();
  } catch (const std::runtime_error& error) {
    std::puts(error.what());
  }
}
"""


def test_a_program_with_the_older_string_abi_registers_and_finds_operators(tmp_path):
    source, program = tmp_path / "program.cpp", tmp_path / "program"
    source.write_text(OF_AN_OLDER_ABI)
    torch = SITE_PACKAGES / "torch" / "lib"
    command = ["g++", "-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", f"-I{HEADERS}", source, "-o", program]
    command += [
        f"-L{LIBRARIES}",
        "-lge_runner",
        "-lregister",
        "-lascendcl",
        f"-Wl,-rpath,{LIBRARIES}",
        f"-Wl,-rpath-link,{LIBRARIES}:{torch}",
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    result = subprocess.run([program], capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout.splitlines()[:3]) == (0, ["1 1 1 0 1", "1 0", "1 1 1 1 1 0 0 0"]), (
        result.stderr
    )
    assert result.stdout.splitlines()[3].startswith("ge::GraphBuffer::GraphBuffer() is not supported by cann_cpu")
