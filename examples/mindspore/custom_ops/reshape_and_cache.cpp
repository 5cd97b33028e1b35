// SPDX-License-Identifier: Apache-2.0
// reshape_and_cache, as ms_custom_ops names its arguments: aclnnReshapeAndCache of the installed operator package, in
// PyNative mode by AclnnOpRunner, in graph mode by a kernel that MindSpore launches for the node.
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "abstract/utils.h"
#include "kernel/ascend/aclnn/kernel_mod_impl/aclnn_kernel_mod.h"
#include "module.h"
#include "ms_extension/api.h"

// MindSpore's macros are for this namespace.
namespace mindspore::kernel::custom_ops {

constexpr int64_t kND = 0, kNZ = 1;  // cache_mode
constexpr int64_t kFractalBytes = 32;

std::string layout_of(int64_t cache_mode) {
  if (cache_mode != kND && cache_mode != kNZ) {
    MS_EXCEPTION(ValueError) << "reshape_and_cache: cache_mode must be 0 (ND) or 1 (NZ), but is " << cache_mode;
  }
  return cache_mode == kNZ ? "NZ" : "ND";
}

// The shape of a cache in memory. In NZ a cache of shape [blocks, block_size, hidden] is
// [blocks, hidden / c0, block_size, c0] there, c0 being the elements of 32 bytes.
ShapeVector shape_in_memory(const ShapeVector& shape, ms::TypeId type, int64_t cache_mode) {
  if (cache_mode != kNZ || shape.size() != 3) return shape;
  const int64_t c0 = kFractalBytes / static_cast<int64_t>(abstract::TypeIdSize(type));
  if (shape[2] % c0 != 0) {
    MS_EXCEPTION(ValueError) << "reshape_and_cache: with cache_mode 1 a cache must have a multiple of " << c0
                             << " elements a token, but has shape " << shape;
  }
  return {shape[0], shape[2] / c0, shape[1], c0};
}

ms::Tensor in_memory(const ms::Tensor& cache, int64_t cache_mode) {
  const ShapeVector shape = shape_in_memory(cache.shape(), cache.data_type(), cache_mode);
  return shape == cache.shape() ? cache : cache.reshape(shape);
}

// ---- PyNative mode

void run(const ms::Tensor& key, const std::optional<ms::Tensor>& value, const std::optional<ms::Tensor>& key_cache,
         const std::optional<ms::Tensor>& value_cache, const std::optional<ms::Tensor>& slot_mapping,
         int64_t cache_mode) {
  if (!key_cache.has_value() || !slot_mapping.has_value()) {
    MS_EXCEPTION(ValueError) << "reshape_and_cache: key_cache and slot_mapping must be given";
  }
  const std::string layout = layout_of(cache_mode);
  const ms::Tensor keys = in_memory(*key_cache, cache_mode);
  std::optional<ms::Tensor> values;
  std::vector<ms::Tensor> tensors = {key, keys, *slot_mapping};
  if (value_cache.has_value()) tensors.push_back(*(values = in_memory(*value_cache, cache_mode)));
  if (value.has_value()) tensors.push_back(*value);
  const auto runner = std::make_shared<ms::pynative::AclnnOpRunner>("ReshapeAndCache");
  runner->SetLaunchFunc(LAUNCH_ACLNN_FUNC(aclnnReshapeAndCache, key, value, keys, values, *slot_mapping, layout));
  runner->Run(tensors, {});
}

pybind11::object reshape_and_cache(const ms::Tensor& key, const std::optional<ms::Tensor>& value,
                                   const std::optional<ms::Tensor>& key_cache,
                                   const std::optional<ms::Tensor>& value_cache,
                                   const std::optional<ms::Tensor>& slot_mapping, int64_t cache_mode, int64_t) {
  return ms::pynative::PyboostRunner::Call<0>(run, key, value, key_cache, value_cache, slot_mapping, cache_mode);
}

// ---- graph mode

enum Input : size_t { kKey, kValue, kKeyCache, kValueCache, kSlotMapping, kCacheMode };

// The node has an output, which nobody reads: MindSpore's nodes have one.
class Inference : public ops::OpFuncImpl {
 public:
  ShapeArray InferShape(const PrimitivePtr&, const ops::InferInfoPtrList& inputs) const override {
    return {inputs[kKey]->GetShape()};
  }
  std::vector<ms::TypeId> InferType(const PrimitivePtr&, const ops::InferInfoPtrList& inputs) const override {
    return {inputs[kKey]->GetType()};
  }
  bool GeneralInferRegistered() const override { return true; }
};

class Kernel : public AclnnKernelMod {
 public:
  Kernel() : AclnnKernelMod("aclnnReshapeAndCache") {}

  void GetWorkSpaceInfo(const std::vector<KernelTensor*>& inputs, const std::vector<KernelTensor*>&) override {
    const Arguments arguments(inputs);
    GetWorkspaceForResize(inputs[kKey], inputs[kValue], arguments.key_cache.get(), arguments.value_cache.get(),
                          inputs[kSlotMapping], arguments.layout);
  }

  bool Launch(const std::vector<KernelTensor*>& inputs, const std::vector<KernelTensor*>& workspace,
              const std::vector<KernelTensor*>&, void* stream) override {
    const Arguments arguments(inputs);
    RunOp(stream, workspace, inputs[kKey], inputs[kValue], arguments.key_cache.get(), arguments.value_cache.get(),
          inputs[kSlotMapping], arguments.layout);
    return true;
  }

 private:
  // What is passed otherwise than the node has it: caches by their shapes in memory, and the layout's name.
  struct Arguments {
    explicit Arguments(const std::vector<KernelTensor*>& inputs) {
      const int64_t cache_mode = inputs[kCacheMode]->GetValueWithCheck<int64_t>();
      layout = layout_of(cache_mode);
      key_cache = in_memory(*inputs[kKeyCache], cache_mode);
      value_cache = in_memory(*inputs[kValueCache], cache_mode);
    }

    static std::shared_ptr<KernelTensor> in_memory(KernelTensor& cache, int64_t cache_mode) {
      auto copy = cache.CloneKernelTensor();
      if (cache.type_id() != kMetaTypeNone) {
        copy->SetShapeVector(shape_in_memory(cache.GetShapeVector(), cache.dtype_id(), cache_mode));
      }
      return copy;
    }

    std::shared_ptr<KernelTensor> key_cache, value_cache;
    std::string layout;
  };

  DEFINE_GET_WORKSPACE_FOR_RESIZE()
};

}  // namespace mindspore::kernel::custom_ops

MS_CUSTOM_OPS_REGISTER(reshape_and_cache, mindspore::kernel::custom_ops::Inference,
                       mindspore::kernel::custom_ops::Kernel);

void add_reshape_and_cache(pybind11::module_& module) {
  using pybind11::arg;
  module.def("reshape_and_cache", &mindspore::kernel::custom_ops::reshape_and_cache, arg("key"),
             arg("value") = pybind11::none(), arg("key_cache") = pybind11::none(),
             arg("value_cache") = pybind11::none(), arg("slot_mapping") = pybind11::none(), arg("cache_mode") = 0,
             arg("head_num") = 0);
}
