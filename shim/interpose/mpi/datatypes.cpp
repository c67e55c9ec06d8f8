#include "interpose/mpi/datatypes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "interpose/handle_map.h"
#include "lifecycle/process.h"

namespace accel {

namespace detail {
constexpr std::size_t kInfos = 2048;
HandleMap<4096> types;
HandleMap<64> ops;
DatatypeInfo infos[kInfos];
}  // namespace detail

namespace {

using detail::kInfos;
constexpr std::size_t kPredefined = std::size(kDatatypes);

using detail::infos;
using detail::ops;
using detail::types;
const DatatypeInfo unknown;

/// Places in `infos` that no derived type uses.
class FreeInfos {
 public:
  std::size_t take() {
    const std::lock_guard lock(mutex_);
    if (returned_.empty()) return next_ < kInfos ? next_++ : kInfos;
    const std::size_t index = returned_.back();
    returned_.pop_back();
    return index;
  }
  void give_back(std::size_t index) {
    const std::lock_guard lock(mutex_);
    returned_.push_back(index);
  }

 private:
  std::mutex mutex_;
  std::size_t next_ = kPredefined;
  std::vector<std::size_t> returned_;
};
FreeInfos free_infos;

Handle predefined(const char* openmpi_symbol, std::uint32_t mpich_constant) {
  return abi().family == Abi::Family::OpenMpi ? openmpi_object(openmpi_symbol) : mpich_constant;
}

/// Constructors, numbered as in Open MPI.
enum Combiner {
  kNamed = 0,
  kDup = 1,
  kContiguous = 2,
  kVector = 3,
  kHvectorInteger = 4,
  kHvector = 5,
  kIndexed = 6,
  kHindexedInteger = 7,
  kHindexed = 8,
  kIndexedBlock = 9,
  kStructInteger = 10,
  kStruct = 11,
  kSubarray = 12,
  kDarray = 13,
  kF90Real = 14,
  kF90Complex = 15,
  kF90Integer = 16,
  kResized = 17,
  kHindexedBlock = 18
};

struct Contents {
  int combiner = kNamed;
  std::vector<int> integers;
  std::vector<Handle> types;
};

std::optional<Contents> contents_of(Handle handle) {
  int integers = 0, addresses = 0, datatypes = 0, combiner = 0;
  if (mpi().Type_get_envelope(handle, &integers, &addresses, &datatypes, &combiner) != 0) return std::nullopt;
  Contents contents;
  contents.combiner = combiner - abi().combiner_shift;
  if (contents.combiner == kNamed) return contents;
  contents.integers.resize(static_cast<std::size_t>(integers) + 1);
  std::vector<std::intptr_t> places(static_cast<std::size_t>(addresses) + 1);
  std::vector<Handle> memory(static_cast<std::size_t>(datatypes) + 1);
  if (mpi().Type_get_contents(handle, integers, addresses, datatypes, contents.integers.data(), places.data(),
                              memory.data()) != 0) {
    return std::nullopt;
  }
  contents.integers.resize(static_cast<std::size_t>(integers));
  for (int i = 0; i < datatypes; ++i) contents.types.push_back(abi().element(memory.data(), i));
  return contents;
}

std::optional<TypeSignature> signature_of(Handle handle, int depth);

/// Sequence of what a constructor puts together, from its integers as the standard lists them for
/// MPI_Type_get_contents.
std::optional<TypeSignature> assemble(const Contents& contents, const std::vector<TypeSignature>& parts) {
  const std::vector<int>& n = contents.integers;
  const auto sum = [&](std::size_t first, std::size_t count) {
    std::int64_t total = 0;
    for (std::size_t i = first; i < first + count && i < n.size(); ++i) total += n[i];
    return total;
  };
  const auto product = [&](std::size_t first, std::size_t count) {
    std::int64_t total = 1;
    for (std::size_t i = first; i < first + count && i < n.size(); ++i) total *= n[i];
    return total;
  };
  const auto at = [&](std::size_t i) { return i < n.size() ? static_cast<std::int64_t>(n[i]) : 0; };
  if (parts.empty()) return std::nullopt;
  switch (contents.combiner) {
    case kDup:
    case kResized:
      return parts[0];
    case kContiguous:
      return repeat(parts[0], at(0));
    case kVector:
    case kHvector:
    case kHvectorInteger:
      return repeat(parts[0], at(0) * at(1));
    case kIndexed:
    case kHindexed:
    case kHindexedInteger:
      return repeat(parts[0], sum(1, static_cast<std::size_t>(at(0))));
    case kIndexedBlock:
    case kHindexedBlock:
      return repeat(parts[0], at(0) * at(1));
    case kSubarray: {
      const auto dimensions = static_cast<std::size_t>(at(0));
      return repeat(parts[0], product(1 + dimensions, dimensions));
    }
    case kStruct:
    case kStructInteger: {
      TypeSignature all;
      for (std::size_t i = 0; i < parts.size(); ++i) all = concat(all, repeat(parts[i], at(1 + i)));
      return all;
    }
    default:
      return std::nullopt;  // darray: how much this rank holds is not worth the arithmetic yet
  }
}

/// Type_get_contents makes new references to derived types.
void release(Handle handle) {
  int integers = 0, addresses = 0, datatypes = 0, combiner = 0;
  if (mpi().Type_get_envelope(handle, &integers, &addresses, &datatypes, &combiner) != 0) return;
  if (combiner - abi().combiner_shift != kNamed) mpi().Type_free(&handle);
}

std::optional<TypeSignature> signature_of(Handle handle, int depth) {
  const int known = types.find(handle);
  if (known >= 0) {
    const DatatypeInfo& info = infos[known];
    return info.comparable ? std::optional(info.signature) : std::nullopt;
  }
  constexpr int kDeepest = 32;
  const auto contents = depth < kDeepest ? contents_of(handle) : std::nullopt;
  if (!contents || contents->combiner == kNamed) return std::nullopt;
  std::vector<TypeSignature> parts;
  bool comparable = true;
  for (const Handle part : contents->types) {
    const auto signature = signature_of(part, depth + 1);
    comparable = comparable && signature.has_value();
    parts.push_back(signature.value_or(TypeSignature{}));
    release(part);
  }
  return comparable ? assemble(*contents, parts) : std::nullopt;
}

std::string describe(const TypeSignature& signature) {
  if (signature.only != BasicType::None)
    return fmt::format("{}x{}", signature.length, name_of(signature.only));
  return fmt::format("derived({} basic elements)", signature.length);
}

}  // namespace

void load_datatypes() {
  for (std::size_t i = 0; i < kPredefined; ++i) {
    const Handle handle = predefined(kDatatypes[i].openmpi_symbol, kDatatypes[i].mpich_constant);
    if (handle == 0) continue;  // a Fortran type that this build lacks
    infos[i].signature = kDatatypes[i].signature;
    infos[i].id = static_cast<DatatypeId>(i);
    infos[i].comparable = i != 0 && kDatatypes[i].signature.only != BasicType::Packed;
    types.set(handle, static_cast<int>(i));
  }
  for (std::size_t i = 0; i < std::size(kReduceOps); ++i) {
    const Handle handle = predefined(kReduceOps[i].openmpi_symbol, kReduceOps[i].mpich_constant);
    if (handle != 0) ops.set(handle, static_cast<int>(i));
  }
}

const DatatypeInfo& detail::add_datatype(Handle handle) {
  const auto signature = signature_of(handle, 0);
  const std::size_t index = free_infos.take();
  if (index >= kInfos)
    return unknown;  // so many derived types: the communicators they are used on stay unjudged
  DatatypeInfo& info = infos[index] = {};
  if (signature) {
    info.signature = *signature;
    info.comparable = true;
    info.id = Process::self().recorder()->add_datatype(*signature, describe(*signature).c_str());
  }
  types.set(handle, static_cast<int>(index));
  return info;
}

void forget_datatype(Handle handle) {
  const int known = types.find(abi().normalize(handle));
  if (known < static_cast<int>(kPredefined)) return;
  types.erase(abi().normalize(handle));
  free_infos.give_back(static_cast<std::size_t>(known));
}

ReduceOpId detail::user_op(Handle handle) {
  int commutative = 0;
  mpi().Op_commutative(handle, &commutative);
  return commutative != 0 ? kUserOpCommutative : kUserOp;
}

}  // namespace accel
