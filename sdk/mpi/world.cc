#include "sdk/mpi/world.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "sdk/mpi/fail.h"

namespace lockstep::mpi {
namespace {

using std::chrono::steady_clock;

// Rank 0 makes it, and the store has it: a stranger who cannot reach the store
// cannot join a group.
int32_t ShareKey(Store* store, int rank, Deadline deadline, std::string* key,
                 lockstep_error* error) {
  constexpr char kName[] = "key";
  if (rank != 0) return store->Get(kName, deadline, key, error);
  std::array<char, 32> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) !=
      static_cast<ssize_t>(bytes.size())) {
    return FailErrno(error, errno, "a random key");
  }
  key->assign(bytes.data(), bytes.size());
  return store->Put(kName, *key, error);
}

}  // namespace

World& World::Get() {
  static World& world = *new World;
  return world;
}

void World::Init() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(initialized_, true)) return;
  ReadPlace(&place_, &error_);
}

void World::Finalize() {
  std::set<Communicator*> kept;
  {
    const std::lock_guard lock(mutex_);
    finalized_ = true;
    kept = kept_;
  }
  for (Communicator* communicator : kept) communicator->Close();
  // A split that still waits for other ranks ends with the process.
  const std::unique_lock lock(splitting_, std::try_to_lock);
  if (lock && all_ != nullptr) all_->Close();
}

bool World::initialized() {
  const std::lock_guard lock(mutex_);
  return initialized_;
}

bool World::finalized() {
  const std::lock_guard lock(mutex_);
  return finalized_;
}

int World::rank() {
  const std::lock_guard lock(mutex_);
  return place_.rank;
}

int World::size() {
  const std::lock_guard lock(mutex_);
  return std::max(place_.size, 1);
}

std::unique_ptr<Communicator> World::Split(int color, int key) {
  const std::lock_guard lock(splitting_);
  lockstep_error error = error_;
  std::unique_ptr<Communicator> made;
  if (finalized()) {
    Fail(&error, LOCKSTEP_FAILED_PRECONDITION, "MPI_Finalize was called");
  } else if (error.code == LOCKSTEP_OK && Reach(&error) == LOCKSTEP_OK) {
    FormPart({color, key}, &made, &error);
  }
  if (error.code == LOCKSTEP_OK) return made;
  // The ranks no longer agree on the number of splits.
  if (error_.code == LOCKSTEP_OK) error_ = error;
  return std::make_unique<Communicator>(error);
}

Communicator* World::Keep(std::unique_ptr<Communicator> communicator) {
  const std::lock_guard lock(mutex_);
  kept_.insert(communicator.get());
  return communicator.release();
}

void World::Free(Communicator* communicator) {
  {
    const std::lock_guard lock(mutex_);
    kept_.erase(communicator);
  }
  delete communicator;
}

int32_t World::Reach(lockstep_error* error) {
  if (all_ != nullptr) return LOCKSTEP_OK;
  const Deadline deadline = steady_clock::now() + kFormingTimeout;
  int32_t code = place_.rank == 0
                     ? ServeStore(place_, &store_, error)
                     : ReachStore(place_, deadline, &store_, error);
  if (code == LOCKSTEP_OK) {
    code = ShareKey(store_.get(), place_.rank, deadline, &key_, error);
  }
  if (code != LOCKSTEP_OK) return code;
  return Communicator::Form({.label = "MPI_COMM_WORLD",
                             .rank = place_.rank,
                             .size = place_.size,
                             .prefix = "world/",
                             .key = key_,
                             .bind_address = place_.bind_address,
                             .store = store_.get()},
                            &all_, error);
}

int32_t World::Gather(Member own, std::vector<Member>* members,
                      lockstep_error* error) {
  members->resize(static_cast<size_t>(place_.size));
  lockstep_span input{&own, sizeof(own) / sizeof(int64_t)};
  lockstep_span output{members->data(), members->size() * input.count};
  lockstep_operation operation{};
  operation.size = sizeof(operation);
  operation.collective = LOCKSTEP_ALL_GATHER;
  operation.type = LOCKSTEP_INT64;
  operation.input = &input;
  operation.input_spans = 1;
  operation.output = &output;
  operation.output_spans = 1;
  return all_->Run(operation, error);
}

int32_t World::FormPart(Member own, std::unique_ptr<Communicator>* made,
                        lockstep_error* error) {
  const uint64_t split = splits_++;
  std::vector<Member> members;
  if (const int32_t code = Gather(own, &members, error)) return code;
  if (own.color < 0) return LOCKSTEP_OK;
  std::vector<int64_t> keys;
  for (const Member& member : members) {
    if (member.color == own.color) keys.push_back(member.key);
  }
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == static_cast<int64_t>(i)) continue;
    return Fail(error, LOCKSTEP_INVALID_ARGUMENT,
                "the processes with device %lld form no group: one that is "
                "number %zu is missing. Each process must have one CPU device, "
                "and each must make the same groups in the same order",
                static_cast<long long>(own.color), i);
  }
  const std::string name =
      std::to_string(split) + "." + std::to_string(own.color);
  return Communicator::Form({.label = "MPI communicator " + name,
                             .rank = static_cast<int>(own.key),
                             .size = static_cast<int>(keys.size()),
                             .prefix = "split/" + name + "/",
                             .key = key_,
                             .bind_address = place_.bind_address,
                             .store = store_.get()},
                            made, error);
}

}  // namespace lockstep::mpi
