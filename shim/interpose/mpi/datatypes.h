// MPI datatypes and ops of this process, by what they mean.
#pragma once
#include "signature/datatype.h"

#include "interpose/mpi/abi.h"

namespace accel {

struct DatatypeInfo {
  TypeSignature signature;
  DatatypeId id = kUnknownDatatype;
  bool comparable = false;  ///< false: MPI_PACKED in it, or a constructor that we cannot read
};

/// Fills the table of predefined types. Once, after detect_abi().
void load_datatypes();

/// Looked up in a table; a derived type's signature is computed at its first use.
const DatatypeInfo& datatype(Handle handle);

/// A derived type is going away: its handle may come back as another type.
void forget_datatype(Handle handle);

/// Number of a reduction op in a record.
ReduceOpId reduce_op(Handle handle);

}  // namespace accel
