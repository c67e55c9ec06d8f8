// How the ranks of a communicator reach each other: Gloo connections between all of them, brought together by
// a root thread in the process that made the ncclUniqueId.
#pragma once
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <nccl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace standin {

using Bytes = std::vector<char>;

/// Everybody's data by rank; empty where it was given up.
using Exchange = std::function<std::vector<Bytes>(const Bytes& own)>;

/// Starts the root thread that `id` leads to. As NCCL's, it answers nobody when two ranks contradict each
/// other.
bool start_root(ncclUniqueId& id);
/// Meets the other ranks at the root; waits for ever if one is missing, until `aborted`.
std::vector<Bytes> meet(const ncclUniqueId& id, int rank, int size, const Bytes& own,
                        const std::atomic<bool>& aborted);

class Mesh {
 public:
  Mesh(int rank, int size, const Exchange& exchange);

  /// A message from one rank to another; both wait for each other. `slot`: the same on both sides, used once.
  /// False: aborted. A peer that is gone is waited for in vain, as on a GPU.
  bool send(int peer, std::uint64_t slot, const void* data, std::size_t bytes);
  bool receive(int peer, std::uint64_t slot, void* data, std::size_t bytes);
  bool send(int peer, std::uint64_t slot, const Bytes& data);
  bool receive(int peer, std::uint64_t slot, Bytes& data);

  void abort();
  bool aborted() const { return aborted_.load(); }
  /// Waits for ever, as a kernel whose peer never comes.
  bool hang();

 private:
  bool move(int peer, std::uint64_t slot, void* data, std::size_t bytes, bool out);

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::mutex mutex_;
  std::set<gloo::transport::UnboundBuffer*> waiting_;
  std::atomic<bool> aborted_{false};
};

}  // namespace standin
