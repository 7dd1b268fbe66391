// The table of users' ids, as Python sees it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "arrays.hpp"
#include "id_table.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using Numbers = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig>;
using Slots = nb::ndarray<nb::numpy, nb::ro, nb::ndim<1>, nb::c_contig>;
using SlotOutput = nb::ndarray<nb::numpy, nb::ndim<1>, nb::c_contig>;

NumberKeys keys_of(const Numbers& keys) {
  check_aligned(keys);
  return {keys.data(), static_cast<std::int64_t>(keys.shape(0))};
}

TextKeys keys_of(const Numbers& offsets, const Bytes& text) {
  if (offsets.shape(0) < 1) throw nb::value_error("offsets must have at least one entry");
  check_aligned(offsets);
  return {offsets.data(), static_cast<std::int64_t>(offsets.shape(0)) - 1, text.data(),
          static_cast<std::int64_t>(text.shape(0))};
}

template <class Table>
std::int64_t checked_size(const Table& slots) {
  check_aligned(slots);
  if (slots.shape(0) < 2 || !std::has_single_bit(slots.shape(0))) {
    throw nb::value_error("the number of slots must be a power of two, and at least 2");
  }
  return static_cast<std::int64_t>(slots.shape(0));
}

// Enters the keys from `first` on, or, if it is below 0, all of them into a table that is emptied.
template <class Keys>
std::int64_t fill(const Keys& keys, SlotOutput& slots, const std::vector<Extent>& read,
                  std::int64_t first = -1) {
  const std::int64_t num_slots = checked_size(slots);
  if (keys.size() >= num_slots) throw nb::value_error("there must be more slots than keys");
  check_apart({extent(slots)}, read);
  void* const to = slots.data();
  return with_index_type(slots.dtype(), [&]<class Slot>(Slot*) {
    if (keys.size() > std::numeric_limits<Slot>::max()) {
      throw nb::value_error("slots must be int64 for so many keys");
    }
    nb::gil_scoped_release unlocked;
    IdTable<Keys, Slot> table(keys, static_cast<Slot*>(to), num_slots);
    return first < 0 ? table.fill() : table.extend(first);
  });
}

template <class Keys>
void look_up(const Keys& keys, const Slots& slots, const Keys& wanted, IdOutput& out,
             const std::vector<Extent>& read) {
  const std::int64_t num_slots = checked_size(slots);
  if (static_cast<std::int64_t>(out.shape(0)) != wanted.size()) {
    throw nb::value_error("out must be as long as wanted");
  }
  check_aligned(out);
  check_apart({extent(out)}, read);
  const void* const from = slots.data();
  std::int64_t* const positions = out.data();
  with_index_type(slots.dtype(), [&]<class Slot>(Slot*) {
    nb::gil_scoped_release unlocked;
    IdTable<Keys, const Slot>(keys, static_cast<const Slot*>(from), num_slots)
        .look_up(wanted, positions);
  });
}

std::int64_t py_fill_number_slots(const Numbers& keys, SlotOutput slots) {
  return fill(keys_of(keys), slots, {extent(keys)});
}

std::int64_t py_fill_text_slots(const Numbers& offsets, const Bytes& text, SlotOutput slots) {
  return fill(keys_of(offsets, text), slots, {extent(offsets), extent(text)});
}

std::int64_t py_extend_number_slots(const Numbers& keys, SlotOutput slots, std::int64_t first) {
  if (first < 0) throw nb::value_error("first must not be negative");
  return fill(keys_of(keys), slots, {extent(keys)}, first);
}

std::int64_t py_extend_text_slots(const Numbers& offsets, const Bytes& text, SlotOutput slots,
                                  std::int64_t first) {
  if (first < 0) throw nb::value_error("first must not be negative");
  return fill(keys_of(offsets, text), slots, {extent(offsets), extent(text)}, first);
}

template <class Keys>
void hash(const Keys& keys, IdOutput& out, const std::vector<Extent>& read) {
  if (static_cast<std::int64_t>(out.shape(0)) != keys.size()) {
    throw nb::value_error("out must be as long as keys");
  }
  check_aligned(out);
  check_apart({extent(out)}, read);
  std::int64_t* const hashes = out.data();
  nb::gil_scoped_release unlocked;
  for (std::int64_t at = 0; at < keys.size(); ++at) {
    hashes[at] = static_cast<std::int64_t>(keys.hash(at));
  }
}

void py_hash_numbers(const Numbers& keys, IdOutput out) {
  hash(keys_of(keys), out, {extent(keys)});
}

void py_hash_text(const Numbers& offsets, const Bytes& text, IdOutput out) {
  hash(keys_of(offsets, text), out, {extent(offsets), extent(text)});
}

void py_look_up_numbers(const Numbers& keys, const Slots& slots, const Numbers& wanted,
                        IdOutput out) {
  look_up(keys_of(keys), slots, keys_of(wanted), out,
          {extent(keys), extent(slots), extent(wanted)});
}

void py_look_up_text(const Numbers& offsets, const Bytes& text, const Slots& slots,
                     const Numbers& wanted_offsets, const Bytes& wanted_text, IdOutput out) {
  look_up(keys_of(offsets, text), slots, keys_of(wanted_offsets, wanted_text), out,
          {extent(offsets), extent(text), extent(slots), extent(wanted_offsets),
           extent(wanted_text)});
}

std::int64_t py_first_unsound_text(const Numbers& offsets, const Bytes& text) {
  const TextKeys keys = keys_of(offsets, text);
  nb::gil_scoped_release unlocked;
  return keys.first_unsound();
}

}  // namespace

void bind_id_table(nb::module_& m) {
  m.def("fill_number_slots", &py_fill_number_slots, "keys"_a.noconvert(), "slots"_a.noconvert());
  m.def("fill_text_slots", &py_fill_text_slots, "offsets"_a.noconvert(), "text"_a.noconvert(),
        "slots"_a.noconvert());
  m.def("extend_number_slots", &py_extend_number_slots, "keys"_a.noconvert(),
        "slots"_a.noconvert(), "first"_a);
  m.def("extend_text_slots", &py_extend_text_slots, "offsets"_a.noconvert(), "text"_a.noconvert(),
        "slots"_a.noconvert(), "first"_a);
  m.def("hash_numbers", &py_hash_numbers, "keys"_a.noconvert(), "out"_a.noconvert());
  m.def("hash_text", &py_hash_text, "offsets"_a.noconvert(), "text"_a.noconvert(),
        "out"_a.noconvert());
  m.def("look_up_numbers", &py_look_up_numbers, "keys"_a.noconvert(), "slots"_a.noconvert(),
        "wanted"_a.noconvert(), "out"_a.noconvert());
  m.def("look_up_text", &py_look_up_text, "offsets"_a.noconvert(), "text"_a.noconvert(),
        "slots"_a.noconvert(), "wanted_offsets"_a.noconvert(), "wanted_text"_a.noconvert(),
        "out"_a.noconvert());
  m.def("first_unsound_text", &py_first_unsound_text, "offsets"_a.noconvert(),
        "text"_a.noconvert());
}

}  // namespace penstock
