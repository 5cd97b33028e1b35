// SPDX-License-Identifier: Apache-2.0
#include "ascendc/fixpipe.h"

#include <algorithm>

#include "instruction_trace.h"

namespace AscendC::cpu {
namespace {

constexpr int64_t kColumns = 16;  // of a stripe in L0C
constexpr int64_t kMost = 512;    // columns that are converted at once

bool by_column(QuantMode_t mode) { return mode == VDEQF16 || mode == VQF322B8_PRE || mode == VREQ8; }

// The modes that make a dtype of float and of int32_t.
void check_mode(const FixpipeCall& call, Out out, bool from_float) {
  constexpr const char* kModes[] = {"NoQuant",       "F322F16",       "F322BF16",      "DEQF16", "VDEQF16",
                                    "QF322B8_PRE",   "VQF322B8_PRE",  "REQ8",          "VREQ8",  "QF322F16_PRE",
                                    "VQF322F16_PRE", "QF322BF16_PRE", "VQF322BF16_PRE"};
  constexpr const char* kOuts[] = {"float", "int32_t", "half", "bfloat16_t", "int8_t", "uint8_t"};
  const QuantMode_t mode = call.params.quantPre;
  const auto is = [&](std::initializer_list<QuantMode_t> modes) {
    return std::find(modes.begin(), modes.end(), mode) != modes.end();
  };
  bool right = false;
  switch (out) {
    case Out::Float:
    case Out::Int32:
      right = is({NoQuant});
      break;
    case Out::Half:
      right = from_float ? is({F322F16}) : is({DEQF16, VDEQF16});
      break;
    case Out::Bfloat16:
      right = is({F322BF16});
      break;
    default:
      right = from_float ? is({QF322B8_PRE, VQF322B8_PRE}) : is({REQ8, VREQ8});
  }
  if (!right) {
    fail(call.where,
         "%s: quantPre %s does not make %s of %s; F322F16, F322BF16 round float, DEQF16, REQ8 (of int32_t) and "
         "QF322B8_PRE (of float) scale, each with a V by a scale for each column",
         call.name, kModes[mode], kOuts[static_cast<int>(out)], from_float ? "float" : "int32_t");
  }
  if (by_column(mode) && (call.scales == nullptr || call.scales->buffer == nullptr)) {
    fail(call.where, "%s: quantPre %s takes a scale for each column; give the tensor of them, or SetFixPipeConfig",
         call.name, kModes[mode]);
  }
}

template <class To, class Sum>
class Way {
 public:
  explicit Way(const FixpipeCall& call)
      : call_(call),
        p_(call.params),
        combines_(call.local == nullptr && block(call.where).atomic.kind != Atomic::Kind::None) {
    if constexpr (sizeof(To) == 1) merged_ = 2;
  }

  void go() {
    record();
    const int64_t matrices = call_.rows ? p_.ndNum : 1;
    for (int64_t j = 0; j < (by_column(p_.quantPre) ? p_.nSize : 1); ++j) {
      scales_.emplace_back(by_column(p_.quantPre) ? load<uint64_t>(call_.scales->data + j * int64_t{sizeof(uint64_t)})
                                                  : p_.deqScalar);
    }
    for (int64_t matrix = 0; matrix < matrices; ++matrix) {
      const int64_t from = matrix * p_.srcNdStride * kColumns * kColumns;
      check_reads(from);
      const auto* sums = reinterpret_cast<const Sum*>(call_.src.data) + from;
      for (int64_t i = 0; i < p_.mSize; ++i, sums += kColumns) {
        for (int64_t j = 0; j < p_.nSize; j += kMost)
          columns(matrix, i, j, std::min<int64_t>(kMost, p_.nSize - j), sums);
      }
    }
  }

 private:
  // One instruction, however many rows or stripes.
  void record() const {
    const InstructionTrace trace{.by = {call_.name, call_.where, PIPE_FIX}};
    constexpr auto kSize = static_cast<int64_t>(sizeof(To));
    const int64_t all = (call_.rows ? p_.ndNum : 1) * int64_t{p_.mSize} * p_.nSize * kSize;
    if (trace.recorder() == nullptr) return;
    if (call_.local != nullptr) return trace.copy(Path::L0CToL1, all);
    if (!call_.rows) {
      const int64_t stripes = (p_.nSize + kColumns * merged_ - 1) / (kColumns * merged_);
      return trace.copy(Path::L0CToGm, call_.global->data,
                        {static_cast<uint32_t>(stripes), all / stripes, stripe_step() * kSize});
    }
    for (int64_t matrix = 0; matrix < p_.ndNum; ++matrix) {
      trace.copy(Path::L0CToGm, call_.global->data + matrix * p_.dstNdStride * kSize,
                 {p_.mSize, p_.nSize * kSize, p_.dstStride * kSize});
    }
  }

  // The columns [first, first + count) of row i, of 16 columns in each stripe.
  void columns(int64_t matrix, int64_t i, int64_t first, int64_t count, const Sum* from) const {
    const int64_t row = matrix * p_.dstNdStride + i * p_.dstStride + first;
    if (std::is_same_v<To, Sum> && call_.rows && !p_.reluEn && !combines_) {
      std::byte* const to = place(row, count);
      for (int64_t j = 0; j < count; j += kColumns) {
        std::memcpy(to + j * static_cast<int64_t>(sizeof(Sum)), from + (first + j) * p_.srcStride,
                    static_cast<size_t>(std::min(kColumns, count - j)) * sizeof(Sum));
      }
      return;
    }
    Sum sums[kMost];
    To results[kMost];
    for (int64_t j = 0; j < count; j += kColumns) {
      std::memcpy(sums + j, from + (first + j) * p_.srcStride, kColumns * sizeof(Sum));  // stripes are whole
    }
    if (p_.reluEn) {
      for (int64_t j = 0; j < count; ++j) sums[j] = sums[j] <= Sum{} ? Sum{} : sums[j];  // NaN stays
    }
    convert(sums, results, first, count);
    if (call_.rows) return put(row, results, count);
    // isChannelSplit halves stripes; two stripes of 8 bits make one of 32 columns.
    const int64_t width = p_.isChannelSplit ? kColumns / 2 : kColumns * merged_;
    for (int64_t j = 0; j < count; j += width) {
      put((first + j) / width * stripe_step() + i * width, results + j, std::min(width, count - j));
    }
  }

  void convert(const Sum* sums, To* results, int64_t first, int64_t count) const {
    const Scale* scales = scales_.data();
    const bool each = scales_.size() > 1;
    if constexpr (std::is_same_v<To, Sum>) {
      std::copy_n(sums, count, results);
    } else if constexpr (sizeof(To) == 1) {
      for (int64_t j = 0; j < count; ++j) results[j] = scales[each ? first + j : 0].template apply<To>(sums[j]);
    } else if constexpr (std::is_same_v<Sum, float>) {
      narrow(sums, results, static_cast<uint32_t>(count));
    } else {
      float scaled[kMost];
      if (each) {
        for (int64_t j = 0; j < count; ++j) scaled[j] = scales[first + j].scaled(sums[j]);
      } else {
        for (int64_t j = 0; j < count; ++j) scaled[j] = scales[0].scaled(sums[j]);
      }
      narrow(scaled, results, static_cast<uint32_t>(count));
    }
  }

  int64_t stripe_step() const { return int64_t{p_.dstStride} * kBlockBytes / static_cast<int64_t>(sizeof(To)); }

  void check_reads(int64_t from) const {
    const InstructionTrace trace{.by = {call_.name, call_.where, PIPE_FIX, p_.unitFlag != 0}};
    if (trace.checker == nullptr) return;
    constexpr auto kSum = static_cast<int64_t>(sizeof(Sum));
    for (int64_t j = 0; j < p_.nSize; j += kColumns) {
      const int64_t columns = std::min<int64_t>(kColumns, p_.nSize - j), stripe = from + j * p_.srcStride;
      if (columns == kColumns) {
        trace.touch(Use::Read, call_.src, stripe * kSum, p_.mSize * kColumns * kSum);
        continue;
      }
      for (int64_t i = 0; i < p_.mSize; ++i) {
        trace.touch(Use::Read, call_.src, (stripe + i * kColumns) * kSum, columns * kSum);
      }
    }
  }

  // Where elements of the result go.
  std::byte* place(int64_t element, int64_t count) const {
    const int64_t at = element * static_cast<int64_t>(sizeof(To)), bytes = count * static_cast<int64_t>(sizeof(To));
    const InstructionTrace trace{.by = {call_.name, call_.where, PIPE_FIX, combines_}};
    if (call_.local != nullptr) {
      trace.touch(Use::Write, *call_.local, at, bytes);
      return call_.local->data + at;
    }
    trace.touch(Use::Write, *call_.global, at, bytes);
    return call_.global->data + at;
  }

  void put(int64_t element, const To* row, int64_t count) const {
    std::byte* const to = place(element, count);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(To));
    const auto* from = reinterpret_cast<const std::byte*>(row);
    if (combines_) {
      combine_runs(block(call_.where).atomic, to, {1, bytes, 0}, from, {1, bytes, 0});
    } else {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
  }

  const FixpipeCall& call_;
  const FixpipeParamsV220& p_;
  const bool combines_;  // with what is in device memory
  int64_t merged_ = 1;
  std::vector<Scale> scales_;  // one, or one for each column
};

template <class Sum>
void from_sums(Out out, const FixpipeCall& call) {
  switch (out) {
    case Out::Float:
    case Out::Int32:
      return Way<Sum, Sum>(call).go();
    case Out::Half:
      return Way<half, Sum>(call).go();
    case Out::Bfloat16:
      return Way<bfloat16_t, Sum>(call).go();
    case Out::Int8:
      return Way<int8_t, Sum>(call).go();
    case Out::Uint8:
      return Way<uint8_t, Sum>(call).go();
  }
}

}  // namespace

void fixpipe(Out out, bool from_float, const FixpipeCall& call) {
  if (!has_matrix_unit(call.name, call.where)) return;
  const FixpipeParamsV220& p = call.params;
  need_memory(call.name, call.where, call.src, {Hardware::L0C}, "src");
  if (call.local != nullptr) need_memory(call.name, call.where, *call.local, {Hardware::GM, Hardware::L1}, "dst");
  if (p.nSize == 0 || p.mSize == 0) return;
  check_mode(call, out, from_float);
  if (p.isChannelSplit && (out != Out::Float || call.rows)) {
    fail(call.where, "%s: isChannelSplit divides stripes of float in fractals (CFG_NZ)", call.name);
  }
  if (p.nSize > 4095 || (call.rows && p.mSize > 8192) || p.dstStride == 0) {
    fail(call.where,
         "%s: nSize %u, mSize %u, dstStride %u; the device takes nSize to 4095, mSize to 8192 in rows, and no "
         "dstStride of 0",
         call.name, p.nSize, p.mSize, p.dstStride);
  }
  if (!call.rows && p.nSize % (p.isChannelSplit ? 8 : 16) != 0) {
    fail(call.where, "%s: nSize %u; fractals have a multiple of %d columns", call.name, p.nSize,
         p.isChannelSplit ? 8 : 16);
  }
  const InstructionTrace trace{.by = {call.name, call.where, PIPE_FIX}};
  trace.align(call.src, 64);
  if (call.local != nullptr) trace.align(*call.local, kBlockBytes);
  if (by_column(p.quantPre)) {
    trace.touch(Use::Read, *call.scales, 0, p.nSize * static_cast<int64_t>(sizeof(uint64_t)));
  }
  from_float ? from_sums<float>(out, call) : from_sums<int32_t>(out, call);
}

}  // namespace AscendC::cpu
