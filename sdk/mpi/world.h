// MPI_COMM_WORLD: all ranks of the job.
#ifndef LOCKSTEP_SDK_MPI_WORLD_H_
#define LOCKSTEP_SDK_MPI_WORLD_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"
#include "sdk/mpi/communicator.h"
#include "sdk/mpi/place.h"
#include "sdk/mpi/store.h"

namespace lockstep::mpi {

// Thread-safe. One for each process; it lives as long as the process.
class World {
 public:
  static World& Get();

  // Reads the environment. What is wrong with it fails the first split.
  void Init();
  void Finalize();
  bool initialized();
  bool finalized();
  int rank();
  int size();

  // MPI_Comm_split: all ranks of the job call it, in one order, and those of
  // one color form a communicator in the order of their keys, which must be 0,
  // 1, 2
  // ... Null for a color below 0. Never fails: where it cannot form, the
  // communicator's operations say why.
  std::unique_ptr<Communicator> Split(int color, int key);
  // What Split returned belongs to the caller as this handle.
  Communicator* Keep(std::unique_ptr<Communicator> communicator);
  void Free(Communicator* communicator);

 private:
  struct Member {
    int64_t color = 0;
    int64_t key = 0;
  };

  int32_t Reach(lockstep_error* error);
  int32_t Gather(Member own, std::vector<Member>* members,
                 lockstep_error* error);
  int32_t FormPart(Member own, std::unique_ptr<Communicator>* made,
                   lockstep_error* error);

  std::mutex mutex_;
  // One split at a time: held while the ranks meet.
  std::mutex splitting_;
  bool initialized_ = false;
  bool finalized_ = false;
  lockstep_error error_{};
  Place place_;
  std::string key_;
  uint64_t splits_ = 0;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Communicator> all_;
  std::set<Communicator*> kept_;
};

}  // namespace lockstep::mpi

#endif  // LOCKSTEP_SDK_MPI_WORLD_H_
