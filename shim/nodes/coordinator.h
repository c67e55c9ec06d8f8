// Where the leaders of all nodes come together: accelrun, for a job on several hosts. One thread hears what
// they say; whoever judges takes it from there. Who cannot prove that it knows the run's secret is sent away.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nodes/handshake.h"
#include "nodes/link.h"
#include "nodes/messages.h"
#include "nodes/record_copies.h"
#include "record/run_directory.h"
#include "settings/settings.h"

namespace accel {

class Coordinator {
 public:
  /// Receives leaders at those sockets who call the run `name`.
  /// `most_copied`: so many nodes' records are looked at together.
  Coordinator(const RunDirectory& run, Board& board, const Token& token, std::string name,
              std::vector<FileDescriptor> listeners, std::size_t most_copied = kMostCopied);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// "10.0.0.1:4711,[fd00::1]:4711"; empty: nobody can reach us.
  std::string addresses() const;

  /// Becomes readable when somebody should look(), which makes it silent again.
  int bell() const { return bell_.get(); }
  /// The body of its thread, until `over`.
  void run(const std::atomic<bool>& over);

  /// How long a thread may wait before that says something; 0: never.
  void expect_waits(std::int64_t warn_after_ns, std::int64_t timeout_ns);

  // What follows is for the one thread that judges.

  /// Whether there is another node at all.
  bool has_nodes() const;
  /// Before a look: shows what nodes have sent; if somebody has raised the alarm or it is time, has them send
  /// more first. So it does where `asked`. Whether anything was shown.
  bool look(bool asked = false);
  /// Lets all nodes that can be heard send what has changed, and shows it. `stack_request`: as Fetch's.
  void refresh(std::uint32_t stack_request, std::int64_t patience_ns);
  /// Somebody who led a node is gone, and it is not known yet whether it has died or only its connection:
  /// what follows from its death is not certain.
  bool is_in_doubt() const;
  /// The look is over that look() began: whoever has asked for it is told.
  void looked();
  /// The ranks of a world are to end.
  void end_world(std::uint64_t world, std::uint32_t status, const std::string& verdict);
  /// The job is gone: hears what is still on its way, at most for so long; nodes that do not say goodbye are
  /// lost.
  void finish(std::int64_t patience_ns);
  /// What is to be said, once each.
  struct Notice {
    LogLevel level;
    std::string text;
  };
  std::vector<Notice> take_notices();

  static constexpr std::size_t kMostStrangers = 64;
  static constexpr std::size_t kMostNodes = 65536;
  /// The copies of a rank's records take half a MiB here when its rings are full, and each look costs some
  /// microseconds a rank. Of more nodes those are chosen that say most: where the alarm was raised, where
  /// calls differ, who stands still for longest, and who does not stand still at all.
  static constexpr std::size_t kMostCopied = 128;
  /// More than this is not read from the network before the judge has taken it.
  static constexpr std::size_t kMostQueued = std::size_t{256} << 20;

 private:
  struct Node {
    std::uint32_t number = 0;
    std::string host;
    int connection = -1;  ///< its descriptor; -1: none
    ClockOffset clock;
    std::int64_t heard_ns = 0;
    std::int64_t gone_ns = 0;  ///< when the other side has ended the connection; 0: it has not
    std::int32_t leader = 0;
    bool doubt = false;  ///< the leader is taken to be gone until somebody says how it is
    bool left = false;   ///< it has said goodbye
    bool lost = false;
    bool silent = false;
    bool copied_at_all = false;  ///< there are copies of its records here
    bool differs = false;        ///< its calls differ from another node's
    std::uint32_t sessions = 0;  ///< connections so far
    std::uint32_t asked = 0;     ///< rounds, in this one
    std::uint32_t copied = 0;
    std::uint64_t shape = 0, asked_shape = 0;
    std::int64_t asked_ns = 0;
    std::int64_t standing_ns = 0;
    std::vector<WireFrame> incoming;
    std::size_t incoming_bytes = 0;
    std::vector<std::pair<FrameKind, std::uint32_t>> alarms;     ///< not looked at yet
    std::vector<std::pair<FrameKind, std::uint32_t>> answering;  ///< those of the look that goes on
  };
  struct Connection {
    Link link;
    std::string peer;
    std::int64_t since_ns = 0;
    std::optional<Reception> reception;
    Hello hello{};
    Node* node = nullptr;
  };
  /// What one node has sent, whole.
  struct Round {
    std::uint32_t node = 0;
    std::int64_t clock_offset_ns = 0;
    std::vector<WireFrame> frames;
    std::size_t bytes = 0;
    std::int64_t lost_ns = 0;  ///< not 0: it has sent nothing, but is gone since then,
    std::int32_t lost = 0;     ///< or this process of it
    bool forgotten = false;    ///< its copies go
  };

  void accept_all(int listener, std::int64_t now_ns);
  void watch_doors();
  void hear(int fd, std::int64_t now_ns);
  bool take(Connection& connection, const WireFrame& frame, std::int64_t now_ns);
  bool take_of_stranger(Connection& connection, const WireFrame& frame, std::int64_t now_ns);
  bool take_beat(Node& node, std::string_view body);
  void warn(std::string text) { notices_.push_back({LogLevel::Warning, std::move(text)}); }
  void hear_again(Node& node);
  void refuse(const Connection& connection, const std::string& why);
  void drop(int fd, std::int64_t now_ns);
  void tick(std::int64_t now_ns);
  void lose(Node& node, std::int64_t now_ns);
  void schedule(std::int64_t now_ns);
  void hand_over(Node& node);
  void want_look();
  void ring() const;
  void ask(Node& node, const Fetch& fetch, std::int64_t now_ns);
  void send_now(int fd);
  enum class Whom { All, Leaving };
  void fetch(Whom whom, std::uint32_t stack_request, std::int64_t patience_ns);
  bool show();
  bool is_crowd() const { return nodes_.size() > most_copied_; }
  std::vector<Node*> chosen(Whom whom, std::int64_t now_ns);
  bool is_heard(const Node& node, std::int64_t now_ns) const;

  const RunDirectory& run_;
  Board& board_;
  Token token_;
  std::string name_;
  std::size_t most_copied_;
  std::vector<FileDescriptor> listeners_;
  FileDescriptor epoll_;
  FileDescriptor bell_;

  mutable std::mutex mutex_;  ///< for all that follows, up to copies_
  std::condition_variable changed_;
  std::map<int, Connection> connections_;
  std::size_t strangers_ = 0;  ///< of those, without a node
  bool doors_open_ = true;
  std::map<std::uint64_t, Node> nodes_;
  std::vector<Round> rounds_;
  std::size_t queued_ = 0;
  std::vector<Notice> notices_;
  bool refused_ = false;
  bool crowded_ = false;  ///< it was said that there are more nodes than are looked at together
  bool wanted_ = false;
  std::int64_t ticked_ns_ = 0;
  std::int64_t pinged_ns_ = 0;
  /// When to look because somebody stands still.
  std::int64_t usual_ns_ = 0;  ///< the longest that somebody stood who then went on
  std::int64_t usual_since_ns_ = 0;
  std::int64_t looked_at_ns_ = 0;  ///< how long the longest had stood at the last look for that
  std::int64_t warn_after_ns_ = 0, timeout_ns_ = 0;
  struct Marks {
    struct First {
      std::uint32_t chain = 0;
      Node* node = nullptr;
    };
    std::map<std::uint32_t, First> chains;  ///< by sequence: whoever came first
    bool differ = false;
  };
  std::map<std::uint32_t, Marks> marks_;

  std::map<std::uint32_t, RecordCopies> copies_;  ///< of the judging thread alone
};

}  // namespace accel
