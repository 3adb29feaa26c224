#pragma once

#include <cstdio>

#include <jpeglib.h>

#include "core/huffman.h"
#include "core/image.h"

namespace zcd {

// Stands in for libjpeg's Huffman decoder in one decompressor, one image after another. It knows which part of the
// image is wanted, and goes past all blocks outside it several symbols at a time, where libjpeg decodes them to throw
// them away. It takes sound baseline images without restarts only, and gives up on the first thing that is odd.
class HuffmanHook {
 public:
  using DecodeMcu = boolean (*)(j_decompress_ptr, JBLOCKROW*);

  // To be called after jpeg_start_decompress, before the first line. Blocks that don't meet `wanted` (pixels as stored;
  // may reach beyond the image) may be left zero. Makes libjpeg call `decode_mcu`, which must call this object's next().
  // False, and nothing is changed: this kind of image is left to libjpeg.
  bool attach(jpeg_decompress_struct& info, const Rect& wanted, DecodeMcu decode_mcu);
  // To be called before an image that attach() isn't called for.
  void detach() { attached_ = false; }

  // False: give up, and decode the image anew without this.
  bool next(JBLOCKROW* blocks) {
    const bool keep = blocks != nullptr && row_ >= top_ && row_ <= bottom_ && column_ >= left_ && column_ <= right_;
    if (++column_ == columns_) {
      column_ = 0;
      ++row_;
    }
    sound_ = keep ? scan_.read(blocks) : scan_.skip();
    return sound_;
  }
  // After the last line that is wanted. False as in next().
  bool finish() { return sound_ = !attached_ || scan_.finish(); }
  bool attached() const { return attached_; }
  bool gave_up() const { return attached_ && !sound_; }

 private:
  bool attached_ = false, sound_ = true;
  huffman::Lookups lookups_;
  huffman::Scan scan_;
  int row_ = 0, column_ = 0, columns_ = 0;           // in MCUs: the next one, and how many stand in a row
  int left_ = 0, top_ = 0, right_ = 0, bottom_ = 0;  // the first and last that are wanted
};

}  // namespace zcd
