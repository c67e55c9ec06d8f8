#!/bin/sh
# nccl_names.sh NCCL.H TABLE: every function that the header declares stands in the table, so that none is passed through
# by oversight.
missing=0
for name in $(sed -n 's/^.*[ *]nccl\([A-Z][A-Za-z]*\)(.*/\1/p' "$1" | grep -v '^Param' | sort -u); do
  grep -qE "^NCCL_[A-Z_]*\($name[,)]" "$2" || { echo "nccl$name is not in $2" >&2; missing=1; }
done
exit $missing
