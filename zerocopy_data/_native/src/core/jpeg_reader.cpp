#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <jpeglib.h>
#include <jerror.h>

#include "core/exif.h"
#include "core/huffman_hook.h"
#include "core/jpeg.h"
#include "core/jpeg_errors.h"

namespace zcd {
namespace {

// Real encoders write 10 to 20 scans for a progressive image. Each costs a pass over all coefficients, and costs a
// hostile file next to nothing.
constexpr int kMaxScans = 100;

// Chroma upsampling reads one sample beyond the region on every side; a chroma sample covers up to four pixels
// (4:1:1), so a margin of that many pixels makes a region equal to the same part of a full decode.
constexpr int kMargin = 4;

// Pillow's own reading of an orientation: which stored pixel stands at (x, y) of the upright image.
struct Turn {
  bool swap, flip_x, flip_y;  // first exchange the axes, then mirror within the stored image
};
constexpr Turn kTurns[9] = {{},
                            {false, false, false},
                            {false, true, false},
                            {false, true, true},
                            {false, false, true},
                            {true, false, false},
                            {true, false, true},
                            {true, true, true},
                            {true, true, false}};

Rect to_stored(const Rect& r, const JpegHeader& h) {
  const Turn t = kTurns[h.orientation];
  Rect s = t.swap ? Rect{r.y, r.x, r.h, r.w} : r;
  if (t.flip_x) s.x = h.stored_width - s.x - s.w;
  if (t.flip_y) s.y = h.stored_height - s.y - s.h;
  return s;
}

Pixels turn(const Pixels& in, int orientation, Buffer& out) {
  const Turn t = kTurns[orientation];
  const int w = t.swap ? in.h : in.w, h = t.swap ? in.w : in.h;
  const std::ptrdiff_t stride = std::ptrdiff_t{w} * kChannels;
  std::uint8_t* base = out.reserve(static_cast<std::size_t>(stride) * h);
  for (int y = 0; y < h; ++y) {
    std::uint8_t* to = base + stride * y;
    for (int x = 0; x < w; ++x, to += kChannels) {
      int sx = t.swap ? y : x, sy = t.swap ? x : y;
      if (t.flip_x) sx = in.w - 1 - sx;
      if (t.flip_y) sy = in.h - 1 - sy;
      const std::uint8_t* from = in.row(sy) + std::ptrdiff_t{sx} * kChannels;
      to[0] = from[0];
      to[1] = from[1];
      to[2] = from[2];
    }
  }
  return {base, w, h, stride, out.end()};
}

// A progressive image whose last scans are missing is smoothed across blocks, with neighbours that a crop would not see.
bool is_smoothed(const jpeg_decompress_struct& info) {
  if (info.coef_bits == nullptr) return false;  // not progressive
  for (int component = 0; component < info.num_components; ++component)
    for (int k = 0; k < DCTSIZE2; ++k)
      if (info.coef_bits[component][k] != 0) return true;
  return false;
}

bool same(const Pixels& a, const Pixels& b) {
  for (int y = 0; y < a.h; ++y)
    if (std::memcmp(a.row(y), b.row(y), static_cast<std::size_t>(a.w) * kChannels) != 0) return false;
  return a.w == b.w && a.h == b.h;
}

// Whether our own Huffman decoder works with the libjpeg of this process: it gets in by way of something private, so it
// is tried on a small image first.
bool try_own_huffman() {
  constexpr int kWidth = 83, kHeight = 61;
  std::vector<std::uint8_t> noise(std::size_t{kWidth} * kHeight * kChannels);
  std::uint32_t state = 1;
  for (std::size_t at = 0; at < noise.size(); ++at) {
    state = state * 1664525 + 1013904223;
    noise[at] = static_cast<std::uint8_t>((state >> 27) + at % 200);
  }
  try {
    JpegWriter writer;
    const std::uint8_t* end = noise.data() + noise.size();
    const auto& file = writer.encode({noise.data(), kWidth, kHeight, std::ptrdiff_t{kWidth} * kChannels, end}, 90);
    JpegReader own, theirs;
    own.read_with(JpegReader::Huffman::own_unproven);
    theirs.read_with(JpegReader::Huffman::libjpeg);
    Buffer pixels[2], turned;
    for (const Rect& region : {Rect{0, 0, kWidth, kHeight}, Rect{37, 41, 11, 9}}) {
      own.open(file.data(), file.size(), false, kPixelLimit);
      theirs.open(file.data(), file.size(), false, kPixelLimit);
      const Pixels a = own.decode(region, pixels[0], turned), b = theirs.decode(region, pixels[1], turned);
      if (!own.read_by_own() || !same(a, b)) return false;
    }
    return true;
  } catch (const Fault&) {
    return false;
  }
}

bool own_huffman_works() {
  static const bool works = try_own_huffman();
  return works;
}

}  // namespace

struct JpegReader::Impl {
  jpeg_decompress_struct info{};
  JpegErrors errors;
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  const std::atomic<bool>* cancel = nullptr;
  bool cancelled = false, too_many_scans = false;
  long header_warnings = 0;
  bool may_end = false;  // the file's end is no error any more
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
  HuffmanHook hook;
  Huffman whose = Huffman::own;
  bool hook_allowed = false;

  // Reads the header of `data` from its beginning; sets what is decoded and how. A new object for every image, which
  // costs microseconds: jpeg_abort keeps the Huffman and quantisation tables, and an image that brings none of its own
  // (as MJPEG frames do) would be decoded with those of the image before it.
  void read_header() {
    source.next_input_byte = data;
    source.bytes_in_buffer = size;
    may_end = false;
    errors.guard([&] {
      jpeg_destroy_decompress(&info);
      jpeg_create_decompress(&info);
      info.src = &source;
      info.progress = &progress;
      info.client_data = this;
      jpeg_read_header(&info, TRUE);
    });
    header_warnings = errors.base.num_warnings;
    info.out_color_space = JCS_RGB;
    info.dct_method = JDCT_ISLOW;
    info.do_fancy_upsampling = TRUE;
  }

  // Begins decoding: of a progressive image all scans are read here.
  void start();

  // Decodes a rectangle of the stored image.
  Pixels decode(const Rect& rect, Buffer& out);

  // Runs `decode` on the opened image, and once more with libjpeg alone if our own Huffman decoder gives up: what is
  // made of a damaged image, and said of it, is libjpeg's.
  template <typename Decode>
  auto decode_somehow(Decode&& decode) {
    hook_allowed = whose == Huffman::own_unproven || (whose == Huffman::own && own_huffman_works());
    hook.detach();
    try {
      return decode();
    } catch (const Fault&) {
      if (!hook.gave_up()) throw;
    }
    read_header();
    hook.detach();
    hook_allowed = false;
    return decode();
  }
  void attach_hook(const Rect& wanted) {
    if (hook_allowed) hook.attach(info, wanted, own_mcu);
  }
  // After the last line that is wanted.
  void finish() {
    if (errors.base.num_warnings > header_warnings) read_rest();
    if (!hook.finish()) ERREXIT(&info, JERR_INPUT_EOF);
    jpeg_abort_decompress(&info);
  }
  // Libjpeg has warned while it decoded: what came out may be mere filling. Pillow refuses such an image when something
  // is wrong with the rest of the file, too, so that is gone through. Like Pillow, it lets the file end there.
  void read_rest() {
    const JSAMPARRAY rows = info.mem->alloc_sarray(reinterpret_cast<j_common_ptr>(&info), JPOOL_IMAGE,
                                                   info.output_width * kChannels, 1);
    while (info.output_scanline < info.output_height) jpeg_read_scanlines(&info, rows, 1);
    may_end = true;
    jpeg_finish_decompress(&info);
  }
  static boolean own_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
    // With whatever error: nobody hears of it.
    if (!static_cast<Impl*>(info->client_data)->hook.next(blocks)) ERREXIT(info, JERR_INPUT_EOF);
    return TRUE;
  }

  static void no_op(j_decompress_ptr) {}
  static boolean out_of_data(j_decompress_ptr info) {
    if (!static_cast<Impl*>(info->client_data)->may_end) ERREXIT(info, JERR_INPUT_EOF);
    return FALSE;
  }
  static void skip(j_decompress_ptr info, long count) {
    if (count <= 0) return;
    const std::size_t left = info->src->bytes_in_buffer;
    if (static_cast<std::size_t>(count) > left && !static_cast<Impl*>(info->client_data)->may_end)
      ERREXIT(info, JERR_INPUT_EOF);
    const std::size_t skipped = std::min(static_cast<std::size_t>(count), left);
    info->src->next_input_byte += skipped;
    info->src->bytes_in_buffer -= skipped;
  }
  static void watch_scans(j_common_ptr common) {
    auto* info = reinterpret_cast<j_decompress_ptr>(common);
    auto* impl = static_cast<Impl*>(info->client_data);
    impl->cancelled = impl->cancel != nullptr && impl->cancel->load(std::memory_order_relaxed);
    impl->too_many_scans = info->input_scan_number > kMaxScans;
    if (impl->cancelled || impl->too_many_scans) ERREXIT(info, JERR_BAD_PROGRESSION);
  }
};

JpegReader::JpegReader() : impl_(std::make_unique<Impl>()) {
  auto& i = *impl_;
  i.info.err = i.errors.manager();
  i.source.init_source = Impl::no_op;
  i.source.fill_input_buffer = Impl::out_of_data;
  i.source.skip_input_data = Impl::skip;
  i.source.resync_to_restart = jpeg_resync_to_restart;
  i.source.term_source = Impl::no_op;
  i.progress.progress_monitor = Impl::watch_scans;
}

JpegReader::~JpegReader() { jpeg_destroy_decompress(&impl_->info); }

JpegHeader JpegReader::open(const std::uint8_t* data, std::size_t size, bool orient, std::int64_t pixel_limit) {
  auto& i = *impl_;
  if (size == 0) throw Fault(FaultKind::damaged, "empty: zero bytes");
  if (size < 3 || data[0] != 0xff || data[1] != 0xd8 || data[2] != 0xff)
    throw Fault(FaultKind::unsupported, "not a JPEG");
  i.data = data;
  i.size = size;
  i.read_header();
  header_ = {};
  header_.stored_width = static_cast<int>(i.info.image_width);
  header_.stored_height = static_cast<int>(i.info.image_height);
  header_.components = i.info.num_components;
  header_.progressive = i.info.progressive_mode != 0;
  header_.usual = i.info.jpeg_color_space != JCS_RGB && i.info.arith_code == FALSE && i.info.data_precision == 8;
  const std::int64_t pixels = std::int64_t{header_.stored_width} * header_.stored_height;
  if (pixels > pixel_limit)
    throw Fault(FaultKind::damaged, "header claims " + std::to_string(header_.stored_width) + "x" +
                                        std::to_string(header_.stored_height) + " pixels, more than the limit of " +
                                        std::to_string(pixel_limit) + " (a decompression bomb?)");
  switch (i.info.jpeg_color_space) {
    case JCS_GRAYSCALE:
    case JCS_YCbCr:
    case JCS_RGB:
      break;
    default:
      throw Fault(FaultKind::unsupported, "JPEG with " + std::to_string(header_.components) +
                                              " components (CMYK or other) is not for libjpeg-turbo's RGB output");
  }
  header_.orientation = orient ? jpeg_orientation(data, size) : 1;
  return header_;
}

void JpegReader::watch(const std::atomic<bool>* cancel) { impl_->cancel = cancel; }

void JpegReader::Impl::start() {
  cancelled = too_many_scans = false;
  try {
    errors.guard([&] { jpeg_start_decompress(&info); });
  } catch (const Fault&) {
    if (cancelled) throw Fault(FaultKind::cancelled, "cancelled");
    if (too_many_scans)
      throw Fault(FaultKind::damaged, "more than " + std::to_string(kMaxScans) + " scans: made to keep decoders busy");
    throw;
  }
}

void JpegReader::read_with(Huffman whose) { impl_->whose = whose; }

bool JpegReader::read_by_own() const { return impl_->hook.attached(); }

Pixels JpegReader::decode_stored(const Rect& rect, Buffer& out) {
  return impl_->decode_somehow([&] { return impl_->decode(rect, out); });
}

Pixels JpegReader::Impl::decode(const Rect& rect, Buffer& out) {
  const int width = static_cast<int>(info.image_width);
  const int x0 = std::max(0, rect.x - kMargin), x1 = std::min(width, rect.x + rect.w + kMargin);
  JDIMENSION first = 0, columns = static_cast<JDIMENSION>(width);
  start();
  errors.guard([&] {
    if ((x0 == 0 && x1 == width) || is_smoothed(info)) return;
    first = static_cast<JDIMENSION>(x0);
    columns = static_cast<JDIMENSION>(x1 - x0);
    jpeg_crop_scanline(&info, &first, &columns);  // widens both to whole blocks
  });
  // Lines above the margin are skipped, and so are those that libjpeg decodes on their way to it.
  attach_hook({x0, rect.y - kMargin, x1 - x0, rect.h + 2 * kMargin});
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(columns) * kChannels;
  std::uint8_t* base = out.reserve(static_cast<std::size_t>(stride) * static_cast<std::size_t>(rect.h));
  const auto begin = static_cast<JDIMENSION>(rect.y), end = static_cast<JDIMENSION>(rect.y + rect.h);
  errors.guard([&] {
    if (rect.y > kMargin) jpeg_skip_scanlines(&info, begin - kMargin);
    while (info.output_scanline < begin) {  // the margin above is decoded into the first row and overwritten
      JSAMPROW row = base;
      jpeg_read_scanlines(&info, &row, 1);
    }
    while (info.output_scanline < end) {
      JSAMPROW rows[4];
      const JDIMENSION at = info.output_scanline, count = std::min<JDIMENSION>(4, end - at);
      for (JDIMENSION r = 0; r < count; ++r) rows[r] = base + stride * static_cast<std::ptrdiff_t>(at - begin + r);
      jpeg_read_scanlines(&info, rows, count);
    }
    finish();
  });
  return {base + std::ptrdiff_t{rect.x - static_cast<int>(first)} * kChannels, rect.w, rect.h, stride, out.end()};
}

Pixels JpegReader::decode(const Rect& rect, Buffer& stored, Buffer& oriented) {
  if (rect.x < 0 || rect.y < 0 || rect.w <= 0 || rect.h <= 0 || rect.x > header_.width() - rect.w ||
      rect.y > header_.height() - rect.h)
    throw Fault(FaultKind::damaged, "region outside the image");
  if (header_.orientation == 1) return decode_stored(rect, stored);
  return turn(decode_stored(to_stored(rect, header_), stored), header_.orientation, oriented);
}

void JpegReader::check_complete(Buffer& row) {
  auto& i = *impl_;
  std::uint8_t* base = row.reserve(static_cast<std::size_t>(header_.stored_width) * kChannels);
  i.decode_somehow([&] {
    i.start();
    i.attach_hook({});
    i.errors.guard([&] {
      while (i.info.output_scanline < i.info.output_height) {
        JSAMPROW to = base;
        jpeg_read_scanlines(&i.info, &to, 1);
      }
      i.finish();
    });
  });
}

std::string jpeg_library() {
#if defined(LIBJPEG_TURBO_VERSION)
#define ZCD_TEXT_(x) #x
#define ZCD_TEXT(x) ZCD_TEXT_(x)
  return "libjpeg-turbo " ZCD_TEXT(LIBJPEG_TURBO_VERSION);
#else
#error "libjpeg-turbo is needed: jpeg_crop_scanline and jpeg_skip_scanlines are its own"
#endif
}

}  // namespace zcd
