#include "core/pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>

namespace zcd {
namespace {

Pool* g_pool = nullptr;  // the one global: fork must be able to replace it
std::uint64_t g_generation = 0;

// Threads do not survive a fork, and a lock may be held by one of them: the child leaves the old pool where it is.
void forget_in_child() {
  g_pool = nullptr;
  ++g_generation;
}

}  // namespace

bool Job::work_off() {
  bool last = false;
  for (std::int64_t i = next_.fetch_add(1); i < items_; i = next_.fetch_add(1)) {
    work_(i);
    last = done_.fetch_add(1) + 1 == items_;
  }
  return last;
}

Pool& Pool::instance() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, forget_in_child); });
  static std::mutex creation;
  // Held only for a pointer's time; a fork in that moment is kept from copying it locked by Python's own fork, which
  // happens under the GIL as every call of instance() does.
  const std::lock_guard lock(creation);
  if (g_pool == nullptr) g_pool = new Pool;
  return *g_pool;
}

std::uint64_t pool_generation() { return g_generation; }

void Pool::serve() {
  pthread_setname_np(pthread_self(), "zcd-decode");
  std::unique_lock lock(mutex_);
  while (true) {
    while (!jobs_.empty() && jobs_.front()->next_.load() >= jobs_.front()->items_) jobs_.pop_front();
    if (living_ > target_) break;
    if (jobs_.empty()) {
      wake_.wait(lock);
      continue;
    }
    const std::shared_ptr<Job> job = jobs_.front();
    lock.unlock();
    const bool last = job->work_off();
    lock.lock();
    if (last) changed_.notify_all();
  }
  --living_;
  const auto self = std::this_thread::get_id();
  const auto me = std::find_if(members_.begin(), members_.end(), [&](const std::thread& t) { return t.get_id() == self; });
  ended_.splice(ended_.end(), members_, me);
  changed_.notify_all();
}

void Pool::reserve(int threads) {
  const std::lock_guard lock(mutex_);
  target_ += threads;
  // Signals belong to Python's main thread: the new threads inherit a mask that blocks them all.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (living_ < target_) {
      members_.emplace_back([this] { serve(); });
      ++living_;
    }
  } catch (...) {  // no more threads to be had: what was started stays in balance with what is promised
    target_ -= threads;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    wake_.notify_all();
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Pool::release(int threads) {
  std::list<std::thread> ended;
  {
    std::unique_lock lock(mutex_);
    target_ = std::max(0, target_ - threads);
    wake_.notify_all();
    changed_.wait(lock, [&] { return living_ <= target_; });
    ended.swap(ended_);
  }
  for (std::thread& t : ended) t.join();
}

void Pool::run(const std::shared_ptr<Job>& job) {
  if (job->items_ == 0) return;
  std::unique_lock lock(mutex_);
  if (living_ == 0) {
    lock.unlock();
    job->work_off();
    return;
  }
  jobs_.push_back(job);
  wake_.notify_all();
  changed_.wait(lock, [&] { return job->done_.load() == job->items_ || living_ == 0; });
  if (job->done_.load() == job->items_) return;
  lock.unlock();
  job->work_off();  // the threads were released under way: finish here
  // Threads that somebody reserved meanwhile may have taken items too; `work` and what it points to must outlive them.
  lock.lock();
  changed_.wait(lock, [&] { return job->done_.load() == job->items_; });
}

int Pool::threads() {
  const std::lock_guard lock(mutex_);
  return living_;
}

}  // namespace zcd
