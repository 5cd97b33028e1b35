// SPDX-License-Identifier: Apache-2.0
// Kernels of the matrix unit that each do one thing wrong.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

// The stations of a product of 16 x 16, without queues: every order is said by flags.
struct Stations {
  Stations(GM_ADDR x, GM_ADDR y) {
    in.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(x), 256);
    out.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), 256);
    pipe.InitBuffer(l1, 512);
    pipe.InitBuffer(l0a, 512);
    pipe.InitBuffer(l0b, 512);
    pipe.InitBuffer(l0c, 1024);
    a1 = l1.Get<half>();
    a2 = l0a.Get<half>();
    b2 = l0b.Get<half>();
    c = l0c.Get<float>();
  }
  template <HardEvent event>
  static void Order() {
    SetFlag<event>(EVENT_ID0);
    WaitFlag<event>(EVENT_ID0);
  }
  void CopyIn() const { DataCopy(a1, in, Nd2NzParams(1, 16, 16, 0, 16, 16, 1, 0)); }
  void LoadBoth() const {
    LoadData(a2, a1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    LoadData(b2, a1, LoadData2DParams(0, 1, 1, 0, 0, true, 0));
  }
  void Multiply(uint16_t size = 16) const { Mmad(c, a2, b2, MmadParams(size, 16, 16, 0, false, true)); }
  void CopyOut(uint16_t rows = 16) const { Fixpipe(out, c, FixpipeParamsV220(16, rows, 16, 16, false)); }

  TPipe pipe;
  TBuf<TPosition::A1> l1;
  TBuf<TPosition::A2> l0a;
  TBuf<TPosition::B2> l0b;
  TBuf<TPosition::CO1> l0c;
  GlobalTensor<half> in;
  GlobalTensor<float> out;
  LocalTensor<half> a1, a2, b2;
  LocalTensor<float> c;
};

}  // namespace

#define BROKEN(name, type)                                            \
  static __aicore__ inline void body_of_##name(GM_ADDR x, GM_ADDR y); \
  extern "C" __global__ __aicore__ void name(GM_ADDR x, GM_ADDR y) {  \
    KERNEL_TASK_TYPE_DEFAULT(type);                                   \
    body_of_##name(x, y);                                             \
  }                                                                   \
  __aicore__ inline void body_of_##name([[maybe_unused]] GM_ADDR x, [[maybe_unused]] GM_ADDR y)

BROKEN(right, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  all.CopyIn();
  all.Order<HardEvent::MTE2_MTE1>();
  all.LoadBoth();
  all.Order<HardEvent::MTE1_M>();
  all.Multiply();
  all.Order<HardEvent::M_FIX>();
  all.CopyOut();
}

BROKEN(loads_before_the_copy_has_ended, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  all.CopyIn();
  all.LoadBoth();
}

BROKEN(loads_what_nobody_copied, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  all.LoadBoth();
}

BROKEN(multiplies_before_the_load_has_ended, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  all.CopyIn();
  all.Order<HardEvent::MTE2_MTE1>();
  all.LoadBoth();
  all.Multiply();
}

BROKEN(goes_out_before_the_sums_are_there, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  all.CopyIn();
  all.Order<HardEvent::MTE2_MTE1>();
  all.LoadBoth();
  all.Order<HardEvent::MTE1_M>();
  all.Multiply();
  all.CopyOut();
}

BROKEN(loads_over_what_is_being_multiplied, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  all.CopyIn();
  all.Order<HardEvent::MTE2_MTE1>();
  all.LoadBoth();
  all.Order<HardEvent::MTE1_M>();
  all.Multiply();
  PipeBarrier<PIPE_MTE1>();
  all.LoadBoth();
}

BROKEN(sums_again_without_a_barrier, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  all.CopyIn();
  all.Order<HardEvent::MTE2_MTE1>();
  all.LoadBoth();
  all.Order<HardEvent::MTE1_M>();
  all.Multiply();
  Mmad(all.c, all.a2, all.b2, MmadParams(16, 16, 16, 0, false, false));
}

BROKEN(left_matrix_outside_its_buffer, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  all.CopyIn();
  all.Order<HardEvent::MTE2_MTE1>();
  LoadData(all.a2, all.a1, LoadData2DParams(0, 2, 0, 0, 0, false, 0));
}

BROKEN(sums_that_nobody_made, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  all.CopyIn();
  all.Order<HardEvent::MTE2_MTE1>();
  all.LoadBoth();
  all.Order<HardEvent::MTE1_M>();
  all.Multiply(8);
  all.Order<HardEvent::M_FIX>();
  all.CopyOut(9);
}

BROKEN(fractal_at_an_unaligned_address, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  all.CopyIn();
  all.Order<HardEvent::MTE2_MTE1>();
  LoadData(all.a2[16], all.a1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
}

BROKEN(factors_in_the_wrong_memories, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  Mmad(all.c, all.b2, all.a2, MmadParams(16, 16, 16, 0, false, true));
}

BROKEN(copy_from_l1_to_l1, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  DataCopy(all.a1, all.a1, 256);
}

BROKEN(too_much_for_l0a, KERNEL_TYPE_AIC_ONLY) {
  TPipe pipe;
  TQue<TPosition::A2, 1> queue;
  pipe.InitBuffer(queue, 2, 33 * 1024);
}

BROKEN(scalar_in_l1, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  all.a1.SetValue(0, half(1.0f));
}

BROKEN(dumps_a_factor, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  DumpTensor(all.a2, 1, 16);
}

BROKEN(rounds_by_no_mode, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  GlobalTensor<half> out;
  out.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(y), 256);
  Fixpipe(out, all.c, FixpipeParamsV220(16, 16, 16, 16, false));
}

BROKEN(eight_bits_transposed_by_fractals, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  LoadData(all.a2.ReinterpretCast<int8_t>(), all.a1.ReinterpretCast<int8_t>(),
           LoadData2DParams(0, 1, 1, 0, 0, true, 0));
}

BROKEN(rows_of_more_than_there_may_be, KERNEL_TYPE_AIC_ONLY) {
  Stations all(x, y);
  DataCopy(all.a1, all.in, Nd2NzParams(1, 16, 16, 0, 70000, 16, 1, 0));
}

BROKEN(matrix_unit_of_a_vector_kernel, KERNEL_TYPE_AIV_ONLY) {
  LocalTensor<float> c;
  LocalTensor<half> a;
  Mmad(c, a, a, MmadParams(16, 16, 16, 0, false, true));
}

BROKEN(flag_between_cores_that_nobody_waits_for, KERNEL_TYPE_MIX_AIC_1_2) {
  if ASCEND_IS_AIC
    CrossCoreSetFlag<2, PIPE_FIX>(5);
}

BROKEN(flag_that_one_vector_core_does_not_set, KERNEL_TYPE_MIX_AIC_1_2) {
  if ASCEND_IS_AIV {
    if (GetSubBlockIdx() == 0) CrossCoreSetFlag<2, PIPE_MTE3>(5);
  }
}

BROKEN(waits_in_the_wrong_core, KERNEL_TYPE_MIX_AIC_1_2) {
  if ASCEND_IS_AIC {
    CrossCoreSetFlag<2, PIPE_FIX>(5);
    CrossCoreWaitFlag(5);
  }
}

BROKEN(cores_that_all_wait, KERNEL_TYPE_MIX_AIC_1_2) {
  if ASCEND_IS_AIC
    CrossCoreWaitFlag(1);
  if ASCEND_IS_AIV
    CrossCoreWaitFlag(2);
}

// A flag of the end of a round, for which the first round waits as well.
BROKEN(waits_in_the_first_round, KERNEL_TYPE_MIX_AIC_1_2) {
  for (int round = 0; round < 2; ++round) {
    if ASCEND_IS_AIC {
      CrossCoreWaitFlag(6);
      CrossCoreSetFlag<2, PIPE_FIX>(5);
    }
    if ASCEND_IS_AIV {
      CrossCoreWaitFlag(5);
      CrossCoreSetFlag<2, PIPE_MTE3>(6);
    }
  }
}

BROKEN(flag_set_too_often, KERNEL_TYPE_MIX_AIC_1_2) {
  if ASCEND_IS_AIC {
    for (int i = 0; i < 16; ++i) CrossCoreSetFlag<2, PIPE_FIX>(5);
  }
}

// What the cube core has done, and what the other vector core has done, by one flag.
BROKEN(flag_for_two_purposes, KERNEL_TYPE_MIX_AIC_1_2) {
  if ASCEND_IS_AIC {
    CrossCoreSetFlag<2, PIPE_FIX>(3);
    CrossCoreSetFlag<2, PIPE_FIX>(4);
  }
  if ASCEND_IS_AIV {
    CrossCoreWaitFlag(4);
    CrossCoreSetFlag<1, PIPE_MTE3>(3);
    CrossCoreWaitFlag(3);
    CrossCoreWaitFlag(3);
  }
}

BROKEN(flag_between_cores_that_have_none, KERNEL_TYPE_AIV_ONLY) { CrossCoreSetFlag<0, PIPE_MTE3>(1); }

BROKEN(two_types, KERNEL_TYPE_AIC_ONLY) { KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2); }
