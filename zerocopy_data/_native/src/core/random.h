#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace zcd {

// Which random numbers a sample gets: nothing else enters, so threads, workers and ranks cannot change them.
struct Key {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sample = 0;
};

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): the multipliers, the Weyl
// constants and the ten rounds are that paper's.
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c[0], b = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

// The draws of one operation on one sample. `lane` tells views and operations apart.
class Draws {
 public:
  Draws(const Key& key, std::uint32_t lane) : key_(key), lane_(lane) {}

  std::uint32_t word() {
    if (left_ == 0) {
      // The epoch joins the key through a Philox block of its own, so that all 64 bits of seed, epoch and sample count.
      const auto mixed = philox({static_cast<std::uint32_t>(key_.epoch), static_cast<std::uint32_t>(key_.epoch >> 32),
                                 lane_, 0x7a6364u},
                                {static_cast<std::uint32_t>(key_.seed), static_cast<std::uint32_t>(key_.seed >> 32)});
      block_ = philox({static_cast<std::uint32_t>(key_.sample), static_cast<std::uint32_t>(key_.sample >> 32), counter_++,
                       mixed[2]},
                      {mixed[0], mixed[1]});
      left_ = 4;
    }
    return block_[4 - left_--];
  }
  // [0, 1) with 53 bits.
  double uniform() {
    const std::uint64_t high = word() >> 5, low = word() >> 6;
    return static_cast<double>(high << 26 | low) * 0x1p-53;
  }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // 0 .. n-1; the bias of the multiply is below n / 2^32.
  int below(int n) { return static_cast<int>((std::uint64_t{word()} * static_cast<std::uint64_t>(n)) >> 32); }

 private:
  Key key_;
  std::uint32_t lane_, counter_ = 0;
  std::array<std::uint32_t, 4> block_{};
  int left_ = 0;
};

}  // namespace zcd
