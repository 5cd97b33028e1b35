// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <dlfcn.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "guarded.h"
#include "intervals.h"
#include "place.h"
#include "race.h"

namespace cann_cpu::memory {
namespace {

constexpr size_t kInFront = 64;        // bytes in front of a buffer that are looked at behind each task that writes it
constexpr size_t kMaxFreed = 1 << 16;  // buffers that are remembered after they were freed

struct Buffer {
  guarded::Block block{};
  size_t size = 0;
  int32_t device = 0;
  std::string where;
  bool is_programs = false;  // its own code has it, and is to give it back

  const Stream* stream = nullptr;  // a tensor's, by number: it may be gone
  size_t agent = 0;
  const void* graph = nullptr;       // whose capture the tensor is of
  bool is_left_to_graph = false;     // the tensor is gone
  std::map<size_t, uint64_t> users;  // streams, and their own times at the last use
  std::set<size_t> recorded;

  bool is_open = true;
  Intervals written;
  uint64_t freed_at = 0;  // in launches; 0: it lives
  std::string freed_where;
  bool is_released = false;

  uintptr_t begin() const { return block.begin; }
  uintptr_t end() const { return block.begin + size; }
};

struct Launch {
  std::string task;
  std::string where;
  int32_t stream;
  Accesses accesses;
  uint64_t number;
};

// What a thread runs now, and what that is part of.
struct Running {
  const Launch* launch;
  const Running* outer;

  const Launch& root() const { return outer == nullptr ? *launch : outer->root(); }
};
thread_local const Running* current = nullptr;

// A tensor's memory that tasks launched before it was freed may still use.
struct Pending {
  uintptr_t begin;
  std::vector<std::pair<std::shared_ptr<Stream>, uint64_t>> until;
};

struct State {
  std::mutex mutex;  // never held while device memory is touched, nor while the GIL is taken
  std::map<uintptr_t, Buffer> buffers;
  std::deque<uintptr_t> freed;  // the oldest first
  std::deque<Pending> pending;
  std::vector<uintptr_t> open;
  std::vector<const Running*> tasks;  // that run
  std::atomic<int> touching{0};       // tasks and calls of the host that may touch device memory now
  std::atomic<uint64_t> launches{1};
};

State& state() {
  static auto* const only = new State;
  return *only;
}

// ---- what is told

std::string size_and_address(const Buffer& buffer) {
  char text[96];
  std::snprintf(text, sizeof(text), "buffer of %zu bytes at 0x%zx of npu:%d", buffer.size, buffer.begin(),
                buffer.device);
  return text;
}

std::string describe(const Buffer& buffer) {
  std::string text = size_and_address(buffer);
  if (!buffer.where.empty()) text += ", allocated at " + buffer.where;
  if (buffer.freed_at > 0 && !buffer.freed_where.empty()) text += ", freed at " + buffer.freed_where;
  return text;
}

std::string describe(const Running& running) {
  const Launch& launch = *running.launch;
  if (running.outer == nullptr) {
    const std::string on = launch.stream < 0 ? "" : " on stream " + std::to_string(launch.stream);
    return launch.task + on + (launch.where.empty() ? "" : ", launched at " + launch.where);
  }
  const std::string captured = launch.where.empty() ? "" : " (captured at " + launch.where + ")";
  return launch.task + captured + " in " + describe(*running.outer);
}

constexpr const char* kUseAfterFree = "use after free";
constexpr const char* kOutOfBounds = "out of bounds";
constexpr const char* kNotWritten = "use of memory that nobody has written";

void tell(const char* fault, const std::string& what, const std::string& buffer, const std::string& task,
          const std::string& advice) {
  std::string text = fault + (": " + what) + "\n  " + buffer;
  if (!task.empty()) text += "\n  " + task;
  // Of a buffer that is gone one report is enough: a task that uses it may do so in many ways.
  const std::string key = std::string(fault) + "\n" + buffer + (fault == kUseAfterFree ? "" : "\n" + task);
  report(Check::kMemory, key, text + "\n  " + advice,
         {{"fault", fault}, {"what", what}, {"buffer", buffer}, {"task", task}, {"advice", advice}});
}

void tell_use_after_free(const Buffer& buffer, const std::string& task) {
  tell(kUseAfterFree, "a task was launched that uses memory which had been freed", describe(buffer), task,
       "Keep the tensor (or the allocation) until the last task that uses its address has been launched, and as long "
       "as a captured graph is replayed.");
}

std::string argument_of(const Access& access) {
  return access.argument == 0 ? "" : " its argument " + std::to_string(access.argument);
}

// Freed, and not only behind the launch of the task: that one finds its memory as it was.
bool is_gone(const Buffer& buffer, const Running& running) {
  return buffer.freed_at > 0 && running.root().number > buffer.freed_at;
}

// ---- buffers

// The buffer whose pages hold the address, or null. With the lock.
Buffer* find_buffer(uintptr_t address) {
  auto& buffers = state().buffers;
  const auto next = buffers.upper_bound(address);
  if (next == buffers.begin()) return nullptr;
  Buffer& buffer = std::prev(next)->second;
  return address < buffer.block.limit ? &buffer : nullptr;
}

// The buffer that lies nearest, and whether the address is in front of it. With the lock.
std::pair<Buffer*, bool> find_nearest(uintptr_t address) {
  auto& buffers = state().buffers;
  const auto next = buffers.upper_bound(address);
  Buffer* const before = next == buffers.begin() ? nullptr : &std::prev(next)->second;
  Buffer* const behind = next == buffers.end() ? nullptr : &next->second;
  if (before == nullptr) return {behind, true};
  if (behind == nullptr || address < before->end()) return {before, false};
  const bool is_in_front = behind->begin() - address < address - before->end();
  return {is_in_front ? behind : before, is_in_front};
}

void open(Buffer& buffer) {  // with the lock
  if (buffer.is_open || buffer.is_released) return;
  buffer.is_open = guarded::open(buffer.block);
  state().open.push_back(buffer.block.pages);
}

void close_all() {  // with the lock
  State& all = state();
  for (const uintptr_t pages : all.open) {
    const auto found = all.buffers.find(pages);
    if (found == all.buffers.end() || found->second.is_released || !found->second.is_open) continue;
    guarded::close(found->second.block);
    found->second.is_open = false;
  }
  all.open.clear();
}

void give_back(Buffer& buffer) {  // with the lock
  State& all = state();
  guarded::release(buffer.block);
  buffer.is_released = true;
  buffer.is_open = false;
  buffer.written = {};
  all.freed.push_back(buffer.block.pages);
  if (all.freed.size() <= kMaxFreed) return;
  all.buffers.erase(all.freed.front());
  all.freed.pop_front();
}

void give_back_pending() {  // with the lock
  State& all = state();
  std::erase_if(all.pending, [&](const Pending& each) {
    const auto is_over = [](const auto& wait) {
      return wait.first->is_abandoned() || wait.first->is_done(wait.second);
    };
    if (!std::ranges::all_of(each.until, is_over)) return false;
    if (const auto found = all.buffers.find(each.begin); found != all.buffers.end()) give_back(found->second);
    return true;
  });
}

// What somebody wrote around a buffer: the first and the last byte, or none.
std::optional<std::pair<uintptr_t, uintptr_t>> written_around(const Buffer& buffer) {
  const uintptr_t front = std::max(buffer.block.pages, buffer.begin() - std::min(buffer.begin(), kInFront));
  for (const auto& [begin, end] : {std::pair(front, buffer.begin()), std::pair(buffer.end(), buffer.block.limit)}) {
    const uintptr_t first = guarded::first_written(begin, end);
    if (first == end) continue;
    uintptr_t last = first;
    for (uintptr_t at = first; at < end; ++at) {
      if (guarded::first_written(at, at + 1) == at) last = at;
    }
    guarded::fill(begin, end);
    return std::pair(first, last);
  }
  return std::nullopt;
}

std::string beside(const Buffer& buffer, uintptr_t first, uintptr_t last) {
  const std::string bytes = first == last ? "1 byte" : std::to_string(last - first + 1) + " bytes";
  if (first < buffer.begin()) {
    return bytes + ", " + std::to_string(buffer.begin() - first) + " in front of the buffer's first";
  }
  return bytes + ", " + std::to_string(first - buffer.end() + 1) + " behind the buffer's last";
}

constexpr const char* kBoundsAdvice =
    "The shape, the strides or the indices that the task was given reach past the memory that was allocated.";

void check_around(const Buffer& buffer, const std::string& task) {
  if (const auto found = written_around(buffer)) {
    tell(kOutOfBounds, "written: " + beside(buffer, found->first, found->second), describe(buffer), task,
         kBoundsAdvice);
  }
}

// ---- tasks

// These read the first of their arguments before they write it; what others that write in place find there is of no
// account, or only a part of it.
bool reads_what_it_writes(std::string_view task) {
  constexpr std::array kNames = {"aclnnInplaceAdd",
                                 "aclnnInplaceAdds",
                                 "aclnnInplaceAddcdiv",
                                 "aclnnInplaceAddcmul",
                                 "aclnnInplaceAddmm",
                                 "aclnnInplaceDiv",
                                 "aclnnInplaceDivs",
                                 "aclnnInplaceExp",
                                 "aclnnInplaceLerp",
                                 "aclnnInplaceLerps",
                                 "aclnnInplaceMul",
                                 "aclnnInplaceMuls",
                                 "aclnnInplacePowTensorScalar",
                                 "aclnnInplaceRelu",
                                 "aclnnInplaceRsqrt",
                                 "aclnnInplaceSigmoid",
                                 "aclnnInplaceSqrt",
                                 "aclnnInplaceSub",
                                 "aclnnInplaceSubs",
                                 "aclnnInplaceTanh"};
  return std::ranges::find(kNames, task) != kNames.end();
}

// These carry what they read to other device memory, where it may as well be nobody's.
bool is_copy(std::string_view task) {
  constexpr std::array kNames = {"aclnnInplaceCopy", "aclnnCast",        "aclrtMemcpy",
                                 "aclrtMemcpyAsync", "aclrtMemcpyBatch", "aclrtMemcpyBatchAsync"};
  return std::ranges::find(kNames, task) != kNames.end();
}

bool is_device(const Access& access) { return guarded::contains(access.begin); }

// The accesses before the task runs. False when it only carries what nobody has written.
bool check_before(const Running& running) {
  const Launch& launch = *running.launch;
  const bool carries = is_copy(launch.task) &&
                       std::ranges::any_of(launch.accesses, [](const Access& a) { return a.is_write && is_device(a); });
  bool has_written = !carries;
  for (const Access& access : launch.accesses) {
    if (!is_device(access)) continue;
    const bool reads = !access.is_write || (access.argument == 1 && reads_what_it_writes(launch.task));
    const char* verb = access.is_write ? " writes" : " reads";
    Buffer known;
    bool is_unwritten = false, is_in_front = false;
    {
      const std::lock_guard lock(state().mutex);
      Buffer* found = find_buffer(access.begin);
      if (found == nullptr) std::tie(found, is_in_front) = find_nearest(access.begin);
      if (found == nullptr) continue;
      if (!is_gone(*found, running) && access.begin >= found->begin() && access.end <= found->end()) {
        open(*found);
        is_unwritten = reads && !found->written.meets(access.begin, access.end);
        if (!is_unwritten) {
          has_written |= reads;
          continue;
        }
      }
      known = *found;
    }
    const std::string task = describe(running);
    if (is_gone(known, running)) {
      tell_use_after_free(known, task);
    } else if (is_unwritten) {
      const bool is_poison =
          access.begin < access.end && guarded::first_written(access.begin, access.end) == access.end;
      if (is_poison && !carries) {
        tell(kNotWritten, "all of" + argument_of(access) + ", " + std::to_string(access.end - access.begin) + " bytes",
             describe(known), task, "Fill it first (torch.zeros instead of torch.empty), or wait for what fills it.");
      }
      has_written |= !is_poison;
    } else {
      const bool in_front = is_in_front || access.begin < known.begin();
      const uintptr_t first = in_front ? access.begin : std::max(access.begin, known.end());
      const uintptr_t last = (in_front ? std::min(access.end, known.begin()) : access.end) - 1;
      tell(kOutOfBounds,
           (task.substr(0, task.find(' ')) + verb) + argument_of(access) + ": " + beside(known, first, last),
           describe(known), task, kBoundsAdvice);
    }
  }
  return has_written;
}

void check_behind(const Running& running, bool has_written) {
  const Launch& launch = *running.launch;
  for (const Access& access : launch.accesses) {
    if (!access.is_write || !is_device(access)) continue;
    Buffer around;
    {
      const std::lock_guard lock(state().mutex);
      Buffer* const found = find_buffer(access.begin);
      if (found == nullptr || found->is_released || is_gone(*found, running)) continue;
      if (has_written && access.begin < access.end) found->written.add(access.begin, access.end);
      if (access.begin == access.end) found->written.add(found->begin(), found->end());  // nobody knows what of it
      open(*found);
      around.block = found->block;
      around.size = found->size;
    }
    if (const auto found = written_around(around)) {
      const std::string what = "written: " + beside(around, found->first, found->second);
      std::string buffer;
      {
        const std::lock_guard lock(state().mutex);
        if (const Buffer* const again = find_buffer(access.begin)) buffer = describe(*again);
      }
      tell(kOutOfBounds, what, buffer, describe(running), kBoundsAdvice);
    }
  }
}

// ---- the fault handler

struct sigaction previous_action;

// The kind of access that faulted, as far as the machine says.
bool is_write(const void* context) {
#if defined(__x86_64__)
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#elif defined(__aarch64__)
  constexpr uint32_t kEsrMagic = 0x45535201;
  const auto* at = static_cast<const ucontext_t*>(context)->uc_mcontext.__reserved;
  for (uint32_t head[2]; std::memcpy(head, at, sizeof(head)), head[0] != 0 && head[1] != 0; at += head[1]) {
    uint64_t esr = 0;
    if (head[0] == kEsrMagic) return std::memcpy(&esr, at + sizeof(head), sizeof(esr)), (esr & 0x40) != 0;
  }
  return false;
#endif
}

// A thread that a task of a stream has started for its own work is none of the host's.
bool is_hosts_thread() { return !is_worker() && (gettid() == getpid() || calls_of_thread > 0); }

thread_local int host_accesses = 0;

[[noreturn]] void stop(const Buffer& buffer, uintptr_t address, bool writes) {
  const std::string native = native_place(), python = python_place();
  const std::string by = python.empty() ? native : python + (native.empty() ? "" : " (" + native + ")");
  const std::string fault = std::string("device memory ") + (writes ? "written" : "read") + " on the host";
  const auto offset = static_cast<int64_t>(address - buffer.begin());
  tell(fault.c_str(), "at its byte " + std::to_string(offset), describe(buffer), "by " + by,
       "An NPU's memory has no address on the host: copy it (tensor.cpu(), aclrtMemcpy). The program stops here.");
  _exit(66);
}

// What a task does beside the accesses that it declares.
void tell_stray(const Buffer& buffer, bool is_in_front, uintptr_t address, bool writes) {
  const Running* running = current;
  std::string task = "one of the tasks that run now";
  if (running != nullptr) {
    task = describe(*running);
  } else {
    const std::lock_guard lock(state().mutex);
    const auto& tasks = state().tasks;
    if (!tasks.empty() && &tasks.front()->root() == &tasks.back()->root()) task = describe(*tasks.back());
  }
  if (buffer.freed_at > 0) return tell_use_after_free(buffer, task);
  const uintptr_t edge = is_in_front ? buffer.begin() - address : address - buffer.end() + 1;
  tell(kOutOfBounds,
       std::string(writes ? "written: " : "read: ") + std::to_string(edge) +
           (is_in_front ? " in front of the buffer's first byte" : " behind the buffer's last byte"),
       describe(buffer), task, kBoundsAdvice);
}

// Whether the thread can go on.
bool serve_fault(uintptr_t address, bool writes) {
  const bool is_allowed = is_worker() || host_accesses > 0 || (state().touching > 0 && !is_hosts_thread());
  Buffer known;
  bool is_in_front = false;
  {
    const std::lock_guard lock(state().mutex);
    Buffer* found = find_buffer(address);
    if (found != nullptr && is_allowed && !found->is_released) {
      open(*found);
      return true;
    }
    if (found == nullptr) std::tie(found, is_in_front) = find_nearest(address);
    if (found == nullptr) return false;
    known = *found;
  }
  if (!is_allowed) stop(known, address, writes);
  tell_stray(known, is_in_front, address, writes);
  // The fault is told: the program goes on, with poison.
  if (address >= known.block.pages && address < known.block.limit) {
    guarded::revive(known.block.pages, known.block.limit);
  } else {
    guarded::revive(address, address + 1);
  }
  return true;
}

void handle_fault(int number, siginfo_t* information, void* context) {
  const int kept = errno;
  const auto address = reinterpret_cast<uintptr_t>(information->si_addr);
  if (guarded::contains(address) && serve_fault(address, is_write(context))) {
    errno = kept;
    return;
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) return previous_action.sa_sigaction(number, information, context);
  if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    return previous_action.sa_handler(number);
  }
  signal(number, SIG_DFL);  // and the access, once more, ends the process
}

// Others may have put theirs in its place since (faulthandler.enable()).
void handle_faults() {
  struct sigaction now{};
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == handle_fault) return;
  previous_action = now;
  struct sigaction own{};
  own.sa_sigaction = handle_fault;
  own.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &own, nullptr);
}

// ---- the end

bool is_programs_code(const void* caller) {
  Dl_info own{}, found{};
  dladdr(reinterpret_cast<const void*>(&allocate), &own);
  if (caller == nullptr || dladdr(caller, &found) == 0 || found.dli_fname == nullptr) return false;
  const std::string_view file = found.dli_fname, runtime = own.dli_fname;
  if (file.starts_with(runtime.substr(0, runtime.rfind('/') + 1))) return false;
  return file.find("/torch_npu/") == std::string_view::npos && file.find("/torchair/") == std::string_view::npos;
}

void tell_leaks(const std::vector<Buffer>& buffers) {
  std::map<std::pair<std::string, int32_t>, std::pair<size_t, size_t>> places;  // numbers and bytes
  for (const Buffer& buffer : buffers) {
    auto& [count, bytes] = places[{buffer.where, buffer.device}];
    ++count;
    bytes += buffer.size;
  }
  for (const auto& [place, sum] : places) {
    tell("never freed", std::to_string(sum.first) + (sum.first == 1 ? " buffer" : " buffers") + " at the end",
         std::to_string(sum.second) + " bytes of npu:" + std::to_string(place.second) + ", allocated at " +
             (place.first.empty() ? "a place that is not known" : place.first),
         "", "Give them back with aclrtFree before the device is reset.");
  }
}

__attribute__((destructor)) void tell_what_lives() {
  if (!is_on(Check::kMemory)) return;
  std::vector<Buffer> left;
  {
    const std::lock_guard lock(state().mutex);
    for (const auto& [pages, buffer] : state().buffers) {
      if (buffer.is_programs && buffer.freed_at == 0) left.push_back(buffer);
    }
  }
  tell_leaks(left);
}

}  // namespace

void* allocate(size_t size, int32_t device, const void* caller) {
  handle_faults();
  std::string where = place();
  {
    const std::lock_guard lock(state().mutex);
    give_back_pending();
  }
  const guarded::Block block = guarded::allocate(size);
  if (block.begin == 0) return nullptr;
  Buffer buffer;
  buffer.block = block;
  buffer.size = size;
  buffer.device = device;
  buffer.where = std::move(where);
  buffer.is_programs = is_programs_code(caller);
  const std::lock_guard lock(state().mutex);
  State& all = state();
  all.buffers.emplace_hint(all.buffers.end(), block.pages, std::move(buffer));
  all.open.push_back(block.pages);
  if (all.touching == 0) close_all();
  return reinterpret_cast<void*>(block.begin);
}

void release(void* address) {
  const std::string where = place();
  Buffer around;
  ++state().touching;  // nobody closes it meanwhile
  {
    const std::lock_guard lock(state().mutex);
    Buffer* const found = find_buffer(reinterpret_cast<uintptr_t>(address));
    if (found == nullptr) {
      --state().touching;
      return;
    }
    found->freed_where = where;
    found->freed_at = state().launches;
    guarded::open(found->block);
    around = *found;
  }
  check_around(around, "found when it was freed");
  --state().touching;
  const std::lock_guard lock(state().mutex);
  if (Buffer* const found = find_buffer(around.begin())) give_back(*found);
}

void release_left(const std::vector<void*>& addresses) {
  std::vector<Buffer> left;
  {
    const std::lock_guard lock(state().mutex);
    for (void* const address : addresses) {
      Buffer* const found = find_buffer(reinterpret_cast<uintptr_t>(address));
      if (found == nullptr || found->is_released) continue;
      if (found->is_programs) left.push_back(*found);
      found->freed_where = "the end of its device";
      found->freed_at = state().launches;
      give_back(*found);
    }
  }
  tell_leaks(left);
}

void reject_free(const void* address) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const std::string by = "aclrtFree, called at " + place();
  Buffer known;
  const char* fault = "free of memory that was never allocated";
  {
    const std::lock_guard lock(state().mutex);
    if (const Buffer* const found = find_buffer(begin)) {
      known = *found;
      fault = found->freed_at == 0      ? "free of an address inside a buffer"
              : found->begin() == begin ? "double free"
                                        : "free of an address inside a freed buffer";
    }
  }
  char text[64];
  std::snprintf(text, sizeof(text), "0x%zx", static_cast<size_t>(begin));
  tell(fault, text, known.size == 0 ? "no buffer of the device" : describe(known), by,
       "Free each address that aclrtMalloc gave, once.");
}

void reject_device(const void* address, int32_t device) {
  const std::string by = "aclrtFree on npu:" + std::to_string(device) + ", called at " + place();
  Buffer known;
  {
    const std::lock_guard lock(state().mutex);
    if (const Buffer* const found = find_buffer(reinterpret_cast<uintptr_t>(address))) known = *found;
  }
  tell("free of another device's memory", "the calling thread's device is npu:" + std::to_string(device),
       describe(known), by, "Set the buffer's device first (aclrtSetDevice).");
}

void reject_range(const char* name, uintptr_t address, size_t size) {
  const std::string where = place();
  Buffer known;
  bool is_in_front = false;
  {
    const std::lock_guard lock(state().mutex);
    Buffer* found = find_buffer(address);
    if (found == nullptr && guarded::contains(address)) std::tie(found, is_in_front) = find_nearest(address);
    if (found == nullptr) return;
    known = *found;
  }
  const std::string by = std::string("a copy or fill of ") + std::to_string(size) + " bytes, called at " + where;
  if (known.freed_at > 0) return tell_use_after_free(known, by);
  const bool in_front = is_in_front || address < known.begin();
  const uintptr_t first = in_front ? address : std::max(address, known.end());
  const uintptr_t last = in_front ? known.begin() - 1 : address + size - 1;
  tell(kOutOfBounds, std::string(name) + ": " + beside(known, first, last), describe(known), by, kBoundsAdvice);
}

void belongs_to_tensor(void* address, const Stream& stream) {
  const std::lock_guard lock(state().mutex);
  Buffer* const found = find_buffer(reinterpret_cast<uintptr_t>(address));
  if (found == nullptr) return;
  found->stream = &stream;
  found->agent = race::agent_of(stream);
  found->graph = stream.graph;
}

void record_stream(void* address, aclrtStream handle) {
  const std::shared_ptr<Stream> stream = find_stream(handle);
  const std::lock_guard lock(state().mutex);
  Buffer* const found = find_buffer(reinterpret_cast<uintptr_t>(address));
  if (found != nullptr) found->recorded.insert(race::agent_of(*stream));
}

namespace {

// The streams that have work to do.
Pending pending_on_all() {
  Pending pending{};
  for (const auto& stream : streams().find_if([](const Stream& each) { return !each.is_idle(); })) {
    pending.until.emplace_back(stream, stream->last());
  }
  return pending;
}

}  // namespace

void release_tensor(void* address) {
  std::string where = place();
  Pending pending = pending_on_all();
  std::optional<size_t> unknown;
  Buffer known;
  {
    const std::lock_guard lock(state().mutex);
    give_back_pending();
    Buffer* const found = find_buffer(reinterpret_cast<uintptr_t>(address));
    if (found == nullptr) return;
    found->is_left_to_graph = found->graph != nullptr;
    if (found->is_left_to_graph) return;
    found->freed_where = std::move(where);
    found->freed_at = state().launches;
    for (const auto& [agent, time] : found->users) {
      if (agent == found->agent || found->recorded.contains(agent)) continue;
      if (!race::knows(found->agent, agent, time)) unknown = agent;
    }
    if (unknown) known = *found;
    pending.begin = found->block.pages;
    if (pending.until.empty()) {
      give_back(*found);
    } else {
      state().pending.push_back(std::move(pending));
    }
  }
  if (!unknown) return;
  tell("freed while another stream uses it",
       "stream " + std::to_string(*unknown - 1) + " was given tasks that use it, and stream " +
           std::to_string(known.agent - 1) + ", whose tensor it is, does not wait for them",
       describe(known), "",
       "tensor.record_stream(stream) before it goes, or let its own stream wait: stream.wait_stream(other).");
}

void graph_ended(const void* graph) {
  Pending pending = pending_on_all();
  const std::lock_guard lock(state().mutex);
  State& all = state();
  for (auto& [pages, buffer] : all.buffers) {
    if (buffer.graph != graph) continue;
    buffer.graph = nullptr;
    if (!buffer.is_left_to_graph) continue;
    buffer.freed_where = "the end of its graph";
    buffer.freed_at = all.launches;
    pending.begin = pages;
    all.pending.push_back(pending);
  }
  give_back_pending();
}

namespace {

// A task that runs, or a call of the host's that does the work of one.
class Scope {
 public:
  explicit Scope(const Launch& launch) : running_{&launch, current} {
    State& all = state();
    ++all.touching;
    current = &running_;
    {
      const std::lock_guard lock(all.mutex);
      all.tasks.push_back(&running_);
    }
    has_written_ = check_before(running_);
  }

  ~Scope() {
    check_behind(running_, has_written_);
    State& all = state();
    {
      const std::lock_guard lock(all.mutex);
      std::erase(all.tasks, &running_);
    }
    current = running_.outer;
    --all.touching;
  }

  Scope(const Scope&) = delete;

 private:
  Running running_;
  bool has_written_;
};

}  // namespace

Task checked(const Stream& stream, const char* name, const std::string& where, const Accesses& accesses, Task task) {
  auto launch = std::make_shared<const Launch>(name, where, stream.id, accesses, ++state().launches);
  return [launch = std::move(launch), task = std::move(task)] {
    const Scope scope(*launch);
    return task();
  };
}

void used(const Stream& stream, const Accesses& accesses) {
  if (std::ranges::none_of(accesses, is_device)) return;
  const size_t agent = race::agent_of(stream);
  const uint64_t time = race::time_of(agent);
  const std::lock_guard lock(state().mutex);
  for (const Access& access : accesses) {
    if (Buffer* const found = is_device(access) ? find_buffer(access.begin) : nullptr) found->users[agent] = time;
  }
}

struct HostAccess::State {
  State(const char* function, const Accesses& accesses)
      : launch{function, place(), -1, accesses, ++memory::state().launches} {
    ++host_accesses;
    scope.emplace(launch);
  }
  ~State() {
    scope.reset();
    --host_accesses;
    close();
  }

  const Launch launch;
  std::optional<Scope> scope;
};

HostAccess::HostAccess(const char* function, const Accesses& accesses) {
  if (is_on(Check::kMemory)) state_ = std::make_unique<State>(function, accesses);
}

HostAccess::~HostAccess() = default;

void close() {
  State& all = state();
  if (all.touching > 0) return;
  const std::lock_guard lock(all.mutex);
  if (all.touching == 0) close_all();
}

}  // namespace cann_cpu::memory
