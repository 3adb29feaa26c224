// Feeds hostile bytes to everything of the core that reads what lies on disk.
//
// An input is 64 bytes that choose what is done (mode, operations, sizes, formats), then a body: mostly a JPEG. Every
// buffer that is handed in or written to is a heap block of exactly the size that the core was told, so that
// AddressSanitizer sees the first byte beyond. Beyond memory errors it checks what must hold whatever the bytes are:
// the same input gives the same pixels, whatever lay in the scratch memory before.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/batch.h"
#include "core/crc32c.h"
#include "core/exif.h"
#include "core/transcode.h"
#include "hostile.h"

namespace {

using namespace zcd;
using namespace zcd::fuzz;

constexpr std::size_t kResultLimit = 16 * 1024 * 1024;  // a larger result teaches nothing and costs seconds

using Results = std::vector<Block>;

// Makes the sample. Returns the reason when it does not.
std::string run(Sample& sample, const Program& program, const Key& key, std::uint8_t dirt, Results& results) {
  const Recipe& recipe = sample.plan(key);
  std::size_t total = 0;
  std::vector<std::uint8_t*> outs;
  for (std::size_t v = 0; v < recipe.size(); ++v) {
    const auto [w, h] = result_size(recipe[v]);
    require(w >= 1 && h >= 1, "a result without pixels");
    const std::size_t bytes = program.views[v].format.bytes(w, h);
    total += bytes;
    if (total > kResultLimit) return "too large for the fuzzer";
    results.emplace_back(bytes);
    outs.push_back(results.back().data.get());
    std::memset(outs.back(), dirt, bytes);
  }
  sample.run(outs.data(), false);
  return "";
}

Scratch& scratch() {
  static Scratch one;
  return one;
}

// Fills what the last image left, so that a byte of it that shows in a result is seen.
void soil(Scratch& s, std::uint8_t dirt) {
  for (Buffer* buffer : {&s.stored, &s.oriented, &s.stage[0], &s.stage[1], &s.line}) {
    std::uint8_t* base = buffer->reserve(1);
    std::memset(base, dirt, static_cast<std::size_t>(buffer->end() - base));
  }
}

template <typename Open>
void run_twice(const Program& program, const Key& key, Open&& open) {
  constexpr std::uint8_t kDirt[2] = {0x55, 0xaa};
  Results results[2];
  std::string faults[2];
  for (int i = 0; i < 2; ++i) {
    soil(scratch(), kDirt[i]);
    try {
      Sample sample(program, scratch());
      open(sample);
      faults[i] = run(sample, program, key, kDirt[i], results[i]);
    } catch (const Fault& fault) {
      faults[i] = fault.what();
    }
  }
  require(faults[0] == faults[1], "the same input ended differently the second time");
  if (!faults[0].empty()) return;
  for (std::size_t v = 0; v < results[0].size(); ++v)
    require(std::memcmp(results[0][v].data.get(), results[1][v].data.get(), results[0][v].size) == 0,
            "the same input gave other pixels the second time");
}

void fuzz_jpeg(Choices& c, const Block& body) {
  const Program program = choose_program(c);
  const Key key{1, 2, static_cast<std::uint64_t>(c.byte())};
  run_twice(program, key, [&](Sample& s) { s.open_jpeg(body.data.get(), body.size); });
}

void fuzz_pixels(Choices& c, const Block& body) {
  const Program program = choose_program(c);
  const int w = c.side(200), h = c.side(200), gap = c.flag() ? c.byte() : 0;
  const std::ptrdiff_t stride = std::ptrdiff_t{w} * kChannels + gap;
  const Block pixels = Block::repeated(body.data.get(), body.size,
                                       static_cast<std::size_t>(stride * (h - 1) + std::ptrdiff_t{w} * kChannels));
  run_twice(program, {1, 2, 3}, [&](Sample& s) { s.open_pixels({pixels.data.get(), w, h, stride, pixels.end()}); });
}

// A region must equal the same part of the whole, also of a file that libjpeg only warns of.
void fuzz_region(Choices& c, const Block& body) {
  static JpegReader reader;
  static Buffer stored, oriented;
  std::vector<std::uint8_t> whole;
  Rect region;
  const bool orient = c.flag();
  int width = 0, height = 0;
  try {
    const JpegHeader header = reader.open(body.data.get(), body.size, orient, kLimit);
    width = header.width();
    height = header.height();
    region.x = c.word() % width;
    region.y = c.word() % height;
    region.w = 1 + c.word() % (width - region.x);
    region.h = 1 + c.word() % (height - region.y);
    const Pixels p = reader.decode({0, 0, width, height}, stored, oriented);
    whole.resize(static_cast<std::size_t>(width) * height * kChannels);
    for (int y = 0; y < height; ++y)
      std::memcpy(whole.data() + std::ptrdiff_t{width} * kChannels * y, p.row(y), static_cast<std::size_t>(width) * kChannels);
  } catch (const Fault&) {
    return;  // the damage may lie outside the region
  }
  reader.open(body.data.get(), body.size, orient, kLimit);
  // A fault here is a finding: the whole could be decoded.
  const Pixels p = reader.decode(region, stored, oriented);
  for (int y = 0; y < region.h; ++y)
    require(std::memcmp(p.row(y), whole.data() + (std::ptrdiff_t{width} * (region.y + y) + region.x) * kChannels,
                        static_cast<std::size_t>(region.w) * kChannels) == 0,
            "a region differs from the same part of the whole");
}

// Our own Huffman decoder and libjpeg's must make the same of any bytes: pixels, or words.
void fuzz_huffman(Choices& c, const Block& body) {
  static JpegReader readers[2];
  static Buffer stored[2], oriented[2];
  readers[1].read_with(JpegReader::Huffman::libjpeg);
  const bool complete = c.byte() % 8 == 0, whole = c.byte() % 4 == 0;
  const int x = c.word(), y = c.word(), w = c.word(), h = c.word();
  std::string faults[2];
  Pixels pixels[2];
  for (int i = 0; i < 2; ++i) try {
      const JpegHeader header = readers[i].open(body.data.get(), body.size, true, kLimit);
      if (complete) {
        readers[i].check_complete(stored[i]);
        continue;
      }
      Rect region{0, 0, header.width(), header.height()};
      if (!whole) {
        region.x = x % header.width();
        region.y = y % header.height();
        region.w = 1 + w % (header.width() - region.x);
        region.h = 1 + h % (header.height() - region.y);
      }
      pixels[i] = readers[i].decode(region, stored[i], oriented[i]);
    } catch (const Fault& fault) {
      faults[i] = std::to_string(static_cast<int>(fault.kind)) + fault.what();
    }
  require(!readers[1].read_by_own(), "libjpeg was asked for, and our own decoder read");
  require(faults[0] == faults[1], "our own Huffman decoder ends with another fault than libjpeg's");
  if (complete || !faults[0].empty()) return;
  for (int row = 0; row < pixels[1].h; ++row)
    require(std::memcmp(pixels[0].row(row), pixels[1].row(row), static_cast<std::size_t>(pixels[1].w) * kChannels) == 0,
            "our own Huffman decoder makes other pixels than libjpeg's");
}

void fuzz_probe(Choices& c, const Block& body) {
  JpegReader& reader = scratch().reader;
  try {
    const JpegHeader header = reader.open(body.data.get(), body.size, true, kLimit);
    require(header.orientation >= 1 && header.orientation <= 8, "an orientation beyond 1 to 8");
    require(header.width() >= 1 && header.height() >= 1, "a header without pixels");
    if (c.flag()) reader.check_complete(scratch().line);
  } catch (const Fault&) {
  }
}

void fuzz_orientation(const Block& body) {
  // As a file, and as the inside of an Exif or XMP segment: the JPEG reader never has to like it.
  const int whole = jpeg_orientation(body.data.get(), body.size);
  require(whole >= 1 && whole <= 8, "an orientation beyond 1 to 8");
  for (const std::string& id : {std::string("Exif\0\0", 6), std::string("http://ns.adobe.com/xap/1.0/\0", 29)}) {
    const std::size_t n = std::min<std::size_t>(body.size, 60'000), length = n + id.size() + 2;
    std::vector<std::uint8_t> file{0xff, 0xd8, 0xff, 0xe1, static_cast<std::uint8_t>(length >> 8),
                                   static_cast<std::uint8_t>(length)};
    file.insert(file.end(), id.begin(), id.end());
    file.insert(file.end(), body.data.get(), body.data.get() + n);
    const Block exact(file.data(), file.size());
    const int orientation = jpeg_orientation(exact.data.get(), exact.size);
    require(orientation >= 1 && orientation <= 8, "an orientation beyond 1 to 8");
  }
}

void fuzz_transcode(Choices& c, const Block& body) {
  const int max_side = c.side(400), quality = 1 + c.byte() % 100;
  const bool orient = c.flag();
  Transcoded made;
  try {
    made = transcode(body.data.get(), body.size, max_side, quality, orient, kLimit);
  } catch (const Fault&) {
    return;
  }
  require(std::max(made.width, made.height) <= max_side, "transcode left a side longer than asked");
  const Block again(made.bytes->data(), made.bytes->size());
  const JpegHeader header = scratch().reader.open(again.data.get(), again.size, true, kLimit);  // a fault here is a finding
  require(header.width() == made.width && header.height() == made.height, "transcode wrote another size than it says");
  scratch().reader.check_complete(scratch().line);
}

std::uint32_t crc_by_bits(const std::uint8_t* p, std::size_t n) {
  std::uint32_t crc = ~0u;
  for (std::size_t i = 0; i < n; ++i) {
    crc ^= p[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
  }
  return ~crc;
}

void fuzz_crc(Choices& c, const Block& body) {
  const std::size_t size = static_cast<std::size_t>(c.word()) % 9000;  // three streams of 1024 bytes and what is left
  const Block bytes = Block::repeated(body.data.get(), body.size, size);
  const std::size_t skip = std::min<std::size_t>(size, static_cast<std::size_t>(c.byte() % 16));
  const std::uint8_t* p = bytes.data.get() + skip;
  const std::size_t n = size - skip, cut = n == 0 ? 0 : static_cast<std::size_t>(c.word()) % (n + 1);
  const std::uint32_t expected = crc_by_bits(p, n);
  require(crc32c(p, n) == expected, "CRC-32C differs from its definition");
  require(crc32c(p + cut, n - cut, crc32c(p, cut)) == expected, "CRC-32C in two pieces differs from one");
}

// A shard whose offsets, checksums and data all come from the input.
void fuzz_table(Choices& c, const Block& body) {
  Chunk chunk;
  chunk.wide = c.flag();
  const std::size_t width = chunk.wide ? 8 : 4;
  const bool by_offsets = c.flag(), summed = c.flag(), verify = c.flag();
  const std::size_t rows = static_cast<std::size_t>(c.byte() % 9);
  const std::size_t offsets_size = std::min(body.size, static_cast<std::size_t>(c.byte()));
  const Block offsets(body.data.get(), offsets_size);
  const Block sums = Block::repeated(body.data.get(), body.size, static_cast<std::size_t>(c.byte() % 40));
  Block data(body.data.get() + offsets_size, body.size - offsets_size);
  chunk.rows = static_cast<std::int64_t>(rows);
  chunk.data = data.data.get();
  chunk.size = data.size;
  if (by_offsets)
    chunk.offsets = offsets.data.get();
  else
    chunk.fixed = static_cast<std::size_t>(c.word() % 400);
  // Often offsets that make sense, or the search would seldom come beyond the check.
  if (by_offsets && c.flag() && rows > 0 && offsets_size >= (rows + 1) * width)
    for (std::size_t i = 0; i <= rows; ++i) {
      const std::int64_t at = static_cast<std::int64_t>(data.size / rows * i);
      const auto narrow = static_cast<std::int32_t>(at);
      std::memcpy(offsets.data.get() + i * width, chunk.wide ? static_cast<const void*>(&at) : &narrow, width);
    }
  if (summed) chunk.crcs = reinterpret_cast<const std::uint32_t*>(sums.data.get());
  try {
    chunk.check(by_offsets ? offsets.size : 0, summed ? sums.size : 0);
  } catch (const std::invalid_argument&) {
    return;
  }
  Table table({0, static_cast<std::int64_t>(rows)});
  table.set(0, {chunk});
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < rows; ++i) numbers.push_back(static_cast<std::int64_t>(i));
  const std::vector<std::int64_t> backwards(numbers.rbegin(), numbers.rend());
  const Picks picks{numbers.data(), static_cast<std::int64_t>(rows), backwards.data(), c.flag() ? backwards.data() : nullptr};

  const std::size_t item = static_cast<std::size_t>(c.word() % 400);
  const Block gathered(item * rows);
  try {
    gather(table, picks, item, verify, gathered.data.get());
  } catch (const Fault&) {
  }

  Program program = choose_program(c);
  ImageColumn column{&table, 0, 0, verify};
  if (c.flag()) column.raw_width = c.side(20), column.raw_height = c.side(20);
  Destination to;
  std::vector<Block> outs;
  choose_sizes(program, c);
  for (const View& view : program.views) {
    const std::size_t stride = view.format.bytes(view.width, view.height);
    outs.emplace_back(stride * rows);
    to.outs.push_back(outs.back().data.get());
    to.strides.push_back(stride);
  }
  const auto outcomes =
      decode_batch(column, program, picks, 1, 2, to, nullptr, nullptr);
  require(outcomes.size() == rows, "a row without an outcome");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kHead) return 0;
  Choices choices(data, kHead);
  const Block body(data + kHead, size - kHead);
  switch (choices.byte() % 14) {
    case 0:
      fuzz_probe(choices, body);
      break;
    case 1:
      fuzz_orientation(body);
      break;
    case 2:
      fuzz_crc(choices, body);
      break;
    case 3:
    case 4:
      fuzz_table(choices, body);
      break;
    case 5:
      fuzz_transcode(choices, body);
      break;
    case 6:
      fuzz_pixels(choices, body);
      break;
    case 7:
    case 8:
      fuzz_region(choices, body);
      break;
    case 12:
      fuzz_huffman(choices, body);
      break;
    case 13:
      fuzz_encoded(choices, body);
      break;
    default:
      fuzz_jpeg(choices, body);
  }
  return 0;
}
