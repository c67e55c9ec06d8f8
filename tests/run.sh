#!/bin/sh
# run.sh BUILD SUITE... [gtest options]: runs the suites and ends with "N passed, N failed".
build=$1
shift
# Open MPI refuses root, and more ranks than cores, unless told otherwise; many a test machine is a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export ACCEL_TEST_BUILD="$PWD/$build" ACCEL_TEST_SOURCE="$PWD"
options=
suites=
for word in "$@"; do
  case $word in -*) options="$options $word" ;; *) suites="$suites $word" ;; esac
done
passed=0
failed=0
for suite in $suites; do
  log="$build/suites/$suite.log"
  # shellcheck disable=SC2086
  "$build/suites/$suite" $options | tee "$log"
  ok=$(grep -c '^\[       OK \]' "$log")
  bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*listed below.*/\1/p' "$log" | tail -1)
  # A suite that dies in the middle has failed, whatever it printed.
  grep -q '^\[==========\] .* ran\.' "$log" || bad=$((${bad:-0} + 1))
  passed=$((passed + ok))
  failed=$((failed + ${bad:-0}))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
