#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/pool.h"
#include "core/program.h"
#include "core/random.h"
#include "core/table.h"
#include "core/value_sum.h"

namespace zcd {

// Where image values come from and what they are: encoded, or raw RGB of one size.
struct ImageColumn {
  const Values* values = nullptr;
  int raw_width = 0, raw_height = 0;  // 0: encoded
  bool verify = true;                 // check each value's CRC-32C before use
};

// The samples of a batch: which rows, what keys the random numbers of each, and its place in the batch. Without keys they
// are the rows, without places each has the place of its turn.
struct Picks {
  const std::int64_t* rows = nullptr;
  std::int64_t n = 0;
  const std::int64_t* keys = nullptr;
  const std::int64_t* places = nullptr;

  Key key(std::int64_t i, std::uint64_t seed, std::uint64_t epoch) const {
    return {seed, epoch, static_cast<std::uint64_t>(keys != nullptr ? keys[i] : rows[i])};
  }
  std::size_t place(std::int64_t i) const { return static_cast<std::size_t>(places != nullptr ? places[i] : i); }
};

struct Outcome {
  FaultKind kind = FaultKind::none;
  std::string message;
};

// Where the samples of a batch go: that with place i, of view v, at outs[v] + i * strides[v].
struct Destination {
  std::vector<std::uint8_t*> outs;
  std::vector<std::size_t> strides;
};

// Decodes samples into their places; one outcome each, by turn. Never throws for a bad sample. `cancel`, once set, makes the
// remaining ones end as cancelled. With `pool` null the caller's thread does the work.
std::vector<Outcome> decode_batch(const ImageColumn& column, const Program& program, const Picks& picks, std::uint64_t seed,
                                  std::uint64_t epoch, const Destination& to, const std::atomic<bool>* cancel, Pool* pool);

// Opens one value in `sample`: checks it, and reads its header. Raw pixels are checked as they are read: `sum` must live
// until the sample has run. `value` must live as long.
void open_value(const ImageColumn& column, const Value& value, Sample& sample, std::optional<ValueSum>& sum);

// Copies values of `item` bytes each to their places in `out`; one outcome each, by turn. A value of another size or with a
// wrong sum is a fault, and its place stays as it was.
std::vector<Outcome> gather(const Table& table, const Picks& picks, std::size_t item, bool verify, std::uint8_t* out);

}  // namespace zcd
