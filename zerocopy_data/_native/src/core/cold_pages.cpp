#include "core/cold_pages.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace zcd {

std::int64_t ColdPages::major_faults() {
  rusage usage{};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_majflt : 0;
}

ColdPages::Reading::~Reading() {
  if (major_faults() > faults_)
    pages_.left_.store(kBatches, kOrder);
  else if (asking_)
    pages_.left_.fetch_sub(1, kOrder);
}

void ColdPages::Reading::ask(const std::uint8_t* from, std::size_t size) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  const std::uintptr_t begin = address & ~(page - 1);
  // An error is no matter: the pages come when they are touched.
  (void)madvise(reinterpret_cast<void*>(begin), address + size - begin, MADV_WILLNEED);
}

}  // namespace zcd
