// SPDX-License-Identifier: Apache-2.0
// Attention and feed-forward layers on different workers: the tokens that one sends to the other's window. A window has
// a table of int32 and, from the next multiple of 512 bytes on, the tokens. worker_schedule.cpp reads both.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "cann_cpu/waiting.h"
#include "checks.h"
#include "group.h"
#include "quantization.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kAlignment = 512;     // of the tokens in a window
constexpr int64_t kRoomForScale = 128;  // bytes behind a quantised token

struct Tables {
  int32_t* info;
  char* tokens;
};

Tables tables_of(const Group& group, int64_t rank, Ints info_shape, Ints data_shape, int64_t element) {
  const int64_t info = c10::multiply_integers(info_shape) * static_cast<int64_t>(sizeof(int32_t));
  const int64_t begin = (info + kAlignment - 1) / kAlignment * kAlignment;
  const int64_t needed = begin + c10::multiply_integers(data_shape) * element;
  const Window window = group.window(rank);
  TORCH_CHECK(static_cast<int64_t>(window.size) >= needed, "the window of rank ", rank, " has ", window.size,
              " bytes; expected ", needed, ", for tables of shape ", info_shape, " and ", data_shape);
  return {reinterpret_cast<int32_t*>(window.data), window.data + begin};
}

// What was written before is there for who sees the flag.
void raise(int32_t& flag) { std::atomic_ref(flag).store(1, std::memory_order_release); }

void wait_until_taken(int32_t& flag, const Group& group, int64_t rank) {
  const auto is_taken = [&] { return std::atomic_ref(flag).load(std::memory_order_acquire) != 1; };
  if (is_taken()) return;
  const BlockingRegion blocking;
  const std::chrono::seconds timeout = group.timeout();
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!is_taken()) {
    TORCH_CHECK(timeout.count() == 0 || std::chrono::steady_clock::now() < end, "rank ", rank,
                " has not taken the tokens that this worker sent to it before within ", timeout.count(), " s");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

int64_t value_of(const char* name, In tensor, int64_t count) {
  const auto value = tensor.item<int64_t>();
  check_range(name, value, 0, count - 1);
  return value;
}

void check_world(Text group, int64_t world_size) {
  const int64_t size = Group(group).size();
  TORCH_CHECK(world_size == size, "world_size is ", world_size, "; expected ", size, ", as in the group ", group);
}

void check_length(const char* name, Ints shape, size_t length) {
  TORCH_CHECK(shape.size() == length, name, " has ", shape.size(), " numbers; expected ", length);
  check_values(name, shape, 1, std::numeric_limits<int32_t>::max());
}

void check_table(const char* name, Ints shape, at::IntArrayRef expected) {
  TORCH_CHECK(shape == expected, name, " is ", shape, "; expected ", expected);
}

enum Quantization : int64_t { kNone = 0, kDynamic = 2 };
enum Synchronization : int64_t { kAllWorkers = 0, kReceivingWorkers = 1 };

struct AttentionToFeedForward {
  In x, session_id, micro_batch_id, layer_id, expert_ids, expert_rank_table;
  OptionalIn scales, active_mask;
  Text group;
  int64_t world_size;
  Ints info_shape, data_shape, attention_info_shape;
  int64_t experts, quant_mode, sync_flag, first_rank;

  int64_t sessions() const { return info_shape[0]; }
  int64_t micro_batches() const { return info_shape[1]; }
  int64_t tokens() const { return x.size(1); }
  int64_t hidden() const { return x.size(2); }
  int64_t chosen() const { return expert_ids.size(2); }
  int64_t choices() const { return data_shape[3]; }  // the experts of a token, and behind them the shared ones
  int64_t shared() const { return choices() - chosen(); }
  int64_t element() const { return quant_mode == kNone ? x.element_size() : 1; }
  int64_t workers() const { return world_size - sessions(); }  // feed-forward

  void check() const {
    check_rank("x", x, 3);
    check_shape("x", x, {1, tokens(), hidden()});
    check_range("the tokens of x", tokens(), 1, 512);
    for (const auto& [name, tensor] :
         {std::pair("session_id", &session_id), {"micro_batch_id", &micro_batch_id}, {"layer_id", &layer_id}}) {
      check_shape(name, *tensor, {1});
    }
    check_rank("expert_ids", expert_ids, 3);
    check_shape("expert_ids", expert_ids, {1, tokens(), chosen()});
    check_range("moe_expert_num", experts, 1, 1024);
    check_range("the experts of a token", chosen(), 1, std::min<int64_t>(16, experts));
    check_world(group, world_size);
    check_range("quant_mode", quant_mode, kNone, kDynamic);
    TORCH_CHECK(quant_mode != 1, "quant_mode is 1; expected 0 or 2 (int8, a scale for each token)");
    check_range("sync_flag", sync_flag, kAllWorkers, kReceivingWorkers);
    check_length("ffn_token_info_table_shape", info_shape, 3);
    check_length("ffn_token_data_shape", data_shape, 5);
    check_length("attn_token_info_table_shape", attention_info_shape, 3);
    check_range("ffn_token_data_shape[3]", choices(), chosen(), chosen() + 4);
    check_range("ffn_token_info_table_shape[0]", sessions(), 1, world_size - 1);
    check_table("ffn_token_info_table_shape", info_shape, {sessions(), micro_batches(), 2 + tokens() * choices()});
    check_table("ffn_token_data_shape", data_shape, {sessions(), micro_batches(), tokens(), choices(), data_shape[4]});
    check_table("attn_token_info_table_shape", attention_info_shape, {micro_batches(), tokens(), choices()});
    check_range("ffn_token_data_shape[4]", data_shape[4], hidden() + (quant_mode == kNone ? 0 : kRoomForScale),
                std::numeric_limits<int32_t>::max());
    check_range("ffn_start_rank_id", first_rank, 0, world_size - workers());
    check_rank("expert_rank_table", expert_rank_table, 3);
    check_shape("expert_rank_table", expert_rank_table,
                {expert_rank_table.size(0), experts + shared(), expert_rank_table.size(2)});
    check_range("the columns of expert_rank_table", expert_rank_table.size(2), 3, 2 * workers() + 1);
    TORCH_CHECK(quant_mode == kDynamic || !scales.has_value(), "scales needs quant_mode 2");
    if (scales.has_value()) {
      check_shape("scales", *scales, {expert_rank_table.size(0), experts + shared(), hidden()});
    }
    if (active_mask.has_value()) check_shape("active_mask", *active_mask, {1, tokens()});
  }

  // The tokens that take part, who come first.
  int64_t active() const {
    if (!active_mask.has_value()) return tokens();
    const auto count = active_mask->sum().item<int64_t>();
    TORCH_CHECK(active_mask->narrow(1, 0, count).all().item<bool>(),
                "active_mask has a token that takes part behind one that does not; expected those that do first");
    return count;
  }

  // The bytes of tokens as they are sent, in rows.
  at::Tensor packed(In tokens) const {
    if (quant_mode == kNone) return tokens.contiguous().view(at::kChar);
    const auto [values, scale, offset] = dynamically_quantized(tokens.to(at::kFloat), at::kChar);
    return at::cat({values, scale.to(at::kFloat).unsqueeze(1).contiguous().view(at::kChar)}, 1).contiguous();
  }

  void run() const {
    const Group ranks(group);
    const int64_t session = value_of("session_id", session_id, sessions());
    const int64_t micro_batch = value_of("micro_batch_id", micro_batch_id, micro_batches());
    const int64_t layer = value_of("layer_id", layer_id, expert_rank_table.size(0));
    const int64_t count = active(), place = session * micro_batches() + micro_batch;
    const auto ids = expert_ids[0].narrow(0, 0, count).to(at::kLong);
    check_values("expert_ids", ids, 0, experts - 1);
    const auto shared_ids = at::arange(experts, experts + shared(), at::kLong).expand({count, shared()});
    const auto all = at::cat({ids, shared_ids}, 1).contiguous();
    const auto table = expert_rank_table[layer].to(at::kInt).contiguous();
    const auto of_expert = table.accessor<int32_t, 2>();
    const int64_t copies = (table.size(1) - 1) / 2;

    std::map<int64_t, Tables> windows;
    const auto info_in = [&](const Tables& tables) { return tables.info + place * info_shape[2]; };
    const auto window_of = [&](int64_t rank) -> const Tables& {
      const auto [found, is_new] = windows.try_emplace(rank);
      if (is_new) {
        found->second = tables_of(ranks, rank, info_shape, data_shape, element());
        wait_until_taken(*info_in(found->second), ranks, rank);
      }
      return found->second;
    };

    const auto taking = x[0].narrow(0, 0, count);
    const at::Tensor unscaled = scales.has_value() ? at::Tensor() : packed(taking);
    for (int64_t choice = 0; choice < choices(); ++choice) {
      const auto experts_of_choice = all.select(1, choice).contiguous();
      const at::Tensor sent =
          scales.has_value() ? packed(taking * (*scales)[layer].index_select(0, experts_of_choice)) : unscaled;
      const int64_t size = sent.size(1);
      for (int64_t token = 0; token < count; ++token) {
        const auto expert = of_expert[experts_of_choice.const_data_ptr<int64_t>()[token]];
        check_range("expert_rank_table: the number of an expert's copies", expert[0], 1, copies);
        const int64_t copy = session % expert[0];
        const int64_t rank = expert[1 + 2 * copy];
        check_range("expert_rank_table: the rank of an expert", rank, first_rank, first_rank + workers() - 1);
        const Tables& window = window_of(rank);
        const int64_t row = token * choices() + choice;
        std::memcpy(window.tokens + (place * tokens() * choices() + row) * data_shape[4] * element(),
                    static_cast<const char*>(sent.const_data_ptr()) + token * size, size);
        info_in(window)[2 + row] = expert[2 + 2 * copy];
      }
    }
    for (int64_t rank = first_rank; rank < first_rank + workers(); ++rank) {
      if (sync_flag == kReceivingWorkers && !windows.contains(rank)) continue;
      int32_t* const info = info_in(window_of(rank));
      info[1] = static_cast<int32_t>(layer);
      raise(info[0]);
    }
    if (count == tokens()) return;
    // Nobody returns a result for the tokens that take no part.
    const Window own = ranks.window(ranks.rank());
    const int64_t flags = c10::multiply_integers(attention_info_shape);
    TORCH_CHECK(own.size >= flags * sizeof(int32_t), "the window of this rank has ", own.size, " bytes; expected ",
                flags * sizeof(int32_t), ", for a table of shape ", attention_info_shape);
    int32_t* const first = reinterpret_cast<int32_t*>(own.data) + micro_batch * tokens() * choices();
    for (int64_t row = count * choices(); row < tokens() * choices(); ++row) raise(first[row]);
  }
};

struct FeedForwardToAttention {
  In x, session_ids, micro_batch_ids, token_ids, expert_offsets, actual_token_num;
  OptionalIn attn_rank_table;
  Text group;
  int64_t world_size;
  Ints info_shape, data_shape;

  void check() const {
    check_rank("x", x, 2);
    for (const auto& [name, tensor] : {std::pair("session_ids", &session_ids),
                                       {"micro_batch_ids", &micro_batch_ids},
                                       {"token_ids", &token_ids},
                                       {"expert_offsets", &expert_offsets}}) {
      check_shape(name, *tensor, {x.size(0)});
    }
    check_shape("actual_token_num", actual_token_num, {1});
    if (attn_rank_table.has_value()) check_rank("attn_rank_table", *attn_rank_table, 1);
    check_world(group, world_size);
    check_length("token_info_table_shape", info_shape, 3);
    check_length("token_data_shape", data_shape, 4);
    check_table("token_data_shape", data_shape, {info_shape[0], info_shape[1], info_shape[2], data_shape[3]});
    check_range("token_data_shape[3]", data_shape[3], x.size(1), std::numeric_limits<int32_t>::max());
  }

  void run() const {
    const Group ranks(group);
    const int64_t count = value_of("actual_token_num", actual_token_num, x.size(0) + 1);
    const auto numbers = [&](const char* name, In tensor, int64_t end) {
      const auto all = tensor.narrow(0, 0, count).to(at::kLong).contiguous();
      check_values(name, all, 0, end - 1);
      return all;
    };
    const int64_t workers = attn_rank_table.has_value() ? attn_rank_table->size(0) : world_size;
    auto to = numbers("session_ids", session_ids, workers);
    if (attn_rank_table.has_value()) to = attn_rank_table->to(at::kLong).index_select(0, to);
    check_values("attn_rank_table", to, 0, world_size - 1);
    const auto row = ((numbers("micro_batch_ids", micro_batch_ids, info_shape[0]) * info_shape[1] +
                       numbers("token_ids", token_ids, info_shape[1])) *
                          info_shape[2] +
                      numbers("expert_offsets", expert_offsets, info_shape[2]))
                         .contiguous();
    const auto sent = x.narrow(0, 0, count).contiguous();
    const int64_t element = x.element_size(), size = x.size(1) * element;
    std::map<int64_t, Tables> windows;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t rank = to.const_data_ptr<int64_t>()[i], place = row.const_data_ptr<int64_t>()[i];
      const auto [window, is_new] = windows.try_emplace(rank);
      if (is_new) window->second = tables_of(ranks, rank, info_shape, data_shape, element);
      std::memcpy(window->second.tokens + place * data_shape[3] * element,
                  static_cast<const char*>(sent.const_data_ptr()) + i * size, size);
      raise(window->second.info[place]);
    }
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(AttentionToFFN,
                    "x: float16 bfloat16; session_id, micro_batch_id, layer_id, expert_ids, expert_rank_table: int32; "
                    "scales: float32; active_mask: bool",
                    [](Phase phase, In x, In session_id, In micro_batch_id, In layer_id, In expert_ids,
                       In expert_rank_table, OptionalIn scales, OptionalIn active_mask, Text group, int64_t world_size,
                       Ints ffn_token_info_table_shape, Ints ffn_token_data_shape, Ints attn_token_info_table_shape,
                       int64_t moe_expert_num, int64_t quant_mode, int64_t sync_flag, int64_t ffn_start_rank_id) {
                      check_or_run(phase, AttentionToFeedForward(
                                              {x, session_id, micro_batch_id, layer_id, expert_ids, expert_rank_table,
                                               scales, active_mask, group, world_size, ffn_token_info_table_shape,
                                               ffn_token_data_shape, attn_token_info_table_shape, moe_expert_num,
                                               quant_mode, sync_flag, ffn_start_rank_id}));
                    });
ACLNN_TYPED_CHECKED(FFNToAttention,
                    "x: float16 bfloat16; session_ids, micro_batch_ids, token_ids, expert_offsets, attn_rank_table: "
                    "int32; actual_token_num: int64",
                    [](Phase phase, In x, In session_ids, In micro_batch_ids, In token_ids, In expert_offsets,
                       In actual_token_num, OptionalIn attn_rank_table, Text group, int64_t world_size,
                       Ints token_info_table_shape, Ints token_data_shape) {
                      check_or_run(phase,
                                   FeedForwardToAttention({x, session_ids, micro_batch_ids, token_ids, expert_offsets,
                                                           actual_token_num, attn_rank_table, group, world_size,
                                                           token_info_table_shape, token_data_shape}));
                    });
