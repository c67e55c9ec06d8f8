// Addresses of a process, alive or gone, to functions and lines: by elfutils' libdw where it is installed,
// else by module and offset. Never on a thread of the application, never in a signal handler.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace accel {

struct Frame {
  std::string function;  ///< demangled; empty where no symbol is known
  std::string file;      ///< source file; empty without debug information
  int line = 0;
  std::string module;        ///< path of the executable or library; empty if the address lies in none
  std::uint64_t offset = 0;  ///< of the address in the module's file image
  std::string source;        ///< the line itself, of a Python frame
  std::string build_id;      ///< of the module, where no symbol is known: so that another machine finds one
  bool entry = false;        ///< a Python frame that C code has called
  int folded = 0;            ///< this many frames of the Python interpreter, and nothing of the above
};

/// Looks for debug files as elfutils does: beside the module (.gnu_debuglink), in .debug, and on the servers
/// of DEBUGINFOD_URLS if that is set. In a process of our own only. Before the first frame.
void search_debug_files_everywhere();

/// What a reader wants to see of a stack, innermost first: without our own frames and those of the MPI
/// library at the inner end, and without what libc does before main. Several frames for an address where
/// functions were inlined. `maps`: lines of /proc/PID/maps that name a file. `pcs`: return addresses,
/// innermost first.
std::vector<Frame> user_frames(const std::string& maps, const std::vector<std::uint64_t>& pcs);

/// The traceback's lines, outermost first ("most recent call last"), two spaces in front.
std::string traceback_lines(const std::vector<Frame>& frames);

}  // namespace accel
