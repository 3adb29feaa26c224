// Runs LLVMFuzzerTestOneInput without libFuzzer, for machines that have only g++: replays files, or mutates a folder of
// seeds for some seconds. The same --seed tries the same inputs in the same order. It is blind to coverage, so the
// seeds must already reach every path, and do (tools/fuzz/seeds.py).
//
//   fuzz_image --corpus DIR --seconds N [--seed N] --artifacts DIR
//   fuzz_image FILE...
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kHead = 64;             // the choices at the front of an input, see fuzz_image.cpp
constexpr std::size_t kMostBytes = 1 << 18;
constexpr unsigned kSecondsAnInput = 30;      // beyond that an input counts as a hang

Bytes current;
std::string artifacts = ".";

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

// Called when a sanitizer has reported, or a signal has come: leaves the input behind.
void keep_reproducer() {
  const std::string path = artifacts + "/finding-" + std::to_string(getpid());
  if (std::FILE* file = std::fopen(path.c_str(), "wb")) {
    std::fwrite(current.data(), 1, current.size(), file);
    std::fclose(file);
    std::fprintf(stderr, "\nreproducer: %s\n", path.c_str());
  }
}

void on_signal(int number) {
  std::fprintf(stderr, "\n%s\n", number == SIGALRM ? "hang: one input takes too long" : "aborted");
  keep_reproducer();
  _exit(70);
}

class Mutator {
 public:
  Mutator(std::vector<Bytes> seeds, std::uint64_t seed) : seeds_(std::move(seeds)), random_(seed) {}

  Bytes next() {
    Bytes input = seeds_[below(seeds_.size())];
    // Half of the inputs get a program of their own; the rest the one that goes with the seed.
    if (below(2) == 0)
      for (std::size_t i = 0; i < kHead; ++i) input[i] = static_cast<std::uint8_t>(random_());
    const std::size_t edits = below(8);
    for (std::size_t i = 0; i < edits; ++i) edit(input);
    if (input.size() > kMostBytes) input.resize(kMostBytes);
    return input;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random_() % n); }

  // A place in the body. Headers are short and decide most, so they are hit as often as all the rest.
  std::size_t place(const Bytes& b) {
    const std::size_t body = b.size() - kHead;
    return kHead + (below(2) == 0 ? below(std::min<std::size_t>(body, 700)) : below(body));
  }

  void edit(Bytes& b) {
    if (b.size() <= kHead + 4) return;
    static constexpr std::uint8_t kTelling[] = {0, 1, 2, 0x7f, 0x80, 0xc0, 0xc2, 0xc4, 0xd8, 0xd9, 0xda, 0xdd, 0xe1, 0xfe, 0xff};
    const std::size_t at = place(b);
    switch (below(8)) {
      case 0:
        b[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:
        b[at] = static_cast<std::uint8_t>(random_());
        break;
      case 2:
        b[at] = kTelling[below(std::size(kTelling))];
        break;
      case 3:  // cut off
        b.resize(at);
        break;
      case 4: {  // take out
        const std::size_t n = std::min(b.size() - at, 1 + below(40));
        b.erase(b.begin() + static_cast<std::ptrdiff_t>(at), b.begin() + static_cast<std::ptrdiff_t>(at + n));
        break;
      }
      case 5: {  // repeat a piece elsewhere
        const std::size_t from = place(b), n = std::min(b.size() - from, 1 + below(300));
        const Bytes piece(b.begin() + static_cast<std::ptrdiff_t>(from), b.begin() + static_cast<std::ptrdiff_t>(from + n));
        b.insert(b.begin() + static_cast<std::ptrdiff_t>(at), piece.begin(), piece.end());
        break;
      }
      case 6: {  // a segment's length or an image's size: the two bytes after a marker, or a few further on
        for (std::size_t i = at; i + 8 < b.size(); ++i)
          if (b[i] == 0xff && b[i + 1] >= 0xc0 && b[i + 1] != 0xff) {
            b[i + 2 + below(7)] = kTelling[below(std::size(kTelling))];
            break;
          }
        break;
      }
      default: {  // the rest of another seed
        const Bytes& other = seeds_[below(seeds_.size())];
        const std::size_t from = place(other);
        b.resize(at);
        b.insert(b.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      }
    }
  }

  std::vector<Bytes> seeds_;
  std::mt19937_64 random_;
};

void run_one() {
  alarm(kSecondsAnInput);
  LLVMFuzzerTestOneInput(current.data(), current.size());
  alarm(0);
}

}  // namespace

int main(int argc, char** argv) {
  std::string corpus;
  double seconds = 60;
  std::uint64_t seed = 0;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (arg == "--corpus")
      corpus = value();
    else if (arg == "--seconds")
      seconds = std::atof(value().c_str());
    else if (arg == "--seed")
      seed = std::strtoull(value().c_str(), nullptr, 10);
    else if (arg == "--artifacts")
      artifacts = value();
    else
      files.push_back(arg);
  }
  __sanitizer_set_death_callback(keep_reproducer);
  for (const int number : {SIGABRT, SIGALRM}) signal(number, on_signal);

  for (const std::string& file : files) {
    current = read_file(file);
    run_one();
  }
  if (corpus.empty()) {
    std::printf("%zu file(s) replayed without a finding\n", files.size());
    return 0;
  }

  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(corpus))
    if (entry.is_regular_file()) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> seeds;
  for (const auto& path : paths) {
    current = read_file(path);
    run_one();
    if (current.size() > kHead + 4) seeds.push_back(current);
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds in %s\n", corpus.c_str());
    return 2;
  }
  Mutator mutator(std::move(seeds), seed);
  std::uint64_t runs = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    current = mutator.next();
    run_one();
  }
  std::printf("%zu seeds, %llu mutated inputs, no finding\n", paths.size(), static_cast<unsigned long long>(runs));
  return 0;
}
