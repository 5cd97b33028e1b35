// SPDX-License-Identifier: Apache-2.0
// Streams: their workers, their order, their failures, and waiting for them.
#include "stream.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "cann_cpu/gil.h"
#include "cann_cpu/waiting.h"
#include "log.h"

namespace cann_cpu {
namespace {

// A worker may be stuck in a callback that needs a lock of the thread that ends it. Then its thread is abandoned.
constexpr auto kStopPatience = std::chrono::seconds(5);

// Device memory stays accessible for this long after a task, in case the next one follows at once.
constexpr auto kIdle = std::chrono::microseconds(100);

// A worker polls for its next task for this long before it sleeps. Waking it takes longer than appending a task.
constexpr auto kWatch = std::chrono::microseconds(20);

// The streams whose workers have not ended, whether their handles still live or not.
Registry<Stream>& working_streams() {
  static auto* registry = new Registry<Stream>("working stream");
  return *registry;
}

std::atomic<int32_t> next_stream_id{0};
std::atomic<int> kernels_left_behind{0};

struct RunningTask {
  Stream* worker = nullptr;  // whose thread this is
  aclrtStream as = nullptr;  // whose recorded task is replayed
};
thread_local RunningTask running;

struct FailedSynchronization {
  Failure failure;
  uint64_t call;
};
thread_local std::optional<FailedSynchronization> failed_synchronization;

void require_not_running(const Stream& stream) {
  if (is_running(stream.handle)) {
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
  if (timeout < -1 || timeout == 0) {
    fail(ACL_ERROR_RT_PARAM_INVALID, "%s is %d; expected milliseconds, or -1 to wait indefinitely", what, timeout);
  }
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
    return Failure{ACL_ERROR_INTERNAL_ERROR, "threw something that is not a std::exception"};
  }
}

std::optional<Failure> run_task_as(aclrtStream stream, const Task& task) {
  const aclrtStream before = std::exchange(running.as, stream);
  std::optional<Failure> failure = run_task(task);
  running.as = before;
  return failure;
}

bool is_running(const void* stream) {
  return stream != nullptr && (stream == stream_of_task() || stream == running.as);
}

Stream* running_stream() { return running.worker; }

aclrtStream stream_of_task() noexcept { return running.worker == nullptr ? nullptr : running.worker->handle; }

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

Stream::Stream(std::shared_ptr<Context> context, uint32_t priority, std::shared_ptr<const StreamResource> resource)
    : context(std::move(context)), id(next_stream_id++), priority(priority), resource_(std::move(resource)) {}

void Stream::start_worker() {
  worker_ = std::thread([self = shared_from_this()] { self->work(); });
}

uint64_t Stream::push(std::string name, Task task, IfStopped if_stopped) {
  std::unique_lock lock(mutex_);
  if (stopping_) fail(ACL_ERROR_RT_INVALID_HANDLE, "stream %d is being destroyed", id);
  if (!worker_.joinable()) {
    end_streams_at_exit();
    working_streams().add(shared_from_this());
    start_worker();
  }
  queue_.push_back({std::move(name), std::move(task), if_stopped});
  submitted_.notify_one();
  const uint64_t number = ++last_;
  lock.unlock();
  if (scheduler != nullptr) scheduler().launched(*this);
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
    if (observers != nullptr && !submitted_.wait_for(lock, kIdle, has_work)) {
      lock.unlock();
      notify(&Observer::on_idle);
      lock.lock();
    }
    submitted_.wait(lock, has_work);
    if (queue_.empty()) break;
    if (scheduler != nullptr) {
      lock.unlock();
      scheduler().begin_turn(*this);
      lock.lock();
    }
    const uint64_t before = done_;
    if (discarding_) {
      drop_queue(lock);
    } else if (!run_next(lock)) {
      return;
    }
    if (scheduler != nullptr) {
      const uint64_t ended = done_ - before;
      lock.unlock();
      scheduler().end_turn(*this, ended);
      lock.lock();
    }
  }
  exited_ = true;
  completed_.notify_all();
  lock.unlock();
  working_streams().remove(handle);
}

bool Stream::run_next(std::unique_lock<std::mutex>& lock) {
  Entry entry = std::move(queue_.front());
  queue_.pop_front();
  std::optional<Failure> failure = stopped_by(entry);
  running_ = entry.name;
  const uint64_t left_tasks = left_tasks_;
  const uint64_t number = done_ + 1;
  lock.unlock();
  if (!failure) {
    failure = run_task(entry.task);
    if (failure) report_failed_task(*this, number, failure->code);
  }
  entry.task = nullptr;  // releases what the task owns before it is reported as done
  lock.lock();
  if (left_tasks_ != left_tasks) {
    --kernels_left_behind;
    return false;
  }
  finish(lock, 1, std::move(failure), entry.name);
  if (failure_ && failure_number_ == done_) context->stop_behind(*failure_);
  return true;
}

// Keeps the memory that an endless kernel may still use.
static void keep_forever(std::shared_ptr<void> memory) {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(*mutex);
  kept->push_back(std::move(memory));
}

uint64_t Stream::running_task() const {
  std::lock_guard lock(mutex_);
  return done_ + 1;
}

void Stream::leave_task(uint64_t number, Failure failure) {
  std::unique_lock lock(mutex_);
  if (done_ + 1 != number || exited_ || abandoned_) return;
  for (auto& [last, memory] : std::exchange(retained_, {})) keep_forever(std::move(memory));
  ++left_tasks_;
  ++kernels_left_behind;
  finish(lock, 1, std::move(failure), running_);
  if (failure_ && failure_number_ == done_) context->stop_behind(*failure_);
  worker_.detach();
  start_worker();
}

std::optional<Failure> Stream::stopped_by(const Entry& entry) const {
  if (!context->stops_on_failure || entry.if_stopped == IfStopped::kRun) return std::nullopt;
  const std::optional<Failure> before = failure_ && !*failure_->taken ? failure_ : context->stopped_by();
  if (!before) return std::nullopt;
  return Failure{before->code, "it did not run (ACL_STOP_ON_FAILURE): " + before->message};
}

void Stream::drop_queue(std::unique_lock<std::mutex>& lock) {
  std::deque<Entry> dropped = std::exchange(queue_, {});
  lock.unlock();
  const uint64_t count = dropped.size();
  dropped.clear();
  lock.lock();
  finish(lock, count, Failure{ACL_ERROR_RT_STREAM_CONTEXT, "the stream was destroyed before it ran"},
         std::to_string(count) + " tasks");
}

void Stream::finish(std::unique_lock<std::mutex>& lock, uint64_t tasks, std::optional<Failure> failure,
                    const std::string& name) {
  while (!retained_.empty() && retained_.front().first <= done_ + tasks) {
    auto released = std::move(retained_.front());
    retained_.pop_front();
    lock.unlock();
    released.second.reset();
    lock.lock();
  }
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
  const WithoutGil others_run;
  if (scheduler != nullptr) {
    return scheduler().wait(
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
  notify(&Observer::on_idle);
  lock.lock();
  awaited_.erase(waiter);
  return done_ >= number;
}

bool Stream::is_abandoned() const {
  std::lock_guard lock(mutex_);
  return abandoned_;
}

bool Stream::is_at_work() const {
  std::lock_guard lock(mutex_);
  return done_ < last_ && !abandoned_ && waits_since_.load() > Clock::now() - kStopPatience;
}

uint64_t Stream::last() const {
  std::lock_guard lock(mutex_);
  return last_;
}

bool Stream::is_idle() const {
  if (scheduler != nullptr) scheduler().asked();
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

Failure reported_late(Failure failure) {
  const char* blocking = std::getenv("ASCEND_LAUNCH_BLOCKING");
  const bool blocks = blocking != nullptr && std::string_view(blocking) == "1";
  if (!blocks && is_torch_npu_loaded()) {  // whose variable it is
    failure.message += "; with ASCEND_LAUNCH_BLOCKING=1 the call that asked for this raises it";
  }
  return failure;
}

void Stream::retain(const std::shared_ptr<void>& object) {
  const std::lock_guard lock(mutex_);
  if (done_ < last_) retained_.emplace_back(last_, object);
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
    if (scheduler != nullptr) scheduler().ended(*this);
    abandoned_ ? worker_.detach() : worker_.join();
    if (!abandoned_) end_streams_beside();
    dropped.clear();  // what waits for these tasks waits no longer
  }
  end_subscriptions(*this);
}

Stream& Stream::beside(size_t number) {
  while (beside_.size() < number) beside_.push_back(std::make_shared<Stream>(context, priority, nullptr));
  return *beside_[number - 1];
}

void Stream::end_streams_beside() {
  for (const auto& stream : beside_) stream->stop(/*discard=*/true);
  for (const auto& stream : beside_) stream->join();
  beside_.clear();
}

Registry<Stream>& streams() {
  static auto* registry = new Registry<Stream>("stream", "streams");
  return *registry;
}

namespace {

std::shared_ptr<Stream> find_stream_in(Context& context, aclrtStream handle) {
  return handle == nullptr ? context.default_stream() : streams().find(handle);
}

}  // namespace

std::shared_ptr<Stream> find_stream(aclrtStream handle) { return find_stream_in(*current_context(), handle); }

std::shared_ptr<Stream> find_own_stream(aclrtStream handle) {
  const std::shared_ptr<Context> context = current_context();
  std::shared_ptr<Stream> stream = find_stream_in(*context, handle);
  if (is_worker() || stream->context == context) return stream;
  fail(ACL_ERROR_RT_STREAM_CONTEXT,
       "stream %d is of another context, of device %d, than this thread's, of device %d; call aclrtSetDevice or "
       "aclrtSetCurrentContext",
       stream->id, stream->context->device, context->device);
}

uint64_t append(aclrtStream handle, const char* name, Task task, const Accesses& accesses,
                std::shared_ptr<const TaskTensors> operands) {
  std::shared_ptr<Stream> stream;
  // A recorded task may be replayed after its stream is gone: ask for the handle first.
  if (!is_running(handle)) stream = find_own_stream(handle);
  notify(&Observer::on_task, stream ? *stream : *running.worker, name, accesses, task);
  if (!stream) {
    run_in_place(name, task, std::move(operands));
    return 0;
  }
  if (is_running(stream->handle)) return append_uncaptured(*stream, name, std::move(task), std::move(operands));
  if (stream->is_recorded() && task_recorder->record(*stream, task, {name, accesses}, operands)) return 0;
  if (const int code = fault_of("stream", ACL_ERROR_RT_INTERNAL_ERROR)) {
    task = [code, name] {
      return error(code, "the stream was aborted because CANN_CPU_CHECK asks for it (fault:stream)");
    };
  }
  notify(&Observer::on_queue, *stream, name, accesses, task);
  return append_uncaptured(*stream, name, std::move(task), std::move(operands));
}

uint64_t append_uncaptured(Stream& stream, const char* name, Task task, std::shared_ptr<const TaskTensors> operands,
                           IfStopped if_stopped) {
  if (is_running(stream.handle)) {
    run_in_place(name, task, std::move(operands));
    return 0;
  }
  if (is_profiling()) task = profiled(stream, name, std::move(task), std::move(operands));
  return stream.push(name, std::move(task), if_stopped);
}

void wait_for(aclrtStream handle) noexcept try {
  if (is_running(handle)) return;
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!is_running(stream->handle)) stream->wait(stream->last());
} catch (const Failure&) {  // the stream is gone, and what it was given with it
}

BlockingRegion::BlockingRegion() {
  if (scheduler != nullptr && is_worker()) scheduler().suspend(*running_stream());
}

BlockingRegion::~BlockingRegion() {
  if (scheduler != nullptr && is_worker()) scheduler().resume(*running_stream());
}

void repeat_unread_failure() {
  std::optional<FailedSynchronization> failed = std::exchange(failed_synchronization, std::nullopt);
  if (failed && calls_of_thread == failed->call + 1 && has_message()) throw failed->failure;
}

bool finish(const std::vector<std::shared_ptr<Stream>>& streams) {
  constexpr auto kLook = std::chrono::milliseconds(100);
  for (const auto& stream : in_order(streams)) {
    const uint64_t number = stream->last();
    while (!stream->wait(number, Clock::now() + kLook)) {
      if (working_streams().find_if([](const Stream& any) { return any.is_at_work(); }).empty()) return false;
    }
  }
  return true;
}

bool drain() {
  bool all = kernels_left_behind == 0;
  for (const auto& stream : in_order(working_streams().find_if([](const Stream&) { return true; }))) {
    all = stream->wait(stream->last()) && all;
  }
  return all;
}

void retain_until_done(const std::shared_ptr<void>& memory) {
  if (kernels_left_behind > 0) keep_forever(memory);
  for (const auto& stream : working_streams().find_if([](const Stream&) { return true; })) stream->retain(memory);
}

bool accesses_are_checked() { return observers_need_accesses || operands_are_wanted(); }

aclError launch(aclrtStream stream, const char* name, Task task, const Accesses& accesses) {
  return launch(stream, name, std::move(task), accesses, nullptr);
}

aclError launch(aclrtStream stream, const char* name, Task task, const Accesses& accesses,
                std::shared_ptr<const TaskTensors> operands) {
  return code_on_device(name == nullptr ? "launch" : name, [&] {
    require_pointer(name, "name");
    if (!task) fail(ACL_ERROR_INVALID_PARAM, "the task is empty");
    if (!is_worker()) notify(&Observer::on_request, name);
    append(stream, name, std::move(task), accesses, std::move(operands));
  });
}

}  // namespace cann_cpu

using namespace cann_cpu;

namespace {

// What a stream is made for makes none of them faster here, and no order between streams follows from a priority.
constexpr uint32_t kKnownFlags = ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC | ACL_STREAM_HUGE;
constexpr uint32_t kLeastPriority = 7;

void check_priority(uint32_t priority) {
  if (priority > kLeastPriority) {
    fail(ACL_ERROR_INVALID_PARAM, "priority is %u; expected 0 to %u", priority, kLeastPriority);
  }
}

uint32_t checked_switch(const char* name, uint32_t value) {
  if (value > 1) fail(ACL_ERROR_INVALID_PARAM, "%s is %u; expected 0 or 1", name, value);
  return value;
}

void create_stream(aclrtStream* handle, uint32_t priority, uint32_t flags) {
  require_pointer(handle, "stream");
  check_priority(priority);
  if (flags & ~kKnownFlags) {
    fail(
        ACL_ERROR_FEATURE_UNSUPPORTED,
        "flag is %#x; ACL_STREAM_FAST_LAUNCH (0x1), ACL_STREAM_FAST_SYNC (0x2) and ACL_STREAM_HUGE (0x8) are supported",
        flags);
  }
  const std::shared_ptr<Context> context = current_context();
  auto resource = std::make_shared<const StreamResource>(find_device(context->device));
  const auto stream = std::make_shared<Stream>(context, priority, std::move(resource));
  *handle = streams().add(stream);
  report_stream_state(*stream, ACL_RT_STREAM_STATE_CREATE_POST);
}

void destroy_stream(aclrtStream handle, bool discard) {
  require_pointer(handle, "stream");
  std::shared_ptr<Stream> stream = find_own_stream(handle);
  require_not_running(*stream);
  if (stream->graph != nullptr) fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %d is being captured", stream->id);
  if (stream->context->is_default(*stream)) {
    fail(ACL_ERROR_INVALID_PARAM, "stream %d is a default stream, which goes with its context", stream->id);
  }
  report_stream_state(*stream, ACL_RT_STREAM_STATE_DESTROY_PRE);
  streams().remove(handle);
  task_recorder->stop(*stream);
  stream->stop(discard);
  stream->join();
}

void set_failure_mode(Stream& stream, uint64_t mode) {
  if (mode > ACL_STOP_ON_FAILURE) fail(ACL_ERROR_INVALID_PARAM, "mode is %lu; expected 0 or 1", mode);
  if (mode == ACL_CONTINUE_ON_FAILURE && stream.failure_mode == ACL_STOP_ON_FAILURE) {
    fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "stream %d stops on a failure, which cannot be taken back", stream.id);
  }
  stream.failure_mode = mode;
  if (mode == ACL_STOP_ON_FAILURE) stream.context->stops_on_failure = true;  // CANN's way: of all its streams
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
  if (is_running(stream->handle)) return;
  task_recorder->forbid(*stream);
  uint64_t number = stream->last();
  {
    const Scope wait = scope_of(&Observer::on_wait, /*is_for_copy=*/false);
    if (!stream->wait(number, deadline)) fail_unfinished(*stream, timeout);
  }
  notify(&Observer::on_stream_waited, *stream);
  if (std::optional<Failure> failure = stream->take_failure(number)) {
    failed_synchronization = {reported_late(*failure), calls_of_thread};
    throw failed_synchronization->failure;
  }
}

void synchronize_device(int32_t timeout) {
  std::optional<Clock::time_point> deadline = deadline_after("timeout", timeout);
  if (is_worker()) fail(ACL_ERROR_RT_STREAM_CONTEXT, "called from inside a task of a stream, which it would wait for");
  const std::shared_ptr<Context> context = current_context();
  const auto is_captured = [&](const Stream& s) { return s.context == context && s.graph != nullptr; };
  for (const auto& stream : streams().find_if(is_captured)) task_recorder->forbid(*stream);
  task_recorder->forbid_unsafe();
  int32_t device = context->device;
  const Scope wait = scope_of(&Observer::on_wait, /*is_for_copy=*/false);
  std::optional<Failure> first;
  for (const auto& stream : in_order(streams().find_if([&](const Stream& s) { return s.context->device == device; }))) {
    uint64_t number = stream->last();
    if (!stream->wait(number, deadline)) fail_unfinished(*stream, timeout);
    notify(&Observer::on_stream_waited, *stream);
    std::optional<Failure> failure = stream->take_failure(number);
    if (failure && first) first->message += "; " + failure->message;
    if (failure && !first) first = std::move(failure);
  }
  if (first) throw reported_late(*first);
}

}  // namespace

aclError aclrtCreateStream(aclrtStream* stream) {
  return call(__func__, [&] { create_stream(stream, 0, 0); });
}

aclError aclrtDeviceGetStreamPriorityRange(int32_t* leastPriority, int32_t* greatestPriority) {
  return host_call(__func__, [&] {
    require_pointer(leastPriority, "leastPriority");
    require_pointer(greatestPriority, "greatestPriority");
    *leastPriority = kLeastPriority;
    *greatestPriority = 0;
  });
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
    task_recorder->forbid(*stream);
    const bool is_idle = stream->is_idle();
    if (is_idle) notify(&Observer::on_stream_waited, *stream);
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
  return call(__func__, [&] { set_failure_mode(*find_stream(stream), mode); });
}

aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag) {
  return call(__func__, [&] { find_stream(stream)->overflow_switch = checked_switch("flag", flag); });
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
        return set_failure_mode(*stream, value->failureMode);
      case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK:
        stream->overflow_switch = checked_switch("overflowSwitch", value->overflowSwitch);
        return;
      case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
        stream->user_tag = value->userCustomTag;
        return;
      case ACL_STREAM_ATTR_CACHE_OP_INFO:
        stream->cache_op_info = checked_switch("cacheOpInfoSwitch", value->cacheOpInfoSwitch);
        return;
      case ACL_STREAM_ATTR_PRIORITY:
        check_priority(value->streamPriority);
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
