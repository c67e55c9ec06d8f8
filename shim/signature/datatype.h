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
/// NCCL's: this plus ncclDataType_t's value.
inline constexpr DatatypeId kNcclDatatype = 0x4000;

/// Number of a reduction op in a record: 0 none, then predefined ones in table order. User-defined ops differ
/// in address from rank to rank and are compared by commutativity only.
using ReduceOpId = std::uint16_t;
inline constexpr ReduceOpId kUserOp = 0x4000;
inline constexpr ReduceOpId kUserOpCommutative = 0x4001;
/// NCCL's: this plus ncclRedOp_t's value; and for those that the program makes with ncclRedOpCreatePreMulSum,
/// whose values differ from rank to rank, plus the number of the one on its communicator.
inline constexpr ReduceOpId kNcclOp = 0x2000;
inline constexpr ReduceOpId kNcclPreMulSum = 0x3000;

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

/// NCCL's datatypes by value. Source: nccl.h 2.10 to 2.32 (bfloat16 since 2.10, float8 since 2.24).
struct NcclDatatype {
  BasicType type;
  std::int64_t bytes;
};
inline constexpr NcclDatatype kNcclDatatypes[] = {
    {BasicType::Int8, 1},     {BasicType::UInt8, 1},      {BasicType::Int32, 4},
    {BasicType::UInt32, 4},   {BasicType::Int64, 8},      {BasicType::UInt64, 8},
    {BasicType::Float16, 2},  {BasicType::Float32, 4},    {BasicType::Float64, 8},
    {BasicType::BFloat16, 2}, {BasicType::Float8E4M3, 1}, {BasicType::Float8E5M2, 1}};
inline constexpr std::string_view kNcclOps[] = {"sum", "prod", "max", "min", "avg"};

/// Nullptr where it is none of NCCL's, or one that is newer than we are.
constexpr const NcclDatatype* nccl_datatype(DatatypeId id) {
  const int value = id - kNcclDatatype;
  return value >= 0 && value < static_cast<int>(std::size(kNcclDatatypes)) ? &kNcclDatatypes[value] : nullptr;
}

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
  if (op >= kNcclPreMulSum && op < kUserOp) return "premulsum";
  if (op >= kNcclOp && op - kNcclOp < static_cast<int>(std::size(kNcclOps))) return kNcclOps[op - kNcclOp];
  return op < std::size(kReduceOps) ? kReduceOps[op].name : "unknown op";
}

}  // namespace accel
