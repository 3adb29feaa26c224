#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

namespace zcd {

// A number of independent items that any thread may take, one after another.
class Job {
 public:
  Job(std::int64_t items, std::function<void(std::int64_t)> work) : items_(items), work_(std::move(work)) {}

 private:
  friend class Pool;
  // Takes items until none is left. Returns true if this call finished the last one.
  bool work_off();
  const std::int64_t items_;
  std::function<void(std::int64_t)> work_;  // must not throw
  std::atomic<std::int64_t> next_{0}, done_{0};
};

// The process's decoding threads. There are as many as its users have reserved, none when nobody has; jobs are served
// in the order of their arrival. In a forked child the pool starts anew, without threads.
class Pool {
 public:
  static Pool& instance();

  // Each returns when the threads exist, or have ended.
  void reserve(int threads);
  void release(int threads);

  // Runs the job to its end. Without threads the caller does the work.
  void run(const std::shared_ptr<Job>& job);
  int threads();

 private:
  Pool() = default;
  void serve();
  std::mutex mutex_;
  std::condition_variable wake_, changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::list<std::thread> members_;
  std::list<std::thread> ended_;
  int target_ = 0, living_ = 0;
};

// Changes in every forked child: what was reserved before a fork does not exist after it.
std::uint64_t pool_generation();

}  // namespace zcd
