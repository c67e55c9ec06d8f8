#!/bin/sh
# demo.sh BUILD: the main job on real input, and what is printed about it.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
echo "\$ accelrun mpirun -n 4 ./gradient_step"
"$1/accelrun" mpirun.openmpi -n 4 "$1/examples/openmpi/gradient_step"
status=$?
echo "\$ echo \$?"
echo "$status"
[ "$status" = 80 ]
