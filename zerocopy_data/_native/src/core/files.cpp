#include "core/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "core/fault.h"

namespace zcd {
namespace {

// No picture is larger, and what a damaged file system claims must not be allocated.
constexpr std::int64_t kLargest = std::int64_t{1} << 30;

[[noreturn]] void fail(const char* what, int error) {
  const bool exhausted = error == EMFILE || error == ENFILE || error == ENOMEM;
  throw Fault(exhausted ? FaultKind::system : FaultKind::damaged,
              std::string(what) + ": " + std::generic_category().message(error));
}

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) {
    do {
      // O_NONBLOCK: to open a named pipe would wait for its writer.
      fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0) fail("can't be opened", errno);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace

Files::Files(PathList list, std::size_t size) : list_(std::move(list)) {
  const std::int64_t* offsets = list_.offsets;
  const std::int64_t n = list_.count;
  if (n < 0 || offsets[0] != 0 || static_cast<std::uint64_t>(offsets[n]) != size || !std::is_sorted(offsets, offsets + n + 1))
    throw std::invalid_argument("offsets must rise from 0 to the length of the paths");
  if (list_.rows != nullptr && std::adjacent_find(list_.rows, list_.rows + n, std::greater_equal<>()) != list_.rows + n)
    throw std::invalid_argument("rows must rise");
}

std::int64_t Files::place(std::int64_t row) const {
  if (list_.rows == nullptr) return row >= 0 && row < list_.count ? row : -1;
  const std::int64_t* end = list_.rows + list_.count;
  const std::int64_t* at = std::lower_bound(list_.rows, end, row);
  return at != end && *at == row ? at - list_.rows : -1;
}

std::string Files::path(std::int64_t row) const {
  const std::int64_t i = place(row);
  if (i < 0) throw std::out_of_range("row " + std::to_string(row) + " is not in the list of files");
  std::string out = list_.prefix;
  return out.append(list_.paths + list_.offsets[i], static_cast<std::size_t>(list_.offsets[i + 1] - list_.offsets[i]));
}

Value Files::read(std::int64_t row, Buffer& room) const {
  const Descriptor file(path(row));
  struct stat status;
  if (::fstat(file, &status) != 0) fail("can't be read", errno);
  if (!S_ISREG(status.st_mode)) throw Fault(FaultKind::damaged, "is no regular file");
  if (status.st_size > kLargest) throw Fault(FaultKind::damaged, std::to_string(status.st_size) + " bytes are no picture");
  const auto size = static_cast<std::size_t>(status.st_size);
  std::uint8_t* data = room.reserve(size);
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got = ::read(file, data + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("can't be read", errno);
    if (got == 0) break;  // it was cut short meanwhile: the decoder will say so
    have += static_cast<std::size_t>(got);
  }
  if (have == 0) throw Fault(FaultKind::damaged, "the file is empty");
  Value value;
  value.data = data;
  value.size = have;
  value.readable_end = room.end();
  return value;
}

}  // namespace zcd
