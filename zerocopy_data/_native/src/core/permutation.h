#pragma once

#include <array>
#include <cstdint>

namespace zcd {

// A keyed permutation of 0 .. n-1 that knows the value at any position without those before it.
//
// A Feistel network over pairs of remainders: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002,
// section 5 (generalized Feistel) and section 3 (cycle walking). a * b is less than n + a, so that walking on from a
// value outside happens once in b positions.
class Permutation {
 public:
  // n from 1 to 2^62; throws std::invalid_argument otherwise.
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch);

  std::uint64_t size() const { return n_; }
  // Of a position below n.
  std::uint64_t operator()(std::uint64_t position) const;

 private:
  // Four rounds hide all that a chosen-plaintext attack finds below the square root of a (Luby and Rackoff, 1988); as
  // many again cost little and leave no structure to the statistics of tests/order.
  static constexpr int kRounds = 8;
  std::uint64_t n_, a_, b_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace zcd
