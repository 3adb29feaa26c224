#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace zcd {

// Asks the kernel for pages of a mapped file before they are read, for as long as readers find them absent. Each range
// then comes from the disk alone, all of a batch at once, where faults would wait for one after another and read
// whole neighbourhoods (read_ahead_kb). While all is in memory nothing is asked: a call a range is not for nothing.
class ColdPages {
 public:
  // One batch's reading, by one thread.
  class Reading {
   public:
    explicit Reading(ColdPages& pages) : pages_(pages), faults_(major_faults()), asking_(pages.left_.load(kOrder) > 0) {}
    ~Reading();
    bool asking() const { return asking_; }
    // Bytes that will be read; returns before they are there.
    static void ask(const std::uint8_t* from, std::size_t size);

   private:
    ColdPages& pages_;
    std::int64_t faults_;
    bool asking_;
  };

 private:
  // Where asking helps no fault tells that the pages are still cold: to find out, one batch in so many does not ask.
  static constexpr int kBatches = 64;
  static constexpr std::memory_order kOrder = std::memory_order_relaxed;
  static std::int64_t major_faults();  // of this thread
  std::atomic<int> left_{kBatches};
};

}  // namespace zcd
