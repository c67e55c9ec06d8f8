// What every subcommand does with its words.
#pragma once
#include <accel/accel.h>

#include <CLI/CLI.hpp>
#include <string>

#include "launcher/failure.h"

namespace accel {

/// False: it has been answered already (--help); `status` is then the exit status. Throws Failure 64.
inline bool parse(CLI::App& app, int argc, char** argv, int& status) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& success) {
    status = app.exit(success);
    return false;
  } catch (const CLI::ParseError& error) {
    throw Failure(ACCEL_EXIT_USAGE, std::string(error.what()) + "; see " + app.get_name() + " --help");
  }
}

}  // namespace accel
