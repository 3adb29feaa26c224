#include "core/batch.h"

#include <cstring>
#include <exception>
#include <optional>

namespace zcd {
namespace {

// A batch that is larger than this is not found in a core's own caches by the time somebody reads it. Written through
// them it would throw out the images that are read next, and each line would be fetched before it is overwritten.
constexpr std::size_t kStreamFrom = 4u << 20;

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

std::vector<Outcome> decode_batch(const ImageColumn& column, const Program& program, const std::int64_t* rows,
                                  std::int64_t n, std::uint64_t seed, std::uint64_t epoch, const Destination& to,
                                  const std::atomic<bool>* cancel, Pool* pool) {
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
      const Value value = column.values->read(rows[i], scratch.file);
      std::optional<ValueSum> sum;
      open_value(column, value, sample, sum);
      sample.plan({seed, epoch, static_cast<std::uint64_t>(rows[i])});
      std::vector<std::uint8_t*> outs(to.outs.size());
      for (std::size_t v = 0; v < outs.size(); ++v) outs[v] = to.outs[v] + to.strides[v] * static_cast<std::size_t>(i);
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

std::vector<Outcome> gather(const Table& table, const std::int64_t* rows, std::int64_t n, std::size_t item, bool verify,
                            std::uint8_t* out) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i, out += item) {
    try {
      const Value value = table.at(rows[i]);
      if (value.size != item) throw Fault(FaultKind::damaged, "a value of the wrong number of bytes");
      if (verify) ValueSum(value).finish();
      std::memcpy(out, value.data, item);
    } catch (const Fault& fault) {
      outcomes[static_cast<std::size_t>(i)] = {fault.kind, fault.what()};
    }
  }
  return outcomes;
}

}  // namespace zcd
