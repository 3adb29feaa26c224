#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <string>

#include <jpeglib.h>
#include <jerror.h>

#include "core/fault.h"

namespace zcd {

// libjpeg reports errors by calling error_exit, which must not return, and it is C without unwind tables:
// so it jumps to the caller of ours that last called setjmp, which throws from there.
struct JpegErrors {
  jpeg_error_mgr base{};
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = "";

  jpeg_error_mgr* manager() {
    jpeg_std_error(&base);
    base.error_exit = [](j_common_ptr common) {
      auto* self = reinterpret_cast<JpegErrors*>(common->err);
      common->err->format_message(common, self->message);
      std::longjmp(self->jump, 1);
    };
    // Warnings (stray bytes between segments and the like) are not printed and do not fail: as in Pillow.
    base.emit_message = [](j_common_ptr common, int level) {
      if (level < 0) ++common->err->num_warnings;
    };
    base.output_message = [](j_common_ptr) {};
    return &base;
  }

  // Runs calls of libjpeg; a failure among them becomes a Fault. `calls` and what it calls must own nothing: the jump
  // runs no destructors.
  template <typename Calls>
  void guard(Calls&& calls) {
    if (setjmp(jump)) raise();
    calls();
  }

  [[noreturn]] void raise() const {
    switch (base.msg_code) {
      case JERR_INPUT_EOF:
      case JERR_INPUT_EMPTY:
        throw Fault(FaultKind::damaged, "truncated: the data ends before the image does");
      case JERR_OUT_OF_MEMORY:
        throw Fault(FaultKind::damaged, "out of memory while decoding");
      case JERR_SOF_UNSUPPORTED:
      case JERR_BAD_PRECISION:
      case JERR_ARITH_NOTIMPL:
      case JERR_CONVERSION_NOTIMPL:
        throw Fault(FaultKind::unsupported, message);
      default:
        throw Fault(FaultKind::damaged, std::string("damaged JPEG: ") + message);
    }
  }
};

static_assert(offsetof(JpegErrors, base) == 0, "error_exit finds the object from its first member");

}  // namespace zcd
