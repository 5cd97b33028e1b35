# SPDX-License-Identifier: Apache-2.0
"""Runs one node of the Graph Engine with any inputs and attributes, through ACL's aclopCompileAndExecute."""

import ctypes
from collections import namedtuple

import torch
from aclnn import DTYPES, ND, integers

ACL_DTYPES = DTYPES | {torch.uint64: 10, torch.complex64: 16}
UNDEFINED = -1

Out = namedtuple("Out", "shape dtype")


class Compiler:
    """libascendcl and libacl_op_compiler."""

    def __init__(self):
        torch.ones(1, device="npu")  # torch_npu has set the device up, and loaded the libraries
        self.acl = ctypes.CDLL("libascendcl.so")
        self.compiler = ctypes.CDLL("libacl_op_compiler.so")
        for function in (self.acl.aclCreateTensorDesc, self.acl.aclCreateDataBuffer, self.compiler.aclopCreateAttr):
            function.restype = ctypes.c_void_p

    def operand(self, tensor):
        if tensor is None:
            return self.acl.aclCreateTensorDesc(UNDEFINED, 0, None, ND), self.acl.aclCreateDataBuffer(None, 0)
        desc = self.acl.aclCreateTensorDesc(ACL_DTYPES[tensor.dtype], tensor.dim(), integers(tensor.shape), ND)
        size = ctypes.c_size_t(tensor.numel() * tensor.element_size())
        return desc, self.acl.aclCreateDataBuffer(ctypes.c_void_p(tensor.data_ptr()), size)

    def attributes(self, given):
        attributes = ctypes.c_void_p(self.compiler.aclopCreateAttr())
        for name, value in given.items():
            self.set_attribute(attributes, name.encode(), value)
        return attributes

    def set_attribute(self, attributes, name, value):
        match value:
            case bool():
                self.compiler.aclopSetAttrBool(attributes, name, ctypes.c_uint8(value))
            case int():
                self.compiler.aclopSetAttrInt(attributes, name, ctypes.c_int64(value))
            case float():
                self.compiler.aclopSetAttrFloat(attributes, name, ctypes.c_float(value))
            case str():
                self.compiler.aclopSetAttrString(attributes, name, value.encode())
            case torch.dtype():
                self.compiler.aclopSetAttrDataType(attributes, name, ACL_DTYPES[value])
            case list():
                self.compiler.aclopSetAttrListInt(attributes, name, len(value), integers(value))

    def run(self, node_type, inputs, outputs, attributes):
        def arrays(tensors):
            descs, buffers = zip(*map(self.operand, tensors), strict=True) if tensors else ((), ())
            return len(tensors), (ctypes.c_void_p * len(descs))(*descs), (ctypes.c_void_p * len(buffers))(*buffers)

        stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
        status = self.compiler.aclopCompileAndExecute(
            node_type.encode(),
            *arrays(inputs),
            *arrays(outputs),
            self.attributes(attributes),
            ctypes.c_int(0),
            ctypes.c_int(0),
            None,
            stream,
        )
        assert status == 0, node_type
        torch.npu.synchronize()


def run_node(node_type, inputs, outputs, **attributes):
    """The outputs, on the CPU, of a node with these inputs (None: left out), made for these shapes and dtypes."""
    inputs = [None if tensor is None else tensor.contiguous().npu() for tensor in inputs]
    results = [torch.empty(tuple(out.shape), dtype=out.dtype, device="npu") for out in outputs]
    torch.npu.synchronize()
    Compiler().run(node_type, inputs, results, attributes)
    return [result.cpu() for result in results]
