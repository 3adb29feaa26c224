#include "core/permutation.h"

#include <cmath>
#include <stdexcept>

#include "core/random.h"

namespace zcd {
namespace {

constexpr std::uint32_t kLane = 0x6f7264;  // apart from the blocks that random operations draw from

// The finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
inline std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// x + a number below `modulus` that the hash gives, modulo that. The bias of the multiply is below modulus / 2^64.
inline std::uint64_t added(std::uint64_t x, std::uint64_t hash, std::uint64_t modulus) {
  const auto below = static_cast<std::uint64_t>((static_cast<unsigned __int128>(hash) * modulus) >> 64);
  const std::uint64_t sum = x + below;
  return sum >= modulus ? sum - modulus : sum;
}

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) : n_(n) {
  if (n == 0 || n > std::uint64_t{1} << 62) throw std::invalid_argument("a permutation is of 1 to 2^62 numbers");
  a_ = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (a_ * a_ < n) ++a_;
  b_ = (n + a_ - 1) / a_;
  for (std::uint32_t i = 0; i < kRounds; i += 2) {
    const auto words = philox({static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32), i, kLane},
                              {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    keys_[i] = std::uint64_t{words[1]} << 32 | words[0];
    keys_[i + 1] = std::uint64_t{words[3]} << 32 | words[2];
  }
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  std::uint64_t value = position;
  do {
    std::uint64_t high = value / b_, low = value % b_;
    for (int i = 0; i < kRounds; i += 2) {
      high = added(high, mixed(low + keys_[i]), a_);
      low = added(low, mixed(high + keys_[i + 1]), b_);
    }
    value = high * b_ + low;
  } while (value >= n_);
  return value;
}

}  // namespace zcd
