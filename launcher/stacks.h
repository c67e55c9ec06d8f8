// accelrun stacks: where every rank of a job stands now, merged.
#pragma once

namespace accel {

/// `accelrun stacks RUN|PID`: exit status 0, or 64 where there is no such run.
int stacks_main(int argc, char** argv);

}  // namespace accel
