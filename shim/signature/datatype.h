// Datatypes and reduction ops as every rank can name them: predefined ones by their line in predefined.def.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "signature/type_signature.h"

namespace accel {

/// Number of a datatype in a record: 0 none, then predefined ones in table order, then (from kDerived on) the
/// process's own derived types by their place in its recorder file.
using DatatypeId = std::uint16_t;
inline constexpr DatatypeId kDerived = 0x8000;
inline constexpr DatatypeId kUnknownDatatype = 0xffff;

/// Number of a reduction op in a record: 0 none, then predefined ones in table order. User-defined ops differ
/// in address from rank to rank and are compared by commutativity only.
using ReduceOpId = std::uint16_t;
inline constexpr ReduceOpId kUserOp = 0x4000;
inline constexpr ReduceOpId kUserOpCommutative = 0x4001;

struct PredefinedDatatype {
  std::string_view name;  ///< without "MPI_"
  const char* openmpi_symbol;
  std::uint32_t mpich_constant;
  TypeSignature signature;
};

struct PredefinedReduceOp {
  std::string_view name;  ///< as reports print it: "sum"
  const char* openmpi_symbol;
  std::uint32_t mpich_constant;
};

inline constexpr PredefinedDatatype kDatatypes[] = {
    {"DATATYPE_NULL", "ompi_mpi_datatype_null", 0x0c000000, {}},
#define MPI_DATATYPE(name, symbol, constant, ...) {#name, #symbol, constant, __VA_ARGS__},
#define MPI_REDUCE_OP(...)
#include "signature/predefined.def"
};

inline constexpr PredefinedReduceOp kReduceOps[] = {
    {"", "ompi_mpi_op_null", 0x18000000},
#define MPI_DATATYPE(...)
#define MPI_REDUCE_OP(name, symbol, constant, text) {text, #symbol, constant},
#include "signature/predefined.def"
};

/// Text of a basic type, e.g. "float32".
constexpr std::string_view name_of(BasicType type) {
  constexpr std::string_view names[] = {
#define X(name, text) text,
      ACCEL_BASIC_TYPES(X)
#undef X
  };
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(names) ? names[index] : "unknown";
}

/// Text of a reduction op's number; empty for none.
constexpr std::string_view name_of_op(ReduceOpId op) {
  if (op == kUserOp) return "user-defined (not commutative)";
  if (op == kUserOpCommutative) return "user-defined";
  return op < std::size(kReduceOps) ? kReduceOps[op].name : "unknown op";
}

}  // namespace accel
