// The ranks' output by way of files, which the library in each of them writes to: kept for the user, and
// shown line by line with the rank in front. A rank never waits for us, and outlives us.
#pragma once
#include <atomic>
#include <map>
#include <string>
#include <thread>

namespace accel {

class RankOutput {
 public:
  struct Request {
    std::string directory;  ///< where the files stay; empty: nowhere
    bool tag = false;       ///< show them, "[rank N]" before each line
    bool wanted() const { return tag || !directory.empty(); }
  };

  /// Makes the directory. Throws Failure 64 where that fails.
  explicit RankOutput(const Request& request);
  /// Shows what is left.
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  /// Returns when all that was written before has been shown.
  void drain();
  /// For ACCEL_OUTPUT_DIR.
  const std::string& directory() const { return directory_; }
  /// Whether a line was shown that only a program out of memory writes.
  bool mentioned_out_of_memory() const { return mentioned_.load(); }

 private:
  struct File {
    int descriptor = -1;
    int target = 1;          ///< our stdout or stderr
    std::string tag;         ///< "[rank 3] "
    std::string unfinished;  ///< of a line
    long long offset = 0;
    long long unfinished_since_ns = 0;
  };

  void follow();
  bool pump();
  void scan();
  bool pump(File& file);
  void show(File& file, std::string& shown, const char* begin, std::size_t bytes);
  void flush(File& file, bool last);

  std::string directory_;
  bool tag_;
  bool temporary_;
  std::map<std::string, File> files_;
  std::atomic<bool> mentioned_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<int> rounds_{0};  ///< that found nothing new
  std::thread thread_;
};

/// Texts by which programs that we cannot see into say that memory has run out. Sources: PyTorch, cuBLAS,
/// cuDNN, JAX, Accelerate's own list.
bool mentions_out_of_memory(const std::string& line);

}  // namespace accel
