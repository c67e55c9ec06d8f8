// accelrun: the first word chooses.
#include <accel/accel.h>

#include <iostream>

#include "launcher/bundle.h"
#include "launcher/control.h"
#include "launcher/diff.h"
#include "launcher/doctor/doctor.h"
#include "launcher/failure.h"
#include "launcher/inspect/inspect.h"
#include "launcher/options.h"
#include "launcher/runs.h"
#include "launcher/stacks.h"
#include "report/symbols.h"

namespace accel {
namespace {

int run(int argc, char** argv) {
  int status = 0;
  const auto asked = parse_command_line(argc, argv, status);
  if (!asked) return status;
  if (!asked->explain) return run_with_retries(asked->request);
  std::cout << explain(asked->request);
  return 0;
}

int dispatch(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "doctor") return doctor::main(argc - 1, argv + 1);
  if (first == "diff") return diff_main(argc - 1, argv + 1);
  if (first == "inspect") return inspect_main(argc - 1, argv + 1);
  if (first == "list") return list_main(argc - 1, argv + 1);
  if (first == "ctl") return control_main(argc - 1, argv + 1);
  if (first == "stacks") return stacks_main(argc - 1, argv + 1);
  if (first == "report") return report_main(argc - 1, argv + 1);
  return run(argc, argv);
}

}  // namespace
}  // namespace accel

int main(int argc, char** argv) {
  try {
    accel::search_debug_files_everywhere();
    return accel::dispatch(argc, argv);
  } catch (const accel::Failure& failure) {
    std::cerr << "accelrun: " << failure.what() << "\n";
    return failure.status();
  } catch (const std::exception& error) {
    std::cerr << "accelrun: " << error.what() << "\n";
    return ACCEL_EXIT_INTERNAL;
  }
}
