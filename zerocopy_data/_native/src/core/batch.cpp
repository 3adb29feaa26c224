#include "core/batch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <optional>

namespace zcd {
namespace {

// A batch that is larger than this is not found in a core's own caches by the time somebody reads it. Written through
// them it would throw out the images that are read next, and each line would be fetched before it is overwritten.
constexpr std::size_t kStreamFrom = 4u << 20;

// Of a value that is not needed yet: what comes after that the hardware's own read-ahead finds.
constexpr std::size_t kPrefetch = 4096;

inline void prefetch(const Value& value) {
  const std::size_t bytes = std::min(value.size, kPrefetch);
  for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(value.data + at);
}

}  // namespace

void open_value(const ImageColumn& column, const Value& value, Sample& sample, std::optional<ValueSum>& sum) {
  if (column.verify) sum.emplace(value);
  if (column.raw_width > 0) {
    const std::size_t bytes = std::size_t{kChannels} * static_cast<std::size_t>(column.raw_width) *
                              static_cast<std::size_t>(column.raw_height);
    if (value.size != bytes) throw Fault(FaultKind::damaged, "raw image of the wrong number of bytes");
    sample.open_pixels({value.data, column.raw_width, column.raw_height, std::ptrdiff_t{kChannels} * column.raw_width,
                        value.readable_end},
                       sum ? &*sum : nullptr);
  } else {
    if (sum) sum->finish();
    sample.open_jpeg(value.data, value.size);
  }
}

std::vector<Outcome> decode_batch(const ImageColumn& column, const Program& program, const Picks& picks, std::uint64_t seed,
                                  std::uint64_t epoch, const Destination& to, const std::atomic<bool>* cancel, Pool* pool) {
  const std::int64_t n = picks.n;
  std::vector<Outcome> outcomes(static_cast<std::size_t>(n));
  std::size_t bytes = 0;
  for (const std::size_t stride : to.strides) bytes += stride * static_cast<std::size_t>(n);
  const bool stream = column.raw_width > 0 && bytes >= kStreamFrom;
  const auto one = [&](std::int64_t i) {
    Outcome& outcome = outcomes[static_cast<std::size_t>(i)];
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      outcome.kind = FaultKind::cancelled;
      return;
    }
    try {
      Scratch& scratch = thread_scratch();
      scratch.reader.watch(cancel);
      Sample sample(program, scratch);
      const Value value = column.values->read(picks.rows[i], scratch.file);
      std::optional<ValueSum> sum;
      open_value(column, value, sample, sum);
      sample.plan(picks.key(i, seed, epoch));
      std::vector<std::uint8_t*> outs(to.outs.size());
      for (std::size_t v = 0; v < outs.size(); ++v) outs[v] = to.outs[v] + to.strides[v] * picks.place(i);
      sample.run(outs.data(), true, stream);
      scratch.trim();
    } catch (const Fault& fault) {
      outcome = {fault.kind, fault.what()};
    } catch (const std::exception& error) {
      outcome = {FaultKind::damaged, error.what()};
    }
  };
  if (pool != nullptr)
    pool->run(std::make_shared<Job>(n, one));
  else
    for (std::int64_t i = 0; i < n; ++i) one(i);
  return outcomes;
}

std::vector<Outcome> gather(const Table& table, const Picks& picks, std::size_t item, bool verify, std::uint8_t* out) {
  const std::int64_t n = picks.n;
  std::vector<Outcome> outcomes(static_cast<std::size_t>(n));
  // Shuffled rows are in no cache. So many are located first, one not waiting for the other; then, while one is summed
  // and copied, the next is on its way.
  constexpr std::int64_t kBlock = 256;
  std::array<Value, kBlock> values;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const auto block = static_cast<std::size_t>(std::min(kBlock, n - begin));
    for (std::size_t k = 0; k < block; ++k) {
      const std::size_t i = static_cast<std::size_t>(begin) + k;
      values[k] = {};
      try {
        const Value value = table.at(picks.rows[i]);
        if (value.size != item) throw Fault(FaultKind::damaged, "a value of the wrong number of bytes");
        values[k] = value;
      } catch (const Fault& fault) {
        outcomes[i] = {fault.kind, fault.what()};
      }
    }
    prefetch(values[0]);
    for (std::size_t k = 0; k < block; ++k) {
      if (k + 1 < block) prefetch(values[k + 1]);
      const std::size_t i = static_cast<std::size_t>(begin) + k;
      if (outcomes[i].kind != FaultKind::none) continue;
      try {
        if (verify) ValueSum(values[k]).finish();
        if (item > 0) std::memcpy(out + picks.place(begin + static_cast<std::int64_t>(k)) * item, values[k].data, item);
      } catch (const Fault& fault) {
        outcomes[i] = {fault.kind, fault.what()};
      }
    }
  }
  return outcomes;
}

}  // namespace zcd
