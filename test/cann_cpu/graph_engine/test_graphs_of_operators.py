# SPDX-License-Identifier: Apache-2.0
"""Graphs that a program builds of ge::Operator, as MindSpore does, with either ABI of std::string."""

import subprocess

import pytest
from test_abi import HEADERS, LIBRARIES, SITE_PACKAGES

PROGRAM = """
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "acl/acl_rt.h"
#include "ge/ge_api.h"
#include "graph/operator_factory.h"

#if _GLIBCXX_USE_CXX11_ABI
using Text = ge::AscendString;
static std::string message() { return "(exported for the other ABI)"; }
#else
using Text = std::string;
static std::string message() { return ge::GEGetErrorMsg(); }
#endif
using Options = std::map<Text, Text>;
using ge::Operator;

static ge::TensorDesc floats(std::vector<int64_t> dims) {
  return ge::TensorDesc(ge::Shape(dims), ge::FORMAT_ND, ge::DT_FLOAT);
}

static Operator data(const char* name, int64_t index) {
  Operator op(name, "Data");
  op.SetAttr("index", index);
  op.UpdateOutputDesc("y", floats({2, 2}));
  return op;
}

int main() {
  aclrtSetDevice(0);
  ge::GEInitialize(Options{});
  ge::Session session(Options{});
  Operator x = data("x", 0), bias = data("bias", 1);
  Operator axis("axis", "Const");
  const int32_t one = 1;
  const ge::TensorDesc number(ge::Shape(), ge::FORMAT_ND, ge::DT_INT32);
  axis.SetAttr("value", ge::Tensor(number, reinterpret_cast<const uint8_t*>(&one), sizeof one));

  Operator split = ge::OperatorFactory::CreateOperator("split", "Split");
  split.SetInput("split_dim", axis).SetInput("x", x).SetAttr("num_split", int32_t{2});
  split.UpdateDynamicOutputDesc("y", 0, floats({2, 1}));
  split.UpdateDynamicOutputDesc("y", 1, floats({2, 1}));
  Operator sub = ge::OperatorFactory::CreateOperator("sub", "Sub");
  sub.SetInput("x1", split, "y1").SetInput("x2", split, "y0");
  sub.UpdateOutputDesc("y", floats({2, 1}));
  Operator sum = ge::OperatorFactory::CreateOperator("sum", "Add");
  sum.SetInput("x1", sub).SetInput("x2", bias).AddControlInput(split);
  sum.UpdateOutputDesc("y", floats({2, 2}));
  Operator pack = ge::OperatorFactory::CreateOperator("pack", "ConcatD");
  pack.SetInput("x", 0, sum).SetInput("x", 1, x).SetAttr("concat_dim", int64_t{0}).SetAttr("N", uint32_t{2});
  pack.UpdateOutputDesc("y", floats({4, 2}));

  ge::Graph graph("of operators");
  graph.SetInputs({x, bias}).SetOutputs({std::pair<Operator, Text>{pack, "y"}, {split, "y1"}});
  float values[2][4] = {{1, 2, 3, 5}, {10, 20, 30, 40}};
  std::vector<ge::Tensor> inputs, outputs;
  for (auto& of_input : values) {
    inputs.emplace_back(floats({2, 2}), reinterpret_cast<const uint8_t*>(of_input), sizeof of_input);
    inputs.back().SetPlacement(ge::kPlacementHost);
  }
  ge::Status status = session.AddGraph(1, graph, Options{});
  if (status == ge::SUCCESS) status = session.RunGraph(1, inputs, outputs);
  if (status != ge::SUCCESS) return std::puts(message().c_str()), 1;
  for (const auto& output : outputs) {
    const auto* numbers = reinterpret_cast<const float*>(output.GetData());
    for (size_t i = 0; i < output.GetSize() / sizeof(float); ++i) std::printf("%g ", numbers[i]);
    std::puts("");
  }
  std::printf("%zu nodes\\n", graph.GetDirectNode().size());
  std::vector<ge::Shape> shapes;
  size_t streams = 7;
  session.GetCompiledGraphSummary(1)->GetOutputShapes(shapes);
  session.GetCompiledGraphSummary(1)->GetStreamNum(streams);
  const int dims[] = {static_cast<int>(shapes[0].GetDim(0)), static_cast<int>(shapes[1].GetDim(1))};
  std::printf("%d %d %zu %d\\n", dims[0], dims[1], streams, split.GetDynamicOutputNum("y"));

  // Assigns to a variable, after an operator that the program has taken out.
  Operator variable("variable", "RefData"), value = data("value", 1);
  variable.SetAttr("index", int64_t{0});
  Operator same = ge::OperatorFactory::CreateOperator("same", "Identity");
  same.SetInput("x", value).UpdateOutputDesc("y", floats({2, 2}));
  Operator assign = ge::OperatorFactory::CreateOperator("assign", "Assign");
  assign.SetInput("ref", variable).SetInput("value", same);
  Operator done = ge::OperatorFactory::CreateOperator("done", "NoOp");
  done.AddControlInput(assign);
  ge::Graph assigning("assigning");
  assigning.SetInputs({variable, value}).SetOutputs({assign});
  for (ge::GNode& node : assigning.GetDirectNode()) {
    ge::AscendString type;
    if (node.GetType(type) != ge::SUCCESS || std::string(type.GetString()) != "Identity") continue;
    auto [source, port] = node.GetInDataNodesAndPortIndexs(0);
    for (auto& [reader, place] : node.GetOutDataNodesAndPortIndexs(0)) {
      assigning.RemoveEdge(node, 0, *reader, place);
      assigning.AddDataEdge(*source, port, *reader, place);
    }
    assigning.RemoveNode(node);
  }
  void* memory = nullptr;
  aclrtMalloc(&memory, sizeof values[0], ACL_MEM_MALLOC_HUGE_FIRST);
  inputs[0].SetPlacement(ge::kPlacementDevice);
  inputs[0].ResetData(static_cast<uint8_t*>(memory), sizeof values[0], [](uint8_t*) {});
  if (session.AddGraph(4, assigning, Options{}) != ge::SUCCESS || session.RunGraph(4, inputs, outputs) != ge::SUCCESS) {
    return std::puts(message().c_str()), 1;
  }
  aclrtMemcpy(values[0], sizeof values[0], memory, sizeof values[0], ACL_MEMCPY_DEVICE_TO_HOST);
  std::printf("%zu nodes, %g\\n", assigning.GetDirectNode().size(), values[0][3]);

  ge::Graph wrong("wrong");
  wrong.SetOutputs({std::pair<Operator, Text>{split, "z"}});
  if (session.AddGraph(2, wrong, Options{}) == ge::SUCCESS) return 1;
  std::puts(message().c_str());
  if (session.AddGraph(3, ge::Graph("empty"), Options{}) == ge::SUCCESS) return 1;
  std::puts(message().c_str());
}
"""


@pytest.mark.parametrize("new_abi", [0, 1])
def test_a_graph_of_connected_operators_runs(new_abi, tmp_path):
    source, program = tmp_path / "program.cpp", tmp_path / "program"
    source.write_text(PROGRAM)
    command = ["g++", "-std=c++17", f"-D_GLIBCXX_USE_CXX11_ABI={new_abi}", f"-I{HEADERS}", source, "-o", program]
    command += [f"-L{LIBRARIES}", "-lge_runner", "-lregister", "-lascendcl", f"-Wl,-rpath,{LIBRARIES}"]
    command.append(f"-Wl,-rpath-link,{LIBRARIES}:{SITE_PACKAGES / 'torch' / 'lib'}")
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    result = subprocess.run([program], capture_output=True, text=True, timeout=120)
    lines = result.stdout.splitlines()
    expected = ["11 21 32 42 1 2 3 5 ", "2 5 ", "7 nodes", "4 1 0 2", "4 nodes, 40"]
    assert (result.returncode, lines[:5]) == (0, expected), lines
    if not new_abi:
        assert lines[5] == "node 'split' of type Split has no output 'z'"
        assert lines[6] == "the graph is empty: no model was loaded, and neither inputs nor outputs are set"
