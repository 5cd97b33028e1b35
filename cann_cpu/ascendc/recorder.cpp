// SPDX-License-Identifier: Apache-2.0
#include "recorder.h"

#include <algorithm>

namespace AscendC::cpu {
namespace {

constexpr uint32_t kWordsPerRepeat = kRepeatBytes / 4;

bool is_same(const Recorder::Name& one, const Recorder::Name& other) {
  return one.pipe == other.pipe && one.name == other.name && one.where.line() == other.where.line() &&
         one.where.column() == other.where.column() && one.where.file_name() == other.where.file_name();
}

uint64_t repeats_of(int64_t bytes) { return static_cast<uint64_t>(bytes + kRepeatBytes - 1) / kRepeatBytes; }

// The way of bytes that an instruction is known of by its pipe alone, as in the Matmul library.
Path path_of(pipe_t pipe, bool is_device) {
  switch (pipe) {
    case PIPE_FIX:
      return is_device ? Path::L0CToGm : Path::L0CToL1;
    case PIPE_MTE3:
      return is_device ? Path::UbToGm : Path::UbToL1;
    case PIPE_MTE1:
      return Path::L1ToL0A;
    default:
      return is_device ? Path::GmToL1 : Path::UbToL1;
  }
}

}  // namespace

Recorder::Operation& Recorder::add(const Name& by, uint64_t work, const Cost& cost) {
  steps_.push_back({Step::Kind::Operation, by.pipe, by.pipe, static_cast<uint32_t>(operations_.size())});
  last_use_ = Use::Read;
  return operations_.emplace_back(Operation{by, work, cost, false, Path{}, static_cast<uint32_t>(runs_.size()), 0});
}

bool Recorder::goes_on(const Name& by) const {
  return !operations_.empty() && steps_.back().kind == Step::Kind::Operation && is_same(operations_.back().by, by);
}

void Recorder::raise(uint64_t repeats) {
  Operation& operation = operations_.back();
  if (repeats <= operation.work) return;
  operation.work = repeats;
  operation.cost = vector_cost(operation.by.name, repeats, per_repeat_);
}

void Recorder::vector(const Name& by, uint64_t repeats, uint32_t per_repeat, bool is_more) {
  if (is_cube_) return;  // left out by the device's compiler
  if (!is_more || !goes_on(by)) {
    add(by, repeats, vector_cost(by.name, repeats, per_repeat));
    is_announced_ = true;
  }
  per_repeat_ = per_repeat;
  raise(repeats);
}

void Recorder::products(const Name& by, uint64_t fractals, bool whole_float) {
  add(by, fractals, product_cost(fractals, whole_float));
}

void Recorder::copy(const Name& by, Path path, uint64_t bytes) {
  Operation& added = add(by, bytes, copy_cost(path, bytes));
  added.has_path = true;
  added.path = path;
}

void Recorder::copy(const Name& by, Path path, const std::byte* data, int64_t count, int64_t bytes, int64_t step) {
  copy(by, path, static_cast<uint64_t>(count * bytes));
  runs_.push_back(runs_of(data, count, bytes, step));
  operations_.back().runs = 1;
}

// Lines begin where their buffer does: where the host has put it shall change nothing.
DeviceRuns Recorder::runs_of(const std::byte* data, int64_t count, int64_t bytes, int64_t step) const {
  const auto at = reinterpret_cast<uintptr_t>(data);
  const DeviceBuffer* buffer = device_.find(at);
  const auto begin = buffer != nullptr ? reinterpret_cast<uintptr_t>(buffer->begin) : 0;
  if (step == bytes) bytes *= std::exchange(count, 1);
  return {begin, static_cast<int64_t>(at - begin), count, bytes, step};
}

void Recorder::scalar(const Name& by, const std::byte* data) {
  if (data == nullptr) {
    if (!is_cube_) add(by, 1, scalar_cost(true));
    return;
  }
  const auto [begin, end] = device_.lines(reinterpret_cast<uintptr_t>(data), reinterpret_cast<uintptr_t>(data) + 1);
  add(by, 1, scalar_cost(!cached_.insert(begin).second));
}

void Recorder::vector_part(const Name& by, Use use, int64_t bytes) {
  if (is_cube_) return;
  // An instruction reads all before it writes anything.
  if (!goes_on(by) || (!is_announced_ && use == Use::Read && last_use_ == Use::Write)) {
    vector(by, 0, kWordsPerRepeat);
    is_announced_ = false;
  }
  last_use_ = use;
  raise(repeats_of(bytes));
}

void Recorder::part(const Name& by, Use use, int64_t bytes, const std::byte* device_data) {
  if (by.pipe == PIPE_V) return vector_part(by, use, bytes);
  if (by.pipe == PIPE_S) return scalar(by, device_data);
  const Path path = path_of(by.pipe, device_data != nullptr);
  if (!goes_on(by) || operations_.back().path != path) copy(by, path, 0);
  Operation& operation = operations_.back();
  operation.work += static_cast<uint64_t>(bytes);
  operation.cost = copy_cost(path, operation.work);
  if (device_data == nullptr) return;
  runs_.push_back(runs_of(device_data, 1, bytes, bytes));
  ++operation.runs;
}

void Recorder::acquire(pipe_t pipe, pipe_t source, uint32_t epoch) {
  steps_.push_back({Step::Kind::Acquire, pipe, source, epoch});
}

void Recorder::learn(const Message& message) {
  if (message == nullptr) return;
  steps_.push_back({Step::Kind::Learn, PIPE_S, PIPE_S, static_cast<uint32_t>(messages_.size())});
  messages_.push_back(message);
}

}  // namespace AscendC::cpu
