// SPDX-License-Identifier: Apache-2.0
// Streams: their workers, their order, their failures, and waiting for them.
#include "stream.h"

#include <pthread.h>

#include <algorithm>

#include "cann_cpu/waiting.h"
#include "capture.h"
#include "checks/cost.h"
#include "checks/memory.h"
#include "checks/race.h"

namespace cann_cpu {
namespace {

// A worker may be stuck in a callback that needs a lock of the thread that ends it; then the thread is left behind.
constexpr auto kStopPatience = std::chrono::seconds(5);

// Device memory stays accessible for so long behind a task: for the next one.
constexpr auto kIdle = std::chrono::microseconds(100);

// A worker looks for its next task for so long before it sleeps: whoever appends one would have to wake it, which takes
// longer than to append it.
constexpr auto kWatch = std::chrono::microseconds(20);

// The streams whose workers have not ended, whether their handles still live or not.
Registry<Stream>& working_streams() {
  static auto* registry = new Registry<Stream>("working stream");
  return *registry;
}

std::atomic<int32_t> next_stream_id{0};

struct RunningTask {
  Stream* worker = nullptr;    // whose thread this is
  const Stream* as = nullptr;  // whose recorded task is replayed
};
thread_local RunningTask running;

struct FailedSynchronization {
  Failure failure;
  uint64_t call;
};
thread_local std::optional<FailedSynchronization> failed_synchronization;

void require_not_running(const Stream& stream) {
  if (is_running(&stream)) {
    fail(ACL_ERROR_RT_STREAM_CONTEXT, "called from inside a task of stream %d itself", stream.id);
  }
}

void run_in_place(const char* name, const Task& task, std::shared_ptr<const TaskTensors> operands) {
  std::optional<profiler::Row> row;
  if (is_profiling()) {
    if (auto of = profiler::Row::within(name, "", std::move(operands))) row.emplace(*std::move(of));
  }
  if (std::optional<Failure> failure = run_task(task)) throw *failure;
}

// As they were created, whatever their addresses: what a seed of the check `schedule` does repeats.
std::vector<std::shared_ptr<Stream>> in_order(std::vector<std::shared_ptr<Stream>> streams) {
  std::ranges::sort(streams, {}, [](const auto& stream) { return stream->id; });
  return streams;
}

// The task, which is a row of the stream's profile when it runs.
Task profiled(const Stream& stream, const char* name, Task task, std::shared_ptr<const TaskTensors> operands) {
  profiler::Row::Of of{name, "", std::move(operands), stream.context->device, stream.id, profiler::current_call()};
  return [of = std::move(of), task = std::move(task)] {
    const profiler::Row row(of);
    return task();
  };
}

Failure explain(aclError code, const std::string& message) {
  if (!message.empty()) return {code, message};
  return {code, "returned " + std::to_string(code) + " and left no message"};
}

}  // namespace

std::optional<Clock::time_point> deadline_after(const char* what, int32_t timeout) {
  if (timeout < -1) fail(ACL_ERROR_INVALID_PARAM, "%s is %d; milliseconds, or -1 to wait for ever", what, timeout);
  if (timeout == -1) return std::nullopt;
  return Clock::now() + std::chrono::milliseconds(timeout);
}

std::optional<Failure> run_task(const Task& task) {
  take_message();
  try {
    if (aclError code = task(); code != ACL_SUCCESS) return explain(code, take_message());
    return std::nullopt;
  } catch (const Failure& failure) {
    return failure;
  } catch (const std::bad_alloc&) {
    return Failure{ACL_ERROR_BAD_ALLOC, "no host memory left"};
  } catch (const std::exception& exception) {
    return Failure{ACL_ERROR_INTERNAL_ERROR, exception.what()};
  } catch (...) {
    return Failure{ACL_ERROR_INTERNAL_ERROR, "threw something that is no std::exception"};
  }
}

std::optional<Failure> run_task_as(const Stream* stream, const Task& task) {
  const Stream* before = std::exchange(running.as, stream);
  std::optional<Failure> failure = run_task(task);
  running.as = before;
  return failure;
}

bool is_running(const void* stream) { return stream != nullptr && (stream == running.worker || stream == running.as); }

Stream* running_stream() { return running.worker; }

aclrtStream stream_of_task() noexcept { return running.worker; }

std::mutex& waits_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::condition_variable& waits_condition() {
  static auto* condition = new std::condition_variable;
  return *condition;
}

void notify_waits() {
  std::lock_guard lock(waits_mutex());
  waits_condition().notify_all();
}

Stream::Stream(std::shared_ptr<Context> context, uint32_t priority, uint32_t flags)
    : context(std::move(context)), id(next_stream_id++), priority(priority), flags(flags) {}

uint64_t Stream::push(std::string name, Task task) {
  std::unique_lock lock(mutex_);
  if (stopping_) fail(ACL_ERROR_RT_INVALID_HANDLE, "stream %d is being destroyed", id);
  if (!worker_.joinable()) {
    end_streams_at_exit();
    working_streams().add(shared_from_this());
    worker_ = std::thread([self = shared_from_this()] { self->work(); });
  }
  queue_.push_back({std::move(name), std::move(task)});
  submitted_.notify_one();
  const uint64_t number = ++last_;
  lock.unlock();
  if (schedule::is_on()) schedule::launched(*this);
  return number;
}

void Stream::work() {
  std::string thread_name = "npu" + std::to_string(context->device) + "-stream" + std::to_string(id);
  pthread_setname_np(pthread_self(), thread_name.substr(0, 15).c_str());
  set_current_context(context);
  running.worker = this;
  std::unique_lock lock(mutex_);
  const auto has_work = [&] { return stopping_ || !queue_.empty(); };
  while (true) {
    if (!has_work()) {
      const uint64_t number = last_;
      lock.unlock();
      for (const auto end = Clock::now() + kWatch; last_ == number && Clock::now() < end;) std::this_thread::yield();
      lock.lock();
    }
    if (is_on(Check::kMemory) && !submitted_.wait_for(lock, kIdle, has_work)) {
      lock.unlock();
      memory::close();
      lock.lock();
    }
    submitted_.wait(lock, has_work);
    if (queue_.empty()) break;
    if (schedule::is_on()) {
      lock.unlock();
      schedule::begin_turn(*this);
      lock.lock();
    }
    const uint64_t before = done_;
    discarding_ ? drop_queue(lock) : run_next(lock);
    if (schedule::is_on()) {
      const uint64_t ended = done_ - before;
      lock.unlock();
      schedule::end_turn(*this, ended);
      lock.lock();
    }
  }
  exited_ = true;
  completed_.notify_all();
  lock.unlock();
  working_streams().remove(this);
}

void Stream::run_next(std::unique_lock<std::mutex>& lock) {
  Entry entry = std::move(queue_.front());
  queue_.pop_front();
  lock.unlock();
  std::optional<Failure> failure = run_task(entry.task);
  entry.task = nullptr;  // what it owns goes before anybody hears that it is done
  lock.lock();
  finish(1, std::move(failure), entry.name);
}

void Stream::drop_queue(std::unique_lock<std::mutex>& lock) {
  std::deque<Entry> dropped = std::exchange(queue_, {});
  lock.unlock();
  const uint64_t count = dropped.size();
  dropped.clear();
  lock.lock();
  finish(count, Failure{ACL_ERROR_RT_STREAM_CONTEXT, "the stream was destroyed before it ran"},
         std::to_string(count) + " tasks");
}

void Stream::finish(uint64_t tasks, std::optional<Failure> failure, const std::string& name) {
  done_ += tasks;
  if (failure && (!failure_ || *failure_->taken)) {
    if (!failure->taken) failure->taken = std::make_shared<std::atomic<bool>>(false);
    failure->message = name + " on stream " + std::to_string(id) + " of device " + std::to_string(context->device) +
                       " failed: " + failure->message;
    failure_ = std::move(failure);
    failure_number_ = done_;
  }
  if (!awaited_.empty() && *awaited_.begin() <= done_) completed_.notify_all();
}

template <class Condition>
bool Stream::await(Condition&& condition, std::optional<Clock::time_point> deadline) {
  if (schedule::is_on()) {
    return schedule::wait(
        [&] {
          const std::lock_guard lock(mutex_);
          return condition();
        },
        deadline);
  }
  std::unique_lock lock(mutex_);
  if (deadline) return completed_.wait_until(lock, *deadline, condition);
  completed_.wait(lock, condition);
  return true;
}

bool Stream::wait(uint64_t number, std::optional<Clock::time_point> deadline) {
  std::unique_lock lock(mutex_);
  const auto waiter = awaited_.insert(number);
  lock.unlock();
  await([&] { return done_ >= number || abandoned_; }, deadline);
  if (is_on(Check::kMemory)) memory::close();
  lock.lock();
  awaited_.erase(waiter);
  return done_ >= number;
}

bool Stream::is_abandoned() const {
  std::lock_guard lock(mutex_);
  return abandoned_;
}

uint64_t Stream::last() const {
  std::lock_guard lock(mutex_);
  return last_;
}

bool Stream::is_idle() const {
  if (schedule::is_on()) schedule::asked();
  std::lock_guard lock(mutex_);
  return done_ == last_;
}

bool Stream::is_done(uint64_t number) const {
  std::lock_guard lock(mutex_);
  return done_ >= number;
}

std::optional<Failure> Stream::take_failure(uint64_t number) {
  std::lock_guard lock(mutex_);
  if (!failure_ || failure_number_ > number) return std::nullopt;
  std::optional<Failure> failure = std::exchange(failure_, std::nullopt);
  if (failure->taken->exchange(true)) return std::nullopt;
  return failure;
}

std::optional<Failure> Stream::failure() const {
  std::lock_guard lock(mutex_);
  return failure_ && !*failure_->taken ? failure_ : std::nullopt;
}

void Stream::stop(bool discard) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    discarding_ = discard;
    submitted_.notify_all();
  }
  notify_waits();
}

void Stream::join() {
  std::deque<Entry> dropped;
  if (worker_.joinable()) {
    std::optional<Clock::time_point> deadline;
    if (discarding_) deadline = Clock::now() + kStopPatience;
    const bool has_exited = await([&] { return exited_; }, deadline);
    {
      const std::lock_guard lock(mutex_);
      abandoned_ = !has_exited;
      if (abandoned_) dropped.swap(queue_);  // not done: drain() still sees the task that runs
      completed_.notify_all();
    }
    if (schedule::is_on()) schedule::ended(*this);
    abandoned_ ? worker_.detach() : worker_.join();
    dropped.clear();  // what waits for these tasks waits no longer
  }
  end_subscriptions(*this);
}

Registry<Stream>& streams() {
  static auto* registry = new Registry<Stream>("stream", "streams");
  return *registry;
}

std::shared_ptr<Stream> find_stream(aclrtStream handle) {
  return handle == nullptr ? current_context()->default_stream() : streams().find(handle);
}

uint64_t append(aclrtStream handle, const char* name, Task task, const Accesses& accesses,
                std::shared_ptr<const TaskTensors> operands) {
  std::shared_ptr<Stream> stream;
  // A recorded task may be replayed after its stream is gone: ask for the address first.
  if (!is_running(handle)) stream = find_stream(handle);
  if (is_on(Check::kMemory)) {
    const Stream& on = stream ? *stream : *running.worker;
    task = memory::checked(on, name, is_worker() ? "" : race::where(), accesses, std::move(task));
  }
  if (!stream) {
    run_in_place(name, task, std::move(operands));
    return 0;
  }
  if (is_running(stream.get())) return append_uncaptured(*stream, name, std::move(task), std::move(operands));
  if (stream->graph != nullptr && record_task(*stream, task, {accesses, name, race::where()}, operands)) return 0;
  race::task(*stream, name, accesses);
  if (is_on(Check::kMemory)) memory::used(*stream, accesses);
  if (const int code = fault_of("stream", ACL_ERROR_RT_INTERNAL_ERROR)) {
    task = [code, name] {
      return error(code, "the stream was aborted because CANN_CPU_CHECK asks for it (fault:stream)");
    };
  }
  if (!accesses.empty() && schedule::are_digests_kept()) {
    task = [task = std::move(task), name = std::string(name), accesses, launch = schedule::launch()] {
      const aclError code = task();
      schedule::keep_digest(launch, 0, name, accesses);
      return code;
    };
  }
  return append_uncaptured(*stream, name, std::move(task), std::move(operands));
}

uint64_t append_uncaptured(Stream& stream, const char* name, Task task, std::shared_ptr<const TaskTensors> operands) {
  if (is_running(&stream)) {
    run_in_place(name, task, std::move(operands));
    return 0;
  }
  if (is_profiling()) task = profiled(stream, name, std::move(task), std::move(operands));
  return stream.push(name, std::move(task));
}

void wait_for(aclrtStream handle) noexcept try {
  if (is_running(handle)) return;
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!is_running(stream.get())) stream->wait(stream->last());
} catch (const Failure&) {  // the stream is gone, and what it was given with it
}

Elsewhere::Elsewhere() {
  if (schedule::is_on() && is_worker()) schedule::go_away(*running_stream());
}

Elsewhere::~Elsewhere() {
  if (schedule::is_on() && is_worker()) schedule::come_back(*running_stream());
}

void repeat_unread_failure() {
  std::optional<FailedSynchronization> failed = std::exchange(failed_synchronization, std::nullopt);
  if (failed && calls_of_thread == failed->call + 1 && has_message()) throw failed->failure;
}

bool drain() {
  bool all = true;
  for (const auto& stream : in_order(working_streams().find_if([](const Stream&) { return true; }))) {
    all = stream->wait(stream->last()) && all;
  }
  return all;
}

aclError launch(aclrtStream stream, const char* name, Task task, const Accesses& accesses) {
  return launch(stream, name, std::move(task), accesses, nullptr);
}

aclError launch(aclrtStream stream, const char* name, Task task, const Accesses& accesses,
                std::shared_ptr<const TaskTensors> operands) {
  return code_on_device(name == nullptr ? "launch" : name, [&] {
    require_pointer(name, "name");
    if (!task) fail(ACL_ERROR_INVALID_PARAM, "the task is empty");
    if (!is_worker()) cost::launched(name);
    append(stream, name, std::move(task), accesses, std::move(operands));
  });
}

}  // namespace cann_cpu

using namespace cann_cpu;

namespace {

void create_stream(aclrtStream* handle, uint32_t priority, uint32_t flags) {
  require_pointer(handle, "stream");
  *handle = streams().add(std::make_shared<Stream>(current_context(), priority, flags));
}

void destroy_stream(aclrtStream handle, bool discard) {
  require_pointer(handle, "stream");
  std::shared_ptr<Stream> stream = streams().find(handle);
  require_not_running(*stream);
  if (stream->graph != nullptr) fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %d is being captured", stream->id);
  streams().remove(handle);
  stream->stop(discard);
  stream->join();
}

// What a wait that came to no end says.
[[noreturn]] void fail_unfinished(const Stream& stream, int32_t timeout) {
  if (stream.is_abandoned()) {
    fail(ACL_ERROR_RT_STREAM_CONTEXT,
         "stream %d of device %d was destroyed, and the task that it ran did not end in time", stream.id,
         stream.context->device);
  }
  fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "stream %d of device %d was still working after %d ms", stream.id,
       stream.context->device, timeout);
}

void synchronize_stream(aclrtStream handle, int32_t timeout) {
  std::optional<Clock::time_point> deadline = deadline_after("timeout", timeout);
  if (is_running(handle)) return;  // all that came before has run in place
  std::shared_ptr<Stream> stream = find_stream(handle);
  if (is_running(stream.get())) return;
  forbid_during_capture(*stream);
  uint64_t number = stream->last();
  {
    const cost::Wait wait;
    if (!stream->wait(number, deadline)) fail_unfinished(*stream, timeout);
  }
  race::host_waited(*stream);
  if (std::optional<Failure> failure = stream->take_failure(number)) {
    failed_synchronization = {*failure, calls_of_thread};
    throw *failure;
  }
}

void synchronize_device(int32_t timeout) {
  std::optional<Clock::time_point> deadline = deadline_after("timeout", timeout);
  if (is_worker()) fail(ACL_ERROR_RT_STREAM_CONTEXT, "called from inside a task of a stream, which it would wait for");
  forbid_unsafe_during_capture();
  int32_t device = current_context()->device;
  const cost::Wait wait;
  std::optional<Failure> first;
  for (const auto& stream : in_order(streams().find_if([&](const Stream& s) { return s.context->device == device; }))) {
    uint64_t number = stream->last();
    if (!stream->wait(number, deadline)) fail_unfinished(*stream, timeout);
    race::host_waited(*stream);
    std::optional<Failure> failure = stream->take_failure(number);
    if (failure && first) first->message += "; " + failure->message;
    if (failure && !first) first = std::move(failure);
  }
  if (first) throw *first;
}

}  // namespace

aclError aclrtCreateStream(aclrtStream* stream) {
  return call(__func__, [&] { create_stream(stream, 0, 0); });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
  return call(__func__, [&] { create_stream(stream, priority, flag); });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return call(__func__, [&] { destroy_stream(stream, false); });
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return call(__func__, [&] { destroy_stream(stream, true); });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return call(__func__, [&] { synchronize_stream(stream, -1); });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  return call(__func__, [&] { synchronize_stream(stream, timeout); });
}

aclError aclrtSynchronizeDevice() {
  return call(__func__, [&] { synchronize_device(-1); });
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
  return call(__func__, [&] { synchronize_device(timeout); });
}

aclError aclrtStreamQuery(aclrtStream handle, aclrtStreamStatus* status) {
  return call(__func__, [&] {
    require_pointer(status, "status");
    std::shared_ptr<Stream> stream = find_stream(handle);
    forbid_during_capture(*stream);
    const bool is_idle = stream->is_idle();
    if (is_idle) race::host_waited(*stream);
    *status = is_idle ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  });
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t* streamId) {
  return call(__func__, [&] {
    require_pointer(streamId, "streamId");
    *streamId = find_stream(stream)->id;
  });
}

aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
  return call(__func__, [&] {
    if (mode > ACL_STOP_ON_FAILURE) fail(ACL_ERROR_INVALID_PARAM, "mode is %lu; 0 or 1", mode);
    find_stream(stream)->failure_mode = mode;
  });
}

aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag) {
  return call(__func__, [&] { find_stream(stream)->overflow_switch = flag; });
}

aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t* flag) {
  return call(__func__, [&] {
    require_pointer(flag, "flag");
    *flag = find_stream(stream)->overflow_switch;
  });
}

aclError aclrtSetStreamAttribute(aclrtStream handle, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue* value) {
  return call(__func__, [&] {
    require_pointer(value, "value");
    std::shared_ptr<Stream> stream = find_stream(handle);
    switch (stmAttrType) {
      case ACL_STREAM_ATTR_FAILURE_MODE:
        stream->failure_mode = value->failureMode;
        return;
      case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK:
        stream->overflow_switch = value->overflowSwitch;
        return;
      case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
        stream->user_tag = value->userCustomTag;
        return;
      case ACL_STREAM_ATTR_CACHE_OP_INFO:
        stream->cache_op_info = value->cacheOpInfoSwitch;
        return;
      case ACL_STREAM_ATTR_PRIORITY:
        stream->priority = value->streamPriority;
        return;
    }
    fail(ACL_ERROR_INVALID_PARAM, "attribute %d is unknown", stmAttrType);
  });
}

aclError aclrtGetStreamAttribute(aclrtStream handle, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue* value) {
  return call(__func__, [&] {
    require_pointer(value, "value");
    std::shared_ptr<Stream> stream = find_stream(handle);
    switch (stmAttrType) {
      case ACL_STREAM_ATTR_FAILURE_MODE:
        value->failureMode = stream->failure_mode;
        return;
      case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK:
        value->overflowSwitch = stream->overflow_switch;
        return;
      case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
        value->userCustomTag = stream->user_tag;
        return;
      case ACL_STREAM_ATTR_CACHE_OP_INFO:
        value->cacheOpInfoSwitch = stream->cache_op_info;
        return;
      case ACL_STREAM_ATTR_PRIORITY:
        value->streamPriority = stream->priority;
        return;
    }
    fail(ACL_ERROR_INVALID_PARAM, "attribute %d is unknown", stmAttrType);
  });
}
