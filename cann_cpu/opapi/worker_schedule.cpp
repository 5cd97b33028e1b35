// SPDX-License-Identifier: Apache-2.0
// Attention and feed-forward layers on different workers: the tables that tokens arrive in, and what a worker does once
// they are complete. The tables lie at addresses in a structure of 1024 bytes, the schedule context.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/safe_numerics.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "checks.h"

using namespace cann_cpu;

namespace {

enum ScheduleMode : int32_t { kFeedForward = 0, kAttention = 1 };

struct Buffer {
  uint64_t address, size;
};

struct ScheduleContext {
  uint32_t sessions;  // the attention workers
  uint32_t micro_batches;
  uint32_t tokens;   // of a micro batch
  uint32_t choices;  // the experts of a token, and the shared expert
  uint32_t experts;
  uint32_t sent_token_size, returned_token_size;  // bytes
  int32_t mode;
  int8_t reserved_common[96];

  int32_t is_running;
  int8_t reserved_control[124];

  struct Attention {
    Buffer flags;  // int32 (micro_batches, tokens, choices)
    Buffer data;   // (micro_batches, tokens, choices, hidden)
    uint32_t micro_batch;
    int8_t reserved[92];
  } attention;

  struct FeedForward {
    Buffer info;  // int32 (sessions, micro_batches, 2 + tokens * choices): the flag, the layer and the experts
    Buffer data;  // (sessions, micro_batches, tokens, choices, sent_token_size bytes)
    uint64_t micro_batch;
    int8_t reserved_in[88];
    Buffer layers, session_ids, micro_batch_ids;  // int32 (sessions)
    Buffer expert_ids;                            // int32 (sessions, tokens, choices)
    uint32_t ready;                               // the first of these rows
    int8_t reserved_out[60];
  } feed_forward;

  int8_t reserved[384];

  int64_t rows() const { return int64_t{tokens} * choices; }

  void check(ScheduleMode expected) const {
    TORCH_CHECK(mode == expected, "schedule_context.schedule_mode is ", mode, "; expected ", int{expected});
    if (expected == kFeedForward) check_range("schedule_context.session_num", sessions, 1, 1024);
    check_range("schedule_context.micro_batch_num", micro_batches, 1, std::numeric_limits<int32_t>::max());
    check_range("schedule_context.micro_batch_size", tokens, 1, std::numeric_limits<int32_t>::max());
    check_range("schedule_context.selected_expert_num", choices, 1, std::numeric_limits<int32_t>::max());
    if (expected == kAttention) {
      check_range("schedule_context.attention.micro_batch_id", attention.micro_batch, 0, int64_t{micro_batches} - 1);
    } else {
      TORCH_CHECK(feed_forward.micro_batch < micro_batches, "schedule_context.ffn.polling_index is ",
                  feed_forward.micro_batch, "; expected 0 to ", micro_batches - 1);
    }
  }
};
static_assert(sizeof(ScheduleContext) == 1024);

void check_context(In context) {
  check_shape("schedule_context", context, {static_cast<int64_t>(sizeof(ScheduleContext))});
  check_contiguous("schedule_context", context);
}

ScheduleContext& context_in(In tensor) { return *static_cast<ScheduleContext*>(tensor.data_ptr()); }

// The memory of a buffer, as a tensor of this shape.
at::Tensor table_in(const char* name, const Buffer& buffer, at::IntArrayRef shape, at::ScalarType dtype) {
  uint64_t size = c10::elementSize(dtype);
  for (const int64_t each : shape) {
    TORCH_CHECK(!c10::mul_overflows(size, static_cast<uint64_t>(each), &size), "schedule_context describes ", shape,
                " numbers in ", name, ", more than there is memory for");
  }
  TORCH_CHECK(buffer.address != 0, "schedule_context.", name, " is null");
  TORCH_CHECK(buffer.size >= size, "schedule_context.", name, "_size is ", buffer.size, "; expected at least ", size);
  return at::from_blob(reinterpret_cast<void*>(buffer.address), shape, at::TensorOptions().dtype(dtype));
}

// Others write to a table while this one waits; their data is there once its flags, one dimension of them, are set.
bool all_set(In flags) {
  int32_t* flag = flags.mutable_data_ptr<int32_t>();
  for (int64_t i = 0; i < flags.size(0); ++i, flag += flags.stride(0)) {
    if (std::atomic_ref(*flag).load(std::memory_order_acquire) != 1) return false;
  }
  return true;
}

// Returns false when the program ends the run before the tokens are complete.
template <class Condition>
bool wait_until(ScheduleContext& context, Condition is_complete) {
  while (std::atomic_ref(context.is_running).load(std::memory_order_acquire) != 0) {
    if (is_complete()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return false;
}

void check_dtype(const char* name, In tensor, at::ScalarType expected) {
  TORCH_CHECK(tensor.scalar_type() == expected, name, " has dtype ", tensor.scalar_type(), "; expected ", expected,
              ", as token_dtype says");
}

// The attention worker: its flags, and the results that come back to it.
struct AttentionWorker {
  explicit AttentionWorker(ScheduleContext& shared) : context(shared) { context.check(kAttention); }

  int64_t next() const { return (context.attention.micro_batch + 1) % context.micro_batches; }
  at::Tensor flags(int64_t micro_batch) const {
    return table_in("attention.token_info_buf", context.attention.flags, {context.micro_batches, context.rows()},
                    at::kInt)[micro_batch];
  }
  bool wait() const {
    const auto awaited = flags(next());
    return wait_until(context, [&] { return all_set(awaited); });
  }
  void take() const {
    flags(next()).zero_();
    context.attention.micro_batch = static_cast<uint32_t>(next());
  }

  ScheduleContext& context;
};

struct AttentionCombine {
  In schedule_context, expert_scales, layer_id;
  int64_t hidden_size, token_dtype, need_schedule;

  int64_t tokens() const { return expert_scales.size(0); }
  int64_t experts() const { return expert_scales.size(1); }

  void check(In y, In next_layer_id) const {
    check_context(schedule_context);
    check_rank("expert_scales", expert_scales, 2);
    check_range("the columns of expert_scales", experts(), 1, 64);
    check_range("token_dtype", token_dtype, 0, 1);
    check_range("need_schedule", need_schedule, 0, 1);
    check_range("hidden_size", hidden_size, 1, std::numeric_limits<int32_t>::max());
    check_shape("layer_id", layer_id, {1});
    check_shape("next_layer_id", next_layer_id, {1});
    check_shape("y", y, {tokens(), hidden_size});
    check_dtype("y", y, token_dtype == 0 ? at::kHalf : at::kBFloat16);
  }

  void run(Out y, Out next_layer_id) const {
    const AttentionWorker worker(context_in(schedule_context));
    const auto& context = worker.context;
    TORCH_CHECK(context.tokens == tokens(), "schedule_context.micro_batch_size is ", context.tokens, "; expected ",
                tokens(), ", the rows of expert_scales");
    // The result of the shared expert comes last, and has no scale.
    const bool has_shared = context.choices == experts() + 1;
    TORCH_CHECK(has_shared || context.choices == experts(), "schedule_context.selected_expert_num is ", context.choices,
                "; expected ", experts() + 1, " or ", experts(), ", for the columns of expert_scales");
    const auto all = table_in("attention.token_data_buf", context.attention.data,
                              {context.micro_batches, tokens(), context.choices, hidden_size}, y.scalar_type());
    if (need_schedule == 1) {
      TORCH_CHECK(worker.wait(), "schedule_context.run_flag is 0 before all results have arrived");
    }
    const auto rows = all[need_schedule == 1 ? worker.next() : context.attention.micro_batch];
    constexpr int64_t kBlock = 64;
    for (int64_t begin = 0; begin < tokens(); begin += kBlock) {
      const int64_t count = std::min(kBlock, tokens() - begin);
      at::Tensor sums = has_shared ? rows.narrow(0, begin, count).select(1, experts()).to(at::kFloat)
                                   : at::Tensor(at::zeros({count, hidden_size}, at::kFloat));
      for (int64_t i = 0; i < experts(); ++i) {
        const auto scale = expert_scales.narrow(0, begin, count).narrow(1, i, 1);
        sums.addcmul_(rows.narrow(0, begin, count).select(1, i).to(at::kFloat), scale);
      }
      y.narrow(0, begin, count).copy_(sums);
    }
    next_layer_id.copy_(layer_id + 1);
    if (need_schedule == 1) worker.take();
  }
};

// The feed-forward worker: the tokens that sessions have sent for each micro batch.
struct FeedForwardWorker {
  explicit FeedForwardWorker(ScheduleContext& shared) : context(shared) {
    context.check(kFeedForward);
    info = table_in("ffn.token_info_buf", context.feed_forward.info,
                    {context.sessions, context.micro_batches, 2 + context.rows()}, at::kInt);
  }

  bool is_ready(int64_t micro_batch, int64_t session, int64_t count) const {
    return all_set(info.select(1, micro_batch).select(1, 0).narrow(0, session, count));
  }
  at::Tensor experts(int64_t micro_batch, int64_t session, int64_t count) const {
    return info.select(1, micro_batch).narrow(0, session, count).narrow(1, 2, context.rows());
  }
  void reset(int64_t micro_batch, int64_t session, int64_t count) const {
    experts(micro_batch, session, count).fill_(kTaken);
    info.select(1, micro_batch).narrow(0, session, count).select(1, 0).zero_();
  }
  void advance() const {
    context.feed_forward.micro_batch = (context.feed_forward.micro_batch + 1) % context.micro_batches;
  }

  static constexpr int32_t kTaken = 0x7F7F7F7F;  // an expert's number in a place that holds no token

  ScheduleContext& context;
  at::Tensor info;
};

// Collects, for each group of sessions, the first micro batch that all of them have sent.
struct FeedForwardSchedule {
  In schedule_context;
  int64_t group_size;

  void run() const {
    const FeedForwardWorker worker(context_in(schedule_context));
    auto& context = worker.context;
    auto& state = context.feed_forward;
    const int64_t sessions = context.sessions;
    TORCH_CHECK(group_size >= 1 && group_size <= sessions && sessions % group_size == 0, "sync_group_size is ",
                group_size, "; expected a divisor of the ", sessions, " sessions");
    const auto of_sessions = [&](const char* name, const Buffer& buffer) {
      return table_in(name, buffer, {sessions}, at::kInt);
    };
    const auto layers = of_sessions("ffn.layer_ids_buf", state.layers);
    const auto session_ids = of_sessions("ffn.session_ids_buf", state.session_ids);
    const auto micro_batch_ids = of_sessions("ffn.micro_batch_ids_buf", state.micro_batch_ids);
    const auto expert_ids = table_in("ffn.expert_ids_buf", state.expert_ids, {sessions, context.rows()}, at::kInt);

    const int64_t groups = sessions / group_size;
    const auto first_ready = [&](int64_t group) -> int64_t {
      for (int64_t i = 0; i < context.micro_batches; ++i) {
        if (worker.is_ready(i, group * group_size, group_size)) return i;
      }
      return -1;
    };
    const auto is_any_ready = [&] {
      if (groups == 1) return worker.is_ready(static_cast<int64_t>(state.micro_batch), 0, sessions);
      for (int64_t group = 0; group < groups; ++group) {
        if (first_ready(group) >= 0) return true;
      }
      return false;
    };
    state.ready = 0;
    if (!wait_until(context, is_any_ready)) return;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t micro_batch = groups == 1 ? static_cast<int64_t>(state.micro_batch) : first_ready(group);
      if (micro_batch < 0) continue;
      const int64_t session = group * group_size, begin = state.ready;
      const auto mine = [&](In table) { return table.narrow(0, begin, group_size); };
      mine(layers).copy_(worker.info.select(1, micro_batch).narrow(0, session, group_size).select(1, 1));
      mine(session_ids).copy_(at::arange(session, session + group_size, at::kInt));
      mine(micro_batch_ids).fill_(micro_batch);
      mine(expert_ids).copy_(worker.experts(micro_batch, session, group_size));
      worker.reset(micro_batch, session, group_size);
      state.ready += static_cast<uint32_t>(group_size);
    }
    if (groups == 1) worker.advance();
  }
};

struct FeedForwardBatching {
  In schedule_context;
  int64_t expert_num;
  Ints max_out_shape;
  int64_t token_dtype, need_schedule, layer_num;
  Out y, group_list, session_ids, micro_batch_ids, token_ids, expert_offsets, dynamic_scale, actual_token_num;

  static constexpr int64_t kFirstMasked = 1000000;  // an expert's number from which on its token takes no part

  bool is_quantized() const { return token_dtype == 2; }
  int64_t hidden() const { return max_out_shape[3]; }
  int64_t most() const { return max_out_shape[0] * max_out_shape[1] * max_out_shape[2]; }

  void check() const {
    check_context(schedule_context);
    check_range("expert_num", expert_num, 1, 8192);
    TORCH_CHECK(max_out_shape.size() == 4, "max_out_shape is ", max_out_shape, "; expected four numbers");
    check_range("max_out_shape[0]", max_out_shape[0], 1, 1024);
    check_range("max_out_shape[1]", max_out_shape[1], 1, std::numeric_limits<int32_t>::max());
    check_range("max_out_shape[2]", max_out_shape[2], 1, 64);
    check_range("max_out_shape[3]", max_out_shape[3], 1, std::numeric_limits<int32_t>::max());
    check_range("token_dtype", token_dtype, 0, 2);
    check_range("need_schedule", need_schedule, 0, 1);
    check_range("layer_num", layer_num, 0, expert_num);
    static constexpr at::ScalarType kTypes[] = {at::kHalf, at::kBFloat16, at::kChar};
    check_shape("y", y, {most(), hidden()});
    check_dtype("y", y, kTypes[token_dtype]);
    check_shape("group_list", group_list, {expert_num, 2});
    check_shape("session_ids", session_ids, {most()});
    check_shape("micro_batch_ids", micro_batch_ids, {most()});
    check_shape("token_ids", token_ids, {most()});
    check_shape("expert_offsets", expert_offsets, {most()});
    if (is_quantized()) check_shape("dynamic_scale", dynamic_scale, {most()});
    check_shape("actual_token_num", actual_token_num, {1});
  }

  void run() const {
    const FeedForwardWorker worker(context_in(schedule_context));
    auto& context = worker.context;
    auto& state = context.feed_forward;
    const int64_t rows = context.rows(), micro_batch = static_cast<int64_t>(state.micro_batch);
    const int64_t used = hidden() * (is_quantized() ? 1 : 2), token_size = context.sent_token_size;
    const int64_t needed = used + (is_quantized() ? static_cast<int64_t>(sizeof(float)) : 0);
    TORCH_CHECK(token_size >= needed, "schedule_context.attn_to_ffn_token_size is ", token_size, "; expected at least ",
                needed);
    const auto data = table_in("ffn.token_data_buf", state.data,
                               {int64_t{context.sessions} * context.micro_batches * rows, token_size}, at::kChar);
    at::Tensor sessions, micro_batches, experts;  // by session
    if (need_schedule == 1) {
      const bool is_complete = wait_until(context, [&] { return worker.is_ready(micro_batch, 0, context.sessions); });
      TORCH_CHECK(is_complete, "schedule_context.run_flag is 0 before all tokens have arrived");
      sessions = at::arange(context.sessions, at::kLong);
      micro_batches = at::full({context.sessions}, micro_batch, at::kLong);
      experts = worker.experts(micro_batch, 0, context.sessions).to(at::kLong);
    } else {
      const int64_t ready = state.ready;
      check_range("schedule_context.ffn.out_num", ready, 0, context.sessions);
      const auto of_sessions = [&](const char* name, const Buffer& buffer) {
        return table_in(name, buffer, {context.sessions}, at::kInt).narrow(0, 0, ready).to(at::kLong);
      };
      sessions = of_sessions("ffn.session_ids_buf", state.session_ids);
      micro_batches = of_sessions("ffn.micro_batch_ids_buf", state.micro_batch_ids);
      experts = table_in("ffn.expert_ids_buf", state.expert_ids, {context.sessions, rows}, at::kInt)
                    .narrow(0, 0, ready)
                    .to(at::kLong);
      check_values("schedule_context.ffn.session_ids", sessions, 0, int64_t{context.sessions} - 1);
      check_values("schedule_context.ffn.micro_batch_ids", micro_batches, 0, int64_t{context.micro_batches} - 1);
    }
    const auto is_masked = experts.ge(kFirstMasked);
    check_values("schedule_context.ffn.expert_ids", experts.masked_fill(is_masked, -1), 0, expert_num - 1, -1);
    TORCH_CHECK(experts.numel() <= most(), "max_out_shape is ", max_out_shape, "; expected place for ", experts.numel(),
                " rows, as many as the sessions have sent");

    const auto flat = experts.reshape({-1});
    const int64_t count = flat.lt(kFirstMasked).sum().item<int64_t>();
    const auto order = at::argsort(flat, /*stable=*/true, 0, /*descending=*/false).narrow(0, 0, count);
    const auto place = order.div(rows, "floor"), row = order.remainder(rows);
    const auto session = sessions.index_select(0, place), batch = micro_batches.index_select(0, place);
    const auto source = (session * context.micro_batches + batch) * rows + row;

    const auto first = [&](In all) { return all.narrow(0, 0, count); };
    constexpr int64_t kBlock = 1024;  // rows that are gathered at a time
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t size = std::min(kBlock, count - begin);
      const auto bytes = data.index_select(0, source.narrow(0, begin, size));
      y.narrow(0, begin, size).view(at::kChar).copy_(bytes.narrow(1, 0, used));
      if (is_quantized()) {
        const auto scales = bytes.narrow(1, used, sizeof(float)).clone(at::MemoryFormat::Contiguous).view(at::kFloat);
        dynamic_scale.narrow(0, begin, size).copy_(scales.reshape({-1}));
      }
    }
    first(session_ids).copy_(session);
    first(micro_batch_ids).copy_(batch);
    first(token_ids).copy_(row.div(context.choices, "floor"));
    first(expert_offsets).copy_(row.remainder(context.choices));
    const auto counts = flat.index_select(0, order).bincount({}, expert_num);
    const auto used_experts = counts.nonzero().reshape({-1});
    group_list.zero_().narrow(0, 0, used_experts.size(0)).select(1, 0).copy_(used_experts);
    group_list.narrow(0, 0, used_experts.size(0)).select(1, 1).copy_(counts.index_select(0, used_experts));
    actual_token_num.fill_(count);
    if (need_schedule == 0) return;
    worker.reset(micro_batch, 0, context.sessions);
    worker.advance();
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(InplaceAttentionWorkerScheduler, "schedule_context: int8", [](Phase phase, InOut schedule_context) {
  check_context(schedule_context);
  if (phase == Phase::Check) return;
  const AttentionWorker worker(context_in(schedule_context));
  if (worker.wait()) worker.take();
});
ACLNN_TYPED_CHECKED(InplaceFfnWorkerScheduler, "schedule_context: int8",
                    [](Phase phase, InOut schedule_context, int32_t sync_group_size, int32_t execute_mode) {
                      check_context(schedule_context);
                      check_range("sync_group_size", sync_group_size, 1, 1024);
                      check_range("execute_mode", execute_mode, 0, 0);
                      if (phase == Phase::Check) return;
                      FeedForwardSchedule{schedule_context, sync_group_size}.run();
                    });
ACLNN_TYPED_CHECKED(
    AttentionWorkerCombine,
    "schedule_context: int8; expert_scales: float32; layer_id, next_layer_id: int32; y: float16 bfloat16",
    [](Phase phase, In schedule_context, In expert_scales, In layer_id, int64_t hidden_size, int64_t token_dtype,
       int64_t need_schedule, Out y, Out next_layer_id) {
      check_or_run(
          phase, AttentionCombine({schedule_context, expert_scales, layer_id, hidden_size, token_dtype, need_schedule}),
          y, next_layer_id);
    });
ACLNN_TYPED_CHECKED(
    FfnWorkerBatching,
    "schedule_context: int8; y: float16 bfloat16 int8; group_list, actual_token_num: int64; session_ids, "
    "micro_batch_ids, token_ids, expert_offsets: int32; dynamic_scale: float32",
    [](Phase phase, In schedule_context, int64_t expert_num, Ints max_out_shape, int64_t token_dtype,
       int64_t need_schedule, int64_t layer_num, Out y, Out group_list, Out session_ids, Out micro_batch_ids,
       Out token_ids, Out expert_offsets, Out dynamic_scale, Out actual_token_num) {
      check_or_run(phase, FeedForwardBatching({schedule_context, expert_num, max_out_shape, token_dtype, need_schedule,
                                               layer_num, y, group_list, session_ids, micro_batch_ids, token_ids,
                                               expert_offsets, dynamic_scale, actual_token_num}));
    });
