#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/pool.h"
#include "core/program.h"
#include "core/table.h"
#include "core/value_sum.h"

namespace zcd {

// Where image values come from and what they are: encoded, or raw RGB of one size.
struct ImageColumn {
  const Values* values = nullptr;
  int raw_width = 0, raw_height = 0;  // 0: encoded
  bool verify = true;                 // check each value's CRC-32C before use
};

struct Outcome {
  FaultKind kind = FaultKind::none;
  std::string message;
};

// Where the samples of a batch go: sample i of view v at outs[v] + i * strides[v].
struct Destination {
  std::vector<std::uint8_t*> outs;
  std::vector<std::size_t> strides;
};

// Decodes rows[0..n) into their places; one outcome a row. Never throws for a bad sample. `cancel`, once set, makes the
// remaining rows end as cancelled. With `pool` null the caller's thread does the work.
std::vector<Outcome> decode_batch(const ImageColumn& column, const Program& program, const std::int64_t* rows,
                                  std::int64_t n, std::uint64_t seed, std::uint64_t epoch, const Destination& to,
                                  const std::atomic<bool>* cancel, Pool* pool);

// Opens one value in `sample`: checks it, and reads its header. Raw pixels are checked as they are read: `sum` must live
// until the sample has run. `value` must live as long.
void open_value(const ImageColumn& column, const Value& value, Sample& sample, std::optional<ValueSum>& sum);

// Copies values of `item` bytes each to `out`, in order; one outcome a row. A value of another size or with a wrong sum is
// a fault, and its place stays as it was.
std::vector<Outcome> gather(const Table& table, const std::int64_t* rows, std::int64_t n, std::size_t item, bool verify,
                            std::uint8_t* out);

}  // namespace zcd
