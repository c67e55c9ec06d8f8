// MPI's type signature: the sequence of basic types that a buffer holds, without where they lie.
//
// MPI lets one rank send 10 MPI_INT and another receive 1 contiguous(10, MPI_INT): what must agree is this
// sequence, however it was grouped. So the hash is a polynomial over the sequence, which concatenation and
// repetition can compute from (hash, length) alone. A sequence of one basic type only, by far the commonest,
// is kept as (type, length) so that the hot path never exponentiates.
#pragma once
#include <cstdint>

#include "signature/hash.h"

namespace accel {

/// Basic types by representation: MPI_INT, MPI_INT32_T and MPI_INTEGER are all Int32, since no rank computes
/// garbage when they meet.
// clang-format off
#define ACCEL_BASIC_TYPES(X)                                                                           \
  X(None, "none")                                                                                      \
  X(Byte, "byte") X(Char, "char") X(WChar, "wchar") X(Bool, "bool") X(Logical, "logical")              \
  X(Int8, "int8") X(Int16, "int16") X(Int32, "int32") X(Int64, "int64") X(Int128, "int128")            \
  X(UInt8, "uint8") X(UInt16, "uint16") X(UInt32, "uint32") X(UInt64, "uint64")                        \
  X(Float32, "float32") X(Float64, "float64") X(Float80, "float80") X(Float128, "float128")            \
  X(Complex64, "complex64") X(Complex128, "complex128") X(Complex160, "complex160")                    \
  X(Complex256, "complex256") X(Packed, "packed")                                                       \
  X(Float16, "float16") X(BFloat16, "bfloat16") X(Float8E4M3, "float8_e4m3") X(Float8E5M2, "float8_e5m2")
// clang-format on

enum class BasicType : std::uint8_t {
#define X(name, text) name,
  ACCEL_BASIC_TYPES(X)
#undef X
};

/// Bytes of one; 0: not known here (they differ between machines, or it is packed).
constexpr std::int64_t size_of(BasicType type) {
  switch (type) {
    case BasicType::Byte:
    case BasicType::Char:
    case BasicType::Bool:
    case BasicType::Int8:
    case BasicType::UInt8:
    case BasicType::Float8E4M3:
    case BasicType::Float8E5M2:
    case BasicType::Packed:
      return 1;
    case BasicType::Int16:
    case BasicType::UInt16:
    case BasicType::Float16:
    case BasicType::BFloat16:
      return 2;
    case BasicType::WChar:
    case BasicType::Logical:
    case BasicType::Int32:
    case BasicType::UInt32:
    case BasicType::Float32:
      return 4;
    case BasicType::Int64:
    case BasicType::UInt64:
    case BasicType::Float64:
    case BasicType::Complex64:
      return 8;
    case BasicType::Int128:
    case BasicType::Float80:
    case BasicType::Float128:
    case BasicType::Complex128:
      return 16;
    case BasicType::Complex160:
    case BasicType::Complex256:
      return 32;
    case BasicType::None:
      return 0;
  }
  return 0;
}

/// A sequence of basic types, by hash. Two signatures are equal exactly if their sequences are (but for hash
/// collisions).
struct TypeSignature {
  std::uint64_t hash = 0;            ///< polynomial hash modulo 2^61-1; unused while `only` is set
  std::uint64_t length = 0;          ///< number of basic types
  BasicType only = BasicType::None;  ///< the one type that the sequence consists of, if it is one

  static constexpr TypeSignature of(BasicType type, std::uint64_t length = 1) {
    return {0, length, length != 0 ? type : BasicType::None};
  }
  friend constexpr bool operator==(const TypeSignature&, const TypeSignature&) = default;
};

namespace polynomial {

inline constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
inline constexpr std::uint64_t kBase = 0x0d6e8feb86659fd9u % kPrime;

constexpr std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  const std::uint64_t folded =
      (static_cast<std::uint64_t>(product) & kPrime) + static_cast<std::uint64_t>(product >> 61);
  return folded >= kPrime ? folded - kPrime : folded;
}

constexpr std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t sum = a + b;
  return sum >= kPrime ? sum - kPrime : sum;
}

/// hash and base^length of a sequence: what concatenation needs.
struct Term {
  std::uint64_t hash, power;
};

constexpr Term join(Term left, Term right) {
  return {plus(times(left.hash, right.power), right.hash), times(left.power, right.power)};
}

constexpr Term repeat(Term unit, std::uint64_t times_repeated) {
  Term result{0, 1};
  for (; times_repeated != 0; times_repeated >>= 1, unit = join(unit, unit)) {
    if ((times_repeated & 1) != 0) result = join(unit, result);
  }
  return result;
}

constexpr Term term(const TypeSignature& signature) {
  if (signature.only != BasicType::None) {
    return repeat({static_cast<std::uint64_t>(signature.only), kBase}, signature.length);
  }
  return {signature.hash, repeat({0, kBase}, signature.length).power};
}

}  // namespace polynomial

/// The sequence `left` followed by `right`.
constexpr TypeSignature concat(const TypeSignature& left, const TypeSignature& right) {
  if (left.length == 0) return right;
  if (right.length == 0) return left;
  if (left.only != BasicType::None && left.only == right.only) {
    return TypeSignature::of(left.only, left.length + right.length);
  }
  return {polynomial::join(polynomial::term(left), polynomial::term(right)).hash, left.length + right.length,
          BasicType::None};
}

/// The sequence `unit` repeated `count` times; a negative count is taken as 0.
constexpr TypeSignature repeat(const TypeSignature& unit, std::int64_t count) {
  if (count <= 0 || unit.length == 0) return {};
  const auto n = static_cast<std::uint64_t>(count);
  if (unit.only != BasicType::None) return TypeSignature::of(unit.only, unit.length * n);
  return {polynomial::repeat(polynomial::term(unit), n).hash, unit.length * n, BasicType::None};
}

/// One word for `count` elements of `type`; 0 exactly for no data at all, whatever its type.
constexpr std::uint64_t block_hash(const TypeSignature& type, std::int64_t count) {
  if (type.only != BasicType::None) {  // the usual case, short
    if (count <= 0) return 0;
    return mix(static_cast<std::uint64_t>(type.only), type.length * static_cast<std::uint64_t>(count)) | 1;
  }
  const TypeSignature block = repeat(type, count);
  return block.length == 0 ? 0 : mix(block.hash, block.length) | 1;
}

}  // namespace accel
