#include "core/huffman_hook.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace zcd {
namespace {

// How libjpeg's entropy decoders begin, in every version so far. It is no part of the public interface, so
// JpegReader tries it before anything depends on it.
struct EntropyDecoder {
  void (*start_pass)(j_decompress_ptr);
  HuffmanHook::DecodeMcu decode_mcu;
};

static_assert(std::is_same_v<JCOEF, std::int16_t> && DCTSIZE2 == 64);

bool takes(jpeg_decompress_struct& info) {
  return info.data_precision == 8 && !info.progressive_mode && !info.arith_code && info.restart_interval == 0 &&
         !jpeg_has_multiple_scans(&info) && info.comps_in_scan == info.num_components &&
         info.comps_in_scan <= huffman::Scan::kMostComponents && info.blocks_in_MCU <= huffman::Scan::kMostBlocks &&
         info.Ss == 0 && info.Se == DCTSIZE2 - 1 && info.Ah == 0 && info.Al == 0 && info.unread_marker == 0 &&
         info.output_scanline == 0;
}

huffman::Lookup* look_up(huffman::Lookups& lookups, JHUFF_TBL* const (&tables)[NUM_HUFF_TBLS], int number, int most) {
  if (number < 0 || number >= NUM_HUFF_TBLS || tables[number] == nullptr) return nullptr;
  const JHUFF_TBL& table = *tables[number];
  huffman::Code code;
  std::size_t symbols = 0;
  for (std::size_t length = 1; length <= 16; ++length) symbols += code.counts[length] = table.bits[length];
  if (symbols > code.symbols.size()) return nullptr;
  std::memcpy(code.symbols.data(), table.huffval, symbols);
  if (std::any_of(code.symbols.begin(), code.symbols.end(), [&](int symbol) { return symbol > most; })) return nullptr;
  return lookups.find(code);
}

}  // namespace

bool HuffmanHook::attach(jpeg_decompress_struct& info, const Rect& wanted, DecodeMcu decode_mcu) {
  attached_ = false;
  if (!takes(info)) return false;
  huffman::Lookup* dc[huffman::Scan::kMostComponents];
  huffman::Lookup* ac[huffman::Scan::kMostComponents];
  for (int c = 0; c < info.comps_in_scan; ++c) {
    dc[c] = look_up(lookups_, info.dc_huff_tbl_ptrs, info.cur_comp_info[c]->dc_tbl_no, 15);
    ac[c] = look_up(lookups_, info.ac_huff_tbl_ptrs, info.cur_comp_info[c]->ac_tbl_no, 255);
    if (dc[c] == nullptr || ac[c] == nullptr) return false;
  }
  // The blocks of a lone component come one by one, whatever its sampling factors say.
  const bool alone = info.comps_in_scan == 1;
  const int width = DCTSIZE * (alone ? 1 : info.max_h_samp_factor);
  const int height = DCTSIZE * (alone ? 1 : info.max_v_samp_factor);
  row_ = column_ = 0;
  columns_ = static_cast<int>(info.MCUs_per_row);
  left_ = std::max(wanted.x, 0) / width;
  top_ = std::max(wanted.y, 0) / height;
  right_ = (wanted.x + wanted.w - 1) / width;
  bottom_ = (wanted.y + wanted.h - 1) / height;
  const bool all = left_ == 0 && top_ == 0 && right_ >= columns_ - 1 &&
                   bottom_ >= static_cast<int>(info.MCU_rows_in_scan) - 1;
  scan_.begin(info.src->next_input_byte, info.src->next_input_byte + info.src->bytes_in_buffer);
  for (int block = 0; block < info.blocks_in_MCU; ++block) {
    const int c = info.MCU_membership[block];
    if (!all) ac[c]->build_passes();
    scan_.add_block(c, dc[c], ac[c]);
  }
  reinterpret_cast<EntropyDecoder*>(info.entropy)->decode_mcu = decode_mcu;
  attached_ = sound_ = true;
  return true;
}

}  // namespace zcd
