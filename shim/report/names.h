// Names of C++ functions as somebody wants to read them.
#pragma once
#include <string>

namespace accel {

/// Whether short_name() leaves names as they are (ACCEL_FULL_NAMES). Once, before reports are made.
void show_full_names(bool full);

/// A demangled name without what says nothing about the place: std's inline namespaces, std::string written
/// out, template arguments and parameters beyond a line's worth ("<...>", "(...)").
std::string short_name(const std::string& demangled);

}  // namespace accel
