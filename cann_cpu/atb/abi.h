// SPDX-License-Identifier: Apache-2.0
// The interface of libatb.so, the Ascend Transformer Boost, as torch_npu's libop_plugin_atb.so was compiled against it:
// the order of members and of virtual functions is the ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "acl/acl_base.h"
#include "cann_cpu/export.h"

namespace atb {

using Status = int32_t;
constexpr Status kNoError = 0, kInvalidParam = 1, kInternalError = 3, kInvalidContext = 20;

struct Dims {
  int64_t dims[8];
  uint64_t count = 0;
};

struct TensorDesc {
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  Dims shape;
};

// A tensor in the device's memory or in the host's; neither for an argument that is left out.
struct Tensor {
  TensorDesc desc;
  void* device_data = nullptr;
  void* host_data = nullptr;
  uint64_t bytes = 0;
};

// A list of up to 64 elements in place, or more on the heap. The caller makes it; it is only read here.
template <class T>
class SVector {
 public:
  size_t size() const { return size_; }
  const T& operator[](size_t i) const {
    if (i >= size_) throw std::out_of_range("tensor " + std::to_string(i) + " of " + std::to_string(size_));
    return heap_ != nullptr ? heap_[i] : inline_[i];
  }

 private:
  size_t capacity_ = 0;
  size_t size_ = 0;
  T inline_[65];
  T* heap_ = nullptr;
};

struct VariantPack {
  SVector<Tensor> inputs;
  SVector<Tensor> outputs;
};

class Context {
 public:
  virtual ~Context() = default;
  virtual Status SetExecuteStream(aclrtStream stream) = 0;
  virtual aclrtStream GetExecuteStream() const = 0;
  virtual Status SetAsyncTilingCopyStatus(bool enable) = 0;
  virtual bool GetAsyncTilingCopyStatus() const = 0;
};

class Operation {
 public:
  virtual ~Operation() = default;
  virtual std::string GetName() const = 0;
  virtual Status InferShape(const SVector<TensorDesc>& inputs, SVector<TensorDesc>& outputs) const = 0;
  virtual uint32_t GetInputNum() const = 0;
  virtual uint32_t GetOutputNum() const = 0;
  virtual Status Setup(const VariantPack& tensors, uint64_t& workspace_size, Context* context) = 0;
  virtual Status Execute(const VariantPack& tensors, uint8_t* workspace, uint64_t workspace_size, Context* context) = 0;
};

class Utils {
 public:
  CANN_EXPORT static uint64_t GetTensorSize(const Tensor& tensor);  // bytes
};

CANN_EXPORT Status CreateContext(Context** context);
CANN_EXPORT Status DestroyContext(Context* context);
template <class Param>
Status CreateOperation(const Param& param, Operation** operation);
CANN_EXPORT Status DestroyOperation(Operation* operation);

namespace infer {

enum InputLayout : int { kBsnd, kBnsd };
enum QuantType : int { kNotQuantized = 0, kInt8 = 2 };
enum DynamicQuantType : int { kNotDynamic };

struct LinearParam {
  bool transpose_a = false;
  bool transpose_b = true;
  bool has_bias = true;
  aclDataType out_dtype = ACL_DT_UNDEFINED;
  bool accumulates = false;
  uint8_t reserved[23] = {};
};

struct ElewiseParam {
  enum Type : int { kQuantPerChannel = 17 };
  struct Quantization {
    float scale = 1;
    bool is_asymmetric = false;
    int offset = 0;
    uint8_t reserved[20] = {};
  };
  struct Multiplication {
    float factor = 0;
    uint8_t reserved[12] = {};
  };
  int type = 0;
  Quantization quantization;
  Multiplication multiplication;
  aclDataType out_dtype = ACL_DT_UNDEFINED;
  uint8_t reserved[8] = {};
};

struct RmsNormParam {
  enum LayerType : int { kNorm = 1 };
  struct Norm {
    QuantType quantization = kNotQuantized;
    float epsilon = 1e-5F;
    double layer_norm_epsilon = 1e-5;
    bool writes_rstd = false;
    int precision_mode = 0;
    int model_type = 0;
    DynamicQuantType dynamic_quantization = kNotDynamic;
    uint8_t reserved[32] = {};
  };
  struct NormWithResidual {
    QuantType quantization = kNotQuantized;
    float epsilon = 1e-5F;
    bool has_bias = false;
    uint8_t reserved[23] = {};
  };
  int layer_type = 0;
  Norm norm;
  NormWithResidual before, after;
  uint8_t reserved[8] = {};
};

struct GroupTopkParam {
  enum Score : uint16_t { kLargest, kSumOfLargest };
  int32_t groups = 1;
  int32_t k = 0;
  uint16_t score = kLargest;
  uint16_t n = 1;
  uint8_t reserved[12] = {};
};

struct SelfAttentionParam {
  enum CalcType : int { kPagedEncoder = 3, kPrefixEncoder = 4 };
  enum MaskType : int {
    kNoMask,
    kMask,
    kAlibi,
    kCausal,  // a triangle of 128 x 128, which stands for one of all queries and keys
    kAlibiCompressed,
    kAlibiCompressedSqrt,
    kAlibiCompressedLeft
  };
  int quantization = 0;
  aclDataType out_dtype = ACL_DT_UNDEFINED;
  int32_t heads = 0;
  int32_t key_heads = 0;
  float query_scale = 1;
  float scale = 1;
  bool has_batch_status = false;
  uint32_t is_triangular = 0;
  int calc_type = 0;
  int kernel_type = 0;
  int clamp_type = 0;
  float clamp_min = 0;
  float clamp_max = 0;
  int mask_type = kNoMask;
  int cache_config = 0;
  int scale_type = 0;
  InputLayout layout = kBsnd;
  uint32_t mla_value_size = 0;
  int8_t cache_type = 0;
  uint32_t window_size = 0;
  uint8_t reserved[64] = {};
};

struct PagedAttentionParam {
  enum MaskType : int { kNoMask, kMask, kAlibi, kSpeculative, kFree, kCausal };
  enum CalcType : int { kDecode, kSeveralQueries };
  int32_t heads = 0;
  float scale = 1;
  int32_t key_heads = 0;
  int mask_type = kNoMask;
  bool has_batch_status = false;
  int quantization = 0;
  aclDataType out_dtype = ACL_DT_UNDEFINED;
  bool has_quantization_offset = false;
  int compression = 0;
  int calc_type = kDecode;
  int scale_type = 0;
  InputLayout layout = kBsnd;
  uint32_t mla_value_size = 0;
  uint8_t reserved[68] = {};
};

struct ReshapeAndCacheParam {
  enum CacheConfig : int { kKeyAndValue, kKeyOnly, kKeyAndValueNz };
  int compression = 0;
  int cache_config = kKeyAndValue;
  uint8_t reserved[16] = {};
};

struct RopeParam {
  int32_t coefficient = 4;  // 2: halves of a head; the size of a head: neighbours
  int32_t cosine_format = 0;
  uint8_t reserved[8] = {};
};

}  // namespace infer
}  // namespace atb
