#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/batch.h"
#include "core/cold_pages.h"
#include "core/read_ahead.h"

namespace zcd {

enum class TokenType : signed char { uint8, int8, uint16, int16, uint32, int32, int64 };

std::size_t token_size(TokenType type);

// Tokens that lie one after another in memory. Where `offsets` is given they are `documents` documents, between
// neighbouring offsets (in tokens from `data` on), each with its CRC-32C.
struct TokenRun {
  const std::uint8_t* data = nullptr;
  std::int64_t count = 0;
  const std::int32_t* offsets = nullptr;  // documents + 1, rising from 0 or more
  const std::uint32_t* sums = nullptr;    // documents of them, or null: nothing is checked
  std::int64_t documents = 0;
};

// One stream over many runs, read in windows of a fixed length by many threads at once.
class TokenStream {
 public:
  // Runs have been checked: `count` tokens can be read at `data`, or, with offsets, at `data` + the first of them.
  TokenStream(TokenType type, const std::vector<TokenRun>& runs);

  std::int64_t size() const { return starts_.back(); }

  // Windows of `length` >= 1 tokens from starts.rows on, as int64: that with place i to inputs + i * length. With `targets` not
  // null one token more is read, and the window from the second token on goes there. One outcome a window: a fault where
  // a document that it touches has not the sum that was stored, and then its place is not written. A document is summed
  // when it is touched for the first time, and never again. Throws std::out_of_range before anything is written when a
  // window leaves the stream.
  std::vector<Outcome> gather(const Picks& starts, std::int64_t length, std::int64_t* inputs, std::int64_t* targets) const;

  // Where windows of `reach` >= 1 tokens from starts[0..n) on lie. Throws as `gather` does.
  std::vector<Extent> extents(const std::int64_t* starts, std::int64_t n, std::int64_t reach) const;

 private:
  struct Run {
    const std::uint8_t* data;  // of the first token
    TokenRun given;
    std::unique_ptr<std::atomic<bool>[]> sound;  // by document
  };
  std::size_t run_of(std::int64_t token) const;
  void refuse_outside(const std::int64_t* starts, std::int64_t n, std::int64_t reach) const;
  // Where windows lie side by side, in their order, and a block ends among them: asks for the block after the next one.
  void ask_ahead(const std::int64_t* starts, std::int64_t n, std::int64_t reach) const;
  // Whether all documents that hold tokens [begin, end) of a run are what was written.
  bool check(const Run& run, std::int64_t begin, std::int64_t end) const;

  TokenType type_;
  std::vector<Run> runs_;
  std::vector<std::int64_t> starts_;
  mutable ColdPages pages_;
};

}  // namespace zcd
