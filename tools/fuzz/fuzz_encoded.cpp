// Feeds hostile bytes to what collects encoded images for other decoders (core/encoded.h).
//
// The images are the input's body, pieces of it and nothing, behind offsets and checksums that may be wrong. Output,
// offsets and geometry are heap blocks of exactly the told size. What must hold is checked from outside: with a reader of
// our own, with a second call, and against the batch that the CPU decodes.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/batch.h"
#include "core/crc32c.h"
#include "core/encoded.h"
#include "hostile.h"

namespace zcd::fuzz {
namespace {

constexpr std::size_t kDecodedPixels = 1'000'000;  // a larger batch is not decoded beside: it costs seconds

// Values that have no memory of their own, as files have none: each is good until the next is read.
class Lent final : public Values {
 public:
  explicit Lent(const Values& values) : values_(values) {}
  Value read(std::int64_t row, Buffer& room) const override {
    Value value = values_.read(row, room);
    std::uint8_t* copy = room.reserve(value.size);
    if (value.size != 0) std::memcpy(copy, value.data, value.size);
    value.data = copy;
    value.readable_end = room.end();
    return value;
  }

 private:
  const Values& values_;
};

// One call, and what it wrote.
struct Call {
  Call(const ImageColumn& column, const Program& program, const std::vector<std::int64_t>& rows, std::uint64_t epoch,
       std::size_t capacity, std::uint8_t dirt, const std::atomic<bool>* cancel)
      : capacity(capacity),
        n(rows.size()),
        views(program.views.size()),
        block(capacity),
        offsets(new std::int64_t[n + 1]),
        geometry(new Geometry[n * views]) {
    if (capacity != 0) std::memset(block.data.get(), dirt, capacity);
    std::memset(offsets.get(), dirt, (n + 1) * sizeof(std::int64_t));
    std::memset(static_cast<void*>(geometry.get()), dirt, n * views * sizeof(Geometry));
    const EncodedBatch to{block.data.get(), capacity, offsets.get(), geometry.get()};
    needed = gather_encoded(column, program, {rows.data(), static_cast<std::int64_t>(n)}, 1, epoch, to, cancel, outcomes);
  }

  std::size_t begin(std::size_t i) const { return static_cast<std::size_t>(offsets[i]); }

  void require_same(const Call& other) const {
    require(needed == other.needed, "a second call needs another size");
    require(std::memcmp(offsets.get(), other.offsets.get(), (n + 1) * sizeof(std::int64_t)) == 0,
            "a second call gives other offsets");
    require(std::memcmp(geometry.get(), other.geometry.get(), n * views * sizeof(Geometry)) == 0,
            "a second call gives another geometry");
    for (std::size_t i = 0; i < n; ++i)
      require(outcomes[i].kind == other.outcomes[i].kind && outcomes[i].message == other.outcomes[i].message,
              "a second call ends a row differently");
  }

  std::size_t capacity, n, views;
  Block block;
  std::unique_ptr<std::int64_t[]> offsets;
  std::unique_ptr<Geometry[]> geometry;
  std::vector<Outcome> outcomes;
  std::size_t needed = 0;
};

void check_geometry(const Geometry& g, const View& view, const JpegHeader& header) {
  require(g.y >= 0 && g.x >= 0 && g.height >= 1 && g.width >= 1, "a cut without pixels");
  require(g.y <= header.stored_height - g.height && g.x <= header.stored_width - g.width, "a cut beyond the picture");
  require(g.resized_height >= 1 && g.resized_width >= 1, "a resize to nothing");
  require(g.top >= 0 && g.left >= 0, "a window before the resized cut");
  require(g.top <= g.resized_height - view.height && g.left <= g.resized_width - view.width,
          "a window beyond the resized cut");
  require(g.flip == 0 || g.flip == 1, "a flip that is neither yes nor no");
}

// Everything that one call of enough room must have left.
void check_whole(const Call& call, const ImageColumn& column, const Program& program,
                 const std::vector<std::int64_t>& rows) {
  static JpegReader reader;
  static Buffer room;
  require(call.outcomes.size() == call.n, "a row without an outcome");
  require(call.offsets[0] == 0 && call.begin(call.n) == call.needed, "offsets that do not end where the bytes do");
  const Geometry nothing[1] = {};
  for (std::size_t i = 0; i < call.n; ++i) {
    require(call.offsets[i] <= call.offsets[i + 1], "offsets that fall");
    const std::size_t size = call.begin(i + 1) - call.begin(i);
    const Geometry* geometry = call.geometry.get() + i * call.views;
    if (call.outcomes[i].kind != FaultKind::none) {
      require(size == 0, "a row with a fault takes bytes");
      require(!call.outcomes[i].message.empty(), "a fault without words");
      for (std::size_t v = 0; v < call.views; ++v)
        require(std::memcmp(geometry + v, nothing, sizeof(Geometry)) == 0, "a row with a fault has a geometry");
      continue;
    }
    const Value value = column.values->read(rows[i], room);  // a fault here is a finding
    require(size == value.size, "a row of another length than its value");
    require(std::memcmp(call.block.data.get() + call.begin(i), value.data, size) == 0, "a row of other bytes");
    if (column.verify && value.has_crc) require(crc32c(value.data, size) == value.crc, "a wrong checksum passed");
    const JpegHeader header = reader.open(value.data, size, program.orient, kLimit);
    require(header.orientation == 1, "a picture that has to be turned passed");
    for (std::size_t v = 0; v < call.views; ++v) check_geometry(geometry[v], program.views[v], header);
  }
}

// What the CPU refuses before it decodes is refused here in the same words; what passes here may only be found damaged.
void check_against_cpu(const Call& call, const ImageColumn& column, const Program& program,
                       const std::vector<std::int64_t>& rows, std::uint64_t epoch) {
  std::size_t pixels = 0;
  for (const View& view : program.views)
    pixels += static_cast<std::size_t>(view.width) * static_cast<std::size_t>(view.height) * call.n;
  if (pixels > kDecodedPixels) return;
  Destination to;
  std::vector<Block> outs;
  for (const View& view : program.views) {
    const std::size_t stride = view.format.bytes(view.width, view.height);
    outs.emplace_back(stride * call.n);
    to.outs.push_back(outs.back().data.get());
    to.strides.push_back(stride);
  }
  const auto decoded =
      decode_batch(column, program, {rows.data(), static_cast<std::int64_t>(call.n)}, 1, epoch, to, nullptr, nullptr);
  for (std::size_t i = 0; i < call.n; ++i) {
    const Outcome &here = call.outcomes[i], &there = decoded[i];
    if (here.kind == FaultKind::none)
      require(there.kind == FaultKind::none || there.kind == FaultKind::damaged,
              "the CPU refuses a sound header that passed");
    else if (here.kind != FaultKind::unsupported)
      require(here.kind == there.kind && here.message == there.message, "the CPU ends a refused row differently");
  }
}

}  // namespace

void fuzz_encoded(Choices& c, const Block& body) {
  // Pieces of the body, each of a table's values: mostly all of it, so that most are as sound as the body is.
  const std::size_t values = 1 + static_cast<std::size_t>(c.byte() % 4);
  std::vector<std::uint8_t> joined;
  std::vector<std::int64_t> offsets{0};
  for (std::size_t i = 0; i < values; ++i) {
    std::size_t from = 0, to = body.size;
    const int how = c.byte() % 8;
    if (how == 0) to = 0;
    if (how == 1) to = std::min(body.size, static_cast<std::size_t>(c.word()));
    if (how == 2) from = std::min(body.size, static_cast<std::size_t>(c.byte()));
    joined.insert(joined.end(), body.data.get() + from, body.data.get() + to);
    offsets.push_back(static_cast<std::int64_t>(joined.size()));
  }
  if (c.byte() % 8 == 0) offsets[static_cast<std::size_t>(c.byte()) % offsets.size()] += c.word() - 0x8000;
  const Block data(joined.data(), joined.size());
  const Block begins(reinterpret_cast<const std::uint8_t*>(offsets.data()), offsets.size() * sizeof(std::int64_t));
  Chunk chunk;
  chunk.rows = static_cast<std::int64_t>(values);
  chunk.data = data.data.get();
  chunk.size = data.size;
  chunk.offsets = begins.data.get();
  chunk.wide = true;
  std::vector<std::uint32_t> sums;
  if (c.flag()) {
    for (std::size_t i = 0; i < values; ++i) {
      sums.push_back(0);
      try {
        const Value value = chunk.at(static_cast<std::int64_t>(i));
        sums.back() = crc32c(value.data, value.size) ^ (c.byte() % 8 == 0 ? 1u : 0u);
      } catch (const Fault&) {
      }
    }
    chunk.crcs = sums.data();
  }
  Table table({0, chunk.rows});
  table.set(0, {chunk});
  const Lent lent(table);
  const ImageColumn column{c.flag() ? static_cast<const Values*>(&lent) : &table, 0, 0, c.flag()};

  std::vector<std::int64_t> rows;
  for (int i = c.byte() % 7; i > 0; --i) {
    const int row = c.byte();
    rows.push_back(row == 255 ? -1 : row % static_cast<int>(values + (row >= 250)));  // rarely one that is not there
  }
  const auto epoch = static_cast<std::uint64_t>(c.byte());
  const std::size_t capacity = static_cast<std::size_t>(c.flag() ? c.word() : c.byte());
  const bool cancelled = c.byte() % 32 == 0;
  Program program = choose_program(c);
  choose_sizes(program, c);

  // In memory of its own, which is gone afterwards: nothing may look at it later.
  const auto cancel = std::make_unique<std::atomic<bool>>(cancelled);
  const Call first(column, program, rows, epoch, capacity, 0x55, cancel.get());
  const Call second(column, program, rows, epoch, first.needed, 0xaa, cancel.get());
  first.require_same(second);
  if (first.needed > 0) first.require_same(Call(column, program, rows, epoch, first.needed - 1, 0x33, cancel.get()));
  check_whole(second, column, program, rows);
  if (first.needed <= capacity) {
    check_whole(first, column, program, rows);
    for (std::size_t i = first.needed; i < capacity; ++i)
      require(first.block.data[i] == 0x55, "bytes behind the last image were written");
  }
  if (cancelled)
    for (const Outcome& outcome : first.outcomes)
      require(outcome.kind == FaultKind::cancelled, "a row was made after the call was cancelled");
  else
    check_against_cpu(second, column, program, rows, epoch);
}

}  // namespace zcd::fuzz
