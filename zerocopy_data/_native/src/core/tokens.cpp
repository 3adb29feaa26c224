#include "core/tokens.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/crc32c.h"

namespace zcd {
namespace {

// Bytes asked for at once where windows are read in their order: enough to keep a disk busy.
constexpr std::int64_t kBlock = 4 << 20;

template <typename T>
std::int64_t load(const std::uint8_t* from, std::int64_t index) {
  T value;  // files are mapped at any alignment
  std::memcpy(&value, from + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return static_cast<std::int64_t>(value);
}

template <typename T>
void widen(const std::uint8_t* from, std::int64_t n, std::int64_t* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = load<T>(from, i);
}

template <typename T>
void widen_twice(const std::uint8_t* __restrict from, std::int64_t n, std::int64_t* __restrict one,
                 std::int64_t* __restrict other) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t value = load<T>(from, i);
    one[i] = value;
    other[i] = value;
  }
}

// Puts tokens [begin, end) of a window, which lie at `from`, where they belong.
template <typename T>
void place(const std::uint8_t* from, std::int64_t begin, std::int64_t end, std::int64_t length, std::int64_t* input,
           std::int64_t* target) {
  if (target == nullptr) return widen<T>(from, end - begin, input + begin);
  if (begin == 0) {
    input[0] = load<T>(from, 0);
    from += sizeof(T);
    begin = 1;
  }
  const std::int64_t both = std::min(end, length) - begin;
  if (both > 0) widen_twice<T>(from, both, input + begin, target + begin - 1);
  if (end > length) target[length - 1] = load<T>(from, length - begin);
}

using Place = void (*)(const std::uint8_t*, std::int64_t, std::int64_t, std::int64_t, std::int64_t*, std::int64_t*);

Place placing(TokenType type) {
  switch (type) {
    case TokenType::uint8: return place<std::uint8_t>;
    case TokenType::int8: return place<std::int8_t>;
    case TokenType::uint16: return place<std::uint16_t>;
    case TokenType::int16: return place<std::int16_t>;
    case TokenType::uint32: return place<std::uint32_t>;
    case TokenType::int32: return place<std::int32_t>;
    case TokenType::int64: return place<std::int64_t>;
  }
  throw std::invalid_argument("no type of tokens");
}

std::int32_t offset_at(const TokenRun& run, std::int64_t index) {
  std::int32_t value;
  std::memcpy(&value, run.offsets + index, sizeof value);
  return value;
}

}  // namespace

std::size_t token_size(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8: return 1;
    case TokenType::uint16:
    case TokenType::int16: return 2;
    case TokenType::uint32:
    case TokenType::int32: return 4;
    case TokenType::int64: return 8;
  }
  throw std::invalid_argument("no type of tokens");
}

TokenStream::TokenStream(TokenType type, const std::vector<TokenRun>& runs) : type_(type), starts_{0} {
  for (const TokenRun& given : runs) {
    if (given.count == 0) continue;
    Run run{given.data, given, nullptr};
    if (given.offsets != nullptr) run.data += static_cast<std::size_t>(offset_at(given, 0)) * token_size(type);
    if (given.sums != nullptr) run.sound.reset(new std::atomic<bool>[static_cast<std::size_t>(given.documents)]());
    runs_.push_back(std::move(run));
    starts_.push_back(starts_.back() + given.count);
  }
}

std::size_t TokenStream::run_of(std::int64_t token) const {
  return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), token) - starts_.begin()) - 1;
}

bool TokenStream::check(const Run& run, std::int64_t begin, std::int64_t end) const {
  const TokenRun& given = run.given;
  if (given.sums == nullptr) return true;
  const std::int64_t base = offset_at(given, 0);
  const auto item = static_cast<std::int64_t>(token_size(type_));
  std::int64_t low = 0, high = given.documents;  // the last document that begins at or before the token holds it
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (offset_at(given, middle) - base <= begin ? low : high) = middle;
  }
  for (std::int64_t d = low; d < given.documents && offset_at(given, d) - base < end; ++d) {
    // Relaxed: the flag says something of the file, nothing of this process's memory.
    if (run.sound[static_cast<std::size_t>(d)].load(std::memory_order_relaxed)) continue;
    const std::int64_t from = offset_at(given, d), to = offset_at(given, d + 1);
    std::uint32_t stored;
    std::memcpy(&stored, given.sums + d, sizeof stored);
    if (crc32c(given.data + from * item, static_cast<std::size_t>((to - from) * item)) != stored) return false;
    run.sound[static_cast<std::size_t>(d)].store(true, std::memory_order_relaxed);
  }
  return true;
}

void TokenStream::refuse_outside(const std::int64_t* starts, std::int64_t n, std::int64_t reach) const {
  for (std::int64_t i = 0; i < n; ++i)
    if (starts[i] < 0 || reach > size() || starts[i] > size() - reach)
      throw std::out_of_range("a window from token " + std::to_string(starts[i]) + " on leaves the " +
                              std::to_string(size()) + " tokens of the stream");
}

std::vector<Extent> TokenStream::extents(const std::int64_t* starts, std::int64_t n, std::int64_t reach) const {
  refuse_outside(starts, n, reach);
  const auto item = static_cast<std::int64_t>(token_size(type_));
  std::vector<Extent> out;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::size_t r = run_of(starts[i]); r < runs_.size() && starts_[r] < starts[i] + reach; ++r) {
      const std::int64_t from = std::max(starts[i] - starts_[r], std::int64_t{0});
      const std::int64_t to = std::min(starts[i] + reach, starts_[r + 1]) - starts_[r];
      const std::uint8_t* const data = runs_[r].data;
      out.push_back({data + from * item, data + to * item, data + (starts_[r + 1] - starts_[r]) * item});
    }
  return out;
}

void TokenStream::ask_ahead(const std::int64_t* starts, std::int64_t n, std::int64_t reach) const {
  if (n < 2) return;
  for (std::int64_t i = 1; i < n; ++i)
    if (starts[i] < starts[i - 1] || starts[i] > starts[i - 1] + reach) return;
  const auto item = static_cast<std::int64_t>(token_size(type_));
  const std::int64_t block = kBlock / item;
  const std::int64_t end = starts[n - 1] + reach;
  if (end / block == starts[0] / block && starts[0] != 0) return;
  const std::int64_t from = (end / block + 1) * block;
  for (std::size_t r = 0; r < runs_.size(); ++r) {
    const std::int64_t low = std::max(from, starts_[r]) - starts_[r];
    const std::int64_t high = std::min(from + block, starts_[r + 1]) - starts_[r];
    if (low < high) ColdPages::Reading::ask(runs_[r].data + low * item, static_cast<std::size_t>((high - low) * item));
  }
}

std::vector<Outcome> TokenStream::gather(const Picks& picks, std::int64_t length, std::int64_t* inputs,
                                         std::int64_t* targets) const {
  const std::int64_t* const starts = picks.rows;
  const std::int64_t n = picks.n;
  const std::int64_t reach = length + (targets != nullptr ? 1 : 0);
  refuse_outside(starts, n, reach);
  const Place put = placing(type_);
  const auto item = static_cast<std::int64_t>(token_size(type_));
  const ColdPages::Reading reading(pages_);
  if (reading.asking())
    for (const Extent& extent : extents(starts, n, reach))
      ColdPages::Reading::ask(extent.begin, static_cast<std::size_t>(extent.end - extent.begin));
  ask_ahead(starts, n, reach);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t at = static_cast<std::int64_t>(picks.place(i)) * length;
    std::int64_t* input = inputs + at;
    std::int64_t* target = targets == nullptr ? nullptr : targets + at;
    const std::size_t first = run_of(starts[i]);
    bool sound = true;
    for (std::size_t r = first; sound && r < runs_.size() && starts_[r] < starts[i] + reach; ++r)
      sound = check(runs_[r], std::max(starts[i] - starts_[r], std::int64_t{0}),
                    std::min(starts[i] + reach, starts_[r + 1]) - starts_[r]);
    if (!sound) {
      outcomes[static_cast<std::size_t>(i)] = {FaultKind::checksum, "a document's checksum is not what was written"};
      continue;
    }
    std::int64_t done = 0;
    for (std::size_t r = first; done < reach; ++r) {
      const std::int64_t from = starts[i] + done - starts_[r];
      const std::int64_t count = std::min(reach - done, starts_[r + 1] - starts_[r] - from);
      put(runs_[r].data + from * item, done, done + count, length, input, target);
      done += count;
    }
  }
  return outcomes;
}

}  // namespace zcd
