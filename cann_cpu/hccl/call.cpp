// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "failure.h"
#include "reduction.h"

namespace cann_cpu {
namespace {

const char* const kKindNames[] = {"AllReduce",     "Reduce",         "Broadcast", "AllGather", "AllGatherV",
                                  "ReduceScatter", "ReduceScatterV", "Scatter",   "AlltoAll",  "AlltoAllV",
                                  "AlltoAllVC",    "Barrier",        "Send"};

// For what a kind of call does not have.
constexpr uint64_t kNone = ~uint64_t{0};
using enum CallDescriptor::Field;

template <class T>
uint64_t number_of(const std::optional<T>& value) {
  return value ? static_cast<uint64_t>(*value) : kNone;
}

std::string type_text(uint64_t value) { return name_of(static_cast<HcclDataType>(value)); }

std::string text_of(CallDescriptor::Field field, uint64_t value) {
  if (value == kNone) return "none";
  if (field == kKind) return kKindNames[value];
  if (field == kType) return type_text(value);
  if (field == kOp) return name_of(static_cast<HcclReduceOp>(value));
  return std::to_string(value);
}

// "4 on ranks 0, 2; 8 on rank 1"
std::string values_of(CallDescriptor::Field field, const std::vector<CallDescriptor>& calls) {
  std::vector<std::pair<uint64_t, std::vector<size_t>>> groups;
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    const uint64_t value = calls[rank].fields[field];
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == value; });
    if (found == groups.end()) found = groups.insert(groups.end(), {value, {}});
    found->second.push_back(rank);
  }
  std::string text;
  for (const auto& [value, ranks] : groups) {
    std::string list;
    for (const size_t rank : ranks) add(list, ", ", std::to_string(rank));
    add(text, "; ", text_of(field, value).append(ranks.size() == 1 ? " on rank " : " on ranks ").append(list));
  }
  return text;
}

// Whether a call of this kind has a count for each rank.
bool has_counts(CallKind kind) {
  return kind == CallKind::kAllGatherV || kind == CallKind::kReduceScatterV || kind == CallKind::kAlltoAll ||
         kind == CallKind::kAlltoAllV || kind == CallKind::kAlltoAllVC;
}

std::string elements_text(uint64_t count, uint64_t type) { return std::to_string(count) + " " + text_of(kType, type); }

}  // namespace

void add(std::string& list, const char* separator, const std::string& item) {
  if (!list.empty()) list += separator;
  list += item;
}

const char* name_of(CallKind kind) { return kKindNames[static_cast<uint32_t>(kind)]; }

std::string write(const Call& call, uint64_t sequence) {
  std::vector<uint64_t> numbers{static_cast<uint64_t>(call.kind),
                                number_of(call.type),
                                number_of(call.op),
                                number_of(call.root),
                                number_of(call.count),
                                sequence};
  numbers.insert(numbers.end(), call.sends.begin(), call.sends.end());
  numbers.insert(numbers.end(), call.receives.begin(), call.receives.end());
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(uint64_t)};
}

CallDescriptor read(const std::string& text, size_t ranks) {
  const auto require = [](bool holds) {
    if (!holds) throw CollectiveFailure(HCCL_E_TCP_TRANSFER, "a rank described an invalid call");
  };
  CallDescriptor descriptor{};
  const bool has_parts = text.size() > sizeof(descriptor.fields);
  const size_t parts = has_parts ? ranks : 0;
  require(text.size() == sizeof(descriptor.fields) + 2 * parts * sizeof(uint64_t));
  const char* from = text.data();
  const auto take = [&](uint64_t* into, size_t count) {
    if (count > 0) std::memcpy(into, std::exchange(from, from + count * sizeof(uint64_t)), count * sizeof(uint64_t));
  };
  take(descriptor.fields, kFields);
  descriptor.sends.resize(parts);
  descriptor.receives.resize(parts);
  take(descriptor.sends.data(), parts);
  take(descriptor.receives.data(), parts);
  const auto is_below = [&](CallDescriptor::Field field, uint64_t end) {
    return descriptor.fields[field] < end || descriptor.fields[field] == kNone;
  };
  require(descriptor.fields[kKind] < std::size(kKindNames) && is_below(kType, HCCL_DATA_TYPE_RESERVED) &&
          is_below(kOp, HCCL_REDUCE_MIN + 1));
  require(has_parts == has_counts(static_cast<CallKind>(descriptor.fields[kKind])));
  return descriptor;
}

void require_agreement(const std::vector<CallDescriptor>& calls) {
  static const std::pair<CallDescriptor::Field, const char*> kCompared[] = {
      {kKind, "the collective"}, {kSequence, "its number"}, {kType, "the data type"},
      {kOp, "the reduction"},    {kRoot, "the root"},       {kCount, "the count"}};
  std::string text;
  for (const auto& [field, name] : kCompared) {
    const auto differs = [&, at = field](const CallDescriptor& descriptor) {
      return descriptor.fields[at] != calls[0].fields[at];
    };
    if (std::none_of(calls.begin(), calls.end(), differs)) continue;
    add(text, "; in ", std::string(name) + ": " + values_of(field, calls));
    if (field == kKind) break;  // nothing else of them can be compared
  }
  if (!text.empty()) throw CollectiveFailure(HCCL_E_PARA, "the ranks disagree in " + text);
  for (size_t from = 0; from < calls.size(); ++from) {
    for (size_t to = 0; to < calls[from].sends.size(); ++to) {
      if (calls[from].sends[to] == calls[to].receives[from]) continue;
      add(text, "; ",
          std::string("rank ") + std::to_string(from) + " sends " + std::to_string(calls[from].sends[to]) +
              " elements to rank " + std::to_string(to) + ", which expects " +
              std::to_string(calls[to].receives[from]));
    }
  }
  if (!text.empty()) throw CollectiveFailure(HCCL_E_PARA, text);
}

void require_expected(const CallDescriptor& descriptor, const Call& expected, uint32_t from, uint64_t sequence,
                      uint32_t self) {
  const std::string sender = std::string("rank ") + std::to_string(from);
  const std::string receiver = std::string("rank ") + std::to_string(self);
  if (descriptor.fields[kKind] != static_cast<uint64_t>(CallKind::kSend)) {
    throw CollectiveFailure(HCCL_E_PARA, sender + " has called " + text_of(kKind, descriptor.fields[kKind]) +
                                             " (call " + std::to_string(descriptor.fields[kSequence]) + "), and " +
                                             receiver + " expects that it sends");
  }
  const uint64_t type = number_of(expected.type);
  if (descriptor.fields[kType] != type || descriptor.fields[kCount] != number_of(expected.count)) {
    throw CollectiveFailure(
        HCCL_E_PARA, sender + " sends " + elements_text(descriptor.fields[kCount], descriptor.fields[kType]) + " to " +
                         receiver + ", which expects " + elements_text(number_of(expected.count), type) +
                         " as message " + std::to_string(sequence) + " between them");
  }
}

}  // namespace cann_cpu
