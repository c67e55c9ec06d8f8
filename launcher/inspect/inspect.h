#pragma once

namespace accel {

/// accelrun inspect: what a run did, live or post mortem; its exit status.
int inspect_main(int argc, char** argv);

}  // namespace accel
