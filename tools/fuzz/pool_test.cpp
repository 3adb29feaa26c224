// The thread pool under ThreadSanitizer: several users reserve, run, release and run into each other for some seconds,
// with every number of threads, also none. Every item of every job must be done exactly once, before run() returns.
//
//   pool_test [SECONDS]
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "core/pool.h"
#include "core/table.h"

namespace {

using namespace zcd;

std::atomic<std::uint64_t> jobs_done{0};

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "pool_test: %s\n", what);
  std::abort();
}

void work(Pool& pool, int items) {
  // Plain ints on this stack: TSan sees it when an item is done twice, or while run() has already returned.
  std::vector<int> done(static_cast<std::size_t>(items), 0);
  pool.run(std::make_shared<Job>(items, [&](std::int64_t i) {
    ++done[static_cast<std::size_t>(i)];
    if (i % 7 == 0) std::this_thread::yield();
  }));
  for (const int count : done) require(count == 1, "an item was not done exactly once before run() returned");
  ++jobs_done;
}

void user(unsigned seed, std::chrono::steady_clock::time_point end) {
  std::mt19937 random(seed);
  Pool& pool = Pool::instance();
  while (std::chrono::steady_clock::now() < end) {
    const int threads = static_cast<int>(random() % 4);
    if (threads > 0) pool.reserve(threads);
    for (unsigned n = random() % 4; n > 0; --n) work(pool, static_cast<int>(random() % 40));
    if (threads > 0) pool.release(threads);
  }
}

// Shards come in while others read: what set() publishes must be whole for at().
void tables(unsigned seed, std::chrono::steady_clock::time_point end) {
  const std::vector<std::uint8_t> data(256, static_cast<std::uint8_t>(seed));
  while (std::chrono::steady_clock::now() < end) {
    Table table({0, 4, 8});
    const auto set = [&](std::int64_t shard) {
      Chunk chunk;
      chunk.rows = 4;
      chunk.fixed = 64;
      chunk.data = data.data();
      chunk.size = data.size();
      table.set(shard, {chunk});
    };
    const auto read = [&] {
      for (std::int64_t row = 0; row < 8; ++row)
        if (table.has(row / 4)) require(table.at(row).size == 64, "a value of the wrong size");
    };
    std::thread a([&] { set(0), set(1); }), b([&] { set(1), set(0); }), c(read), d(read);
    for (std::thread* t : {&a, &b, &c, &d}) t->join();
  }
}

std::size_t threads_of_this_process() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++n;
  return n;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5.0;
  std::thread([] {}).join();  // ThreadSanitizer starts a thread of its own along with the first
  const std::size_t before = threads_of_this_process();
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<std::thread> users;
  for (unsigned i = 0; i < 5; ++i) users.emplace_back(user, i, end);
  users.emplace_back(tables, 7, end);
  for (std::thread& t : users) t.join();
  require(Pool::instance().threads() == 0, "threads are left though every user has released");
  // A joined thread may still be listed for a moment: the kernel wakes the joiner first.
  for (int i = 0; i < 200 && threads_of_this_process() > before; ++i) usleep(10'000);
  require(threads_of_this_process() <= before, "the process has more threads than before");
  std::printf("pool: %llu jobs, no finding\n", static_cast<unsigned long long>(jobs_done.load()));
  return 0;
}
