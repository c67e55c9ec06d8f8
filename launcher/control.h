// What a job that runs can be asked to do from outside.
#pragma once

namespace accel {

/// accelrun ctl RUN trigger|log-level|stacks.
int control_main(int argc, char** argv);

}  // namespace accel
