// SPDX-License-Identifier: Apache-2.0
// The gated delta rule of linear attention: a state S (value size x key size) of each head forgets and learns,
// S = a S + b (v - a S k) k^T, and answers S q.
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <functional>

#include "checks.h"

using namespace cann_cpu;

namespace {

// Sums in a fixed order of eight lanes, which the compiler keeps in registers.
float dot(const float* a, const float* b, int64_t count) {
  float lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) lanes[i % 8] += a[i] * b[i];
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// Numbers of a last dimension, as float.
template <class T>
void read(const at::Tensor& tensor, int64_t token, int64_t head, std::vector<float>& to) {
  const T* from = tensor.const_data_ptr<T>() + token * tensor.stride(0) + head * tensor.stride(1);
  for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(from[static_cast<int64_t>(i) * tensor.stride(2)]);
}

template <class T>
float number(const at::Tensor& tensor, int64_t token, int64_t head) {
  return static_cast<float>(tensor.const_data_ptr<T>()[token * tensor.stride(0) + head * tensor.stride(1)]);
}

void copy_numbers(const at::BFloat16* from, std::vector<float>& to) { std::copy_n(from, to.size(), to.begin()); }
void copy_numbers(const std::vector<float>& from, at::BFloat16* to) { std::copy(from.begin(), from.end(), to); }

struct DeltaRule {
  In query, key, value, beta;
  OptionalIn g, gk;
  double scale;
  Out out;

  int64_t heads() const { return value.size(1); }
  int64_t tokens() const { return value.size(0); }

  void check(int64_t most_heads, int64_t largest) const {
    check_rank("value", value, 3);
    check_rank("key", key, 3);
    check_range("the number of value's heads", heads(), 1, most_heads);
    check_range("the number of key's heads", key.size(1), 1, most_heads);
    TORCH_CHECK(heads() % key.size(1) == 0, "value has ", heads(), " heads, which do not divide among the ",
                key.size(1), " of key");
    check_range("the head size of value", value.size(2), 1, largest);
    check_range("the head size of key", key.size(2), 1, largest);
    check_shape("key", key, {tokens(), key.size(1), key.size(2)});
    check_shape("query", query, key.sizes());
    check_shape("beta", beta, {tokens(), heads()});
    if (g.has_value()) check_shape("g", *g, {tokens(), heads()});
    if (gk.has_value()) check_shape("gk", *gk, {tokens(), heads(), key.size(2)});
    check_shape("out", out, value.sizes());
  }

  // One head of consecutive tokens; `after` sees the state after each.
  void run(int64_t first, int64_t count, int64_t head, std::vector<float>& state,
           const std::function<void(int64_t token)>& after) const {
    const auto size = key.size(2), rows = value.size(2), key_head = head / (heads() / key.size(1));
    std::vector<float> q(static_cast<size_t>(size)), k(q.size()), decay(q.size()), v(static_cast<size_t>(rows));
    auto* result = out.mutable_data_ptr<at::BFloat16>();
    for (int64_t token = first; token < first + count; ++token) {
      read<at::BFloat16>(query, token, key_head, q);
      read<at::BFloat16>(key, token, key_head, k);
      read<at::BFloat16>(value, token, head, v);
      const float learnt = number<at::BFloat16>(beta, token, head);
      const float kept = g.has_value() ? std::exp(number<float>(*g, token, head)) : 1;
      if (gk.has_value()) read<float>(*gk, token, head, decay);
      for (auto& each : decay) each = gk.has_value() ? std::exp(each) * kept : kept;
      for (auto& each : q) each *= static_cast<float>(scale);
      for (int64_t row = 0; row < rows; ++row) {
        float* s = state.data() + row * size;
        for (int64_t i = 0; i < size; ++i) s[i] *= decay[static_cast<size_t>(i)];
        const float delta = learnt * (v[static_cast<size_t>(row)] - dot(s, k.data(), size));
        for (int64_t i = 0; i < size; ++i) s[i] += delta * k[static_cast<size_t>(i)];
        result[token * out.stride(0) + head * out.stride(1) + row * out.stride(2)] =
            static_cast<at::BFloat16>(dot(s, q.data(), size));
      }
      after(token);
    }
  }
};

// The lengths of sequences that follow one another.
std::vector<int64_t> sequence_lengths(In actual_seq_lengths, int64_t tokens, int64_t least, int64_t longest) {
  check_values("actual_seq_lengths", actual_seq_lengths, least, longest);
  const auto all = actual_seq_lengths.to(at::kLong).contiguous();
  std::vector<int64_t> lengths(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel());
  int64_t sum = 0;
  for (const int64_t length : lengths) sum += length;
  TORCH_CHECK(sum <= tokens, "actual_seq_lengths add up to ", sum, "; value has ", tokens, " tokens");
  return lengths;
}

int32_t element(In tensor, int64_t i) { return tensor.const_data_ptr<int32_t>()[i * tensor.stride(0)]; }

constexpr int64_t kLongestDecode = 8;  // tokens of a sequence

}  // namespace

// A sequence starts from the state of the last token that was accepted before, the first without num_accepted_tokens;
// the state after each token goes to that token's place.
ACLNN_TYPED_CHECKED(
    RecurrentGatedDeltaRule,
    "query, key, value, beta, state, out: bfloat16; actual_seq_lengths, ssm_state_indices, num_accepted_tokens: int32; "
    "g, gk: float32",
    [](Phase phase, In query, In key, In value, In beta, InOut state, In actual_seq_lengths, In ssm_state_indices,
       OptionalIn g, OptionalIn gk, OptionalIn num_accepted_tokens, float scale, Out out) {
      const DeltaRule rule(query, key, value, beta, g, gk, scale, out);
      rule.check(256, 512);
      TORCH_CHECK(state.dim() == 4, "state has shape ", state.sizes(), "; expected 4 dimensions");
      check_shape("state", state, {state.size(0), value.size(1), value.size(2), key.size(2)});
      TORCH_CHECK(state.stride(3) == 1 && state.stride(2) == state.size(3), "state has shape ", state.sizes(),
                  " and strides ", state.strides(), "; expected contiguous matrices");
      check_rank("actual_seq_lengths", actual_seq_lengths, 1);
      check_shape("ssm_state_indices", ssm_state_indices, {value.size(0)});
      if (num_accepted_tokens.has_value()) {
        check_shape("num_accepted_tokens", *num_accepted_tokens, actual_seq_lengths.sizes());
      }
      if (phase == Phase::Check) return;
      const auto lengths = sequence_lengths(actual_seq_lengths, rule.tokens(), 0, kLongestDecode);
      int64_t begin = 0;
      for (size_t i = 0; i < lengths.size(); begin += lengths[i++]) {
        const auto index = static_cast<int64_t>(i);
        for (int64_t token = begin; token < begin + lengths[i]; ++token) {
          const int64_t place = element(ssm_state_indices, token);
          TORCH_CHECK(place >= 0 && place < state.size(0), "ssm_state_indices[", token, "] is ", place,
                      "; expected 0 to ", state.size(0) - 1);
        }
        if (!num_accepted_tokens.has_value() || lengths[i] == 0) continue;
        const int64_t accepted = element(*num_accepted_tokens, index);
        TORCH_CHECK(accepted >= 1 && accepted <= lengths[i], "num_accepted_tokens[", index, "] is ", accepted,
                    "; expected 1 to ", lengths[i]);
      }
      if (begin < rule.tokens()) out.narrow(0, begin, rule.tokens() - begin).zero_();
      auto* states = state.mutable_data_ptr<at::BFloat16>();
      const int64_t size = state.size(2) * state.size(3);
      begin = 0;
      for (size_t i = 0; i < lengths.size(); begin += lengths[i++]) {
        if (lengths[i] == 0) continue;
        const int64_t accepted =
            num_accepted_tokens.has_value() ? element(*num_accepted_tokens, static_cast<int64_t>(i)) : 1;
        at::parallel_for(0, rule.heads(), 1, [&](int64_t first, int64_t last) {
          std::vector<float> numbers(static_cast<size_t>(size));
          for (int64_t head = first; head < last; ++head) {
            const auto at = [&](int64_t token) {
              return states + element(ssm_state_indices, token) * state.stride(0) + head * state.stride(1);
            };
            copy_numbers(at(begin + accepted - 1), numbers);
            rule.run(begin, lengths[i], head, numbers, [&](int64_t token) { copy_numbers(numbers, at(token)); });
          }
        });
      }
    });

ACLNN_TYPED_CHECKED(
    ChunkGatedDeltaRule,
    "query, key, value, beta, initial_state, out, final_state: bfloat16; actual_seq_lengths: int32; g: float32",
    [](Phase phase, In query, In key, In value, In beta, In initial_state, In actual_seq_lengths, OptionalIn g,
       float scale, Out out, Out final_state) {
      const std::optional<at::Tensor> gk;
      const DeltaRule rule(query, key, value, beta, g, gk, scale, out);
      rule.check(64, 128);
      check_rank("actual_seq_lengths", actual_seq_lengths, 1);
      check_shape("initial_state", initial_state,
                  {actual_seq_lengths.size(0), value.size(1), value.size(2), key.size(2)});
      check_shape("final_state", final_state, initial_state.sizes());
      check_contiguous("final_state", final_state);
      if (phase == Phase::Check) return;
      const auto lengths = sequence_lengths(actual_seq_lengths, rule.tokens(), 0, rule.tokens());
      final_state.copy_(initial_state);
      auto* states = final_state.mutable_data_ptr<at::BFloat16>();
      const int64_t size = final_state.size(2) * final_state.size(3);
      int64_t begin = 0;
      for (size_t i = 0; i < lengths.size(); begin += lengths[i++]) {
        at::parallel_for(0, rule.heads(), 1, [&](int64_t first, int64_t last) {
          std::vector<float> numbers(static_cast<size_t>(size));
          for (int64_t head = first; head < last; ++head) {
            at::BFloat16* place = states + (static_cast<int64_t>(i) * rule.heads() + head) * size;
            copy_numbers(place, numbers);
            rule.run(begin, lengths[i], head, numbers, [](int64_t) {});
            copy_numbers(numbers, place);
          }
        });
      }
      if (begin < rule.tokens()) out.narrow(0, begin, rule.tokens() - begin).zero_();
    });
