#!/bin/sh
# documented.sh CUDATYPEDEFS.H: every (name, version) that the toolkit documents, as rows of a table.
sed -n 's/.*\*PFN_\(cu[A-Za-z0-9]*\)_v\([0-9]\{4,5\}\)\(_pts[zd]\|_ptds\)\{0,1\}).*/{"\1", \2},/p' "$1" | sort -u
