// MPI datatypes and ops of this process, by what they mean.
#pragma once
#include "interpose/handle_map.h"
#include "interpose/mpi/abi.h"
#include "signature/datatype.h"

namespace accel {

struct DatatypeInfo {
  TypeSignature signature;
  DatatypeId id = kUnknownDatatype;
  bool comparable = false;  ///< false: MPI_PACKED in it, or a constructor that we cannot read
};

/// Fills the table of predefined types. Once, after detect_abi().
void load_datatypes();

namespace detail {
extern HandleMap<4096> types;  // handle to place in infos
extern HandleMap<64> ops;      // predefined ones, to their number
extern DatatypeInfo infos[];
const DatatypeInfo& add_datatype(Handle handle);
ReduceOpId user_op(Handle handle);
}  // namespace detail

/// Looked up in a table; a derived type's signature is computed at its first use.
inline const DatatypeInfo& datatype(Handle raw) {
  const Handle handle = abi().normalize(raw);
  const int known = detail::types.find(handle);
  return known >= 0 ? detail::infos[known] : detail::add_datatype(handle);
}

/// A derived type is going away: its handle may come back as another type.
void forget_datatype(Handle handle);

/// Number of a reduction op in a record.
inline ReduceOpId reduce_op(Handle raw) {
  const Handle handle = abi().normalize(raw);
  const int known = detail::ops.find(handle);
  return known >= 0 ? static_cast<ReduceOpId>(known) : detail::user_op(handle);
}

}  // namespace accel
