#!/bin/sh
# driver.sh CUDATYPEDEFS.H DRIVER.DEF: every row is a revision that the toolkit documents; a name's newest revision there is
# in the table.
sed -n 's/^CUDA_[A-Z]*(\([A-Za-z0-9_]*\), \([A-Za-z0-9]*\), \([0-9]*\), \([a-z]*\).*/\1 \2 \3 \4/p' "$2" |
  while read -r symbol name version per_thread; do
    suffix=
    [ "$per_thread" = true ] && suffix='_pt(sz|ds)'
    grep -qE "PFN_${name}_v${version}${suffix}\)" "$1" ||
      { echo "$symbol: no $name of version $version in $1"; continue; }
    # cuCtxSynchronize and the like: a newer revision that we do not know would be passed through.
    newest=$(grep -oE "PFN_${name}_v[0-9]+\)" "$1" | grep -oE '[0-9]+' | sort -n | tail -1)
    [ "$per_thread" = true ] || grep -qE "^CUDA_[A-Z]*\([A-Za-z0-9_]*, ${name}, ${newest}, " "$2" ||
      echo "$name has a newer revision, of version $newest"
  done | grep . && exit 1
exit 0
