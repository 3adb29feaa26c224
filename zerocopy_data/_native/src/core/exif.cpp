#include "core/exif.h"

#include <cstring>
#include <string_view>

namespace zcd {
namespace {

struct Tiff {
  const std::uint8_t* p;
  std::size_t n;
  bool big;

  bool u16(std::size_t at, unsigned& v) const {
    if (at > n || n - at < 2) return false;
    v = big ? (p[at] << 8 | p[at + 1]) : (p[at + 1] << 8 | p[at]);
    return true;
  }
  bool u32(std::size_t at, std::uint32_t& v) const {
    unsigned a, b;
    if (!u16(at, a) || !u16(at + 2, b)) return false;
    v = big ? (std::uint32_t{a} << 16 | b) : (std::uint32_t{b} << 16 | a);
    return true;
  }
};

constexpr unsigned kOrientationTag = 0x0112;

constexpr int kAbsent = -1;
constexpr int kNonsense = 0;  // there, and means nothing: it still hides one in XMP

int from_exif(const std::uint8_t* p, std::size_t n) {
  if (n < 8) return kAbsent;
  Tiff t{p, n, false};
  if (p[0] == 'M' && p[1] == 'M')
    t.big = true;
  else if (p[0] != 'I' || p[1] != 'I')
    return kAbsent;
  std::uint32_t ifd;
  unsigned count;
  if (!t.u32(4, ifd) || !t.u16(ifd, count)) return kAbsent;
  for (unsigned i = 0; i < count; ++i) {
    const std::size_t entry = std::size_t{ifd} + 2 + 12u * i;
    unsigned tag, type;
    if (!t.u16(entry, tag) || !t.u16(entry + 2, type)) return kAbsent;
    if (tag != kOrientationTag) continue;
    unsigned value = 0;
    std::uint32_t wide = 0;
    if (type == 3 && t.u16(entry + 8, value)) return static_cast<int>(value);
    if (type == 4 && t.u32(entry + 8, wide)) return wide <= 8 ? static_cast<int>(wide) : kNonsense;
    return kNonsense;
  }
  return kAbsent;
}

// Pillow's search for tiff:Orientation(="|>)([0-9]).
int from_xmp(std::string_view xmp) {
  constexpr std::string_view name = "tiff:Orientation";
  for (auto at = xmp.find(name); at != std::string_view::npos; at = xmp.find(name, at + 1)) {
    std::string_view rest = xmp.substr(at + name.size());
    if (rest.starts_with("=\""))
      rest.remove_prefix(2);
    else if (rest.starts_with(">"))
      rest.remove_prefix(1);
    else
      continue;
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return kAbsent;
}

}  // namespace

int jpeg_orientation(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view exif_id("Exif\0\0", 6);
  constexpr std::string_view xmp_id("http://ns.adobe.com/xap/1.0/\0", 29);
  int exif = kAbsent, xmp = kAbsent;
  std::size_t at = 2;
  while (at + 4 <= size) {
    if (data[at] != 0xff) break;
    const unsigned marker = data[at + 1];
    if (marker == 0xff) {  // fill byte
      ++at;
      continue;
    }
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) {  // markers that stand alone
      at += 2;
      continue;
    }
    if (marker == 0xda || marker == 0xd9) break;
    const std::size_t length = std::size_t{data[at + 2]} << 8 | data[at + 3];
    if (length < 2 || length > size - at - 2) break;
    if (marker == 0xe1) {
      const std::string_view body(reinterpret_cast<const char*>(data + at + 4), length - 2);
      if (exif == kAbsent && body.starts_with(exif_id))
        exif = from_exif(data + at + 4 + exif_id.size(), body.size() - exif_id.size());
      else if (xmp == kAbsent && body.starts_with(xmp_id))
        xmp = from_xmp(body.substr(xmp_id.size()));
    }
    at += 2 + length;
  }
  const int value = exif != kAbsent ? exif : xmp;
  return value >= 1 && value <= 8 ? value : 1;
}

}  // namespace zcd
