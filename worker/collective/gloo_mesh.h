// A Gloo context with full mesh, made so that it can be cut at any moment.
//
// Gloo alone leaves three holes, all of which end only at a timeout:
// - Closing its context does not wake a blocked collective.
// - A message that was half sent or half received when its connection died
//   is forgotten: whoever waits for it is not told.
// - A survivor that talks to no dead rank learns nothing.
// So every buffer that Gloo's collectives ask for is a TrackedBuffer, whose
// waits can be interrupted, and a watch thread sees a peer close its
// connection (POLLRDHUP). A rank whose mesh is destroyed after all went well
// says goodbye first: then only the waits for that rank end, for others may
// still be busy with each other in the last operation. Without a goodbye the
// rank died or was cut, and all waits end. Cut() ends our own waits and calls
// shutdown(2) on every connection, so that all peers see it at once.
//
// The connections are found among the descriptors of the process by their
// addresses, which are unique to each, and held by dup(2): a shutdown of our
// duplicate can never hit a stranger's descriptor, whatever Gloo closed.
//
// This, gloo_buffer, gloo_ticker and gloo_communicator.cc are the only files
// that include gloo/.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_GLOO_MESH_H_
#define LOCKSTEP_WORKER_COLLECTIVE_GLOO_MESH_H_

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/gloo_ticker.h"

namespace lockstep {

class TrackedBuffer;

// Which waits can still end well. Shared by the buffers, the progress thread,
// the watch thread and whoever aborts; safe from any thread.
class PeerStates {
 public:
  explicit PeerStates(int size) : gone_(size, false) {}

  void Add(TrackedBuffer* buffer);
  void Remove(TrackedBuffer* buffer);

  // `rank` has said goodbye and Gloo has read all it had sent: waits for it
  // end, well if they can.
  void SetGone(int rank);
  bool IsGone(int rank);
  // `rank` closed its connection without a goodbye: all waits end. The first
  // such rank stays.
  void SetLost(int rank);
  // That rank, or -1.
  int lost() const { return lost_.load(); }
  // Ends all waits. Returns false when that was done before.
  bool SetCut();
  bool IsCut() const { return cut_.load(); }

  // End of the operation that runs. Set by the progress thread.
  void set_deadline(MonoTime deadline) { deadline_ = deadline; }
  MonoTime deadline() const { return deadline_; }

  // The peer that the progress thread waits for, or -1.
  std::atomic<int> waiting_for{-1};
  // The peer whose connection failed in the operation that runs, or -1.
  // Progress thread only.
  int failed = -1;

  Mutex* mu() ABSL_LOCK_RETURNED(mu_) { return &mu_; }

 private:
  Mutex mu_;
  std::set<TrackedBuffer*> buffers_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> gone_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> cut_{false};
  std::atomic<int> lost_{-1};
  MonoTime deadline_;
};

// One generation's mesh. Built by Form, destroyed when no operation runs.
// Operations use the gloo::Context on one thread; Cut is for any thread.
class GlooMesh final : public gloo::Context {
 public:
  // Throws nothing. Errors as FormCommunicator.
  static StatusOr<std::shared_ptr<GlooMesh>> Form(
      const CommunicatorOptions& options);

  GlooMesh(int rank, int size);
  ~GlooMesh() override;

  PeerStates* peers() { return &peers_; }
  void Cut();

 private:
  Status Connect(const CommunicatorOptions& options);
  Status ConnectPairs(const std::vector<std::vector<char>>& theirs);
  StatusOr<std::vector<std::vector<char>>> ExchangeAddresses(
      const CommunicatorOptions& options);
  // Fills connections_; `theirs` are the addresses that we connected to.
  Status FindConnections(const std::vector<std::vector<char>>& ours,
                         const std::vector<std::vector<char>>& theirs);
  void Watch();
  void SayGoodbye();

  PeerStates peers_;
  // By rank; ours is empty. Constant once the watch thread runs.
  std::vector<Fd> connections_;
  // A receive from each peer of its goodbye: it fails when Gloo has seen the
  // end of that connection without one.
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> sentinels_;
  std::shared_ptr<gloo::transport::Context> inner_;
  Fd stop_;  // eventfd
  std::thread watch_;
  std::unique_ptr<GlooTicker> ticker_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_GLOO_MESH_H_
