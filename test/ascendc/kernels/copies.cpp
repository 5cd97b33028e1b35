// SPDX-License-Identifier: Apache-2.0
// DataCopy and DataCopyPad of int16_t in all their forms and directions.
#include "kernel_operator.h"

using namespace AscendC;

struct CopyRequest {
  char form;  // c: a count, p: DataCopyParams, P: DataCopyPad, E: DataCopyPad with the extended parameters
  bool pad;
  uint8_t left;
  uint8_t right;
  int16_t value;
  uint32_t count;
  uint32_t blocks;
  uint32_t length;
  uint32_t src_stride;
  uint32_t dst_stride;
  uint32_t local_size;

  DataCopyParams params() const {
    const auto narrow = [](uint32_t value) { return static_cast<uint16_t>(value); };
    return {narrow(blocks), narrow(length), narrow(src_stride), narrow(dst_stride)};
  }
  DataCopyExtParams extended() const { return {static_cast<uint16_t>(blocks), length, src_stride, dst_stride, 0}; }
  uint64_t value_bits() const { return static_cast<uint16_t>(value); }
};

namespace {

class Local {
 public:
  Local(GM_ADDR local, const CopyRequest& request) : size_(request.local_size) {
    device_.SetGlobalBuffer(reinterpret_cast<__gm__ int16_t*>(local), size_);
    pipe_.InitBuffer(buffer_, size_ * sizeof(int16_t));
    DataCopy(tensor(), device_, size_);
    PipeBarrier<PIPE_ALL>();
  }
  void store() {
    PipeBarrier<PIPE_ALL>();
    DataCopy(device_, tensor(), size_);
  }
  LocalTensor<int16_t> tensor() { return buffer_.Get<int16_t>(); }

 private:
  uint32_t size_;
  TPipe pipe_;
  TBuf<> buffer_;
  GlobalTensor<int16_t> device_;
};

template <class Dst, class Src>
void copy_whole_blocks(const Dst& dst, const Src& src, const CopyRequest& request) {
  if (request.form == 'c') {
    DataCopy(dst, src, request.count);
  } else {
    DataCopy(dst, src, request.params());
  }
}

}  // namespace

extern "C" __global__ __aicore__ void copy_in(GM_ADDR device, GM_ADDR local_address, GM_ADDR request_address) {
  GET_TILING_DATA_WITH_STRUCT(CopyRequest, request, request_address);
  Local local(local_address, request);
  GlobalTensor<int16_t> from;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ int16_t*>(device));
  if (request.form == 'P') {
    DataCopyPad(local.tensor(), from, request.params(),
                DataCopyPadParams{request.pad, request.left, request.right, request.value_bits()});
  } else if (request.form == 'E') {
    DataCopyPad(local.tensor(), from, request.extended(),
                DataCopyPadExtParams<int16_t>{request.pad, request.left, request.right, request.value});
  } else {
    copy_whole_blocks(local.tensor(), from, request);
  }
  local.store();
}

extern "C" __global__ __aicore__ void copy_out(GM_ADDR device, GM_ADDR local_address, GM_ADDR request_address) {
  GET_TILING_DATA_WITH_STRUCT(CopyRequest, request, request_address);
  Local local(local_address, request);
  GlobalTensor<int16_t> to;
  to.SetGlobalBuffer(reinterpret_cast<__gm__ int16_t*>(device));
  if (request.form == 'P') {
    DataCopyPad(to, local.tensor(), request.params());
  } else if (request.form == 'E') {
    DataCopyPad(to, local.tensor(), request.extended());
  } else {
    copy_whole_blocks(to, local.tensor(), request);
  }
}

// From the first half of the local memory to the second.
extern "C" __global__ __aicore__ void copy_within(GM_ADDR, GM_ADDR local_address, GM_ADDR request_address) {
  GET_TILING_DATA_WITH_STRUCT(CopyRequest, request, request_address);
  Local local(local_address, request);
  copy_whole_blocks(local.tensor()[request.local_size / 2], local.tensor(), request);
  local.store();
}

// What a block knows of its launch: its number, how many there are, and which tiling key is set.
extern "C" __global__ __aicore__ void launched(GM_ADDR workspace) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  GlobalTensor<int32_t> of_block;
  of_block.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(GetUserWorkspace(workspace)) + 16 * GetBlockIdx(), 3);
  of_block.SetValue(0, static_cast<int32_t>(GetBlockIdx()));
  of_block.SetValue(1, static_cast<int32_t>(GetBlockNum()));
  of_block.SetValue(2, TILING_KEY_IS(7) ? 7 : 0);
  DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(of_block);
}
