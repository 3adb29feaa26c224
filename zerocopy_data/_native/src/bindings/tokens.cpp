// Streams of tokens, read in windows.
#include "core/tokens.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>

#include "bindings/arguments.h"
#include "bindings/columns.h"
#include "bindings/read_ahead.h"

namespace zcd::py {
namespace {

TokenType token_type(const std::string& name) {
  if (name == "uint8") return TokenType::uint8;
  if (name == "int8") return TokenType::int8;
  if (name == "uint16") return TokenType::uint16;
  if (name == "int16") return TokenType::int16;
  if (name == "uint32") return TokenType::uint32;
  if (name == "int32") return TokenType::int32;
  if (name == "int64") return TokenType::int64;
  throw std::invalid_argument("tokens are integers of 8, 16 or 32 bits, or int64, not '" + name + "'");
}

// A stream together with the Python objects whose memory it points into.
class Tokens {
 public:
  // parts: (data, offsets or None, sums or None)
  using Part = std::tuple<nb::object, std::optional<nb::object>, std::optional<nb::object>>;
  Tokens(const std::string& dtype, const std::vector<Part>& parts) {
    const TokenType type = token_type(dtype);
    std::vector<TokenRun> runs;
    for (const auto& [data, offsets, sums] : parts) runs.push_back(run(data, offsets, sums, token_size(type)));
    stream_ = std::make_unique<TokenStream>(type, runs);
  }

  std::int64_t size() const { return stream_->size(); }

  nb::list gather(const Rows& starts, std::int64_t length, nb::object inputs, std::optional<nb::object> targets,
                  std::optional<Rows> places) const {
    const BufferView to(inputs, true);
    std::optional<BufferView> shifted;
    if (targets) shifted.emplace(*targets, true);
    const std::size_t rooms = room(to, length);
    std::int64_t* const target = shifted ? reinterpret_cast<std::int64_t*>(shifted->data()) : nullptr;
    std::int64_t* const input = reinterpret_cast<std::int64_t*>(to.data());
    const Picks picked = picks(starts, std::nullopt, places, shifted ? std::min(rooms, room(*shifted, length)) : rooms);
    std::vector<Outcome> outcomes;
    {
      nb::gil_scoped_release release;
      outcomes = stream_->gather(picked, length, input, target);
    }
    return outcomes_list(outcomes);
  }

  Extents extents(const Rows& starts, std::int64_t reach, std::size_t gap) const {
    if (reach < 1) throw std::invalid_argument("a window has at least one token");
    nb::gil_scoped_release release;
    return Extents{joined(stream_->extents(starts.data(), static_cast<std::int64_t>(starts.shape(0)), reach), gap)};
  }

 private:
  const BufferView& keep(nb::handle object) {
    views_.push_back(std::make_unique<BufferView>(object));
    return *views_.back();
  }

  TokenRun run(nb::handle data, const std::optional<nb::object>& offsets, const std::optional<nb::object>& sums,
               std::size_t item) {
    TokenRun run;
    const BufferView& tokens = keep(data);
    run.data = tokens.data();
    run.count = static_cast<std::int64_t>(tokens.size() / item);
    if (!offsets) {
      if (tokens.size() % item != 0) throw std::invalid_argument("bytes that are no whole number of tokens");
      if (sums) throw std::invalid_argument("checksums belong to documents: offsets are missing");
      return run;
    }
    const BufferView& places = keep(*offsets);
    if (places.size() < sizeof(std::int32_t)) throw std::invalid_argument("documents have one offset more than they are");
    run.offsets = reinterpret_cast<const std::int32_t*>(places.data());
    run.documents = static_cast<std::int64_t>(places.size() / sizeof(std::int32_t)) - 1;
    std::int32_t first = 0, last = 0;
    for (std::int64_t d = 0; d <= run.documents; ++d) {
      std::int32_t next;
      std::memcpy(&next, run.offsets + d, sizeof next);
      if (next < last || next > run.count) throw std::invalid_argument("offsets lead outside the tokens");
      if (d == 0) first = next;
      last = next;
    }
    run.count = last - first;
    if (sums) {
      const BufferView& stored = keep(*sums);
      if (stored.size() / sizeof(std::uint32_t) < static_cast<std::size_t>(run.documents))
        throw std::invalid_argument("too few checksums for the documents");
      run.sums = reinterpret_cast<const std::uint32_t*>(stored.data());
    }
    return run;
  }

  // How many windows an output buffer holds.
  static std::size_t room(const BufferView& view, std::int64_t length) {
    constexpr auto item = sizeof(std::int64_t);
    if (length < 1 || length == std::numeric_limits<std::int64_t>::max())  // one token more is read for targets
      throw std::invalid_argument("a window has at least one token");
    if (reinterpret_cast<std::uintptr_t>(view.data()) % item != 0)
      throw std::invalid_argument("the output buffer is not aligned to int64");
    return view.size() / item / static_cast<std::size_t>(length);
  }

  std::vector<std::unique_ptr<BufferView>> views_;
  std::unique_ptr<TokenStream> stream_;
};

}  // namespace

void bind_tokens(nb::module_& m) {
  nb::class_<Tokens>(m, "TokenStream")
      .def(nb::init<const std::string&, const std::vector<Tokens::Part>&>(), nb::arg("dtype"), nb::arg("parts"))
      .def("__len__", &Tokens::size)
      .def("gather", &Tokens::gather, nb::arg("starts"), nb::arg("length"), nb::arg("inputs"),
           nb::arg("targets").none() = nb::none(), nb::arg("places").none() = nb::none())
      .def("extents", &Tokens::extents, nb::arg("starts"), nb::arg("reach"), nb::arg("gap"), nb::keep_alive<0, 1>());
}

}  // namespace zcd::py
