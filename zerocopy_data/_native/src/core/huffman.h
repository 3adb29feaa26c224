#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace zcd::huffman {

// A code as a JPEG's DHT segment gives it: how many codes there are of each length 1 to 16, and their symbols in order.
struct Code {
  std::array<std::uint8_t, 17> counts{};  // [0] is not used
  std::array<std::uint8_t, 256> symbols{};
  bool operator==(const Code&) const = default;
};

// Look-ups for one code. A symbol says how many coefficients of zero to leave out (high half) and how many bits long
// the number is that follows it (low half).
struct Lookup {
  // A step to kEnd or beyond is the end of the block.
  static constexpr int kEnd = 128;
  static constexpr int kReadBits = 9;   // longer codes are rare and are searched for
  static constexpr int kSkipBits = 11;  // 12 find more at once, but take twice as long to build: no gain

  // False: not a prefix code, and the object is of no use.
  bool build(const Code& from);
  // Makes `passes`, once.
  void build_passes();
  // The entry, as in `singles`, of the code that begins with the highest of `bits`. Zero: none does.
  std::uint32_t find_long(std::uint64_t bits) const;

  // By the next kReadBits bits, the symbol that begins there; zero where its code is longer.
  //   bits 0-7 length of the code and the number, 8-15 63 less the number's length, 16-23 length of the code,
  //   24-31 step within the block.
  std::array<std::uint32_t, 1 << kReadBits> singles;
  // By the next r bits at [(1 << r) + bits], for each r up to kSkipBits: what all symbols that lie whole in them take
  // together; the end of a block is always the last. With kSkipBits the first symbol's number may go on beyond. Zero
  // where not even one fits.
  //   bits 0-7 length, 8-15 step.
  std::array<std::uint16_t, 2 << kSkipBits> passes;

 private:
  void build_passes_of(int bits);

  Code code_;
  bool has_passes_ = false;
  // Of each length: what the next 16 bits are less than where the code is no longer than that, and how far it is from a
  // code to its symbol's index.
  std::array<std::uint32_t, 17> limit_;
  std::array<std::int32_t, 17> offset_;
};

// The look-ups made last, for images that share their codes.
class Lookups {
 public:
  // Null: not a prefix code. Stays valid for the kKept - 1 calls that follow.
  Lookup* find(const Code& code);
  static constexpr std::size_t kKept = 12;

 private:
  struct Entry {
    Code code;
    std::unique_ptr<Lookup> lookup;
  };
  std::vector<Entry> entries_;  // the last used first
};

// Reads the blocks of one scan in which a Huffman code precedes each number (baseline JPEG, without restarts).
class Scan {
 public:
  static constexpr int kMostBlocks = 10;  // in an MCU
  static constexpr int kMostComponents = 4;

  // The scan's data begins at `data`. Bytes at `end` and beyond are never read.
  void begin(const std::uint8_t* data, const std::uint8_t* end);
  // Says what the next block of every MCU is. `ac` must have passes if skip() is to be called. The look-ups stay the
  // caller's.
  void add_block(int component, const Lookup* dc, const Lookup* ac);

  // Reads an MCU into blocks that hold zeros, in natural order. False when the data isn't as it should be in any way:
  // damaged, at its end, or merely odd. The scan is of no use from then on.
  bool read(std::int16_t (*const* blocks)[64]);
  // Goes past an MCU; false as above.
  bool skip();
  // To be asked at the end: false when a reader that looks up to 64 bits ahead would have met the end of the bytes.
  bool finish();

 private:
  template <bool kKeep>
  inline bool next(std::int16_t (*const* blocks)[64]);
  template <bool kKeep>
  bool next_bmi2(std::int16_t (*const* blocks)[64]);

  struct Block {
    const Lookup* dc;
    const Lookup* ac;
    std::size_t component;
  };
  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  std::uint64_t bits_ = 0;
  int have_ = 0;
  std::size_t count_ = 0;
  std::array<Block, kMostBlocks> blocks_{};
  std::array<int, kMostComponents> dc_{};  // the last value of each component
};

}  // namespace zcd::huffman
