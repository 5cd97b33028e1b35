// SPDX-License-Identifier: Apache-2.0
// Each kernel breaks one rule, in the line marked as reported. All take 64 floats in x and in y.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t kCount = 64;
constexpr uint32_t kBytes = kCount * sizeof(float);

// What most of the kernels begin with: a queue into the unified buffer, one out of it, and memory between them.
struct Parts {
  Parts(GM_ADDR x_address, GM_ADDR y_address) {
    pipe.InitBuffer(in, 2, kBytes);
    pipe.InitBuffer(out, 2, kBytes);
    pipe.InitBuffer(buffer, kBytes);
    x.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x_address), kCount);
    y.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y_address), kCount);
  }

  LocalTensor<float> filled() {
    LocalTensor<float> tensor = in.AllocTensor<float>();
    DataCopy(tensor, x, kCount);
    in.EnQue(tensor);
    return in.DeQue<float>();
  }

  TPipe pipe;
  TQue<QuePosition::VECIN, 1> in;
  TQue<QuePosition::VECOUT, 1> out;
  TBuf<TPosition::VECCALC> buffer;
  GlobalTensor<float> x;
  GlobalTensor<float> y;
};

}  // namespace

extern "C" __global__ __aicore__ void copy_of_no_whole_blocks(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopy(tensor, p.x, 13);  // reported
}

extern "C" __global__ __aicore__ void copy_to_an_unaligned_address(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopy(tensor[1], p.x, 8);  // reported
}

extern "C" __global__ __aicore__ void vector_at_an_unaligned_address(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  Adds(tensor, tensor[4], 1.0f, 8);  // reported
}

extern "C" __global__ __aicore__ void unified_buffer_exceeded(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TQue<QuePosition::VECIN, 2> large;
  p.pipe.InitBuffer(large, 2, 96 * 1024);  // reported
}

extern "C" __global__ __aicore__ void queue_deeper_than_its_depth(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> one = p.in.AllocTensor<float>();
  LocalTensor<float> two = p.in.AllocTensor<float>();
  p.in.EnQue(one);
  p.in.EnQue(two);  // reported
}

extern "C" __global__ __aicore__ void more_tensors_than_buffers(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  p.in.AllocTensor<float>();
  p.in.AllocTensor<float>();
  p.in.AllocTensor<float>();  // reported
}

extern "C" __global__ __aicore__ void tensor_never_freed(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();  // reported
  DataCopy(tensor, p.x, kCount);
}

extern "C" __global__ __aicore__ void dequeued_before_queued(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopy(tensor, p.x, kCount);
  tensor = p.in.DeQue<float>();  // reported
}

extern "C" __global__ __aicore__ void queued_twice(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  p.in.EnQue(tensor);
  p.in.EnQue(tensor);  // reported
}

extern "C" __global__ __aicore__ void queued_in_another_queue(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  p.out.EnQue(tensor);  // reported
}

extern "C" __global__ __aicore__ void freed_twice(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  p.in.FreeTensor(tensor);
  p.in.FreeTensor(tensor);  // reported
}

extern "C" __global__ __aicore__ void freed_while_queued(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopy(tensor, p.x, kCount);
  p.in.EnQue(tensor);
  p.in.FreeTensor(tensor);  // reported
}

extern "C" __global__ __aicore__ void used_after_it_was_freed(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  p.in.FreeTensor(tensor);
  Adds(tensor, tensor, 1.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void queue_without_buffers(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TQue<QuePosition::VECIN, 1> queue;
  queue.AllocTensor<float>();  // reported
}

extern "C" __global__ __aicore__ void buffer_without_memory(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TBuf<TPosition::VECCALC> buffer;
  buffer.Get<float>();  // reported
}

extern "C" __global__ __aicore__ void more_than_the_buffer_has(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  p.buffer.GetWithOffset<float>(32, 160);  // reported
}

extern "C" __global__ __aicore__ void tensor_without_memory(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor;
  tensor.SetValue(0, 1.0f);  // reported
}

extern "C" __global__ __aicore__ void vector_outside_its_tensor(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  Duplicate(tensor, 1.0f, kCount + 1);  // reported
}

extern "C" __global__ __aicore__ void repeats_outside_its_tensor(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  Duplicate(tensor, 1.0f, 8, 9, 1, 1);  // reported
}

extern "C" __global__ __aicore__ void element_outside_its_tensor(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>(32);
  tensor[16].SetValue(16, 1.0f);  // reported
}

extern "C" __global__ __aicore__ void outside_its_global_tensor(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopy(tensor, p.x[8], kCount);  // reported
}

extern "C" __global__ __aicore__ void outside_the_device_buffer(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  p.x.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x));
  p.x.GetValue(kCount);  // reported
}

extern "C" __global__ __aicore__ void in_no_device_buffer(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  float host = 1;
  p.x.SetGlobalBuffer(&host, 1);
  p.x.GetValue(0);  // reported
}

extern "C" __global__ __aicore__ void reads_what_was_never_written(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, 13);
  Adds(tensor, tensor, 1.0f, 14);  // reported
}

extern "C" __global__ __aicore__ void reads_what_its_buffer_had_before(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  p.in.FreeTensor(tensor);
  tensor = p.in.AllocTensor<float>();
  p.in.EnQue(tensor);
  tensor = p.in.DeQue<float>();
  Adds(tensor, tensor, 1.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void vector_reads_before_the_copy_has_ended(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  DataCopy(tensor, p.x, kCount);
  Adds(tensor, tensor, 1.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void copies_out_before_the_vector_unit_has_ended(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  DataCopy(p.y, tensor, kCount);  // reported
}

extern "C" __global__ __aicore__ void overwrites_what_is_being_copied_out(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
  WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
  DataCopy(p.y, tensor, kCount);
  Duplicate(tensor, 2.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void copies_in_over_what_is_being_read(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  LocalTensor<float> other = p.filled();
  Duplicate(tensor, 1.0f, kCount);
  SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
  WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
  Adds(other, tensor, 2.0f, kCount);
  DataCopy(tensor, p.x, kCount);  // reported
}

extern "C" __global__ __aicore__ void scalar_reads_what_the_vector_unit_waited_for(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  tensor.GetValue(0);  // reported
  p.in.FreeTensor(tensor);
}

extern "C" __global__ __aicore__ void copies_out_what_the_scalar_unit_wrote(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  for (uint32_t i = 0; i < 8; ++i) tensor.SetValue(i, 1.0f);
  DataCopy(p.y, tensor, 8);  // reported
}

extern "C" __global__ __aicore__ void copies_in_what_is_being_copied_out(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  PipeBarrier<PIPE_ALL>();
  DataCopy(p.y, tensor, kCount);
  LocalTensor<float> other = p.in.AllocTensor<float>();
  DataCopy(other, p.y, kCount);  // reported
}

extern "C" __global__ __aicore__ void barrier_of_one_pipe_alone(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  PipeBarrier<PIPE_V>();
  DataCopy(p.y, tensor, kCount);  // reported
}

extern "C" __global__ __aicore__ void flag_for_another_pipe(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  DataCopy(tensor, p.x, kCount);
  SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
  WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
  Adds(tensor, tensor, 1.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void flag_set_too_early(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
  DataCopy(tensor, p.x, kCount);
  WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
  Adds(tensor, tensor, 1.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void flag_never_waited_for(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID3);  // reported
}

extern "C" __global__ __aicore__ void flag_never_set(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID3);
  WaitFlag<HardEvent::V_MTE2>(EVENT_ID3);  // reported
}

extern "C" __global__ __aicore__ void flag_set_twice(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID3);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID3);  // reported
}

extern "C" __global__ __aicore__ void event_id_that_is_none(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  SetFlag<HardEvent::MTE2_V>(8);  // reported
}

extern "C" __global__ __aicore__ void more_event_ids_than_there_are(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  for (uint32_t i = 0; i < 9; ++i) p.pipe.AllocEventID<HardEvent::V_MTE3>();  // reported
}

extern "C" __global__ __aicore__ void mask_larger_than_a_repeat(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  Duplicate(p.buffer.Get<float>(), 1.0f, 65, 1, 1, 8);  // reported
}

extern "C" __global__ __aicore__ void padding_larger_than_a_block(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  DataCopyPadExtParams<float> pad{true, 9, 0, 0.0f};
  DataCopyPad(p.buffer.Get<float>(), p.x, DataCopyExtParams{1, 32, 0, 0, 0}, pad);  // reported
}

extern "C" __global__ __aicore__ void rounding_mode_that_the_dtypes_lack(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  Cast(p.buffer.Get<int32_t>(), p.filled(), RoundMode::CAST_ODD, 8);  // reported
}

extern "C" __global__ __aicore__ void assertion(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  ASSERT(p.x.GetSize() == 63);  // reported
}

extern "C" __global__ __aicore__ void pipe_that_was_never_made(GM_ADDR, GM_ADDR) {
  GetTPipePtr();  // reported
}

extern "C" __global__ __aicore__ void blocks_that_write_the_same_bytes(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.out.AllocTensor<float>();
  Duplicate(tensor, 1.0f, 16);
  p.out.EnQue(tensor);
  tensor = p.out.DeQue<float>();
  DataCopy(p.y[8 * GetBlockIdx()], tensor, 16);  // reported
  p.out.FreeTensor(tensor);
}

extern "C" __global__ __aicore__ void block_that_reads_what_another_writes(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopy(tensor, p.y, 16);  // reported
  p.in.FreeTensor(tensor);
  PipeBarrier<PIPE_ALL>();
  tensor = p.out.AllocTensor<float>();
  Duplicate(tensor, 1.0f, 8);
  p.out.EnQue(tensor);
  tensor = p.out.DeQue<float>();
  DataCopy(p.y[8 * GetBlockIdx()], tensor, 8);
  p.out.FreeTensor(tensor);
}

extern "C" __global__ __aicore__ void barrier_of_the_scalar_unit(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  PipeBarrier<PIPE_S>();  // reported
}

extern "C" __global__ __aicore__ void copies_in_over_a_copy(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  DataCopy(tensor, p.x, kCount);
  DataCopy(tensor[8], p.x, 8);  // reported
}

extern "C" __global__ __aicore__ void copies_out_over_a_copy(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  PipeBarrier<PIPE_ALL>();
  DataCopy(p.y, tensor, 16);
  DataCopy(p.y[8], tensor, 16);  // reported
}

extern "C" __global__ __aicore__ void vector_reads_what_it_just_wrote(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  Adds(tensor, tensor, 1.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void vector_reads_what_it_wrote_in_the_round_before(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  for (int i = 0; i < 2; ++i) Adds(tensor, tensor, 1.0f, kCount);  // reported
  p.in.FreeTensor(tensor);
}

extern "C" __global__ __aicore__ void vector_overwrites_what_it_just_read(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  Adds(p.buffer.Get<float>(), tensor, 1.0f, kCount);
  Duplicate(tensor, 1.0f, kCount);  // reported
  p.in.FreeTensor(tensor);
}

extern "C" __global__ __aicore__ void vector_writes_twice(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  Duplicate(tensor[8], 2.0f, 8);  // reported
}

extern "C" __global__ __aicore__ void repeat_of_256(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  const uint32_t repeats = 256;
  Adds(tensor, tensor, 1.0f, 64, repeats, {1, 1, 0, 0});  // reported
}

extern "C" __global__ __aicore__ void work_buffer_too_small(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  ReduceMax(p.buffer.Get<float>(), tensor, p.buffer.GetWithOffset<float>(8, 32), kCount, true);  // reported
}

extern "C" __global__ __aicore__ void overlap_in_part(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  Adds(tensor[8], tensor, 1.0f, 56);  // reported
}

extern "C" __global__ __aicore__ void repeat_that_reads_what_another_wrote(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TBuf<> large;
  p.pipe.InitBuffer(large, 512);
  LocalTensor<half> tensor = large.Get<half>();
  Duplicate(tensor, half(1.0f), 128);
  Cast(tensor.ReinterpretCast<float>(), tensor, RoundMode::CAST_NONE, 128);  // reported
}

extern "C" __global__ __aicore__ void event_id_of_a_queue(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopy(tensor, p.x, kCount);
  p.in.EnQue(tensor);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID0);  // reported
}

extern "C" __global__ __aicore__ void queue_takes_an_id_in_use(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopy(tensor, p.x, kCount);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
  p.in.EnQue(tensor);  // reported
}

extern "C" __global__ __aicore__ void more_buffers_than_event_ids(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TQue<QuePosition::VECIN, 1> queues[5];
  for (auto& queue : queues) {
    p.pipe.InitBuffer(queue, 2, kBytes);
    for (int i = 0; i < 2; ++i) {
      LocalTensor<float> tensor = queue.AllocTensor<float>();
      queue.FreeTensor(tensor);  // reported
    }
  }
}

extern "C" __global__ __aicore__ void scalar_write_that_stays_in_the_cache(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  p.y.SetValue(3, 1.0f);  // reported
}

extern "C" __global__ __aicore__ void copy_of_what_is_in_the_cache(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  p.y.SetValue(3, 1.0f);
  PipeBarrier<PIPE_ALL>();
  DataCopy(p.buffer.Get<float>(), p.y, 8);  // reported
}

extern "C" __global__ __aicore__ void blocks_in_one_cache_line(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  p.y.SetValue(GetBlockIdx(), 1.0f);  // reported
  DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(p.y);
}

extern "C" __global__ __aicore__ void block_that_does_not_wait(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, 8);
  PipeBarrier<PIPE_ALL>();
  SyncAll();
  if (GetBlockIdx() == 0) {
    DataCopy(p.y, tensor, 8);
  } else {
    DataCopy(tensor, p.y, 8);  // reported
  }
}

extern "C" __global__ __aicore__ void plain_write_beside_atomic_ones(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 0.0f, 8);
  PipeBarrier<PIPE_ALL>();
  if (GetBlockIdx() == 0) DataCopy(p.y, tensor, 8);
  PipeBarrier<PIPE_ALL>();
  SetAtomicAdd<float>();
  DataCopy(p.y, tensor, 8);  // reported
  SetAtomicNone();
}

extern "C" __global__ __aicore__ void block_that_does_not_come(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  if (GetBlockIdx() == 0) SyncAll();  // reported
}

extern "C" __global__ __aicore__ void flag_of_a_block_never_set(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  GlobalTensor<int32_t> workspace;
  workspace.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(y), kCount);
  if (GetBlockIdx() == 0) IBWait(workspace, p.buffer.Get<int32_t>(), 1, 0);  // reported
}

extern "C" __global__ __aicore__ void soft_sync_with_too_little_memory(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  GlobalTensor<int32_t> workspace;
  workspace.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(y), kCount);
  SyncAll(workspace, p.buffer.Get<int32_t>(8));  // reported
}

struct Tiling {
  uint64_t numbers[3];
};

extern "C" __global__ __aicore__ void tiling_of_another_size(GM_ADDR x, GM_ADDR) {
  GET_TILING_DATA_WITH_STRUCT(Tiling, tiling, x);  // reported
  ASSERT(tiling.numbers[0] != 0);
}

extern "C" __global__ __aicore__ void allocated_instead_of_dequeued(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopy(tensor, p.x, kCount);
  p.in.EnQue(tensor);
  LocalTensor<float> other = p.in.AllocTensor<float>();
  Adds(p.buffer.Get<float>(), other, 1.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void last_block_out_of_range(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopy(tensor, p.x[48 * GetBlockIdx()], 48);  // reported
  p.in.FreeTensor(tensor);
}

extern "C" __global__ __aicore__ void input_length_in_elements(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopyPad(tensor, p.x, DataCopyExtParams{1, kCount, 0, 0, 0}, DataCopyPadExtParams<float>{});
  p.in.EnQue(tensor);
  tensor = p.in.DeQue<float>();
  Adds(tensor, tensor, 1.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void input_length_in_bytes(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  DataCopy(p.in.AllocTensor<float>(), p.x, DataCopyParams{1, kBytes, 0, 0});  // reported
}

extern "C" __global__ __aicore__ void output_length_in_bytes(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  PipeBarrier<PIPE_ALL>();
  DataCopy(p.y, tensor, DataCopyParams{1, kBytes, 0, 0});  // reported
}

extern "C" __global__ __aicore__ void buffer_of_elements_and_not_bytes(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TBuf<> small;
  p.pipe.InitBuffer(small, kCount);
  DataCopy(small.Get<float>(), p.x, kCount);  // reported
}

extern "C" __global__ __aicore__ void used_after_its_buffer_was_taken_again(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TQue<QuePosition::VECIN, 1> queue;
  p.pipe.InitBuffer(queue, 1, kBytes);
  LocalTensor<float> tensor = queue.AllocTensor<float>();
  queue.FreeTensor(tensor);
  queue.AllocTensor<float>();
  Duplicate(tensor, 1.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void freed_after_its_buffer_was_taken_again(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TQue<QuePosition::VECIN, 1> queue;
  p.pipe.InitBuffer(queue, 1, kBytes);
  LocalTensor<float> tensor = queue.AllocTensor<float>();
  queue.FreeTensor(tensor);
  queue.AllocTensor<float>();
  queue.FreeTensor(tensor);  // reported
}

extern "C" __global__ __aicore__ void before_the_device_buffer(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  p.x[uint64_t{0} - 8].GetValue(7);  // reported
}

extern "C" __global__ __aicore__ void wait_for_the_flag_of_a_queue(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.in.AllocTensor<float>();
  DataCopy(tensor, p.x, kCount);
  p.in.EnQue(tensor);
  WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);  // reported
}

extern "C" __global__ __aicore__ void event_id_below_0(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  WaitFlag<HardEvent::MTE2_V>(-1);  // reported
}

extern "C" __global__ __aicore__ void queue_of_no_bytes(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TQue<QuePosition::VECIN, 1> queue;
  p.pipe.InitBuffer(queue, 1, 0);  // reported
}

extern "C" __global__ __aicore__ void address_outside_the_unified_buffer(GM_ADDR, GM_ADDR) {
  LocalTensor<float>(TPosition::VECCALC, 192 * 1024 - 32, 9);  // reported
}

extern "C" __global__ __aicore__ void copy_into_a_line_in_the_cache(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, 8);
  p.y.SetValue(3, 1.0f);
  PipeBarrier<PIPE_ALL>();
  DataCopy(p.y[8], tensor, 8);  // reported
}

extern "C" __global__ __aicore__ void another_line_than_the_one_cleaned(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  p.y.SetValue(3, 1.0f);
  p.y.SetValue(19, 1.0f);  // reported
  DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(p.y[3]);
}

extern "C" __global__ __aicore__ void more_blocks_than_there_are(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  GlobalTensor<int32_t> workspace;
  workspace.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(y), kCount);
  SyncAll(workspace, p.buffer.Get<int32_t>(), 3);  // reported
}

extern "C" __global__ __aicore__ void overwrites_what_is_read_once_more(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  LocalTensor<float> other = p.filled();
  Duplicate(tensor, 1.0f, kCount);
  Adds(other, tensor, 1.0f, kCount);
  SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
  WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
  Adds(other, tensor, 2.0f, kCount);
  DataCopy(tensor, p.x, kCount);  // reported
}

// What the scalar unit touches is noted later than it is checked.

extern "C" __global__ __aicore__ void scalar_reads_what_nobody_wrote(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  for (uint32_t i = 0; i < 8; ++i) tensor.SetValue(i, tensor.GetSize());
  for (uint32_t i = 0; i < 9; ++i) ASSERT(tensor.GetValue(i) == kCount);  // reported
}

extern "C" __global__ __aicore__ void scalar_of_the_second_block_reads_what_nobody_wrote(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  if (GetBlockIdx() == 0) tensor.SetValue(0, 1.0f);
  ASSERT(tensor.GetValue(0) == 1.0f);  // reported
}

extern "C" __global__ __aicore__ void scalar_reads_more_than_it_wrote(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  tensor.SetValue(2, 1.0f);
  tensor.ReinterpretCast<int64_t>().GetValue(1);  // reported
}

extern "C" __global__ __aicore__ void scalar_reads_before_it_writes(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  tensor.SetValue(3, tensor.GetValue(3) + 1.0f);  // reported
}

extern "C" __global__ __aicore__ void scalar_wrote_every_second_element(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  for (uint32_t i = 0; i < kCount; i += i < 16 ? 1 : 2) tensor.SetValue(i, 1.0f);
  SetFlag<HardEvent::S_V>(EVENT_ID0);
  WaitFlag<HardEvent::S_V>(EVENT_ID0);
  Adds(tensor, tensor, 1.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void scalar_wrote_in_more_lines_than_are_counted(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> t = p.buffer.Get<float>();
  Duplicate(t, 0.0f, kCount);
  PipeBarrier<PIPE_ALL>();
  t.SetValue(0, 1.0f), t.SetValue(1, 1.0f), t.SetValue(2, 1.0f), t.SetValue(3, 1.0f), t.SetValue(4, 1.0f);
  t.SetValue(5, 1.0f), t.SetValue(6, 1.0f), t.SetValue(7, 1.0f), t.SetValue(8, 1.0f), t.SetValue(9, 1.0f);
  t.SetValue(10, 1.0f), t.SetValue(11, 1.0f), t.SetValue(12, 1.0f), t.SetValue(13, 1.0f), t.SetValue(14, 1.0f);
  t.SetValue(15, 1.0f), t.SetValue(16, 1.0f);
  DataCopy(p.y, t[16], 8);  // reported
}

extern "C" __global__ __aicore__ void vector_writes_what_the_scalar_unit_read(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  PipeBarrier<PIPE_ALL>();
  tensor.GetValue(63);
  Duplicate(tensor, 2.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void scalar_writes_what_the_vector_unit_reads(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  PipeBarrier<PIPE_ALL>();
  LocalTensor<float> other = p.in.AllocTensor<float>();
  Adds(other, tensor, 1.0f, 32);
  for (uint32_t i = kCount; i-- > 0;) tensor.SetValue(i, 2.0f);  // reported
  p.in.FreeTensor(other);
}

extern "C" __global__ __aicore__ void scalar_writes_what_is_being_copied_in(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  tensor.SetValue(0, 2.0f);
  PipeBarrier<PIPE_ALL>();
  DataCopy(tensor, p.x, kCount);
  tensor.SetValue(0, 2.0f);  // reported
}

extern "C" __global__ __aicore__ void copies_out_what_the_scalar_unit_changed_in_a_copy(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  DataCopy(tensor, p.x, kCount);
  tensor.SetValue(3, 2.0f);  // reported
  DataCopy(p.y, tensor, kCount);
  DataCopy(p.x, tensor, kCount);
}

extern "C" __global__ __aicore__ void scalar_waited_for_another_copy(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> one = p.buffer.Get<float>(), other = p.in.AllocTensor<float>();
  DataCopy(one, p.x, kCount);
  SetFlag<HardEvent::MTE2_S>(EVENT_ID0);
  DataCopy(other, p.x, kCount);
  WaitFlag<HardEvent::MTE2_S>(EVENT_ID0);
  one.SetValue(0, one.GetValue(1));
  Adds(other, other, 1.0f, kCount);  // reported
}

extern "C" __global__ __aicore__ void scalar_reads_once_more_what_is_being_copied_in(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  PipeBarrier<PIPE_ALL>();
  tensor.GetValue(0);
  PipeBarrier<PIPE_ALL>();
  DataCopy(tensor, p.x, kCount);
  tensor.GetValue(0);  // reported
}

extern "C" __global__ __aicore__ void scalar_writes_where_it_reads(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  Duplicate(tensor, 1.0f, kCount);
  PipeBarrier<PIPE_ALL>();
  const cpu::Where here = cpu::Where::current();  // as of a function that says what its caller did
  tensor.SetValue(5, tensor.GetValue(5, here) + 1.0f, here);
  DataCopy(p.y, tensor, 8);  // reported
}

extern "C" __global__ __aicore__ void scalar_writes_to_two_buffers(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TBuf<> other;
  p.pipe.InitBuffer(other, kBytes);
  for (const LocalTensor<float>& tensor : {p.buffer.Get<float>(), other.Get<float>()}) {
    for (uint32_t i = 0; i < kCount; ++i) tensor.SetValue(i, 1.0f);
  }
  DataCopy(p.y, other.Get<float>(), kCount);  // reported
}

extern "C" __global__ __aicore__ void scalar_writes_what_was_freed(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  p.in.FreeTensor(tensor);
  tensor.SetValue(0, 1.0f);  // reported
}

extern "C" __global__ __aicore__ void scalar_writes_again_what_was_freed(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled();
  PipeBarrier<PIPE_ALL>();
  for (uint32_t i = 0; i < 3; ++i) {
    tensor.SetValue(i, 1.0f);  // reported
    if (i == 1) p.in.FreeTensor(tensor);
  }
}

extern "C" __global__ __aicore__ void scalar_writes_again_what_was_given_away(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.filled(), other;
  PipeBarrier<PIPE_ALL>();
  for (uint32_t i = 0; i < 4; ++i) {
    (i % 2 == 0 ? tensor : other).SetValue(i, 1.0f);  // reported
    if (i == 0) {
      p.in.FreeTensor(tensor);
      other = p.in.AllocTensor<float>();
    }
  }
}

extern "C" __global__ __aicore__ void scalar_writes_behind_a_smaller_tensor(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  for (uint32_t elements : {kCount, 16u}) {
    for (uint32_t i = 0; i < 17; ++i) p.buffer.Get<float>(elements).SetValue(i, 1.0f);  // reported
  }
}

extern "C" __global__ __aicore__ void scalar_writes_behind_its_flag(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  for (uint32_t i = 0; i < 8; ++i) tensor.SetValue(i, 1.0f);
  SetFlag<HardEvent::S_MTE3>(EVENT_ID0);
  tensor.SetValue(7, 2.0f);
  WaitFlag<HardEvent::S_MTE3>(EVENT_ID0);
  DataCopy(p.y, tensor, 8);  // reported
}

extern "C" __global__ __aicore__ void buffer_of_what_the_scalar_unit_wrote_before(GM_ADDR, GM_ADDR) {
  const LocalTensor<float> tensor(TPosition::VECCALC, 0, kCount);
  tensor.SetValue(0, 1.0f);
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, kBytes);
  tensor.GetValue(0);  // reported
}

extern "C" __global__ __aicore__ void scalar_writes_behind_its_buffer(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TBuf<> next;
  p.pipe.InitBuffer(next, kBytes);
  LocalTensor<float> tensor = p.buffer.Get<float>();
  tensor.SetSize(2 * kCount);
  for (uint32_t i = 2 * kCount - 8; i < 2 * kCount; ++i) tensor.SetValue(i, 1.0f);
  DataCopy(p.y, next.Get<float>()[kCount - 8], 8);  // reported
}

extern "C" __global__ __aicore__ void repeat_whose_rest_overlaps(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TBuf<> large;
  p.pipe.InitBuffer(large, 4 * kBytes);
  LocalTensor<float> tensor = large.Get<float>();
  Duplicate(tensor, 1.0f, 2 * kCount);
  Adds(tensor[kCount], tensor, 1.0f, kCount + 8);  // reported
}

extern "C" __global__ __aicore__ void repeat_that_reaches_behind_the_last(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TBuf<> large;
  p.pipe.InitBuffer(large, 4 * kBytes);
  LocalTensor<float> tensor = large.Get<float>();
  Duplicate(tensor, 1.0f, 4 * kCount);
  SetMaskCount();
  SetVectorMask<float, MaskMode::COUNTER>(kCount + 1);
  Adds<float, false>(tensor[14 * 8], tensor, 1.0f, MASK_PLACEHOLDER, 1, {1, 2, 8, 8});  // reported
}

extern "C" __global__ __aicore__ void first_source_that_accumulates(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TBuf<> large;
  p.pipe.InitBuffer(large, 2 * kBytes);
  LocalTensor<float> tensor = large.Get<float>();
  Duplicate(tensor, 1.0f, 2 * kCount);
  Add(tensor, tensor, p.filled(), 64, 2, {1, 1, 1, 8, 0, 0});  // reported
}

extern "C" __global__ __aicore__ void second_source_that_moves_on(GM_ADDR x, GM_ADDR y) {
  Parts p(x, y);
  TBuf<> large;
  p.pipe.InitBuffer(large, 3 * kBytes);
  LocalTensor<float> tensor = large.Get<float>();
  Duplicate(tensor, 1.0f, 3 * kCount);
  Add(tensor[kCount], p.filled(), tensor, 64, 2, {1, 1, 1, 8, 0, 8});  // reported
}
