#include "core/huffman.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#define ZCD_INLINE inline __attribute__((always_inline))

namespace zcd::huffman {
namespace {

// Where the k-th coefficient of the file stands in a block (ITU T.81, figure A.6).
constexpr std::uint8_t kNatural[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                       12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                       35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                       58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

std::uint32_t entry_of(int symbol, int length) {
  const int run = symbol >> 4, size = symbol & 15;
  const int step = size == 0 && run != 15 ? Lookup::kEnd : run + 1;
  return static_cast<std::uint32_t>((length + size) | (63 - size) << 8 | length << 16 | step << 24);
}
ZCD_INLINE std::uint32_t length_of(std::uint32_t entry) { return entry & 63; }
ZCD_INLINE int step_of(std::uint32_t entry) { return static_cast<int>(entry >> 24); }

// The state of a scan while an MCU is read: in registers, so its address must not be taken on the usual way.
struct Bits {
  const std::uint8_t* at;
  const std::uint8_t* end;
  std::uint64_t bits;  // the next one is the highest
  int have;            // below zero once more were taken than there are before a marker

  // To 56 bits or more, or to the next marker. Wants have < 64.
  ZCD_INLINE bool fill() {
    if (end - at >= 8) [[likely]] {
      std::uint64_t next;
      std::memcpy(&next, at, 8);
      if constexpr (std::endian::native == std::endian::little) next = __builtin_bswap64(next);
      const std::uint64_t inverted = ~next;  // 0xff becomes a byte of zero
      if (((inverted - 0x0101010101010101u) & next & 0x8080808080808080u) == 0) [[likely]] {
        bits |= next >> have;  // and those that don't count yet: they come again
        at += (63 - have) >> 3;
        have |= 56;
        return true;
      }
    }
    Bits copy = *this;
    const bool fine = copy.fill_by_bytes(56);
    *this = copy;
    return fine;
  }
  // The same to `least` bits (at most 57), up to the last byte and past stuffed zeros. False at the end of the bytes,
  // and when bits were taken that a marker stands in place of.
  __attribute__((noinline)) bool fill_by_bytes(int least) {
    while (have < least) {
      if (end - at < 2) return false;
      const bool stuffed = at[0] == 0xff;
      if (stuffed && at[1] != 0) return have >= 0 && at[1] != 0xff;
      bits |= static_cast<std::uint64_t>(at[0]) << (56 - have);
      at += stuffed ? 2 : 1;
      have += 8;
    }
    return true;
  }
  ZCD_INLINE void take(std::uint32_t count) {
    bits <<= count;
    have -= static_cast<int>(count);
  }
};

// The number behind a code that `bits` begin with. Where its first bit is zero it is negative, and the bits are those
// of its absolute value inverted.
ZCD_INLINE int number(std::uint64_t bits, std::uint32_t entry) {
  const std::uint64_t rest = bits << (entry >> 16 & 63);
  const std::int64_t sign = ~static_cast<std::int64_t>(rest) >> 63;
  const std::uint64_t absolute = (rest ^ static_cast<std::uint64_t>(sign)) >> 1 >> (entry >> 8 & 63);
  return static_cast<int>((static_cast<std::int64_t>(absolute) ^ sign) - sign);
}

// The next symbol's entry; zero when something is wrong. Wants 24 bits: only a long code can have more behind it, to
// 31, and fills up for itself.
ZCD_INLINE std::uint32_t find(Bits& b, const Lookup& lookup) {
  const std::uint32_t entry = lookup.singles[b.bits >> (64 - Lookup::kReadBits)];
  if (entry != 0) [[likely]] return entry;
  return b.fill() ? lookup.find_long(b.bits) : 0;
}

enum class Step { more, done, bad };

// One symbol, of which the number goes to its place. `k` is the place of the next coefficient.
ZCD_INLINE Step read_one(Bits& b, const Lookup& lookup, std::int16_t* block, int& k) {
  const std::uint32_t entry = find(b, lookup);
  if (entry == 0) [[unlikely]] return Step::bad;
  const int value = number(b.bits, entry);
  b.take(length_of(entry));
  k += step_of(entry);
  if (k > 64) return k >= Lookup::kEnd ? Step::done : Step::bad;
  block[kNatural[k - 1]] = static_cast<std::int16_t>(value);  // a run without a number writes the zero that is there
  return k < 64 ? Step::more : Step::done;
}

// As many symbols as one look-up knows.
ZCD_INLINE Step skip_some(Bits& b, const Lookup& lookup, int& k) {
  constexpr int kBits = Lookup::kSkipBits;
  const std::uint32_t pass = lookup.passes[(std::size_t{1} << kBits) + (b.bits >> (64 - kBits))];
  const int step = static_cast<int>(pass >> 8), next = k + step;
  // The step itself says whether an end is in it: of a code that is all long runs, `next` can reach kEnd without.
  if (pass == 0 || (next > 64 && (step < Lookup::kEnd || next >= Lookup::kEnd + 64))) [[unlikely]] {
    // A long code, or the block is full before the last of these symbols.
    const std::uint32_t entry = find(b, lookup);
    if (entry == 0) return Step::bad;
    b.take(length_of(entry));
    k += step_of(entry);
    if (k > 64) return k >= Lookup::kEnd ? Step::done : Step::bad;
  } else {
    b.take(pass & 63);
    k = next;
  }
  return k < 64 ? Step::more : Step::done;
}

// All of a block behind its first coefficient, for which 24 bits are there. Two steps take at most 2 · 24 of the 56
// bits that were filled in, so it is done for every other one.
template <bool kKeep>
ZCD_INLINE bool rest_of_block(Bits& b, const Lookup& lookup, std::int16_t* block) {
  int k = 1;
  const auto step = [&]() __attribute__((always_inline)) {
    if constexpr (kKeep)
      return read_one(b, lookup, block, k);
    else
      return skip_some(b, lookup, k);
  };
  while (true) {
    if (const Step s = step(); s != Step::more) return s == Step::done;
    if (!b.fill()) return false;
    if (const Step s = step(); s != Step::more) return s == Step::done;
  }
}

}  // namespace

bool Lookup::build(const Code& from) {
  code_ = from;
  has_passes_ = false;
  singles.fill(0);
  passes.fill(0);
  std::uint32_t next = 0;  // the next code, as the first of 16 bits
  int index = 0;
  for (int length = 1; length <= 16; ++length) {
    const std::uint32_t unit = 1u << (16 - length);
    offset_[static_cast<std::size_t>(length)] = index - static_cast<int>(next / unit);
    for (int i = 0; i < code_.counts[static_cast<std::size_t>(length)]; ++i, ++index, next += unit) {
      if (index >= 256 || next + unit > 1u << 16) return false;
      if (length > kReadBits) continue;
      const std::uint32_t entry = entry_of(code_.symbols[static_cast<std::size_t>(index)], length);
      std::fill_n(singles.begin() + (next >> (16 - kReadBits)), std::size_t{1} << (kReadBits - length), entry);
    }
    limit_[static_cast<std::size_t>(length)] = next;
  }
  return true;
}

std::uint32_t Lookup::find_long(std::uint64_t bits) const {
  const auto next = static_cast<std::uint32_t>(bits >> 48);
  for (std::size_t length = kReadBits + 1; length <= 16; ++length)
    if (next < limit_[length]) {
      const int index = static_cast<int>(next >> (16 - length)) + offset_[length];
      return entry_of(code_.symbols[static_cast<std::size_t>(index)], static_cast<int>(length));
    }
  return 0;
}

void Lookup::build_passes() {
  if (std::exchange(has_passes_, true)) return;
  // With 16 coefficients a bit the steps of one look-up would not fit its byte. No encoder makes such a code.
  if (code_.counts[1] != 0 && code_.symbols[0] == 0xf0) return;
  for (int bits = 1; bits <= kSkipBits; ++bits) build_passes_of(bits);
}

// Behind a symbol comes what the rest of the bits hold, and those are known: fewer bits come first.
void Lookup::build_passes_of(int bits) {
  std::uint16_t* out = passes.data() + (std::size_t{1} << bits);
  const std::uint8_t* symbol = code_.symbols.data();
  for (int length = 1; length <= std::min(bits, kReadBits); ++length)
    for (int i = 0; i < code_.counts[static_cast<std::size_t>(length)]; ++i) {
      const std::uint32_t entry = entry_of(*symbol++, length);
      const int left = bits - static_cast<int>(length_of(entry));
      const std::size_t windows = std::size_t{1} << (bits - length);
      const auto own = static_cast<std::uint16_t>(length_of(entry) | static_cast<std::uint32_t>(step_of(entry)) << 8);
      if (left < 0 || step_of(entry) == kEnd) {
        if (left >= 0 || bits == kSkipBits) std::fill_n(out, windows, own);
      } else {
        const std::size_t rests = std::size_t{1} << left;
        const std::uint16_t* rest = passes.data() + rests;
        for (std::size_t w = 0; w < windows; w += rests)
          for (std::size_t r = 0; r < rests; ++r) out[w + r] = static_cast<std::uint16_t>(own + rest[r]);
      }
      out += windows;
    }
}

Lookup* Lookups::find(const Code& code) {
  auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.code == code; });
  if (found == entries_.end()) {
    if (entries_.size() < kKept) entries_.push_back({{}, std::make_unique<Lookup>()});
    found = entries_.end() - 1;
    found->code = {};  // which says nothing, should this one be no good
    if (!found->lookup->build(code)) return nullptr;
    found->code = code;
  }
  std::rotate(entries_.begin(), found, found + 1);
  return entries_.front().lookup.get();
}

void Scan::begin(const std::uint8_t* data, const std::uint8_t* end) {
  at_ = data;
  end_ = end;
  bits_ = 0;
  have_ = 0;
  count_ = 0;
  dc_ = {};
}

void Scan::add_block(int component, const Lookup* dc, const Lookup* ac) {
  blocks_[count_++] = {dc, ac, static_cast<std::size_t>(component)};
}

// Shifts of BMI2 were tried here and gained nothing.
template <bool kKeep>
bool Scan::next(std::int16_t (*const* blocks)[64]) {
  Bits b{at_, end_, bits_, have_};
  for (std::size_t i = 0; i < count_; ++i) {
    const Block& block = blocks_[i];
    if (!b.fill()) return false;
    const std::uint32_t entry = find(b, *block.dc);
    if (entry == 0) return false;
    int& dc = dc_[block.component];
    dc += number(b.bits, entry);
    b.take(length_of(entry));
    const auto value = static_cast<std::int16_t>(dc);
    if (dc != value) return false;
    if constexpr (kKeep) blocks[i][0][0] = value;
    if (!rest_of_block<kKeep>(b, *block.ac, kKeep ? blocks[i][0] : nullptr)) return false;
  }
  at_ = b.at;
  bits_ = b.bits;
  have_ = b.have;
  return true;
}

bool Scan::read(std::int16_t (*const* blocks)[64]) { return next<true>(blocks); }
bool Scan::skip() { return next<false>(nullptr); }

bool Scan::finish() {
  Bits b{at_, end_, bits_, have_};
  return b.fill_by_bytes(57);
}

}  // namespace zcd::huffman
