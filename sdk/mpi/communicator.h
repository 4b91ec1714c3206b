// A communicator of MPI: a group of lockstep, and the messages under way in it.
#ifndef LOCKSTEP_SDK_MPI_COMMUNICATOR_H_
#define LOCKSTEP_SDK_MPI_COMMUNICATOR_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "lockstep/lockstep.h"
#include "sdk/mpi/store.h"

namespace lockstep::mpi {

constexpr auto kFormingTimeout = std::chrono::minutes(10);
constexpr auto kOperationTimeout = std::chrono::minutes(30);

class Communicator;

// A message under way. Freed by Communicator::Wait.
struct Request {
  Communicator* communicator = nullptr;
  lockstep_work* work = nullptr;
};

struct CommunicatorOptions {
  // In errors.
  std::string label;
  int rank = 0;
  int size = 1;
  // The same on all of its ranks, and different from all other communicators'.
  std::string prefix;
  // A secret of all ranks.
  std::string key;
  std::string bind_address;
  Store* store = nullptr;
};

// Thread-safe. Functions return a code; `error` gets the sentence.
class Communicator {
 public:
  // Waits until all of its ranks have come.
  static int32_t Form(const CommunicatorOptions& options,
                      std::unique_ptr<Communicator>* formed,
                      lockstep_error* error);
  // Every operation fails with `why`: JAX does not ask whether its communicator
  // was made.
  explicit Communicator(const lockstep_error& why);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // A collective, to its end.
  int32_t Run(const lockstep_operation& operation, lockstep_error* error);
  // A send or a receive.
  int32_t Start(const lockstep_operation& operation, Request** request,
                lockstep_error* error);
  // Frees the request. After an error of any message all others have ended,
  // because JAX then waits for none of them and frees their memory.
  int32_t Wait(Request* request, lockstep_error* error);
  // Ends what is under way here; later operations fail.
  void Close();

 private:
  class PrefixedStore;

  Communicator(int rank, int size);
  bool Enter(lockstep_error* error);
  void Leave();
  void AbortMessages(const lockstep_error& error);

  const int rank_;
  const int size_;
  std::unique_ptr<PrefixedStore> store_;
  lockstep_group* group_ = nullptr;
  std::mutex mutex_;
  std::condition_variable left_;
  int running_ = 0;
  bool closed_ = false;
  lockstep_error why_closed_{};
  std::set<Request*> requests_;
};

}  // namespace lockstep::mpi

#endif  // LOCKSTEP_SDK_MPI_COMMUNICATOR_H_
