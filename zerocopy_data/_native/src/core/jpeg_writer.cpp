#include <algorithm>
#include <cstdio>

#include <jpeglib.h>
#include <jerror.h>

#include "core/jpeg.h"
#include "core/jpeg_errors.h"

namespace zcd {

struct JpegWriter::Impl {
  jpeg_compress_struct info{};
  JpegErrors errors;
  jpeg_destination_mgr destination{};
  std::vector<std::uint8_t> bytes;

  static Impl& of(j_compress_ptr info) { return *static_cast<Impl*>(info->client_data); }
  static void begin(j_compress_ptr info) {
    Impl& i = of(info);
    i.destination.next_output_byte = i.bytes.data();
    i.destination.free_in_buffer = i.bytes.size();
  }
  // The buffer is sized so that real images never come here; noise at quality 100 may.
  static boolean grow(j_compress_ptr info) {
    Impl& i = of(info);
    const std::size_t used = i.bytes.size();
    try {
      i.bytes.resize(used * 2);
    } catch (...) {  // must not pass through C frames
      ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
    }
    i.destination.next_output_byte = i.bytes.data() + used;
    i.destination.free_in_buffer = i.bytes.size() - used;
    return TRUE;
  }
  static void finish(j_compress_ptr info) {
    Impl& i = of(info);
    i.bytes.resize(i.bytes.size() - i.destination.free_in_buffer);
  }
};

JpegWriter::JpegWriter() : impl_(std::make_unique<Impl>()) {
  auto& i = *impl_;
  i.info.err = i.errors.manager();
  i.errors.guard([&] { jpeg_create_compress(&i.info); });
  i.info.client_data = &i;
  i.destination.init_destination = Impl::begin;
  i.destination.empty_output_buffer = Impl::grow;
  i.destination.term_destination = Impl::finish;
  i.info.dest = &i.destination;
}

JpegWriter::~JpegWriter() { jpeg_destroy_compress(&impl_->info); }

const std::vector<std::uint8_t>& JpegWriter::encode(const Pixels& pixels, int quality) {
  auto& i = *impl_;
  if (pixels.w <= 0 || pixels.h <= 0 || pixels.w > JPEG_MAX_DIMENSION || pixels.h > JPEG_MAX_DIMENSION)
    throw Fault(FaultKind::damaged, "a JPEG has 1 to 65500 pixels a side");
  i.bytes.resize(std::max<std::size_t>(64 * 1024, static_cast<std::size_t>(pixels.w) * pixels.h));
  i.errors.guard([&] {
    jpeg_abort_compress(&i.info);
    i.info.image_width = static_cast<JDIMENSION>(pixels.w);
    i.info.image_height = static_cast<JDIMENSION>(pixels.h);
    i.info.input_components = kChannels;
    i.info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&i.info);
    jpeg_set_quality(&i.info, quality, TRUE);
    i.info.dct_method = JDCT_ISLOW;
    jpeg_start_compress(&i.info, TRUE);
    while (i.info.next_scanline < i.info.image_height) {
      auto* row = const_cast<JSAMPROW>(pixels.row(static_cast<int>(i.info.next_scanline)));
      jpeg_write_scanlines(&i.info, &row, 1);
    }
    jpeg_finish_compress(&i.info);
  });
  return i.bytes;
}

}  // namespace zcd
